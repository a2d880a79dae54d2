"""A GRU over a batch of texts, and its gradient.

A small network's weights stay on a multiprocessor, which processes whole texts. A larger network takes one kernel per
step: a matrix product followed by the cell's arithmetic. All that does not depend on the previous step (the inputs'
share of the gates, the gradients of weights and inputs) is one matrix product for all steps.

The layout is time-major, [T, B, ...]. States have an additional position at either end, [T + 2, B, D·h], for the
initial state of each direction, so that the previous states of all steps are a view.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from revup.ops.precision import ALIGNED, exact_product, sum_of_rows

WALKED = 128  # maximum number of hidden units for which a program holds all weights
WALK = {"ROWS": 16, "num_warps": 8}  # ROWS: texts per program


def gru(x: Tensor, state: Tensor | None, weights: Sequence[Sequence[Tensor]], both: bool, kind: torch.dtype) -> Tensor:
    """x [B, T, d], state [layers·D, B, h] (None: 0) → the last layer's states [B, T, D·h], of dtype `kind`.

    weights: `torch.nn.GRU.all_weights`; both: bidirectional, D = 2.
    """
    flat = [tensor for part in weights for tensor in part]
    states: Tensor = _Gru.apply(x, state, kind, 1 + both, *flat)  # type: ignore[no-untyped-call]
    return states


def step_shape(texts: int) -> dict[str, int]:
    """Texts, units and depth of a program's matrix product, for the step kernel of a larger network."""
    large = {"ROWS": 128, "UNITS": 64} if texts > 512 else {"ROWS": 64, "UNITS": 32}
    return {**large, "DEPTH": 64, "num_warps": large["ROWS"] // 16, "num_stages": 4}


def step_back_shape(texts: int) -> dict[str, int]:
    return {"ROWS": 64, "UNITS": 64 if texts > 512 else 32, "DEPTH": 64, "num_warps": 4, "num_stages": 4}


class _Gru(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, state: Tensor | None, kind: torch.dtype, directions: int, *weights: Tensor
    ) -> Tensor:
        texts, length, width = x.shape
        more = -width % ALIGNED
        read = (torch.zeros if more else torch.empty)(length, texts, width + more, dtype=kind, device=x.device)
        read[..., :width].copy_(x.transpose(0, 1))
        read = read.flatten(0, 1)
        layers = _layers(weights, directions, kind, read.shape[1])
        starts = None if state is None else state.contiguous().view(len(layers), directions, texts, -1)
        kept: list[Tensor] = []
        with torch.autocast(x.device.type, enabled=False):
            for number, layer in enumerate(layers):
                start = None if starts is None else starts[number]
                states, gates = _read(read, start, layer, texts, directions)
                kept += [read, states, gates, *layer[:2]]
                read = states[1:-1].flatten(0, 1)
        ctx.save_for_backward(*kept)
        ctx.inputs, ctx.directions = width, directions
        return read.view(length, texts, -1).transpose(0, 1)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        kept, directions = ctx.saved_tensors, ctx.directions
        needs_x, needs_state, _, _, *needs_weights = ctx.needs_input_grad
        d = upstream[0].transpose(0, 1).to(kept[0].dtype).contiguous()
        length, texts, _ = d.shape
        d_starts: list[Tensor] = []
        d_weights: list[Tensor | None] = []
        for first in range(len(kept) - 5, -1, -5):
            read, states, gates, from_input, from_state = kept[first : first + 5]
            d_gates, d_start = _read_back(d, states, gates, from_state, directions, needs_state)
            d_starts = [*d_start, *d_starts]
            if any(needs_weights):
                inputs = read.shape[1] if first else ctx.inputs
                d_weights = [*_weight_gradients(d_gates, read, states, inputs), *d_weights]
            if first or needs_x:
                d = d_gates[:, 0].flatten(1) @ from_input
        d_x = d.view(length, texts, -1)[..., : ctx.inputs].transpose(0, 1) if needs_x else None
        d_state = torch.stack(d_starts) if needs_state else None
        return d_x, d_state, None, None, *(d_weights or [None] * len(needs_weights))


def _layers(weights: tuple[Tensor, ...], directions: int, kind: torch.dtype, width: int) -> list[list[Tensor]]:
    """Weights and biases of input and state for each layer, [D·3h, d], [D·3h, h], [D·3h] and [D·3h], of dtype `kind`.

    Those of the first layer's input are padded to the width of the input.
    """
    places: list[Tensor] = []
    layers: list[list[Tensor]] = []
    per_layer = 4 * directions
    for first in range(0, len(weights), per_layer):
        mine = weights[first : first + 4]
        room = torch.empty(sum(map(Tensor.numel, mine)) * directions, dtype=kind, device=mine[0].device)
        parts = room.split([tensor.numel() * directions for tensor in mine])
        layer = [part.view(-1, *tensor.shape[1:]) for part, tensor in zip(parts, mine, strict=True)]
        layers.append(layer)
        places += [place for pair in zip(*(part.chunk(directions) for part in layer), strict=True) for place in pair]
    torch._foreach_copy_(places, list(weights))
    layers[0][0] = F.pad(layers[0][0], (0, width - layers[0][0].shape[1]))
    return layers


def _read(
    read: Tensor, start: Tensor | None, layer: list[Tensor], texts: int, directions: int
) -> tuple[Tensor, Tensor]:
    """Forward pass of a layer.

    read [T·B, d], start [D, B, h] → states [T + 2, B, D·h], and the gates r, z, n and the state's share of n,
    [T·B, D, 4, h].
    """
    from_input, from_state, input_bias, state_bias = layer
    length, size = len(read) // texts, from_state.shape[1]
    shares = torch.addmm(input_bias, read, from_input.t())
    states = read.new_empty(length + 2, texts, directions * size)
    gates = read.new_empty(length * texts, directions, 4, size)
    given = shares, from_state, state_bias, states, gates
    shape = {"LENGTH": length, "SIZE": size, "DIRECTIONS": directions}
    kernel: Any
    if size <= WALKED:
        kernel = _walk
        block = max(16, triton.next_power_of_2(size))
        kernel[(triton.cdiv(texts, WALK["ROWS"]), directions)](*given, start, texts, **shape, BLOCK=block, **WALK)
        return states, gates
    for direction, place in enumerate((states[0, :, :size], states[-1, :, size:])[:directions]):
        place.zero_() if start is None else place.copy_(start[direction])
    kernel = _step
    exact = torch.zeros(texts, directions * size, device=read.device)  # current states in float32
    if start is not None:
        exact.view(texts, directions, size).copy_(start.transpose(0, 1))
    shape |= step_shape(texts)
    grid = triton.cdiv(texts, shape["ROWS"]), triton.cdiv(size, shape["UNITS"]), directions
    for step in range(length):
        kernel[grid](*given, exact, step, texts, **shape)
    return states, gates


def _read_back(
    d: Tensor, states: Tensor, gates: Tensor, from_state: Tensor, directions: int, needs_start: bool
) -> tuple[Tensor, list[Tensor]]:
    """Backward pass of a layer.

    d [T·B, D·h], the gradient of the states → the gradients of the inputs' and the states' shares of the gates,
    [T·B, 2, D, 3h]; and those of the initial states of the directions, [B, h] each.
    """
    length, texts, size = len(states) - 2, states.shape[1], states.shape[2] // directions
    d_gates = d.new_empty(length * texts, 2, directions, 3 * size)
    walks = size <= WALKED
    d_start = (torch.empty if walks else torch.zeros)(directions, texts, size, dtype=torch.float32, device=d.device)
    given = d, states, gates, from_state, d_gates, d_start
    shape = {"LENGTH": length, "SIZE": size, "DIRECTIONS": directions}
    kernel: Any
    if walks:
        kernel = _walk_back
        block = max(16, triton.next_power_of_2(size))
        kernel[(triton.cdiv(texts, WALK["ROWS"]), directions)](*given, texts, **shape, BLOCK=block, **WALK)
        return d_gates, list(d_start)
    kernel = _step_back
    shape |= step_back_shape(texts)
    grid = triton.cdiv(texts, shape["ROWS"]), triton.cdiv(size, shape["UNITS"]), directions
    for step in range(length):
        kernel[grid](*given, step, texts, **shape)
    if needs_start:
        firsts = d_gates[:texts, 1, 0], d_gates[-texts:, 1, -1]
        for direction, (first, w) in enumerate(zip(firsts, from_state.chunk(directions), strict=False)):
            d_start[direction] += first @ w
    return d_gates, list(d_start)


def _weight_gradients(d_gates: Tensor, read: Tensor, states: Tensor, inputs: int) -> list[Tensor]:
    """The gradients of a layer's weights, in the order of `torch.nn.GRU`, in float32."""
    _, _, directions, gates = d_gates.shape
    places, texts, width = states.shape
    size = width // directions
    from_input = exact_product(d_gates[:, 0].flatten(1).t(), read)[:, :inputs].split(gates)
    # previous states of each direction: all but the last two positions, or all but the first two
    before = states.as_strided((directions, (places - 2) * texts, size), (2 * texts * width + size, width, 1))
    from_state = exact_product(d_gates[:, 1].permute(1, 2, 0), before)
    biases = sum_of_rows(d_gates.flatten(1)).view(2, directions, gates)
    return [
        tensor
        for direction in range(directions)
        for tensor in (from_input[direction], from_state[direction], *biases[:, direction])
    ]


# ---- the cell ------------------------------------------------------------------------------------------------------


@triton.jit
def _cell(x_r, x_z, x_n, h_r, h_z, h_n, h):  # type: ignore[no-untyped-def]
    r = tl.sigmoid(x_r + h_r)
    z = tl.sigmoid(x_z + h_z)
    n = 2.0 * tl.sigmoid(2.0 * (x_n + r * h_n)) - 1.0
    return r, z, n, n + z * (h - n)


@triton.jit
def _cell_back(d, r, z, n, h_n, h):  # type: ignore[no-untyped-def]
    """Gradients of the pre-activations of r, z and n, and of the state's share of n."""
    d_n = d * (1.0 - z) * (1.0 - n * n)
    return d_n * h_n * r * (1.0 - r), d * (h - n) * z * (1.0 - z), d_n, d_n * r


@triton.jit  # type: ignore[untyped-decorator]
def _weights(start, unit, k, SIZE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Load a block of weights [unit, k], transposed: [k, unit]."""
    there = (unit[None, :] < SIZE) & (k[:, None] < SIZE)
    return tl.load(start + unit[None, :] * SIZE + k[:, None], mask=there, other=0.0)


@triton.jit
def _load(start, there):  # type: ignore[no-untyped-def]
    return tl.load(start, mask=there, other=0.0).to(tl.float32)


@triton.jit
def _store(start, values, there):  # type: ignore[no-untyped-def]
    tl.store(start, values.to(start.dtype.element_ty), mask=there)


# ---- a small network: all steps in one kernel ----------------------------------------------------------------------


@triton.jit  # type: ignore[untyped-decorator]
def _walk(  # type: ignore[no-untyped-def]
    shares,
    weight,
    bias,
    states,
    gates,
    start,
    texts,
    LENGTH: tl.constexpr,
    SIZE: tl.constexpr,
    DIRECTIONS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """One program per block of texts and direction; it first stores the initial state."""
    row, unit = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    direction = tl.program_id(1).to(tl.int64)
    there = (row[:, None] < texts) & (unit[None, :] < SIZE)
    own = weight + direction * 3 * SIZE * SIZE
    k = tl.arange(0, BLOCK)
    w_r = _weights(own, unit, k, SIZE)
    w_z = _weights(own + SIZE * SIZE, unit, k, SIZE)
    w_n = _weights(own + 2 * SIZE * SIZE, unit, k, SIZE)
    of_bias = bias + direction * 3 * SIZE + unit
    b_r = _load(of_bias, unit < SIZE)[None, :]
    b_z = _load(of_bias + SIZE, unit < SIZE)[None, :]
    b_n = _load(of_bias + 2 * SIZE, unit < SIZE)[None, :]
    at = row[:, None] * DIRECTIONS + direction
    state = states + at * SIZE + unit[None, :]
    h = tl.zeros((ROWS, BLOCK), tl.float32)
    if start is not None:
        h = _load(start + (direction * texts + row[:, None]) * SIZE + unit[None, :], there)
    _store(state + direction * (LENGTH + 1) * texts * DIRECTIONS * SIZE, h, there)
    x = shares + (direction * (LENGTH - 1) * texts * DIRECTIONS + at) * 3 * SIZE + unit[None, :]
    x_r, x_z, x_n = _load(x, there), _load(x + SIZE, there), _load(x + 2 * SIZE, there)
    for step in range(LENGTH):
        t = (step + direction * (LENGTH - 1 - 2 * step)) * texts * DIRECTIONS
        further = there & (step + 1 < LENGTH)  # prefetch the next step's shares
        x += (1 - 2 * direction) * texts * DIRECTIONS * 3 * SIZE
        y_r, y_z, y_n = _load(x, further), _load(x + SIZE, further), _load(x + 2 * SIZE, further)
        read = h.to(weight.dtype.element_ty)
        h_n = tl.dot(read, w_n) + b_n
        r, z, n, h = _cell(x_r, x_z, x_n, tl.dot(read, w_r) + b_r, tl.dot(read, w_z) + b_z, h_n, h)
        _store(state + (t + texts * DIRECTIONS) * SIZE, h, there)
        kept = gates + (t + at) * 4 * SIZE + unit[None, :]
        _store(kept, r, there)
        _store(kept + SIZE, z, there)
        _store(kept + 2 * SIZE, n, there)
        _store(kept + 3 * SIZE, h_n, there)
        x_r, x_z, x_n = y_r, y_z, y_n


@triton.jit  # type: ignore[untyped-decorator]
def _walk_back(  # type: ignore[no-untyped-def]
    d_states,
    states,
    gates,
    weight,
    d_gates,
    d_start,
    texts,
    LENGTH: tl.constexpr,
    SIZE: tl.constexpr,
    DIRECTIONS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """The backward pass of `_walk`, with the same blocks, from the last step to the first."""
    row, unit = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    direction = tl.program_id(1).to(tl.int64)
    there = (row[:, None] < texts) & (unit[None, :] < SIZE)
    k = tl.arange(0, BLOCK)
    square = (k[:, None] < SIZE) & (unit[None, :] < SIZE)
    own = weight + direction * 3 * SIZE * SIZE + k[:, None] * SIZE + unit[None, :]
    w_r = tl.load(own, mask=square, other=0.0)
    w_z = tl.load(own + SIZE * SIZE, mask=square, other=0.0)
    w_n = tl.load(own + 2 * SIZE * SIZE, mask=square, other=0.0)
    at = row[:, None] * DIRECTIONS + direction
    before = states + at * SIZE + unit[None, :] + direction * 2 * texts * DIRECTIONS * SIZE
    carried = tl.zeros((ROWS, BLOCK), tl.float32)
    for step in range(LENGTH):
        t = (LENGTH - 1 - step + direction * (2 * step - LENGTH + 1)) * texts * DIRECTIONS
        d = carried + _load(d_states + (t + at) * SIZE + unit[None, :], there)
        kept = gates + (t + at) * 4 * SIZE + unit[None, :]
        z = _load(kept + SIZE, there)
        r, n, h_n = _load(kept, there), _load(kept + 2 * SIZE, there), _load(kept + 3 * SIZE, there)
        d_r, d_z, d_x, d_h = _cell_back(d, r, z, n, h_n, _load(before + t * SIZE, there))
        of_input = d_gates + (2 * (t + at) - direction) * 3 * SIZE + unit[None, :]
        of_state = of_input + DIRECTIONS * 3 * SIZE
        _store(of_input, d_r, there)
        _store(of_input + SIZE, d_z, there)
        _store(of_input + 2 * SIZE, d_x, there)
        _store(of_state, d_r, there)
        _store(of_state + SIZE, d_z, there)
        _store(of_state + 2 * SIZE, d_h, there)
        carried = d * z
        carried = tl.dot(d_r.to(weight.dtype.element_ty), w_r, carried)
        carried = tl.dot(d_z.to(weight.dtype.element_ty), w_z, carried)
        carried = tl.dot(d_h.to(weight.dtype.element_ty), w_n, carried)
    start = d_start + (direction * texts + row[:, None]) * SIZE + unit[None, :]
    tl.store(start, carried, mask=there)


# ---- a larger network: a kernel a step -----------------------------------------------------------------------------


@triton.jit(do_not_specialize=["step"])  # type: ignore[untyped-decorator]
def _step(  # type: ignore[no-untyped-def]
    shares,
    weight,
    bias,
    states,
    gates,
    exact,
    step,
    texts,
    LENGTH: tl.constexpr,
    SIZE: tl.constexpr,
    DIRECTIONS: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """One program per block of texts, block of hidden units and direction."""
    row, direction = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(2).to(tl.int64)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    there = (row[:, None] < texts) & (unit[None, :] < SIZE)
    t = (step + direction * (LENGTH - 1 - 2 * step)) * texts * DIRECTIONS
    at = row[:, None] * DIRECTIONS + direction
    before = states + (t + direction * 2 * texts * DIRECTIONS + at) * SIZE
    own = weight + direction * 3 * SIZE * SIZE
    h_r = tl.zeros((ROWS, UNITS), tl.float32)
    h_z = tl.zeros((ROWS, UNITS), tl.float32)
    h_n = tl.zeros((ROWS, UNITS), tl.float32)
    for first in range(0, SIZE, DEPTH):
        k = first + tl.arange(0, DEPTH)
        read = tl.load(before + k[None, :], mask=(row[:, None] < texts) & (k[None, :] < SIZE), other=0.0)
        h_r = tl.dot(read, _weights(own, unit, k, SIZE), h_r)
        h_z = tl.dot(read, _weights(own + SIZE * SIZE, unit, k, SIZE), h_z)
        h_n = tl.dot(read, _weights(own + 2 * SIZE * SIZE, unit, k, SIZE), h_n)
    of_bias = bias + direction * 3 * SIZE + unit
    h_n += _load(of_bias + 2 * SIZE, unit < SIZE)[None, :]
    h_r += _load(of_bias, unit < SIZE)[None, :]
    h_z += _load(of_bias + SIZE, unit < SIZE)[None, :]
    x = shares + (t + at) * 3 * SIZE + unit[None, :]
    held = exact + at * SIZE + unit[None, :]
    x_r, x_z, x_n = _load(x, there), _load(x + SIZE, there), _load(x + 2 * SIZE, there)
    r, z, n, h = _cell(x_r, x_z, x_n, h_r, h_z, h_n, _load(held, there))
    _store(held, h, there)
    _store(states + (t + texts * DIRECTIONS + at) * SIZE + unit[None, :], h, there)
    kept = gates + (t + at) * 4 * SIZE + unit[None, :]
    _store(kept, r, there)
    _store(kept + SIZE, z, there)
    _store(kept + 2 * SIZE, n, there)
    _store(kept + 3 * SIZE, h_n, there)


@triton.jit(do_not_specialize=["step"])  # type: ignore[untyped-decorator]
def _step_back(  # type: ignore[no-untyped-def]
    d_states,
    states,
    gates,
    weight,
    d_gates,
    carried,
    step,
    texts,
    LENGTH: tl.constexpr,
    SIZE: tl.constexpr,
    DIRECTIONS: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """The backward pass of `_step`, with the same assignment of programs.

    carried [D, B, h]: the state's gradient from the next state without its share of the gates, which is added here.
    """
    row, direction = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.program_id(2).to(tl.int64)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    there = (row[:, None] < texts) & (unit[None, :] < SIZE)
    t = (LENGTH - 1 - step + direction * (2 * step - LENGTH + 1)) * texts * DIRECTIONS
    at = row[:, None] * DIRECTIONS + direction
    of_input = d_gates + (2 * (t + at) - direction) * 3 * SIZE
    of_state = of_input + DIRECTIONS * 3 * SIZE
    own = weight + direction * 3 * SIZE * SIZE
    held = carried + (direction * texts + row[:, None]) * SIZE + unit[None, :]
    d = tl.zeros((ROWS, UNITS), tl.float32)
    if step > 0:
        after = of_state + (1 - 2 * direction) * 2 * texts * DIRECTIONS * 3 * SIZE
        for first in range(0, 3 * SIZE, DEPTH):
            k = first + tl.arange(0, DEPTH)
            a = tl.load(after + k[None, :], mask=(row[:, None] < texts) & (k[None, :] < 3 * SIZE), other=0.0)
            within = (k[:, None] < 3 * SIZE) & (unit[None, :] < SIZE)
            w = tl.load(own + k[:, None] * SIZE + unit[None, :], mask=within, other=0.0)
            d = tl.dot(a, w, d)
    d += _load(held, there) + _load(d_states + (t + at) * SIZE + unit[None, :], there)
    kept = gates + (t + at) * 4 * SIZE + unit[None, :]
    z = _load(kept + SIZE, there)
    r, n, h_n = _load(kept, there), _load(kept + 2 * SIZE, there), _load(kept + 3 * SIZE, there)
    before = states + (t + direction * 2 * texts * DIRECTIONS + at) * SIZE + unit[None, :]
    d_r, d_z, d_x, d_h = _cell_back(d, r, z, n, h_n, _load(before, there))
    _store(held, d * z, there)
    _store(of_input + unit[None, :], d_r, there)
    _store(of_input + SIZE + unit[None, :], d_z, there)
    _store(of_input + 2 * SIZE + unit[None, :], d_x, there)
    _store(of_state + unit[None, :], d_r, there)
    _store(of_state + SIZE + unit[None, :], d_z, there)
    _store(of_state + 2 * SIZE + unit[None, :], d_h, there)

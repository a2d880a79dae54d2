"""A latent's steps: what its query sees, the Gaussian it draws from, the frame it draws. Each of them a dozen small
operations on a few numbers an event, so that launching them would take longer than their arithmetic."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from revup.models.kernels.frames import log_of, warps

# ---- one query looks at a memory -----------------------------------------------------------------------------------


def look_fused(
    asked: Tensor, memory: Tensor, mask: Tensor, query: Tensor, places: bool, kind: torch.dtype
) -> tuple[Tensor, Tensor]:
    """asked [B, d], memory [B, T, d], mask [B, T], query [B, q] → what is read, [context; memory; query] with the
    memory in between where `places`, of this kind; and the weights [B, T], which have no gradient."""
    memory = memory if memory.stride(-1) == 1 else memory.contiguous()
    found: tuple[Tensor, Tensor] = _Look.apply(  # type: ignore[no-untyped-call]
        asked.contiguous(), memory, mask.contiguous(), query.contiguous(), places, kind
    )
    return found


class _Look(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, asked: Tensor, memory: Tensor, mask: Tensor, query: Tensor, places: bool, kind: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        rows, count, size = memory.shape
        width = size * (1 + count * places) + query.shape[1]
        read = torch.empty(rows, width, dtype=kind, device=memory.device)
        weights = torch.empty(rows, count, dtype=torch.float32, device=memory.device)
        kernel: Any = _look
        kernel[(rows,)](asked, memory, mask, query, read, weights, *_strides(memory), **_shape(memory, query, places))
        ctx.save_for_backward(asked, memory, mask, query, weights)
        ctx.places = places
        ctx.mark_non_differentiable(weights)
        return read, weights

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        asked, memory, mask, query, weights = ctx.saved_tensors
        d_asked, d_query = torch.empty_like(asked), torch.empty_like(query)
        d_memory = torch.empty(memory.shape, dtype=memory.dtype, device=memory.device)
        kernel: Any = _look_gradient
        kernel[(len(memory),)](
            *(asked, memory, mask, weights, upstream[0].contiguous(), d_asked, d_memory, d_query),
            *_strides(memory),
            **_shape(memory, query, ctx.places),
        )
        return d_asked, d_memory, None, d_query, None, None


def _strides(memory: Tensor) -> tuple[int, int, float]:
    return memory.stride(0), memory.stride(1), memory.shape[-1] ** -0.5


def _shape(memory: Tensor, query: Tensor, places: bool) -> dict[str, int]:
    _, count, size = memory.shape
    block = triton.next_power_of_2(size)
    return {
        **{"SIZE": size, "COUNT": count, "QUERY": query.shape[1], "PLACES": places, "BLOCK": block},
        **{"COUNT_BLOCK": triton.next_power_of_2(count), "QUERY_BLOCK": triton.next_power_of_2(query.shape[1])},
        "num_warps": warps(block),
    }


@triton.jit  # type: ignore[untyped-decorator]
def _look(  # type: ignore[no-untyped-def]
    asked,
    memory,
    mask,
    query,
    read,
    weights,
    row_stride,
    place_stride,
    scale,
    SIZE: tl.constexpr,
    COUNT: tl.constexpr,
    QUERY: tl.constexpr,
    PLACES: tl.constexpr,
    BLOCK: tl.constexpr,
    COUNT_BLOCK: tl.constexpr,
    QUERY_BLOCK: tl.constexpr,
):
    """A document a program: scores place by place, their softmax, the context in a second reading."""
    row = tl.program_id(0).to(tl.int64)
    at, place, q = tl.arange(0, BLOCK), tl.arange(0, COUNT_BLOCK), tl.arange(0, QUERY_BLOCK)
    there = at < SIZE
    start = memory + row * row_stride
    a = tl.load(asked + row * SIZE + at, mask=there, other=0.0).to(tl.float32)
    scores = tl.full((COUNT_BLOCK,), -float("inf"), tl.float32)
    for t in range(COUNT):
        h = tl.load(start + t * place_stride + at, mask=there, other=0.0).to(tl.float32)
        score = tl.where(tl.load(mask + row * COUNT + t), tl.sum(a * h, 0) * scale, -1e9)
        scores = tl.where(place == t, score, scores)
    e = tl.exp(scores - tl.max(scores, 0))
    w = e / tl.sum(e, 0)
    tl.store(weights + row * COUNT + place, w, mask=place < COUNT)
    out = read + row * (SIZE * (1 + COUNT * PLACES) + QUERY)
    context = tl.zeros((BLOCK,), tl.float32)
    for t in range(COUNT):
        h = tl.load(start + t * place_stride + at, mask=there, other=0.0)
        context += tl.sum(tl.where(place == t, w, 0.0), 0) * h.to(tl.float32)
        if PLACES:
            tl.store(out + (1 + t) * SIZE + at, h.to(read.dtype.element_ty), mask=there)
    tl.store(out + at, context.to(read.dtype.element_ty), mask=there)
    asking = tl.load(query + row * QUERY + q, mask=q < QUERY, other=0.0)
    tl.store(out + SIZE * (1 + COUNT * PLACES) + q, asking.to(read.dtype.element_ty), mask=q < QUERY)


@triton.jit  # type: ignore[untyped-decorator]
def _look_gradient(  # type: ignore[no-untyped-def]
    asked,
    memory,
    mask,
    weights,
    upstream,
    d_asked,
    d_memory,
    d_query,
    row_stride,
    place_stride,
    scale,
    SIZE: tl.constexpr,
    COUNT: tl.constexpr,
    QUERY: tl.constexpr,
    PLACES: tl.constexpr,
    BLOCK: tl.constexpr,
    COUNT_BLOCK: tl.constexpr,
    QUERY_BLOCK: tl.constexpr,
):
    """With g the context's gradient: dw_t = g·h_t, ds = w(dw − w·dw), da = Σ ds_t h_t, dh_t = ds_t a + w_t g."""
    row = tl.program_id(0).to(tl.int64)
    at, place, q = tl.arange(0, BLOCK), tl.arange(0, COUNT_BLOCK), tl.arange(0, QUERY_BLOCK)
    there = at < SIZE
    start = memory + row * row_stride
    given = upstream + row * (SIZE * (1 + COUNT * PLACES) + QUERY)
    g = tl.load(given + at, mask=there, other=0.0).to(tl.float32)
    w = tl.load(weights + row * COUNT + place, mask=place < COUNT, other=0.0)
    seen = tl.load(mask + row * COUNT + place, mask=place < COUNT, other=0)
    dw = tl.zeros((COUNT_BLOCK,), tl.float32)
    for t in range(COUNT):
        h = tl.load(start + t * place_stride + at, mask=there, other=0.0).to(tl.float32)
        dw = tl.where(place == t, tl.sum(g * h, 0), dw)
    ds = tl.where(seen, w * (dw - tl.sum(w * dw, 0)) * scale, 0.0)
    a = tl.load(asked + row * SIZE + at, mask=there, other=0.0).to(tl.float32)
    da = tl.zeros((BLOCK,), tl.float32)
    for t in range(COUNT):
        h = tl.load(start + t * place_stride + at, mask=there, other=0.0).to(tl.float32)
        ds_t = tl.sum(tl.where(place == t, ds, 0.0), 0)
        da += ds_t * h
        dh = ds_t * a + tl.sum(tl.where(place == t, w, 0.0), 0) * g
        if PLACES:
            dh += tl.load(given + (1 + t) * SIZE + at, mask=there, other=0.0).to(tl.float32)
        tl.store(d_memory + (row * COUNT + t) * SIZE + at, dh.to(d_memory.dtype.element_ty), mask=there)
    tl.store(d_asked + row * SIZE + at, da.to(d_asked.dtype.element_ty), mask=there)
    asking = tl.load(given + SIZE * (1 + COUNT * PLACES) + q, mask=q < QUERY, other=0.0)
    tl.store(d_query + row * QUERY + q, asking.to(d_query.dtype.element_ty), mask=q < QUERY)


# ---- a Gaussian ----------------------------------------------------------------------------------------------------

AT_ONCE = 512  # numbers of a program


def gaussian_sample_fused(
    parameters: Tensor, noise: Tensor, limits: tuple[float, float], kind: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """parameters [B, 2d] → μ and log σ² within limits [B, d]; z = μ + σ·noise of this kind."""
    found: tuple[Tensor, Tensor, Tensor] = _Sample.apply(  # type: ignore[no-untyped-call]
        parameters.contiguous(), noise if noise.stride(-1) == 1 else noise.contiguous(), limits, kind
    )
    return found


class _Sample(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, parameters: Tensor, noise: Tensor, limits: tuple[float, float], kind: torch.dtype
    ) -> tuple[Tensor, ...]:
        mean = torch.empty(noise.shape, dtype=torch.float32, device=noise.device)
        log_variance, z = torch.empty_like(mean), torch.empty_like(mean, dtype=kind)
        kernel: Any = _sample
        kernel[_blocks(mean)](
            *(parameters, noise, mean, log_variance, z, noise.stride(0), mean.numel(), *limits),
            **{"SIZE": mean.shape[1], "BLOCK": AT_ONCE},
        )
        ctx.save_for_backward(parameters, noise)
        ctx.limits = limits
        return mean, log_variance, z

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        parameters, noise = ctx.saved_tensors
        d_parameters = torch.empty_like(parameters)
        kernel: Any = _sample_gradient
        kernel[_blocks(noise)](
            *(parameters, noise, *(part.contiguous() for part in upstream), d_parameters),
            *(noise.stride(0), noise.numel(), *ctx.limits),
            **{"SIZE": noise.shape[1], "BLOCK": AT_ONCE},
        )
        return d_parameters, None, None, None


def _blocks(numbers: Tensor) -> tuple[int]:
    return (triton.cdiv(numbers.numel(), AT_ONCE),)


@triton.jit  # type: ignore[untyped-decorator]
def _sample(  # type: ignore[no-untyped-def]
    parameters, noise, mean, log_variance, z, stride, total, low, high, SIZE: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < total
    row, column = (at // SIZE).to(tl.int64), at % SIZE
    m = tl.load(parameters + row * 2 * SIZE + column, mask=there, other=0.0).to(tl.float32)
    v = tl.load(parameters + row * 2 * SIZE + SIZE + column, mask=there, other=0.0).to(tl.float32)
    v = tl.minimum(tl.maximum(v, low), high)
    n = tl.load(noise + row * stride + column, mask=there, other=0.0)
    tl.store(mean + at, m, mask=there)
    tl.store(log_variance + at, v, mask=there)
    tl.store(z + at, (m + tl.exp(0.5 * v) * n).to(z.dtype.element_ty), mask=there)


@triton.jit  # type: ignore[untyped-decorator]
def _sample_gradient(  # type: ignore[no-untyped-def]
    parameters,
    noise,
    d_mean,
    d_log_variance,
    d_z,
    d_parameters,
    stride,
    total,
    low,
    high,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < total
    row, column = (at // SIZE).to(tl.int64), at % SIZE
    v = tl.load(parameters + row * 2 * SIZE + SIZE + column, mask=there, other=0.0).to(tl.float32)
    n = tl.load(noise + row * stride + column, mask=there, other=0.0)
    dz = tl.load(d_z + at, mask=there, other=0.0).to(tl.float32)
    dm = tl.load(d_mean + at, mask=there, other=0.0) + dz
    dv = tl.load(d_log_variance + at, mask=there, other=0.0) + dz * n * 0.5 * tl.exp(0.5 * v)
    dv = tl.where((v >= low) & (v <= high), dv, 0.0)
    tl.store(d_parameters + row * 2 * SIZE + column, dm.to(d_parameters.dtype.element_ty), mask=there)
    tl.store(d_parameters + row * 2 * SIZE + SIZE + column, dv.to(d_parameters.dtype.element_ty), mask=there)


# ---- a frame -------------------------------------------------------------------------------------------------------


def draw_fused(
    raw: Tensor,
    prior: Tensor | None,
    uniform: Tensor,
    empirical: Tensor | None,
    kept: Tensor | None,
    noise_rate: Tensor | None,
    temperature: float,
    hard: bool,
    kind: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Rows [B, K]: logits raw + prior, and a frame drawn of them, of this kind. Where `kept` [B] is false p_D is known:
    what is believed of it, or without a noise_rate a frame drawn of p_D itself, takes the place of the proposal."""
    rows = (uniform, prior, empirical)
    uniform, prior, empirical = (None if part is None else _rows(part) for part in rows)  # type: ignore[assignment]
    found: tuple[Tensor, Tensor] = _Draw.apply(  # type: ignore[no-untyped-call]
        raw.contiguous(), prior, uniform, empirical, kept, noise_rate, temperature, hard, kind
    )
    return found


def _rows(part: Tensor) -> Tensor:
    """Float32, each row in one piece."""
    part = part.float()
    return part if part.stride(-1) == 1 else part.contiguous()


class _Draw(torch.autograd.Function):
    """Nothing but the logits is kept: the draw is made again for its gradient."""

    @staticmethod
    def forward(ctx: Any, raw: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
        *tensors, temperature, hard, kind = given
        logits = torch.empty(raw.shape, dtype=torch.float32, device=raw.device)
        frames = torch.empty(raw.shape, dtype=kind, device=raw.device)
        ctx.settings = temperature, hard
        ctx.kind = raw.dtype
        _draw_rows(raw, *tensors, temperature, hard, logits, frames, None, None, None, None)
        ctx.save_for_backward(logits, *tensors[1:])
        return logits, frames

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        logits, *tensors = ctx.saved_tensors
        d_raw = torch.empty(logits.shape, dtype=ctx.kind, device=logits.device)
        d_prior = torch.empty_like(logits) if ctx.needs_input_grad[1] else None
        d_logits, d_frames = (part.contiguous() for part in upstream)
        _draw_rows(logits, None, *tensors, *ctx.settings, None, None, d_logits, d_frames, d_raw, d_prior)
        return d_raw, d_prior, *(None,) * 7


def _draw_rows(
    raw: Tensor,
    prior: Tensor | None,
    uniform: Tensor,
    empirical: Tensor | None,
    kept: Tensor | None,
    noise_rate: Tensor | None,
    temperature: float,
    hard: bool,
    *results: Tensor | None,
) -> None:
    classes = raw.shape[-1]
    block = triton.next_power_of_2(classes)
    strides = (0 if part is None else part.stride(0) for part in (prior, uniform, empirical, kept))
    kernel: Any = _draw
    kernel[(len(raw),)](
        *(raw, prior, uniform, empirical, kept, noise_rate, *results, *strides, 1.0 / temperature),
        **{"CLASSES": classes, "BLOCK": block, "PRIOR": prior is not None, "TOLD": empirical is not None},
        **{"NOISY": noise_rate is not None, "HARD": hard, "GRADIENT": results[2] is not None},
        **{"PRIOR_GRADIENT": results[5] is not None, "num_warps": warps(block)},
    )


@triton.jit  # type: ignore[untyped-decorator]
def _draw(  # type: ignore[no-untyped-def]
    raw,
    prior,
    uniform,
    empirical,
    kept,
    noise_rate,
    logits,
    frames,
    d_logits,
    d_frames,
    d_raw,
    d_prior,
    prior_stride,
    uniform_stride,
    empirical_stride,
    kept_stride,
    sharpness,
    CLASSES: tl.constexpr,
    BLOCK: tl.constexpr,
    PRIOR: tl.constexpr,
    TOLD: tl.constexpr,
    NOISY: tl.constexpr,
    HARD: tl.constexpr,
    GRADIENT: tl.constexpr,
    PRIOR_GRADIENT: tl.constexpr,
):
    """An event a program; the equations are those of revup.models.drawing."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    there = at < CLASSES
    x = tl.load(raw + row * CLASSES + at, mask=there, other=-float("inf")).to(tl.float32)
    if PRIOR:
        x += tl.load(prior + row * prior_stride + at, mask=there, other=0.0)
    if not GRADIENT:
        tl.store(logits + row * CLASSES + at, x, mask=there)
    u = tl.load(uniform + row * uniform_stride + at, mask=there, other=0.5)
    u = tl.minimum(tl.maximum(u, 1.1754944e-38), 0.99999994)
    noise = -tl.log(tl.maximum(-tl.log(u), 5.9e-8))
    learns = 1.0
    if TOLD:
        keep = tl.load(kept + row * kept_stride)
        p = tl.load(empirical + row * empirical_stride + at, mask=there, other=0.0)
        if NOISY:
            rate = tl.load(noise_rate)
            x += tl.where(keep, 0.0, log_of((1.0 - rate) * p + rate / CLASSES))
        else:
            learns = tl.where(keep, 1.0, 0.0)
    x = tl.where(there, (x + noise) * sharpness, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    soft = e / tl.sum(e, 0)
    if GRADIENT:
        g = tl.load(d_frames + row * CLASSES + at, mask=there, other=0.0).to(tl.float32)
        d = soft * (g - tl.sum(soft * g, 0)) * sharpness * learns
        d += tl.load(d_logits + row * CLASSES + at, mask=there, other=0.0)
        tl.store(d_raw + row * CLASSES + at, d.to(d_raw.dtype.element_ty), mask=there)
        if PRIOR_GRADIENT:
            tl.store(d_prior + row * CLASSES + at, d, mask=there)
    else:
        if HARD:
            soft = tl.where(at == tl.argmax(soft, 0), 1.0, 0.0)
        if TOLD and not NOISY:
            score = tl.where(there, log_of(p) + noise, -float("inf"))
            soft = tl.where(keep, soft, tl.where(at == tl.argmax(score, 0), 1.0, 0.0))
        tl.store(frames + row * CLASSES + at, soft.to(frames.dtype.element_ty), mask=there)

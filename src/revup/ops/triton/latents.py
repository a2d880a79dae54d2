"""Samples of the latents: the Gaussian z and the frame.

Each consists of a dozen small operations on a few elements per event, whose separate launches would take longer than
their arithmetic.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from revup.ops.operations import Knowledge
from revup.ops.precision import compute_dtype
from revup.ops.triton.attention import in_rows
from revup.ops.triton.frame_losses import log_of, warps

# ---- a Gaussian ----------------------------------------------------------------------------------------------------

AT_ONCE = 512  # elements per program


def gaussian_sample(
    parameters: Tensor, noise: Tensor, limits: tuple[float, float], kind: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """parameters [B, 2d] → μ, and log σ² clamped to the limits, [B, d]; z = μ + σ·noise of dtype `kind`."""
    found: tuple[Tensor, Tensor, Tensor] = _Sample.apply(  # type: ignore[no-untyped-call]
        parameters.contiguous(), in_rows(noise), limits, kind
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
        given = [in_rows(part) for part in upstream]
        kernel: Any = _sample_gradient
        kernel[_blocks(noise)](
            *(parameters, noise, *given, d_parameters),
            *(noise.stride(0), *(part.stride(0) for part in given), noise.numel(), *ctx.limits),
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
    mean_stride,
    log_variance_stride,
    z_stride,
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
    dz = tl.load(d_z + row * z_stride + column, mask=there, other=0.0).to(tl.float32)
    dm = tl.load(d_mean + row * mean_stride + column, mask=there, other=0.0) + dz
    dv = tl.load(d_log_variance + row * log_variance_stride + column, mask=there, other=0.0)
    dv += dz * n * 0.5 * tl.exp(0.5 * v)
    dv = tl.where((v >= low) & (v <= high), dv, 0.0)
    tl.store(d_parameters + row * 2 * SIZE + column, dm.to(d_parameters.dtype.element_ty), mask=there)
    tl.store(d_parameters + row * 2 * SIZE + SIZE + column, dv.to(d_parameters.dtype.element_ty), mask=there)


def gaussian_kl(mean: Tensor, log_variance: Tensor) -> Tensor:
    """`revup.bottleneck.gaussian_kl` of [..., d], in float32 → [...]."""
    divergence: Tensor = _GaussianKl.apply(mean.contiguous(), log_variance.contiguous())  # type: ignore[no-untyped-call]
    return divergence


class _GaussianKl(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mean: Tensor, log_variance: Tensor) -> Tensor:
        divergence = torch.empty(mean.shape[:-1], dtype=torch.float32, device=mean.device)
        ctx.save_for_backward(mean, log_variance)
        _gaussian(mean, log_variance, divergence, None, None, None)
        return divergence

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_variance = ctx.saved_tensors
        d_mean, d_log_variance = torch.empty_like(mean), torch.empty_like(log_variance)
        _gaussian(mean, log_variance, None, upstream[0].contiguous(), d_mean, d_log_variance)
        return d_mean, d_log_variance


def _gaussian(mean: Tensor, *rest: Tensor | None) -> None:
    size = mean.shape[-1]
    block = triton.next_power_of_2(size)
    shape = {"SIZE": size, "BLOCK": block, "GRADIENT": rest[1] is None, "num_warps": warps(block)}
    kernel: Any = _gaussian_kl
    kernel[(mean.numel() // size,)](mean, *rest, **shape)


@triton.jit  # type: ignore[untyped-decorator]
def _gaussian_kl(  # type: ignore[no-untyped-def]
    mean,
    log_variance,
    divergence,
    upstream,
    d_mean,
    d_log_variance,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    GRADIENT: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    at = row * SIZE + tl.arange(0, BLOCK)
    there = tl.arange(0, BLOCK) < SIZE
    m = tl.load(mean + at, mask=there, other=0.0)
    v = tl.load(log_variance + at, mask=there, other=0.0)
    if GRADIENT:
        g = tl.load(upstream + row)
        tl.store(d_mean + at, g * m, mask=there)
        tl.store(d_log_variance + at, g * 0.5 * (tl.exp(v) - 1.0), mask=there)
    else:
        tl.store(divergence + row, 0.5 * tl.sum(m * m + tl.exp(v) - 1.0 - v, 0))


# ---- a frame -------------------------------------------------------------------------------------------------------


def draw_frame(
    raw: Tensor,
    log_prior: Tensor | None,
    uniform: Tensor,
    temperature: float,
    hard: bool = False,
    knowledge: Knowledge | None = None,
    keep_uniform: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`ops.draw_frame` in one kernel; the frame has the dtype of matrix products."""
    prior = None if log_prior is None else _rows(log_prior)
    known: tuple[Tensor | None, ...] = (None,) * 5
    if knowledge is not None and keep_uniform is not None:
        empirical, observed, strength, belief = knowledge
        certain = None if belief is None else belief.float()
        known = _rows(empirical), observed.float(), strength.float(), keep_uniform.float(), certain
    given = raw.contiguous(), prior, _rows(uniform), *known, temperature, hard, compute_dtype(raw)
    found: tuple[Tensor, Tensor] = _Draw.apply(*given)  # type: ignore[no-untyped-call]
    return found


def _rows(part: Tensor) -> Tensor:
    """The tensor in float32 with contiguous rows."""
    return in_rows(part.float())


class _Draw(torch.autograd.Function):
    """Saves only the logits and recomputes the sample in the backward pass."""

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
        d_logits, d_frames = (in_rows(part) for part in upstream)
        _draw_rows(logits, None, *tensors, *ctx.settings, None, None, d_logits, d_frames, d_raw, d_prior)
        return d_raw, d_prior, *(None,) * 9


def _draw_rows(
    raw: Tensor,
    prior: Tensor | None,
    uniform: Tensor,
    empirical: Tensor | None,
    observed: Tensor | None,
    strength: Tensor | None,
    chance: Tensor | None,
    belief: Tensor | None,
    temperature: float,
    hard: bool,
    *results: Tensor | None,
) -> None:
    classes = raw.shape[-1]
    block = triton.next_power_of_2(classes)
    given = (prior, uniform, empirical, observed, strength, chance, belief)
    strides = (0 if part is None else part.stride(0) for part in (*given, *results[2:4]))
    kernel: Any = _draw
    kernel[(len(raw),)](
        *(raw, *given, *results, *strides, 1.0 / temperature),
        **{"CLASSES": classes, "BLOCK": block, "PRIOR": prior is not None, "TOLD": empirical is not None},
        **{"EVIDENCE": belief is not None, "HARD": hard, "GRADIENT": results[2] is not None},
        **{"PRIOR_GRADIENT": results[5] is not None, "num_warps": warps(block)},
    )


@triton.jit  # type: ignore[untyped-decorator]
def _draw(  # type: ignore[no-untyped-def]
    raw,
    prior,
    uniform,
    empirical,
    observed,
    strength,
    chance,
    belief,
    logits,
    frames,
    d_logits,
    d_frames,
    d_raw,
    d_prior,
    prior_stride,
    uniform_stride,
    empirical_stride,
    observed_stride,
    strength_stride,
    chance_stride,
    belief_stride,
    d_logits_stride,
    d_frames_stride,
    sharpness,
    CLASSES: tl.constexpr,
    BLOCK: tl.constexpr,
    PRIOR: tl.constexpr,
    TOLD: tl.constexpr,
    EVIDENCE: tl.constexpr,
    HARD: tl.constexpr,
    GRADIENT: tl.constexpr,
    PRIOR_GRADIENT: tl.constexpr,
):
    """One program per event; the equations are those of `ops.draw_frame`."""
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
        seen = tl.load(observed + row * observed_stride)
        pull = tl.where(seen == 0.0, 0.0, tl.load(strength + row * strength_stride) * seen)
        keep = tl.load(chance + row * chance_stride) < 1.0 / (1.0 + pull)
        p = tl.load(empirical + row * empirical_stride + at, mask=there, other=0.0)
        relaxed = keep  # drawn by Gumbel-softmax; else a one-hot sample of p_D
        if EVIDENCE:
            relaxed = keep | (tl.load(belief + row * belief_stride) == 0.0)
            x += tl.where(relaxed & (keep == 0), log_of(p), 0.0)
        learns = tl.where(relaxed, 1.0, 0.0)
    x = tl.where(there, (x + noise) * sharpness, -float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    soft = e / tl.sum(e, 0)
    if GRADIENT:
        g = tl.load(d_frames + row * d_frames_stride + at, mask=there, other=0.0).to(tl.float32)
        d = soft * (g - tl.sum(soft * g, 0)) * sharpness * learns
        d += tl.load(d_logits + row * d_logits_stride + at, mask=there, other=0.0)
        tl.store(d_raw + row * CLASSES + at, d.to(d_raw.dtype.element_ty), mask=there)
        if PRIOR_GRADIENT:
            tl.store(d_prior + row * CLASSES + at, d, mask=there)
    else:
        if HARD:
            soft = tl.where(at == tl.argmax(soft, 0), 1.0, 0.0)
        if TOLD:
            score = tl.where(there, log_of(p) + noise, -float("inf"))
            soft = tl.where(relaxed, soft, tl.where(at == tl.argmax(score, 0), 1.0, 0.0))
        tl.store(frames + row * CLASSES + at, soft.to(frames.dtype.element_ty), mask=there)

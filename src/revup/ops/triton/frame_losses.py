"""All losses on the distribution over frames in one pass over the logits, and their gradients in a second."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from revup.ops.operations import FrameLosses, Knowledge

FLOOR = tl.constexpr(-4.25e37)  # replaces log 0, as in revup.bottleneck: finite, with exp exactly 0
TINY = tl.constexpr(1.1754944e-38)
LOG_TINY = tl.constexpr(-87.33655)


def frame_losses(kind: str, logits: Tensor, log_prior: Tensor | None, knowledge: Knowledge) -> FrameLosses:
    """`ops.frame_losses` in one kernel."""
    empirical, observed, strength, belief = knowledge
    rows = [None if part is None else part.float().contiguous() for part in (logits, log_prior, empirical)]
    events = [part.float().expand(logits.shape[:-1]).contiguous() for part in (observed, strength)]
    certain = None if belief is None else belief.float().expand(logits.shape[:-1]).contiguous()
    learned, uniform, anchor = _Divergences.apply(*rows, *events, certain, kind)  # type: ignore[no-untyped-call]
    return FrameLosses(learned, uniform, None if log_prior is None else anchor)


class _Divergences(torch.autograd.Function):
    """The losses in one pass over the logits; their gradients in a second, by the same kernel."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, *given: Any) -> tuple[Tensor, ...]:
        values = [torch.empty(logits.shape[:-1], dtype=torch.float32, device=logits.device) for _ in range(3)]
        _launch(logits, given, values, None, None)
        ctx.save_for_backward(logits, *given[:-1])
        ctx.learned = given[-1]
        ctx.set_materialize_grads(False)  # None stands for a zero gradient
        return tuple(values)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        logits, *given = ctx.saved_tensors
        d_logits = torch.empty_like(logits)
        d_prior = None if given[0] is None else torch.empty_like(logits)
        _launch(logits, (*given, ctx.learned), upstream, d_logits, d_prior)
        return d_logits, d_prior, None, None, None, None, None


def _launch(logits: Tensor, given: Any, values: Any, d_logits: Tensor | None, d_prior: Tensor | None) -> None:
    """values: outputs for the losses, or with d_logits their upstream gradients."""
    log_prior, empirical, observed, strength, belief, learned = given
    classes = logits.shape[-1]
    rows, block = logits.numel() // classes, triton.next_power_of_2(classes)
    kernel: Any = _divergences
    kernel[(rows,)](
        *(logits, log_prior, empirical, observed, strength, belief),
        *(None if value is None else value.contiguous() for value in values),
        *(d_logits, d_prior),
        **{"CLASSES": classes, "LOG_CLASSES": math.log(classes), "BLOCK": block},
        **{"UPDATE": learned == "update", "EVIDENCE": belief is not None},
        **{"PRIOR": log_prior is not None, "GRADIENT": d_logits is not None, "num_warps": warps(block)},
    )


def warps(block: int) -> int:
    """The number of warps of a program that holds this many elements."""
    return 4 if block <= 1024 else 8 if block <= 2048 else 16


@triton.jit
def log_of(p):  # type: ignore[no-untyped-def]
    return tl.where(p >= TINY, tl.log(tl.maximum(p, TINY)), FLOOR)


@triton.jit
def _loaded(start, row):  # type: ignore[no-untyped-def]
    """The loaded value, or 0 if there is no tensor."""
    return 0.0 if start is None else tl.load(start + row)


@triton.jit
def _log_add(a, b):  # type: ignore[no-untyped-def]
    high = tl.maximum(a, b)
    return high + tl.log(1.0 + tl.exp(tl.minimum(a, b) - high))


@triton.jit
def _log_softmax(start, at, there):  # type: ignore[no-untyped-def]
    """Log-softmax and softmax of a row, both 0 beyond its end."""
    x = tl.load(start + at, mask=there, other=-float("inf")).to(tl.float32)
    x = x - tl.max(x, 0)
    e = tl.exp(x)
    total = tl.sum(e, 0)
    return tl.where(there, tl.maximum(x - tl.log(total), FLOOR), 0.0), e / total


@triton.jit  # type: ignore[untyped-decorator]
def _divergences(  # type: ignore[no-untyped-def]
    logits,
    log_prior,
    empirical,
    observed,
    strength,
    belief,
    first,
    second,
    third,
    d_logits,
    d_prior,
    CLASSES: tl.constexpr,
    LOG_CLASSES: tl.constexpr,
    BLOCK: tl.constexpr,
    UPDATE: tl.constexpr,
    EVIDENCE: tl.constexpr,
    PRIOR: tl.constexpr,
    GRADIENT: tl.constexpr,
):
    """One program per event. With r = softmax(logits), q the revised distribution, S = Σ r·log(q/r):

    d update/d logits = λ̂·r·(log(q/r) − S) − (1−λ̂)·(p − r)
    d classification/d logits = r·Σp − p of a belief p, r − q of a likelihood with posterior q
    d KL(r ‖ s)/d logits = r·(log r/s − KL),  d KL(r ‖ s)/d log s = s − r
    """
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    there = at < CLASSES
    log_r, r = _log_softmax(logits + row * CLASSES, at, there)
    p = tl.load(empirical + row * CLASSES + at, mask=there, other=0.0)
    seen = tl.load(observed + row)
    certain = seen == seen
    surprise = seen * 0.0
    if EVIDENCE:  # p becomes the posterior over the true frame where it is a likelihood
        certain = tl.load(belief + row) != 0.0
        score = tl.where(there, tl.maximum(log_r, LOG_TINY if UPDATE else FLOOR) + log_of(p), -float("inf"))
        high = tl.max(score, 0)
        posterior = tl.exp(score - high)
        total = tl.sum(posterior, 0)
        surprise = -high - tl.log(total)
        p = tl.where(certain, p, posterior / total)
    if UPDATE:
        pull = tl.where(seen == 0.0, 0.0, tl.load(strength + row) * seen)
        keep = 1.0 / (1.0 + pull)
        take = 1.0 - keep
        log_ratio = tl.where(there, _log_add(log_of(keep), log_of(take) + log_of(p) - log_r), 0.0)
        learned = tl.sum((keep * r + take * p) * log_ratio - take * (p - r), 0)
        learned = tl.maximum(learned, 0.0)
        d_learned = keep * r * (log_ratio - tl.sum(r * log_ratio, 0)) - take * (p - r)
    else:
        learned = tl.where(certain, -tl.sum(p * log_r, 0), surprise)
        learned = tl.where(seen != 0.0, learned, 0.0)
        d_learned = tl.where(seen != 0.0, r * tl.sum(p, 0) - p, 0.0)
    entropy = -tl.sum(r * log_r, 0)
    anchor = seen * 0.0
    if PRIOR:
        log_s, s = _log_softmax(log_prior + row * CLASSES, at, there)
        anchor = tl.sum(r * (log_r - log_s), 0)
    if GRADIENT:
        d = _loaded(first, row) * d_learned + _loaded(second, row) * r * (log_r + entropy)
        if PRIOR:
            g = _loaded(third, row)
            d += g * r * (log_r - log_s - anchor)
            tl.store(d_prior + row * CLASSES + at, g * (s - r), mask=there)
        tl.store(d_logits + row * CLASSES + at, d, mask=there)
    else:
        tl.store(first + row, learned)
        tl.store(second + row, LOG_CLASSES - entropy)
        tl.store(third + row, anchor)

"""What is taken of distributions over frames: divergences between them, and counts as a prior."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

FLOOR = tl.constexpr(-4.25e37)  # stands for log 0, as in revup.bottleneck: finite, and its exp is 0
TINY = tl.constexpr(1.1754944e-38)
LOG_TINY = tl.constexpr(-87.33655)


def divergences_fused(
    learned: str,
    logits: Tensor,
    log_prior: Tensor | None,
    empirical: Tensor,
    observed: Tensor,
    strength: Tensor,
    noise_rate: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """[B, M] each: what `revup.ops.terms.divergences` takes one by one; the third is 0 without a log_prior."""
    rows = [None if part is None else part.float().contiguous() for part in (logits, log_prior, empirical)]
    events = [part.float().expand(logits.shape[:-1]).contiguous() for part in (observed, strength)]
    return _Divergences.apply(*rows, *events, noise_rate, learned)  # type: ignore[no-untyped-call, no-any-return]


class _Divergences(torch.autograd.Function):
    """The values in one reading of the logits; their gradients in a second, from the same arithmetic."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, *given: Any) -> tuple[Tensor, ...]:
        values = [torch.empty(logits.shape[:-1], dtype=torch.float32, device=logits.device) for _ in range(3)]
        _launch(logits, given, values, None, None)
        ctx.save_for_backward(logits, *given[:-1])
        ctx.learned = given[-1]
        ctx.set_materialize_grads(False)  # none is 0
        return tuple(values)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        logits, *given = ctx.saved_tensors
        d_logits = torch.empty_like(logits)
        d_prior = None if given[0] is None else torch.empty_like(logits)
        _launch(logits, (*given, ctx.learned), upstream, d_logits, d_prior)
        return d_logits, d_prior, None, None, None, None, None


def _launch(logits: Tensor, given: Any, values: Any, d_logits: Tensor | None, d_prior: Tensor | None) -> None:
    """values: where they go, or with d_logits their gradients."""
    log_prior, empirical, observed, strength, rate, learned = given
    classes = logits.shape[-1]
    rows, block = logits.numel() // classes, triton.next_power_of_2(classes)
    kernel: Any = _divergences
    kernel[(rows,)](
        *(logits, log_prior, empirical, observed, strength, rate),
        *(None if value is None else value.contiguous() for value in values),
        *(d_logits, d_prior),
        **{"CLASSES": classes, "LOG_CLASSES": math.log(classes), "BLOCK": block},
        **{"UPDATE": learned == "update", "NOISY": rate is not None},
        **{"PRIOR": log_prior is not None, "GRADIENT": d_logits is not None, "num_warps": warps(block)},
    )


def warps(block: int) -> int:
    """Of a program that holds so many numbers of a row at once."""
    return 4 if block <= 1024 else 8 if block <= 2048 else 16


@triton.jit
def log_of(p):  # type: ignore[no-untyped-def]
    return tl.where(p >= TINY, tl.log(tl.maximum(p, TINY)), FLOOR)


@triton.jit
def _loaded(start, row):  # type: ignore[no-untyped-def]
    """0 of nothing."""
    return 0.0 if start is None else tl.load(start + row)


@triton.jit
def _log_add(a, b):  # type: ignore[no-untyped-def]
    high = tl.maximum(a, b)
    return high + tl.log(1.0 + tl.exp(tl.minimum(a, b) - high))


@triton.jit
def _log_softmax(start, at, there):  # type: ignore[no-untyped-def]
    """Of a row, 0 beyond its end; and the softmax, 0 there too."""
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
    noise_rate,
    first,
    second,
    third,
    d_logits,
    d_prior,
    CLASSES: tl.constexpr,
    LOG_CLASSES: tl.constexpr,
    BLOCK: tl.constexpr,
    UPDATE: tl.constexpr,
    NOISY: tl.constexpr,
    PRIOR: tl.constexpr,
    GRADIENT: tl.constexpr,
):
    """An event a program. With r = softmax(logits), q the revision, S = Σ r·log(q/r):

    d update/d logits = λ̂·r·(log(q/r) − S) − (1−λ̂)·(p − r)
    d classification/d logits = r·Σw − w,  w = p·(1−ρ)r/((1−ρ)r + ρ/K)
    d KL(r ‖ s)/d logits = r·(log r/s − KL),  d KL(r ‖ s)/d log s = s − r
    """
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    there = at < CLASSES
    log_r, r = _log_softmax(logits + row * CLASSES, at, there)
    p = tl.load(empirical + row * CLASSES + at, mask=there, other=0.0)
    seen = tl.load(observed + row)
    rate = seen * 0.0
    if NOISY:
        rate = tl.load(noise_rate)
    if UPDATE:
        if NOISY:  # what is believed of p, given r
            belief = tl.maximum(log_r, LOG_TINY) + log_of((1.0 - rate) * p + rate / CLASSES)
            belief = tl.where(there, belief, -float("inf"))
            belief = tl.exp(belief - tl.max(belief, 0))
            p = belief / tl.sum(belief, 0)
        pull = tl.where(seen == 0.0, 0.0, tl.load(strength + row) * seen)
        keep = 1.0 / (1.0 + pull)
        take = 1.0 - keep
        log_ratio = tl.where(there, _log_add(log_of(keep), log_of(take) + log_of(p) - log_r), 0.0)
        learned = tl.sum((keep * r + take * p) * log_ratio - take * (p - r), 0)
        learned = tl.maximum(learned, 0.0)
        d_learned = keep * r * (log_ratio - tl.sum(r * log_ratio, 0)) - take * (p - r)
    else:
        log_true = log_of(1.0 - rate) + log_r
        log_seen = tl.where(there, _log_add(log_true, log_of(rate / CLASSES)), 0.0)
        learned = tl.where(seen != 0.0, -tl.sum(p * log_seen, 0), 0.0)
        w = tl.where(there, p * tl.exp(log_true - log_seen), 0.0)
        d_learned = tl.where(seen != 0.0, r * tl.sum(w, 0) - w, 0.0)
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


# ---- sums of them --------------------------------------------------------------------------------------------------

TERMS = 4  # at most
AT_ONCE = 1024  # events


def weighted_fused(values: list[Tensor], weights: list[float], there: Tensor) -> tuple[Tensor, Tensor]:
    """Σ_i weight_i·S_i and all S_i = Σ values_i·there, which have no gradient; values and there [B, M]."""
    given = weights, there.float().contiguous(), *(value.float().contiguous() for value in values)
    found: tuple[Tensor, Tensor] = _Weighted.apply(*given)  # type: ignore[no-untyped-call]
    return found


class _Weighted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weights: list[float], there: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
        sums = torch.empty(1 + len(values), dtype=torch.float32, device=there.device)
        ctx.weights, ctx.count = weights, len(values)
        ctx.save_for_backward(there)
        ctx.set_materialize_grads(False)
        more = TERMS - len(values)
        kernel: Any = _weighted
        kernel[(1,)](
            *values,
            *(None,) * more,
            there,
            sums,
            *weights,
            *(0.0,) * more,
            there.numel(),
            COUNT=len(values),
            BLOCK=AT_ONCE,
        )
        together, each = sums[0], sums[1:]
        ctx.mark_non_differentiable(each)
        return together, each

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (there,) = ctx.saved_tensors
        d = torch.empty(ctx.count, *there.shape, dtype=torch.float32, device=there.device)
        more = TERMS - ctx.count
        kernel: Any = _weighted_gradient
        kernel[(triton.cdiv(there.numel(), AT_ONCE),)](
            upstream[0], there, d, *ctx.weights, *(0.0,) * more, there.numel(), COUNT=ctx.count, BLOCK=AT_ONCE
        )
        return None, None, *d.unbind(0)


@triton.jit  # type: ignore[untyped-decorator]
def _weighted(  # type: ignore[no-untyped-def]
    a, b, c, d, there, sums, w_a, w_b, w_c, w_d, count, COUNT: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.arange(0, BLOCK)
    s_a = tl.zeros((BLOCK,), tl.float32)
    s_b = tl.zeros((BLOCK,), tl.float32)
    s_c = tl.zeros((BLOCK,), tl.float32)
    s_d = tl.zeros((BLOCK,), tl.float32)
    first = 0
    while first < count:
        share = tl.load(there + at, mask=at < count, other=0.0)
        s_a += share * tl.load(a + at, mask=at < count, other=0.0)
        if COUNT > 1:
            s_b += share * tl.load(b + at, mask=at < count, other=0.0)
        if COUNT > 2:
            s_c += share * tl.load(c + at, mask=at < count, other=0.0)
        if COUNT > 3:
            s_d += share * tl.load(d + at, mask=at < count, other=0.0)
        at += BLOCK
        first += BLOCK
    total = w_a * tl.sum(s_a, 0)
    tl.store(sums + 1, tl.sum(s_a, 0))
    if COUNT > 1:
        total += w_b * tl.sum(s_b, 0)
        tl.store(sums + 2, tl.sum(s_b, 0))
    if COUNT > 2:
        total += w_c * tl.sum(s_c, 0)
        tl.store(sums + 3, tl.sum(s_c, 0))
    if COUNT > 3:
        total += w_d * tl.sum(s_d, 0)
        tl.store(sums + 4, tl.sum(s_d, 0))
    tl.store(sums, total)


@triton.jit  # type: ignore[untyped-decorator]
def _weighted_gradient(  # type: ignore[no-untyped-def]
    upstream, there, d, w_a, w_b, w_c, w_d, count, COUNT: tl.constexpr, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    share = tl.load(upstream) * tl.load(there + at, mask=at < count, other=0.0)
    tl.store(d + at, w_a * share, mask=at < count)
    if COUNT > 1:
        tl.store(d + count + at, w_b * share, mask=at < count)
    if COUNT > 2:
        tl.store(d + 2 * count + at, w_c * share, mask=at < count)
    if COUNT > 3:
        tl.store(d + 3 * count + at, w_d * share, mask=at < count)


# ---- counts as a prior -------------------------------------------------------------------------------------------


class PooledPriorFused(torch.autograd.Function):
    """`revup.models.counts.PooledPrior.forward` in one kernel. The only parameters are the weights of the slots, whose
    gradients are sums of what each slot says, which is kept for that."""

    @staticmethod
    def forward(
        ctx: Any,
        slot_weights: Tensor | None,
        read: Tensor,
        own: Tensor | None,
        tables: dict[str, Tensor | None],
        constants: dict[str, float],
        needs_gradient: bool,
    ) -> Tensor:
        """read [N, 5]; own [N, K] → log prior [N, K]. tables: the module's buffers, `total` and `near` among them."""
        base = tables["base"]
        assert base is not None
        events, classes = len(read), len(base)
        log_prior = torch.empty(events, classes, dtype=torch.float32, device=read.device)
        said = None
        if slot_weights is not None and needs_gradient:
            said = torch.empty(len(slot_weights), events, classes, dtype=torch.float32, device=read.device)
        near, block = tables["near"], triton.next_power_of_2(classes)
        names = (
            "form_row",
            "lemma_row",
            "forms",
            "lemmas",
            "base",
            "near",
            "near_weights",
            "slot_row",
            "slots",
            "total",
        )
        kernel: Any = _pooled_prior
        kernel[(events,)](
            *(read, own, *(tables[name] for name in names), slot_weights, log_prior, said, events),
            *(constants[name] for name in ("smoothing", "similar", "slot")),
            **{"WORDS": int(constants["words"]), "CLASSES": classes, "BLOCK": block, "OWN": own is not None},
            **{"NEIGHBOURS": 0 if near is None else near.shape[1], "TOKENS": read.shape[1]},
            **{"SLOTS": 0 if slot_weights is None else len(slot_weights), "SAID": said is not None},
            num_warps=warps(block),
        )
        ctx.save_for_backward(said)
        return log_prior

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (said,) = ctx.saved_tensors
        d_weights = None if said is None else said.flatten(1) @ upstream[0].flatten()
        return d_weights, None, None, None, None, None


@triton.jit
def _without(counts, own):  # type: ignore[no-untyped-def]
    return tl.maximum(counts - tl.minimum(own, counts), 0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _pooled_prior(  # type: ignore[no-untyped-def]
    read,
    own,
    form_row,
    lemma_row,
    forms,
    lemmas,
    base,
    near,
    near_weights,
    slot_row,
    slots,
    total,
    slot_weights,
    log_prior,
    said,
    events,
    smoothing,
    similar_smoothing,
    slot_smoothing,
    WORDS: tl.constexpr,
    CLASSES: tl.constexpr,
    BLOCK: tl.constexpr,
    OWN: tl.constexpr,
    NEIGHBOURS: tl.constexpr,
    TOKENS: tl.constexpr,
    SLOTS: tl.constexpr,
    SAID: tl.constexpr,
):
    """An event a program; the equations are those of revup.models.counts."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    there = at < CLASSES
    pred = tl.load(read + row * TOKENS)
    word = pred % WORDS
    mine = tl.zeros((BLOCK,), tl.float32)
    if OWN:
        mine = tl.load(own + row * CLASSES + at, mask=there, other=0.0)
    back_off = tl.load(base + at, mask=there, other=0.0)
    if NEIGHBOURS > 0:
        place = tl.where(pred < 2 * WORDS, word, pred - WORDS)
        found = tl.zeros((BLOCK,), tl.float32)
        for n in range(NEIGHBOURS):
            which = tl.load(near + place * NEIGHBOURS + n).to(tl.int64)
            weight = tl.load(near_weights + place * NEIGHBOURS + n)
            found += weight * tl.load(lemmas + which * CLASSES + at, mask=there, other=0.0)
        back_off = (found + similar_smoothing * back_off) / (tl.sum(found, 0) + similar_smoothing)
    which = tl.where(pred < 2 * WORDS, tl.load(lemma_row + word), 0)
    counts = _without(tl.load(lemmas + which * CLASSES + at, mask=there, other=0.0), mine)
    back_off = (counts + smoothing * back_off) / (tl.sum(counts, 0) + smoothing)
    which = tl.where(pred < WORDS, tl.load(form_row + word), 0)
    counts = _without(tl.load(forms + which * CLASSES + at, mask=there, other=0.0), mine)
    result = tl.log(tl.maximum((counts + smoothing * back_off) / (tl.sum(counts, 0) + smoothing), 1e-12))
    if SLOTS > 0:
        frames = _without(tl.load(total + at, mask=there, other=0.0), mine)
        everything = tl.sum(frames, 0) + 1.0
        log_class = tl.log(frames + slot_smoothing)
        for slot in range(SLOTS):
            argument = tl.load(read + row * TOKENS + slot + 1)
            which = tl.where(argument < WORDS, tl.load(slot_row + slot * WORDS + argument % WORDS), 0)
            counts = _without(tl.load(slots + which * CLASSES + at, mask=there, other=0.0), mine)
            known = tl.sum(counts, 0)
            share = known / everything
            ratio = tl.log(tl.maximum(counts + slot_smoothing * share, 1e-12)) - log_class
            ratio = ratio - tl.log(tl.maximum(share, 1e-12))
            ratio = tl.where((which > 0) & (known > 1e-6), ratio, 0.0)
            result += tl.load(slot_weights + slot) * ratio
            if SAID:
                tl.store(said + (slot * events + row) * CLASSES + at, ratio, mask=there)
    tl.store(log_prior + row * CLASSES + at, result, mask=there)

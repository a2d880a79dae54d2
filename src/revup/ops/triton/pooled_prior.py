"""The log prior of the pooled counts in one kernel."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from revup.ops.operations import CountTables
from revup.ops.triton.frame_losses import warps


def pooled_log_prior(tables: CountTables, events: Tensor, own: Tensor | None = None) -> Tensor:
    """`ops.pooled_log_prior` in one kernel."""
    weights, tokens = tables.slot_weights, events.shape[-1]
    learns = weights is not None and weights.requires_grad and torch.is_grad_enabled()
    rows = events.reshape(-1, tokens).contiguous()
    left_out = None if own is None else own.float().flatten(0, 1).contiguous()
    log_prior: Tensor = _PooledPrior.apply(weights, rows, left_out, tables, learns)  # type: ignore[no-untyped-call]
    return log_prior.view(*events.shape[:2], -1)


class _PooledPrior(torch.autograd.Function):
    """The only parameters are the slot weights; the gradient of each sums its slot's log-ratios times the upstream."""

    @staticmethod
    def forward(
        ctx: Any, slot_weights: Tensor | None, read: Tensor, own: Tensor | None, tables: CountTables, learns: bool
    ) -> Tensor:
        """read [N, 5]; own [N, K] → log prior [N, K]."""
        events, classes = len(read), len(tables.base)
        log_prior = torch.empty(events, classes, dtype=torch.float32, device=read.device)
        said = None
        if slot_weights is not None and learns:
            said = torch.empty(len(slot_weights), events, classes, dtype=torch.float32, device=read.device)
        t, block = tables, triton.next_power_of_2(classes)
        rows = t.form_row, t.lemma_row, t.forms, t.lemmas, t.base, t.near, t.near_weights, t.slot_row, t.slots, t.total
        kernel: Any = _pooled_prior
        kernel[(events,)](
            *(read, own, *rows, slot_weights, log_prior, said, events),
            *(t.smoothing, t.similar_smoothing, t.slot_smoothing),
            **{"WORDS": t.words, "CLASSES": classes, "BLOCK": block, "OWN": own is not None},
            **{"NEIGHBOURS": 0 if t.near is None else t.near.shape[1], "TOKENS": read.shape[1]},
            **{"SLOTS": 0 if slot_weights is None else len(slot_weights), "SAID": said is not None},
            num_warps=warps(block),
        )
        ctx.save_for_backward(said)
        return log_prior

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        (said,) = ctx.saved_tensors
        d_weights = None if said is None else said.flatten(1) @ upstream[0].flatten()
        return d_weights, None, None, None, None


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
    """One program per event; the equations are those of `revup.models.counts`."""
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

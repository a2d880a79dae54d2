"""The loss of a training step of the tagger by the method of a rival. All of it can be captured as a CUDA graph."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from revup import bottleneck
from revup.data.batches import Batch
from revup.data.corpus import Corpus
from revup.data.encode import SPECIAL, UNK
from revup.data.knowledge import Observation
from revup.models.base import Loss
from revup.models.count_prior import CountPrior
from revup.models.randomness import Draws
from revup.models.residual import anchor_weight
from revup.models.rivals import losses
from revup.models.rivals.settings import RAMPED
from revup.models.rivals.stated import StatedLabels, StatedPredictions
from revup.models.shared_counts import fitted_counts

if TYPE_CHECKING:
    from revup.models.tagger import Tagger


@dataclass
class Prepared:
    """What a method knows before the first step.

    Attributes:
        stated: The labels to train on.
        rows: Training documents, by which epochs are counted.
        confusion: p(label | frame) of forward correction [K, K].
        forget: The share of labels that co-teaching leaves out of a step.
    """

    stated: StatedLabels = field(default_factory=lambda: StatedLabels(None))
    rows: int = 1
    confusion: Tensor | None = None
    forget: float = 0.0


def prepare(model: Tagger, corpus: Corpus, observation: Observation) -> tuple[Prepared, dict[str, float]]:
    """Fit the counts, and estimate what the method needs.

    Args:
        model: The tagger; it stands on the counts afterwards.
        corpus: The dataset.
        observation: Which labels are observed, and which of them are wrong.

    Returns:
        What the method knows, and figures to report.
    """
    o, found = model.objective, None
    if o.method in ("forward", "confident"):
        found = StatedPredictions.of(corpus, observation)
    made, figures = Prepared(rows=len(corpus.split("train"))), {}
    without = None
    if found is not None and o.method == "confident":
        without = found.pruned(o.prune)
        figures["pruned"] = len(without) / len(found.labels)
    if found is not None and o.method == "forward":
        matrix = found.confusion_matrix(o.anchors)
        figures["confused"] = float(1 - matrix.diagonal()[found.labels].mean())
        made.confusion = torch.from_numpy(matrix).float().to(model.device)
    if o.needs_counts:
        whole = without is None  # of all labels: other runs may stand on the same counts
        model.use_counts(
            fitted_counts(corpus, observation, o) if whole else CountPrior.fit(corpus, observation, o, without)
        )
    if model.counts is not None:
        figures |= model.counts.figures()
    made.stated = StatedLabels(model.counts) if without is None else StatedLabels(model.counts, without)
    made.forget = model.error_rate() if o.forget is None else o.forget
    return made, figures


def method_loss(model: Tagger, batch: Batch, draws: Draws) -> Loss:
    """The mean loss of the whole batch's labels by the model's method, and that of events without a label.

    Args:
        model: The tagger.
        batch: Documents with their labels as they stand.
        draws: The randomness of this step.
    """
    o, made = model.objective, model.prepared
    advanced = _advance(model, batch)
    logits, target = _logits_and_target(model, batch, draws)
    weight = batch.confidence * batch.mask
    count = batch.observed_events + 1e-9
    further: dict[str, Tensor] = {}
    if o.method == "gce":
        learned = losses.generalised_cross_entropy(logits, target, o.power)
    elif o.method == "bootstrap":
        learned = losses.soft_bootstrap(logits, target, o.trust)
    elif o.method == "forward" and made.confusion is not None:
        learned = _forward(logits, target, batch, made.confusion)
    elif o.method == "elr":
        learned = losses.early_learning(logits, target, _remembered(model, batch), o.early * advanced)
    else:
        learned = losses.cross_entropy(logits, target)
    if o.method == "coteaching":
        learned, further["peer"], weight, count = _co_teaching(model, batch, draws, learned, weight, advanced)
    if o.method in ("selftrain", "consistency"):
        further["pseudo_labels"] = o.unlabelled * advanced * _pseudo(model, batch, draws, logits)
    loss = (learned * weight).sum() / count
    terms = {"classification": loss.detach(), **{name: term.detach() for name, term in further.items()}}
    loss = loss + sum(further.values())
    if o.prior != "none" and o.anchor:  # as in `default`: keep q near the prior
        apart = bottleneck.categorical_kl(logits, model.log_prior(batch))
        anchor = (apart * batch.mask).sum() / (batch.observed_events + 1e-9)
        terms["anchor"] = anchor.detach()
        loss = loss + anchor_weight(model) * anchor
    if o.method == "elr":
        _average(model)
    return Loss(loss, terms)


def _advance(model: Tagger, batch: Batch) -> Tensor:
    """How far the method has set in, from 0 to 1; counts the batch."""
    if model.objective.method not in RAMPED:
        return torch.ones((), device=model.device)
    advanced = (model.progress / model.objective.ramp).clamp_max(1.0)
    if model.training and torch.is_grad_enabled():
        model.progress.add_(batch.documents / model.prepared.rows)
        model.steps.add_(1.0)
    return advanced


def _logits_and_target(model: Tagger, batch: Batch, draws: Draws) -> tuple[Tensor, Tensor]:
    """Logits, and the labels as distributions [B, M, K]; candidates are weighted by the proposal."""
    knowledge = model.knowledge(batch)
    logits = model.logits(model.represent(batch, draws), batch, knowledge, draws)
    proposed = torch.softmax(logits.detach(), dim=-1)
    return logits, bottleneck.label_posterior(proposed, knowledge.empirical, knowledge.belief).to(logits.dtype)


def _forward(logits: Tensor, target: Tensor, batch: Batch, confusion: Tensor) -> Tensor:
    """Forward correction of labels; candidates are not confused."""
    corrected = losses.forward_corrected(logits, target, confusion)
    return torch.where(batch.belief != 0, corrected, losses.cross_entropy(logits, target))


@torch.no_grad()
def _remembered(model: Tagger, batch: Batch) -> Tensor:
    """What the averaged weights predict, [B, M, K]."""
    assert model.peer is not None
    return torch.softmax(model.peer.logits(model.peer.represent(batch), batch), dim=-1)


@torch.no_grad()
def _average(model: Tagger) -> None:
    """Move the averaged weights towards the current ones: a plain mean at first, then an exponential one."""
    if not (model.training and model.peer is not None):
        return
    rate = (1 / model.steps.clamp_min(1.0)).clamp_min(1 - model.objective.remember)
    kept = dict(model.peer.named_parameters())
    now = dict(model.named_parameters())
    for name, parameter in kept.items():
        parameter.lerp_(now[name].detach(), rate)


def _co_teaching(
    model: Tagger, batch: Batch, draws: Draws, learned: Tensor, weight: Tensor, advanced: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Each network learns from the events with the smallest losses of the other.

    Returns:
        The losses of this network, the loss of the other, and the weights and the number of events of this network.
    """
    assert model.peer is not None
    logits, target = _logits_and_target(model.peer, batch, draws)
    other = losses.cross_entropy(logits, target)
    keep = 1 - model.prepared.forget * advanced
    use = batch.observed * batch.mask
    mine = weight * losses.small_losses(other, use, keep)
    theirs = weight * losses.small_losses(learned, use, keep)
    count = batch.observed_events * keep + 1e-9
    return learned, (other * theirs).sum() / count, mine, count


def _pseudo(model: Tagger, batch: Batch, draws: Draws, logits: Tensor) -> Tensor:
    """The mean loss of confident predictions as labels of the events without a label."""
    o = model.objective
    with torch.no_grad():
        clean = model.logits(model.represent(batch), batch)
    target, sure = losses.pseudo_labels(clean, o.threshold)
    if o.method == "consistency":
        dropped = (draws.drawn(batch.tokens.shape[1]) < o.strong) & batch.token_mask
        tokens, read = (_without_words(words, dropped) for words in (batch.tokens, batch.read))
        logits = model.logits(model.represent(replace(batch, tokens=tokens, read=read), draws), batch)
    use = sure * (batch.observed == 0) * batch.mask
    number = batch.events - batch.observed_events
    return (losses.cross_entropy(logits, target) * use).sum() / (number + 1e-9)


def _without_words(tokens: Tensor, dropped: Tensor) -> Tensor:
    return torch.where(dropped & (tokens >= len(SPECIAL)), UNK, tokens)

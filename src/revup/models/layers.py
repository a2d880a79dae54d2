"""Building blocks shared by the models: input embeddings, encoder, attention, decoder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from revup import bottleneck, ops
from revup.data.batches import Batch
from revup.data.corpus import Split
from revup.data.encode import BOS, PAD, SPECIAL, TOKENS, UNK
from revup.data.knowledge import Observation
from revup.models.base import Architecture, Draws, Memory, Model, Sizes, Written

EMBEDDING_SCALE = 1.0  # standard deviation of random word embeddings; 0.1 learned more slowly and less


def word_embedding(words: int, size: int) -> nn.Embedding:
    table = nn.Embedding(words, size, padding_idx=PAD)
    nn.init.normal_(table.weight, std=EMBEDDING_SCALE)
    with torch.no_grad():
        table.weight[PAD].zero_()
    return table


def make_room(module: nn.Module, names: tuple[str, ...], state_dict: dict[str, Tensor], prefix: str) -> None:
    """Resize buffers whose number of rows depends on the corpus to the saved number, before loading."""
    for name in names:
        saved, mine = state_dict.get(prefix + name), getattr(module, name, None)
        if saved is not None and mine is not None and saved.shape[1:] == mine.shape[1:]:
            setattr(module, name, torch.zeros_like(saved, device=mine.device))


class InputWords(nn.Module):
    """The words that an encoder reads: embeddings [B, T, d], <pad> where there is no token.

    A predicate outside the vocabulary is read as a known form of its lemma, and another unknown word through its
    pretrained vector (`data.vocabulary` defines the numbering); both are <unk> if `beyond` is off. In training some
    words are replaced by <unk> and some by their pretrained vector, so that both inputs are learned.
    """

    given: Tensor  # pretrained vectors, unscaled, [V + X, d]; empty if there are none
    has: Tensor  # which words have a vector, [V + X]

    def __init__(self, network: Architecture) -> None:
        super().__init__()
        self.dropout, self.word_dropout, self.beyond = network.dropout, network.word_dropout, network.beyond
        self.register_buffer("given", torch.zeros(0, network.embedding))
        self.register_buffer("has", torch.zeros(0, dtype=torch.bool))

    def keep(self, vectors: NDArray[Any], found: NDArray[Any]) -> None:
        """Store pretrained vectors [V + X, d], and which of them were found [V + X]."""
        if self.beyond:
            self.given, self.has = torch.from_numpy(vectors).to(self.given), torch.from_numpy(found).to(self.has)

    def forward(self, words: nn.Embedding, batch: Batch, draws: Draws | None = None) -> Tensor:
        """Embed tokens; with draws, words and embedding elements are dropped out."""
        tokens, count = batch.words(self.beyond) * batch.token_mask, words.num_embeddings
        beyond = tokens >= 2 * count  # has a pretrained vector but no vocabulary entry
        word = torch.where(beyond, UNK, tokens % count)
        dropped = torch.zeros_like(beyond)
        if draws is not None and self.word_dropout:
            dropped = (draws.drawn(tokens.shape[1]) < self.word_dropout) & (tokens >= len(SPECIAL))
        if not len(self.given):
            embedded = ops.embed(words, word.masked_fill(dropped, UNK))
        else:
            row = torch.where(beyond, tokens - count, word)
            by_vector = torch.zeros_like(dropped)  # half of the dropped words, if they have a vector
            if draws is not None and self.word_dropout:
                by_vector = dropped & (draws.drawn(tokens.shape[1]) < 0.5) & self.has[row]
            embedded = ops.embed(words, word.masked_fill(dropped & ~by_vector, UNK))
            as_given = ((beyond & ~dropped) | by_vector).unsqueeze(-1)
            embedded = torch.where(as_given, self.given[row].to(embedded.dtype), embedded)
        return draws.dropout(embedded, self.dropout) if draws is not None else embedded

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Resize the vectors to the saved number, then load them."""
        make_room(self, ("given", "has"), state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class Encoder(nn.Module):
    """Words → embeddings → bidirectional GRU: states H [B, T, 2h], concatenated with embeddings if slots are read.

    A document with fewer than M events is padded to M, so that a document's states do not depend on the rest of its
    batch; the initial state of the backward direction depends on the number of missing events.
    """

    def __init__(self, network: Architecture) -> None:
        super().__init__()
        self.reader, self.dropout, self.beside = InputWords(network), network.dropout, network.places > 0
        self.rnn = nn.GRU(network.embedding, network.hidden, network.layers, bidirectional=True, batch_first=True)
        self.size = 2 * network.hidden + (network.embedding if self.beside else 0)

    def forward(self, words: nn.Embedding, batch: Batch, draws: Draws | None = None) -> Tensor:
        embedded = self.reader(words, batch, draws)
        states = ops.gru(self.rnn, embedded)
        if draws is not None:
            states = draws.dropout(states, self.dropout)
        return torch.cat([states, embedded.to(states.dtype)], dim=-1) if self.beside else states


class Attention(nn.Module):
    """Attention with an output layer: the weights of `ops.attend`.

    With `places`, the memory has that many fixed positions (the slots of an event), whose concatenation is a further
    input of the output layer.
    """

    def __init__(self, query: int, memory: int, out: int, places: int = 0) -> None:
        super().__init__()
        self.places = places
        self.score = nn.Linear(query, memory, bias=False)
        self.out = nn.Linear(memory * (1 + places) + query, out)

    def forward(self, query: Tensor, memory: Tensor, mask: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """query [B, Q, q], memory [B, T, d], mask [B, T], bias [Q, T] → attended [B, Q, out], weights [B, Q, T]."""
        return ops.attend(self.score, self.out, query, memory, mask, bias, self.places > 0)


class FrameContext(nn.Module):
    """What given frames of the other events of a document say about each event's frame: logits [B, M, K].

    A GRU reads the embeddings of the given frames in each direction (0 where none is given); event m is told the state
    before it and the state after it, never its own frame. Where no frame of a document is given the logits are 0, so
    that predictions without labels are left as they are.
    """

    def __init__(self, frame: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.rnn = nn.GRU(frame, hidden, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * hidden, classes)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, embedded: Tensor, given: Tensor) -> Tensor:
        """embedded [B, M, d_t]: the frames, 0 where none is given; given [B, M]: where one is."""
        states = ops.gru(self.rnn, embedded)
        before, after = states.chunk(2, dim=-1)
        around = torch.cat([F.pad(before, (0, 0, 1, 0))[:, :-1], F.pad(after, (0, 0, 0, 1))[:, 1:]], dim=-1)
        some = (given.sum(1) > 0).to(torch.float32).view(-1, 1, 1)
        return ops.linear(self.out, around).float() * some


FACTORS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the residual, that calibration chooses from
LEAST_SCORED = 20  # held-out labels; the standard error of fewer is no guide
DOUBTFUL = 0.2  # estimated share of wrong labels above which held-out labels decide nothing
CALIBRATION_ROWS = 500  # windows at a time
LABELS = (0.5, 3.0, 10.0, 50.0)  # of a predicate: limits between groups of predicates by how much was seen of them


class Residual(nn.Module):
    """What a network adds to the prior of the counts, and how far.

    The residual of an event is scaled by n/(n + gate), n the number of labels counted for its predicate (those of its
    own document left out in training): where nothing was seen of a predicate, the network has learned nothing about it.
    `scale` is calibrated on held-out labels, one factor for each group of predicates (`LABELS`); `context_scale`, the
    factor of what given frames add, on held-out labels of which half is given.
    """

    scale: Tensor
    context_scale: Tensor
    limits: Tensor

    def __init__(self, sizes: Sizes, network: Architecture, objective: Any) -> None:
        super().__init__()
        self.gate = float(objective.gate) if objective.prior != "none" else 0.0
        self.register_buffer("limits", torch.tensor(LABELS), persistent=False)
        self.register_buffer("scale", torch.ones(len(LABELS) + 1))
        self.dropout = network.dropout
        self.vectors = nn.Linear(sizes.vectors, sizes.classes, bias=False) if sizes.vectors else None
        if self.vectors is not None:
            nn.init.zeros_(self.vectors.weight)  # so that absent vectors cost nothing
        self.context = FrameContext(network.frame, network.hidden, sizes.classes) if network.context else None
        if network.context:
            self.register_buffer("context_scale", torch.ones(()))

    def group(self, labels: Tensor) -> Tensor:
        """The group of each predicate by how many labels were counted for it, [B, M]."""
        return torch.bucketize(labels, self.limits)

    def gates(self, batch: Batch) -> Tensor:
        """n/(n + gate) of each event, [B, M]."""
        return batch.labels / (batch.labels + self.gate) if self.gate else torch.ones_like(batch.labels)

    def weight(self, batch: Batch) -> Tensor:
        """The factor of each event's residual, [B, M, 1]."""
        return (self.gates(batch) * self.scale[self.group(batch.labels)]).unsqueeze(-1)

    @torch.no_grad()
    def calibrate(self, model: Model, split: Split, observation: Observation, doubtful: float = DOUBTFUL) -> None:
        """Set `scale` to the factors with the least −log score of held-out labels, by groups of predicates.

        A factor above 0 has to earn its place: its score must be better than that of the counts alone by more than the
        standard error of the difference, else the factor is 0. Where labels are often wrong (`doubtful`), held-out
        labels share the errors that the network may have learned and can't show that it is right: all factors are 0.
        `context_scale` is set likewise, also there: errors of one event say nothing about the label of another.
        """
        if not len(split) or model.counts is None or model.objective.prior == "none":
            return
        if model.error_rate() > doubtful:
            self.scale.zero_()
        else:
            losses = []
            groups = torch.zeros(0)
            for factor in FACTORS:
                self.scale.fill_(factor)
                pairs = [
                    _scores(model, batch) for batch in model.batches(split, observation, CALIBRATION_ROWS).ordered()
                ]
                losses.append(torch.cat([loss[seen] for loss, seen, _ in pairs]))
                groups = torch.cat([self.group(labels)[seen.to(labels.device)].cpu() for _, seen, labels in pairs])
            table = torch.stack(losses)  # [factors, events]
            for group in range(len(self.scale)):
                self.scale[group] = _best_factor(table[:, groups == group])
        if self.context is not None:
            losses = []
            for factor in FACTORS:
                self.context_scale.fill_(factor)
                batches = model.batches(split, observation, CALIBRATION_ROWS).ordered()
                losses.append(torch.cat([loss for batch in batches for loss in _scores_given_half(model, batch)]))
            self.context_scale.fill_(_best_factor(torch.stack(losses)))

    def of_given(
        self, logits: Tensor, frames: Tensor, knowledge: ops.Knowledge | None, batch: Batch, draws: Draws | None
    ) -> Tensor | None:
        """What given frames add to the logits of the other events, [B, M, K]; None without any.

        In training half of the labels of half of the documents are given.

        Args:
            logits: The proposal without it, [B, M, K].
            frames: The embeddings E of the frames, [K, d_t].
            knowledge: Side knowledge of the events.
            batch: The documents.
            draws: The randomness of a training step.
        """
        if self.context is None or knowledge is None:
            return None
        given = (knowledge.observed > 0).to(logits.dtype)
        if draws is not None:
            given = given * (draws.uniform(given.shape[1]) < 0.5) * (draws.uniform(1) < 0.5)
        posterior = bottleneck.label_posterior(
            torch.softmax(logits.detach(), dim=-1), knowledge.empirical, knowledge.belief
        )
        embedded = ops.mix(posterior * given.unsqueeze(-1), frames)
        factor = (self.context_scale * self.gates(batch)).unsqueeze(-1)
        moved: Tensor = factor * self.context(embedded, given)
        return moved

    def of_vectors(self, batch: Batch, draws: Draws | None = None) -> Tensor | None:
        """The term of the event vectors, [B, M, K]; None without any. With draws some of their numbers are dropped."""
        if self.vectors is None or not batch.vectors.shape[-1]:
            return None
        given = batch.vectors
        if self.training and draws is not None and self.dropout:  # not where latents are sampled
            given = ops.dropout(given, draws.uniform(*given.shape[1:]), self.dropout)
        return ops.linear(self.vectors, given).float()


def _scores(model: Model, batch: Batch, given: Batch | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """−log score of the labels [B, M], where they are observed [B, M], and the labels counted [B, M].

    given: The same documents with the labels that are given; None: no label is.
    """
    found = model.frame_probabilities(batch if given is None else given, revise=given is not None)
    found = found.float().clamp_min(1e-30).log()
    loss = bottleneck.knowledge_loss(found, batch.empirical(found.shape[-1]), batch.observed, batch.belief)
    return loss.double().cpu(), ((batch.observed > 0) & batch.mask).cpu(), batch.labels


def _scores_given_half(model: Model, batch: Batch) -> Iterator[Tensor]:
    """−log scores of every second label where some of the others are given, then the other way round."""
    for first in (0, 1):
        half = torch.arange(batch.mask.shape[1], device=batch.mask.device) % 2 == first
        given = replace(batch, observed=batch.observed * half)
        loss, seen, _ = _scores(model, batch, given)
        told = (given.observed.sum(1, keepdim=True) > 0).cpu()
        yield loss[seen & ~half.cpu() & told]


def _best_factor(losses: Tensor) -> float:
    """The one of `FACTORS` with the least mean loss [factors, events]; 0 where none is better than 0 for certain."""
    gain = losses[:1] - losses
    if gain.shape[1] < LEAST_SCORED:
        return 0.0
    mean, error = gain.mean(1), gain.std(1) / gain.shape[1] ** 0.5
    best = int(mean.argmax())
    return FACTORS[best] if mean[best] > error[best] else 0.0


def anchor_weight(model: Model) -> float:
    """Weight per event of the penalty KL(r ‖ prior): anchor/(counted labels), at most 1; 0 without any label."""
    labels = 0.0 if model.counts is None else model.counts.labels
    return min(float(model.objective.anchor) / max(labels, 1.0), 1.0) if labels else 0.0


FARTHEST = 8  # events; beyond this distance latents share one bias


@cache
def _distances(position: int, tokens: int, latents: int, device: torch.device, kind: torch.dtype) -> Tensor:
    """One-hot distances [tokens·latents, 2·FARTHEST + 1] between events of latents and of tokens from `position` on."""
    event = (position + torch.arange(tokens, device=device)) // TOKENS
    distance = torch.arange(latents, device=device) - event.unsqueeze(1)
    return F.one_hot(distance.clamp(-FARTHEST, FARTHEST) + FARTHEST, 2 * FARTHEST + 1).to(kind).flatten(0, 1)


class Decoder(nn.Module):
    """A left-to-right GRU that attends over the latents e_1..e_M: states [B, T, h], ready for the vocabulary.

    The latents carry no position, so content alone does not identify the latent of the event being written. If
    `aligned`, a learned bias per distance between the two is added to the attention scores, initially large for
    distance 0; missing latents are masked. All tokens are decoded in one call, unless input feeding is on (the
    attention vector of one step is an input of the next).
    """

    def __init__(self, network: Architecture, memory: int) -> None:
        super().__init__()
        self.layers, self.hidden, self.feeding = network.layers, network.hidden, network.input_feeding
        fed = network.hidden if self.feeding else 0
        self.rnn = nn.GRU(network.embedding + fed, network.hidden, network.layers, batch_first=True)
        self.initial = nn.Linear(memory, network.layers * network.hidden)
        self.attention = Attention(network.hidden, memory, network.hidden)
        self.distances = nn.Parameter(torch.zeros(2 * FARTHEST + 1)) if network.aligned else None
        if self.distances is not None:
            with torch.no_grad():
                self.distances[FARTHEST] = 4.0

    def bias(self, position: int, tokens: int, latents: int) -> Tensor | None:
        """Bias of the attention scores [tokens, latents] by the distance of events, for tokens from `position` on."""
        if self.distances is None:
            return None
        device, kind = self.distances.device, self.distances.dtype
        with torch.autocast(device.type, enabled=False):
            return torch.mv(_distances(position, tokens, latents, device, kind), self.distances).view(tokens, latents)

    def start(self, first: Tensor) -> Tensor:
        """The initial state [layers, B, h] from e_1."""
        state = ops.linear(self.initial, first, tanh=True).view(-1, self.layers, self.hidden)
        return state.transpose(0, 1).contiguous()

    def forward(self, embedded: Tensor, memory: Tensor, mask: Tensor, state: Tensor | None = None) -> Tensor:
        """embedded [B, T, d]: the inputs, starting with <bos>; memory [B, M, d_t]; mask [B, M]."""
        state = self.start(memory[:, 0]) if state is None else state
        if self.feeding:
            return self.run(embedded, memory, mask, state)[0]
        bias = self.bias(0, embedded.shape[1], memory.shape[1])
        attended: Tensor = self.attention(ops.gru(self.rnn, embedded, state), memory, mask, bias)[0]
        return attended

    def run(
        self,
        embedded: Tensor,
        memory: Tensor,
        mask: Tensor,
        state: Tensor,
        fed: Tensor | None = None,
        position: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """Decode tokens from `position` on, from a given state; return outputs and the state after them."""
        bias = self.bias(position, embedded.shape[1], memory.shape[1])
        if not self.feeding:
            states, after = self.rnn(embedded, state)
            return self.attention(states, memory, mask, bias)[0], after
        outputs = []
        attended = embedded.new_zeros(len(embedded), 1, self.hidden) if fed is None else fed
        for number, step in enumerate(embedded.split(1, dim=1)):
            states, state = self.rnn(torch.cat([step, attended.to(step.dtype)], dim=-1), state)
            near = None if bias is None else bias[number : number + 1]
            attended = self.attention(states, memory, mask, near)[0]
            outputs.append(attended)
        return torch.cat(outputs, dim=1), state


def start(decoder: Decoder, memory: Memory) -> Written:
    """The state before the first token, given the latents."""
    return Written(decoder.start(memory.latents[:, 0]), memory)


def step(
    words: nn.Embedding, decoder: Decoder, vocabulary: nn.Linear, tokens: Tensor, state: Written
) -> tuple[Tensor, Written]:
    """Read the last tokens [B] (<bos> at first): log-probabilities of the next ones [B, V], and the state after."""
    embedded, memory = ops.embed(words, tokens.unsqueeze(1)), state.memory
    out, hidden = decoder.run(embedded, memory.latents, memory.mask, state.hidden, state.fed, state.position)
    log_probabilities = torch.log_softmax(vocabulary(out.squeeze(1)).float(), dim=-1)
    after = replace(state, hidden=hidden, fed=out if decoder.feeding else None, position=state.position + 1)
    return log_probabilities, after


def shifted(tokens: Tensor) -> Tensor:
    """Decoder inputs: the tokens shifted right by one, starting with <bos>."""
    return F.pad(tokens, (1, 0), value=BOS)[:, :-1]


def event_tokens(states: Tensor) -> Tensor:
    """[B, M·5, d] → [B, M, 5, d]."""
    return states.view(len(states), -1, TOKENS, states.shape[-1])


def with_gradient_if(weighted: bool, values: Tensor) -> Tensor:
    """The values of a loss term, detached if its weight is 0: it is then reported but not differentiated."""
    return values if weighted else values.detach()


def use_vectors(words: nn.Embedding, vectors: NDArray[Any], found: NDArray[Any]) -> None:
    """Replace random embeddings by pretrained vectors where available, and scale the others to match."""
    with torch.no_grad():
        rows = torch.from_numpy(np.flatnonzero(found[: len(words.weight)]))
        given = torch.from_numpy(vectors)[rows]
        words.weight.mul_(float(given.std()) / EMBEDDING_SCALE if len(rows) else 1.0)
        words.weight[rows.to(words.weight.device)] = given.to(words.weight)


def use_frequencies(vocabulary: nn.Linear, counts: NDArray[Any]) -> None:
    """Start the bias over the vocabulary at the words' log frequencies, with one added to each count.

    Otherwise the states first learn the frequencies: they grow until tanh saturates, which slows down learning for
    hundreds of steps.
    """
    with torch.no_grad():
        vocabulary.bias.copy_(torch.from_numpy(np.log((1 + counts) / (1 + counts).sum())))

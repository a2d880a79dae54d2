"""The blocks that the models share: sizes, randomness, encoder, attention, decoder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from revup.data.batches import Batch
from revup.data.encode import BOS, PAD, SPECIAL, TOKENS, UNK
from revup.models.base import Architecture, Draws, Memory, Written
from revup.ops.deferred_gradients import Chained, Words, linear
from revup.ops.fused import compute_dtype, kernels

EMBEDDING_SCALE = 1.0  # standard deviation of random word embeddings; 0.1 learned more slowly and less


def word_embedding(words: int, size: int) -> nn.Embedding:
    table = nn.Embedding(words, size, padding_idx=PAD)
    nn.init.normal_(table.weight, std=EMBEDDING_SCALE)
    with torch.no_grad():
        table.weight[PAD].zero_()
    return table


def make_room(module: nn.Module, names: tuple[str, ...], state_dict: dict[str, Tensor], prefix: str) -> None:
    """Before loading, give buffers as many rows as were saved, which they learned from a corpus."""
    for name in names:
        saved, mine = state_dict.get(prefix + name), getattr(module, name, None)
        if saved is not None and mine is not None and saved.shape[1:] == mine.shape[1:]:
            setattr(module, name, torch.zeros_like(saved, device=mine.device))


class Reader(nn.Module):
    """What an encoder reads: embeddings [B, T, d], <pad> where there is no token.

    A predicate that is known as another form alone is read as that form, and a word that training never had by its
    pretrained vector (`Vocabulary` says how they are numbered), unless `beyond` is off: then both are <unk>. In
    training some words are read as <unk> and some by the vector they came with, so that both come to mean something.
    """

    given: Tensor  # pretrained vectors as they came, [V + X, d]; empty where there are none
    has: Tensor  # [V + X]

    def __init__(self, network: Architecture) -> None:
        super().__init__()
        self.dropout, self.word_dropout, self.beyond = network.dropout, network.word_dropout, network.beyond
        self.register_buffer("given", torch.zeros(0, network.embedding))
        self.register_buffer("has", torch.zeros(0, dtype=torch.bool))

    def keep(self, vectors: NDArray[Any], found: NDArray[Any]) -> None:
        if self.beyond:
            self.given, self.has = torch.from_numpy(vectors).to(self.given), torch.from_numpy(found).to(self.has)

    def forward(self, words: nn.Embedding | Words, batch: Batch, draws: Draws | None = None) -> Tensor:
        """With draws, some words are not known and some numbers are 0."""
        known, row, as_given = self._known(words.num_embeddings, batch, draws)
        embedded: Tensor = words(known)
        if row is not None and as_given is not None:
            embedded = torch.where(as_given.unsqueeze(-1), self.given[row].to(embedded.dtype), embedded)
        return draws.dropout(embedded, self.dropout) if draws is not None else embedded

    def _known(self, count: int, batch: Batch, draws: Draws | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Which of so many words are read, [B, T]; and where there are vectors, which of them, and whether in place of
        the word."""
        tokens, has = batch.words(self.beyond), self.has if len(self.given) else None
        lost = draws.drawn(tokens.shape[1]) if draws is not None and self.word_dropout else None
        bare = draws.drawn(tokens.shape[1]) if draws is not None and lost is not None and has is not None else None
        if (found := kernels(tokens.device)) is not None:
            given = (UNK, len(SPECIAL)), lost, self.word_dropout, bare, has
            return found.read_fused(tokens, batch.mask, count, *given)  # type: ignore[no-any-return]
        tokens = tokens * batch.token_mask
        further = tokens >= 2 * count
        known = torch.where(further, UNK, tokens % count)
        drops = torch.zeros_like(further)
        if lost is not None:
            drops = (lost < self.word_dropout) & (tokens >= len(SPECIAL))
        if has is None:
            return known.masked_fill(drops, UNK), None, None
        row = torch.where(further, tokens - count, known)
        keeps = torch.zeros_like(drops) if bare is None else drops & (bare < 0.5) & has[row]
        return known.masked_fill(drops & ~keeps, UNK), row, (further & ~drops) | keeps

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: Any) -> None:
        """Take as many vectors as were saved."""
        make_room(self, ("given", "has"), state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class Recurrent(nn.GRU):
    """A GRU that reads texts [B, T, d]."""

    def states(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        """After each token, [B, T, h·directions]. In 16 bits on a GPU by kernels of ours, where they learn."""
        found = kernels(x.device)
        if found is None or compute_dtype(x).itemsize > 2 or not torch.is_grad_enabled():
            states: Tensor = self(x, state)[0]
        else:  # in float16, as cuDNN does: a state has no large numbers
            states = found.gru_fused(x, state, self.all_weights, self.bidirectional, torch.float16)
        return states


class Encoder(nn.Module):
    """Words → embeddings → bidirectional GRU: states H [B, T, 2h], the embeddings beside them where slots are read.

    A document with fewer than M events is padded to M: the backward direction starts in a state that knows how many
    are missing, and every document is computed alike whatever else is in its batch.
    """

    def __init__(self, network: Architecture) -> None:
        super().__init__()
        self.reader, self.dropout, self.beside = Reader(network), network.dropout, network.places > 0
        self.rnn = Recurrent(network.embedding, network.hidden, network.layers, bidirectional=True, batch_first=True)
        self.size = 2 * network.hidden + (network.embedding if self.beside else 0)

    def forward(self, words: nn.Embedding | Words, batch: Batch, draws: Draws | None = None) -> Tensor:
        embedded = self.reader(words, batch, draws)
        states = self.rnn.states(embedded)
        if draws is not None:
            states = draws.dropout(states, self.dropout)
        return torch.cat([states, embedded.to(states.dtype)], dim=-1) if self.beside else states


def thin(query: Tensor) -> bool:
    """Whether products with these queries [B, Q, q] are better summed by hand: one row is no matrix for a GPU."""
    return query.is_cuda and query.shape[1] == 1


class Attention(nn.Module):
    """A query looks at a memory: scores qᵀWh/√d; their softmax averages the memory; out: tanh(W[context; query]).

    With `places`, the memory has so many places, each with its own meaning (the slots of an event), and is read side
    by side as well: tanh(W[context; h_1..h_places; query]), for one query.
    """

    def __init__(self, query: int, memory: int, out: int, places: int = 0) -> None:
        super().__init__()
        self.places = places
        self.score = nn.Linear(query, memory, bias=False)
        self.out = nn.Linear(memory * (1 + places) + query, out)

    def chained(self) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
        """`forward` for the steps of a chain."""
        return partial(self._look, linear(self.score), linear(self.out))

    def forward(self, query: Tensor, memory: Tensor, mask: Tensor, bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """query [B, Q, q], memory [B, T, d], mask [B, T] or [B, Q, T] → attended [B, Q, out], weights [B, Q, T].

        bias [Q, T] is added to the scores.
        """
        return self._look(linear(self.score), linear(self.out), query, memory, mask, bias)

    def _look(
        self, score: Chained, out: Chained, query: Tensor, memory: Tensor, mask: Tensor, bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        asked = score(query)
        found, kind = kernels(query.device) if mask.dim() == 2 else None, compute_dtype(memory)
        if found is not None and query.shape[1] == 1 and bias is None:
            rows = (asked.squeeze(1), memory, mask, query.squeeze(1))
            read, weights = found.look_fused(*rows, self.places > 0, kind)
            return out(read, tanh=True).unsqueeze(1), weights.unsqueeze(1)
        if found is not None and not self.places:
            read, weights = found.attend_fused(asked, memory, mask, query, bias, kind)
            return out(read, tanh=True), weights
        one = thin(query)
        scores = (asked * memory).sum(-1).unsqueeze(1) if one else asked @ memory.transpose(1, 2)
        scores = scores * memory.shape[-1] ** -0.5
        mask = mask if mask.dim() == 3 else mask.unsqueeze(1)
        if bias is not None:
            scores = scores + bias
        scores = scores.float().masked_fill(~mask, -1e9)  # not −∞: a row without any memory stays finite
        weights = torch.softmax(scores, dim=-1).to(memory.dtype)
        context = (weights.transpose(1, 2) * memory).sum(1, keepdim=True) if one else weights @ memory
        parts = [context, query.to(memory.dtype)]
        if self.places:
            parts.insert(1, memory.flatten(1).unsqueeze(1))
        return out(torch.cat(parts, dim=-1), tanh=True), weights


FARTHEST = 8  # events; latents farther away than that are told apart by content alone


@cache
def _distances(position: int, tokens: int, latents: int, device: torch.device) -> Tensor:
    """One-hot [tokens·latents, 2·FARTHEST + 1]: how far each latent's event is from that of each token from `position`
    on."""
    event = (position + torch.arange(tokens, device=device)) // TOKENS
    distance = torch.arange(latents, device=device) - event.unsqueeze(1)
    return F.one_hot(distance.clamp(-FARTHEST, FARTHEST) + FARTHEST, 2 * FARTHEST + 1).float().flatten(0, 1)


class Decoder(nn.Module):
    """A left-to-right GRU that attends over the latents e_1..e_M: states [B, T, h], ready for the vocabulary.

    The latents carry no position, so by their content alone it can't tell which one belongs to the event it is writing.
    Where `aligned`, a learned bias for each distance between the two is added to the scores, large for distance 0 at
    the start; missing latents are masked as ever. All tokens go in one call, unless input feeding is on (the attention
    vector of one step goes into the next).
    """

    def __init__(self, network: Architecture, memory: int) -> None:
        super().__init__()
        self.layers, self.hidden, self.feeding = network.layers, network.hidden, network.input_feeding
        fed = network.hidden if self.feeding else 0
        self.rnn = Recurrent(network.embedding + fed, network.hidden, network.layers, batch_first=True)
        self.initial = nn.Linear(memory, network.layers * network.hidden)
        self.attention = Attention(network.hidden, memory, network.hidden)
        self.distances = nn.Parameter(torch.zeros(2 * FARTHEST + 1)) if network.aligned else None
        if self.distances is not None:
            with torch.no_grad():
                self.distances[FARTHEST] = 4.0

    def bias(self, position: int, tokens: int, latents: int) -> Tensor | None:
        """[tokens, latents]: for tokens from `position` on, how near each latent's event is to theirs."""
        if self.distances is None:
            return None
        device = self.distances.device
        one_hot = _distances.__wrapped__ if torch.compiler.is_compiling() else _distances
        with torch.autocast(device.type, enabled=False):
            return torch.mv(one_hot(position, tokens, latents, device), self.distances).view(tokens, latents)

    def start(self, first: Tensor) -> Tensor:
        """The initial state [layers, B, h] from e_1."""
        state = linear(self.initial)(first, tanh=True).view(-1, self.layers, self.hidden)
        return state.transpose(0, 1).contiguous()

    def forward(self, embedded: Tensor, memory: Tensor, mask: Tensor, state: Tensor | None = None) -> Tensor:
        """embedded [B, T, d]: the inputs, starting with <bos>; memory [B, M, d_t]; mask [B, M]."""
        state = self.start(memory[:, 0]) if state is None else state
        if self.feeding:
            return self.run(embedded, memory, mask, state)[0]
        bias = self.bias(0, embedded.shape[1], memory.shape[1])
        attended: Tensor = self.attention(self.rnn.states(embedded, state), memory, mask, bias)[0]
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
    embedded, memory = words(tokens).unsqueeze(1), state.memory
    out, hidden = decoder.run(embedded, memory.latents, memory.mask, state.hidden, state.fed, state.position)
    log_probabilities = torch.log_softmax(vocabulary(out.squeeze(1)).float(), dim=-1)
    after = replace(state, hidden=hidden, fed=out if decoder.feeding else None, position=state.position + 1)
    return log_probabilities, after


def shifted(tokens: Tensor) -> Tensor:
    """Decoder inputs: the tokens one step late, after <bos>."""
    return F.pad(tokens, (1, 0), value=BOS)[:, :-1]


def event_tokens(states: Tensor) -> Tensor:
    """[B, M·5, d] → [B, M, 5, d]."""
    return states.view(len(states), -1, TOKENS, states.shape[-1])


def counted(values: Tensor, *weights: float | None) -> Tensor:
    """The values of a term of the loss; where all its weights are 0 it is told, but no gradient is taken of it."""
    return values if any(weights) else values.detach()


def mean_where(values: Tensor, mask: Tensor) -> Tensor:
    """The mean of values [B, N, d] over the places that exist, mask [B, N] → [B, d]; 0 where none does."""
    if (found := kernels(values.device)) is not None:
        return found.mean_fused(values, mask)  # type: ignore[no-any-return]
    there = mask.unsqueeze(-1).to(values.dtype)
    return (values * there).sum(1) / there.sum(1).clamp_min(1)


def use_vectors(words: nn.Embedding, vectors: NDArray[Any], found: NDArray[Any]) -> None:
    """Replace random embeddings by pretrained vectors where a word has one, and scale the others alike."""
    with torch.no_grad():
        rows = torch.from_numpy(np.flatnonzero(found[: len(words.weight)]))
        given = torch.from_numpy(vectors)[rows]
        words.weight.mul_(float(given.std()) / EMBEDDING_SCALE if len(rows) else 1.0)
        words.weight[rows.to(words.weight.device)] = given.to(words.weight)


def use_frequencies(vocabulary: nn.Linear, counts: NDArray[Any]) -> None:
    """Start the bias over the vocabulary at the words' log frequencies, with one added to each count.

    Otherwise the states learn the frequencies first: they grow until tanh saturates, and little else is learned for
    hundreds of steps.
    """
    with torch.no_grad():
        vocabulary.bias.copy_(torch.from_numpy(np.log((1 + counts) / (1 + counts).sum())))

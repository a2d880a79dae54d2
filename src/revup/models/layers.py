"""Building blocks shared by the models: input embeddings, encoder, attention, decoder."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from revup import ops
from revup.data.batches import Batch
from revup.data.encode import BOS, PAD, SPECIAL, TOKENS, UNK
from revup.models.base import Memory, Written
from revup.models.network import Architecture
from revup.models.randomness import Draws

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

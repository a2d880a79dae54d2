"""The shared blocks, each against the plain way of computing the same thing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from revup import ops
from revup.data.batches import Batch
from revup.data.encode import BOS, NULL, PAD, SPECIAL, TOKENS, UNK
from revup.errors import RevupError
from revup.models import layers
from revup.models.base import Memory
from revup.models.layers import (
    FARTHEST,
    Attention,
    Decoder,
    Encoder,
    InputWords,
    event_tokens,
    shifted,
    word_embedding,
)
from revup.models.network import Network
from revup.models.randomness import Draws

CPU = torch.device("cpu")
NETWORK = Network(embedding=6, hidden=8, latent=4, frame=7)
WIRINGS = {
    "aligned": NETWORK,
    "aligned-fed": replace(NETWORK, input_feeding=True),
    "by-content": replace(NETWORK, aligned=False),
    "by-content-fed": replace(NETWORK, aligned=False, input_feeding=True),
}


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


# ---- randomness ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copies", [1, 3])
def test_draws_of_some_rows_are_those_of_the_whole(copies: int) -> None:
    """What several processes draw together is what one would draw alone, call for call."""

    def drawn(rows: slice) -> list[Tensor]:
        draws = Draws.seeded(5, 7, CPU, rows, copies)
        x = torch.ones(7, 4)[rows]
        dropped = draws.dropout(x, 0.4)
        return [draws.normal(2, 3), draws.uniform(3), dropped, draws.uniform(1), draws.drawn(3)]

    whole, parts = drawn(slice(None)), [drawn(slice(0, 4)), drawn(slice(4, 7))]
    assert [len(part) for part in whole] == [7 * copies, 7 * copies, 7, 7 * copies, 7]
    for i, expected in enumerate(whole):
        assert torch.equal(torch.cat([part[i] for part in parts]), expected)


def test_copies_of_a_document_lie_beside_each_other_and_differ() -> None:
    draws = Draws.seeded(5, 7, CPU, copies=3)
    numbers = draws.normal(2).view(7, 3, 2)
    assert len(numbers.flatten().unique()) == 7 * 3 * 2
    one = Draws.seeded(5, 7, CPU, slice(2, 3), copies=3).normal(2)
    assert torch.equal(one, numbers[2])


def test_draws_follow_from_their_seed() -> None:
    first, again, other = (Draws.seeded(seed, 4, CPU).normal(5) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_dropout_keeps_the_mean_and_the_share() -> None:
    x = torch.ones(400, 50)
    dropped = Draws.seeded(0, 400, CPU).dropout(x, 0.3)
    assert dropped.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert float((dropped == 0).float().mean()) == pytest.approx(0.3, abs=0.02)
    assert Draws.seeded(0, 400, CPU).dropout(x, 0.0) is x


# ---- attention, decoder, encoder -----------------------------------------------------------------------------


def test_attention_sees_only_what_the_mask_lets_it_see() -> None:
    attention = Attention(5, 6, 4)
    query, memory = torch.randn(2, 3, 5), torch.randn(2, 4, 6)
    mask = torch.tensor([[True, True, False, False], [True, False, True, True]])
    out, weights = attention(query, memory, mask)
    assert (weights[~mask.unsqueeze(1).expand_as(weights)] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3))
    other = torch.where(mask.unsqueeze(-1), memory, torch.randn_like(memory) * 100)
    assert torch.equal(attention(query, other, mask)[0], out)


def test_attention_is_the_equation() -> None:
    attention = Attention(5, 6, 4)
    query, memory = torch.randn(5), torch.randn(3, 6)
    weights = torch.softmax(memory @ (attention.score.weight @ query) / 6**0.5, dim=0)
    out = torch.tanh(attention.out(torch.cat([weights @ memory, query])))
    found = attention(query.view(1, 1, 5), memory.unsqueeze(0), torch.ones(1, 3, dtype=torch.bool))
    torch.testing.assert_close(found[0].flatten(), out)
    torch.testing.assert_close(found[1].flatten(), weights)


def test_attention_may_read_its_places_side_by_side() -> None:
    """What stands where matters then, beyond the average."""
    attention = Attention(5, 6, 4, places=3)
    query, memory, mask = torch.randn(1, 1, 5), torch.randn(1, 3, 6), torch.ones(1, 3, dtype=torch.bool)
    weights = torch.softmax(memory[0] @ (attention.score.weight @ query[0, 0]) / 6**0.5, dim=0)
    read = torch.cat([weights @ memory[0], memory[0].flatten(), query[0, 0]])
    found = attention(query, memory, mask)[0]
    torch.testing.assert_close(found[0, 0], torch.tanh(attention.out(read)))
    assert not torch.allclose(attention(query, memory.flip(1), mask)[0], found)


def test_attention_over_nothing_is_finite() -> None:
    out, weights = Attention(5, 6, 4)(torch.randn(1, 1, 5), torch.randn(1, 3, 6), torch.zeros(1, 3, dtype=torch.bool))
    assert out.isfinite().all()
    assert weights.isfinite().all()


@pytest.fixture(params=WIRINGS)
def wiring(request: pytest.FixtureRequest) -> Network:
    return WIRINGS[request.param]


def decoder_of(network: Network) -> Decoder:
    """A decoder that has an opinion on every distance."""
    decoder = Decoder(network, 7)
    if decoder.distances is not None:
        nn.init.normal_(decoder.distances, std=3.0)
    return decoder


def decoder_case() -> tuple[Tensor, Tensor, Tensor]:
    """Two events and the beginning of a third; of the second text's three latents one is missing."""
    mask = torch.tensor([[True, True, True], [True, True, False]])
    return torch.randn(2, 13, 6), torch.randn(2, 3, 7), mask


@pytest.mark.parametrize("cuts", [[1] * 13, [4, 9], [7, 5, 1]], ids=str)
def test_decoder_in_one_call_equals_a_part_at_a_time(wiring: Network, cuts: list[int]) -> None:
    decoder, (embedded, memory, mask) = decoder_of(wiring), decoder_case()
    whole = decoder(embedded, memory, mask)
    state, fed, position, parts = decoder.start(memory[:, 0]), None, 0, []
    for part in embedded.split(cuts, dim=1):
        out, state = decoder.run(part, memory, mask, state, fed, position=position)
        fed = out[:, -1:] if wiring.input_feeding else None
        position += part.shape[1]
        parts.append(out)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-5, atol=1e-6)


def plain_cell(rnn: nn.GRU, layer: int, x: Tensor, h: Tensor) -> Tensor:
    """One step of one GRU layer, from its definition."""
    w_i, w_h, b_i, b_h = (getattr(rnn, f"{n}_l{layer}") for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    r_i, z_i, n_i = (x @ w_i.t() + b_i).chunk(3, -1)
    r_h, z_h, n_h = (h @ w_h.t() + b_h).chunk(3, -1)
    r, z = torch.sigmoid(r_i + r_h), torch.sigmoid(z_i + z_h)
    return (1 - z) * torch.tanh(n_i + r * n_h) + z * h


def plain_attention(decoder: Decoder, query: Tensor, memory: Tensor, mask: Tensor, token: int) -> Tensor:
    """What one text [h] reads at its token of that number, a latent at a time."""
    scores, there = [], [m for m in range(len(memory)) if mask[m]]
    for m in there:
        score = memory[m] @ (decoder.attention.score.weight @ query) / len(memory[m]) ** 0.5
        if decoder.distances is not None:
            away = min(max(m - token // TOKENS, -FARTHEST), FARTHEST)
            score = score + decoder.distances[FARTHEST + away]
        scores.append(score.exp())
    context = sum(score / sum(scores) * memory[m] for score, m in zip(scores, there, strict=True))
    return torch.tanh(decoder.attention.out(torch.cat([torch.as_tensor(context), query])))


def test_decoder_equals_a_plain_loop(wiring: Network) -> None:
    decoder, (embedded, memory, mask) = decoder_of(wiring), decoder_case()
    found = decoder(embedded, memory, mask)
    for row in range(2):
        hidden = list(torch.tanh(decoder.initial(memory[row, 0])).chunk(wiring.layers))
        fed = torch.zeros(8)
        for t in range(13):
            x = torch.cat([embedded[row, t], fed]) if wiring.input_feeding else embedded[row, t]
            for layer in range(wiring.layers):
                x = hidden[layer] = plain_cell(decoder.rnn, layer, x, hidden[layer])
            fed = plain_attention(decoder, x, memory[row], mask[row], t)
            torch.testing.assert_close(found[row, t], fed, rtol=1e-4, atol=1e-5)


def test_the_bias_goes_by_the_distance_between_events() -> None:
    """Told apart up to 8 events before and after, and from any token on."""
    decoder, latents = decoder_of(NETWORK), 12
    distances = (decoder.distances if decoder.distances is not None else torch.zeros(0)).tolist()
    for position, tokens in ((0, 70), (33, 1), (64, 11)):
        found = decoder.bias(position, tokens, latents)
        assert found is not None
        assert found.tolist() == [
            [distances[8 + max(-8, min(8, latent - (position + token) // 5))] for latent in range(latents)]
            for token in range(tokens)
        ]


def test_an_aligned_decoder_starts_at_its_own_event_and_learns_the_rest() -> None:
    decoder, (embedded, memory, mask) = Decoder(NETWORK, 7), decoder_case()
    assert decoder.distances is not None
    with torch.no_grad():
        nn.init.zeros_(decoder.attention.score.weight)  # nothing is known by content
        states = torch.zeros(2, 13, 8)
        weights = decoder.attention(states, memory, mask, decoder.bias(0, 13, 3))[1]
    own = [0] * 5 + [1] * 5 + [2] * 3
    assert weights[0].argmax(-1).tolist() == own
    torch.testing.assert_close(weights[0].amax(-1), torch.tensor(4.0).exp().div(torch.tensor(4.0).exp() + 2).expand(13))
    assert (weights[1, :, 2] == 0).all()  # the latent that is missing, also where it would be the nearest
    torch.testing.assert_close(weights[1, 10:, :2], torch.full((3, 2), 0.5))
    decoder(embedded, memory, mask).sum().backward()
    moved = decoder.distances.grad
    assert moved is not None
    assert moved.nonzero().flatten().tolist() == [6, 7, 8, 9, 10]  # distances −2 to 2 are all that came up


@pytest.mark.parametrize("feeding", [False, True], ids=["plain", "fed"])
def test_a_decoder_that_is_not_aligned_knows_no_places(feeding: bool) -> None:
    """As in the paper: no bias, latents in any order, any position; an aligned one with biases of 0 is the same."""
    network = replace(NETWORK, aligned=False, input_feeding=feeding)
    decoder, (embedded, memory, mask) = Decoder(network, 7), decoder_case()
    assert decoder.distances is None
    assert decoder.bias(3, 4, 5) is None
    state, order = decoder.start(memory[:, 0]), torch.tensor([2, 0, 1])
    found = decoder.run(embedded, memory, mask, state)[0]
    torch.testing.assert_close(decoder.run(embedded, memory[:, order], mask[:, order], state)[0], found)
    assert torch.equal(decoder.run(embedded, memory, mask, state, position=5)[0], found)
    aligned = Decoder(replace(network, aligned=True), 7)
    aligned.load_state_dict({**decoder.state_dict(), "distances": torch.zeros(2 * FARTHEST + 1)})
    torch.testing.assert_close(aligned.run(embedded, memory, mask, state)[0], found)
    nn.init.normal_(aligned.distances)  # type: ignore[arg-type]
    assert not torch.allclose(aligned.run(embedded, memory, mask, state)[0], found)


def test_writing_step_by_step_gives_the_probabilities_of_reading_at_once(wiring: Network) -> None:
    decoder, words, vocabulary = decoder_of(wiring), word_embedding(12, 6), nn.Linear(8, 12)
    _, memory, mask = decoder_case()
    tokens = torch.randint(5, 12, (2, 13))
    inputs = shifted(tokens)
    at_once = torch.log_softmax(vocabulary(decoder(words(inputs), memory, mask)), dim=-1)
    state = layers.start(decoder, Memory(memory, mask))
    for t in range(13):
        assert state.position == t
        lost = replace(state, position=0)
        astray, _ = layers.step(words, decoder, vocabulary, inputs[:, t], lost)
        found, state = layers.step(words, decoder, vocabulary, inputs[:, t], state)
        torch.testing.assert_close(found, at_once[:, t], rtol=1e-5, atol=1e-5)
        assert torch.equal(astray, found) == (t < TOKENS or not wiring.aligned)  # where it stands matters, then
        if t in (4, 7):  # the order of texts may change on the way, and change back
            state = state.select(torch.tensor([1, 0])).select(torch.tensor([1, 0]))


def test_a_beam_may_hold_a_text_twice() -> None:
    decoder, words, vocabulary = decoder_of(WIRINGS["aligned-fed"]), word_embedding(12, 6), nn.Linear(8, 12)
    _, memory, mask = decoder_case()
    _, state = layers.step(
        words, decoder, vocabulary, torch.tensor([BOS, BOS]), layers.start(decoder, Memory(memory, mask))
    )
    twice = state.select(torch.tensor([1, 1, 0]))
    found, _ = layers.step(words, decoder, vocabulary, torch.tensor([7, 7, 8]), twice)
    single, _ = layers.step(words, decoder, vocabulary, torch.tensor([8, 7]), state)
    torch.testing.assert_close(found, single[[1, 1, 0]])


def reading(mask: list[list[int]], words: int = 12) -> Batch:
    """A batch of random words of which only tokens and mask matter."""
    there = torch.tensor(mask, dtype=torch.bool)
    tokens = torch.randint(len(SPECIAL), words, (len(mask), there.shape[1] * TOKENS))
    none, number = torch.zeros(*there.shape, 1), torch.zeros(there.shape)
    seen = {"frames": none.long(), "weights": none, "other": number, "belief": number}
    prior = {"prior_frames": none.long(), "prior_gain": none, "prior_rest": number, "labels": number}
    return Batch(
        tokens=tokens,
        read=tokens,
        mask=there,
        observed=number,
        confidence=number,
        reference=number.long(),
        **seen,
        **prior,
        vectors=torch.zeros(*there.shape, 0),
        lemma=number.long(),
        documents=len(mask),
        events=int(there.sum()),
        observed_events=0,
    )


@pytest.mark.parametrize("slots", [False, True])
def test_encoder_of_a_document_depends_on_its_own_words_alone(slots: bool) -> None:
    """Neither on its neighbours nor on what stands in its padding."""
    encoder, words = Encoder(replace(NETWORK, slots=slots)), word_embedding(12, 6)
    batch = reading([[1, 1], [1, 0], [1, 1]])
    together = encoder(words, batch)
    assert together.shape == (3, 2 * TOKENS, encoder.size)
    assert encoder.size == 16 + 6 * slots
    for row in range(3):
        part = slice(row, row + 1)
        alone = replace(batch, tokens=batch.tokens[part], read=batch.read[part], mask=batch.mask[part], documents=1)
        torch.testing.assert_close(encoder(words, alone)[0], together[row], rtol=1e-5, atol=1e-6)
    other = torch.where(batch.token_mask, batch.tokens, 11)
    assert torch.equal(encoder(words, replace(batch, tokens=other, read=other)), together)
    if slots:
        torch.testing.assert_close(together[..., 16:], words(batch.tokens * batch.token_mask))


def test_encoder_drops_only_when_it_is_given_draws() -> None:
    encoder, words = Encoder(replace(NETWORK, dropout=0.5, slots=False)), word_embedding(12, 6)
    batch = reading([[1, 1], [1, 0], [1, 1]])
    assert torch.equal(encoder(words, batch), encoder(words, batch))
    dropped = encoder(words, batch, Draws.seeded(1, 3, CPU))
    assert float((dropped == 0).float().mean()) == pytest.approx(0.5, abs=0.1)
    assert torch.equal(dropped, encoder(words, batch, Draws.seeded(1, 3, CPU)))


def test_words_are_lost_as_unknown_ones() -> None:
    """A share of them, never a special token, and only with draws."""
    words, batch = word_embedding(12, 6), reading([[1] * 40] * 10)
    tokens = torch.where(torch.rand(batch.tokens.shape) < 0.2, NULL, batch.tokens)
    batch = replace(batch, tokens=tokens, read=tokens)
    read = InputWords(replace(NETWORK, word_dropout=0.3))(words, batch, Draws.seeded(1, 10, CPU))
    unknown = (read == words.weight[UNK]).all(-1)
    assert float(unknown[tokens != NULL].float().mean()) == pytest.approx(0.3, abs=0.04)
    assert not unknown[tokens == NULL].any()
    assert torch.equal(read[~unknown], words(tokens)[~unknown])
    assert torch.equal(InputWords(replace(NETWORK, dropout=0.5, word_dropout=0.3))(words, batch), words(tokens))


def test_words_beyond_the_vocabulary_are_read_by_what_is_known_of_them() -> None:
    """12 words and 2 beyond: one known as a form of word 7, one by its vector; with `beyond` off both are <unk>."""
    words, given = word_embedding(12, 6), np.arange(14 * 6, dtype=np.float32).reshape(14, 6)
    found = np.array([n > 8 for n in range(14)])
    tokens = torch.full((1, TOKENS), UNK)
    read = torch.tensor([[12 + 7, 24 + 1, UNK, 9, 24]])
    batch = replace(reading([[1]]), tokens=tokens, read=read)
    reader = InputWords(NETWORK)
    reader.keep(given, found)
    expected = [words.weight[7], torch.from_numpy(given[13]), words.weight[UNK], words.weight[9]]
    assert torch.equal(reader(words, batch)[0], torch.stack([*expected, torch.from_numpy(given[12])]))
    plain = InputWords(replace(NETWORK, beyond=False))
    plain.keep(given, found)
    assert torch.equal(plain(words, batch)[0], words(tokens)[0])
    again = InputWords(NETWORK)
    again.load_state_dict(reader.state_dict())
    assert torch.equal(again(words, batch), reader(words, batch))


def test_some_words_are_lost_to_the_vector_they_came_with() -> None:
    words, batch = word_embedding(12, 6), reading([[1] * 40] * 10)
    found = np.array([n % 2 == 0 for n in range(12)])
    reader = InputWords(replace(NETWORK, word_dropout=0.4))
    reader.keep(np.full((12, 6), 7.0, np.float32), found)
    read = reader(words, batch, Draws.seeded(1, 10, CPU))
    as_given, unknown = (read == 7).all(-1), (read == words.weight[UNK]).all(-1)
    even = batch.tokens % 2 == 0
    assert float(as_given[even].float().mean()) == pytest.approx(0.2, abs=0.04)
    assert float(unknown[even].float().mean()) == pytest.approx(0.2, abs=0.04)
    assert not as_given[~even].any()
    assert float(unknown[~even].float().mean()) == pytest.approx(0.4, abs=0.05)
    rest = ~as_given & ~unknown
    assert torch.equal(read[rest], words(batch.tokens)[rest])


def test_small_pieces() -> None:
    assert shifted(torch.tensor([[5, 6, 7], [8, 9, 0]])).tolist() == [[BOS, 5, 6], [BOS, 8, 9]]
    states = torch.arange(2 * 10 * 3).view(2, 10, 3)
    assert torch.equal(event_tokens(states)[1, 1], states[1, 5:10])
    values, mask = torch.tensor([[[1.0], [3.0], [50.0]], [[7.0], [8.0], [9.0]]]), torch.tensor([[1, 1, 0], [0, 0, 0]])
    assert ops.masked_mean(values, mask).tolist() == [[2.0], [0.0]]
    assert word_embedding(9, 4).weight[PAD].abs().sum() == 0


# ---- settings ------------------------------------------------------------------------------------------------


def test_sizes_follow_from_size_and_frames() -> None:
    paper = Network(size="paper").resolve(600)
    assert (paper.embedding, paper.hidden, paper.latent, paper.frame) == (300, 512, 600, 600)
    small = Network(hidden=32).resolve(600)
    assert (small.embedding, small.hidden, small.latent, small.frame) == (100, 32, 128, 128)


def test_slots_are_read_where_a_latent_has_an_event_of_its_own() -> None:
    assert Network().places == TOKENS
    assert Network(slots=False).places == Network(attention="full").places == 0
    readings = [("confined", True), ("confined", False), ("full", True), ("full", False)]
    sizes = [Encoder(replace(NETWORK, attention=attention, slots=slots)).size for attention, slots in readings]
    assert sizes == [16 + 6, 16, 16, 16]


def test_pretrained_vectors_decide_the_embedding() -> None:
    assert Network().resolve(5, 50).embedding == 50
    assert Network(embedding=50).resolve(5, 50).embedding == 50
    with pytest.raises(RevupError, match=r"network\.embedding is 60, but the word vectors have 50"):
        Network(embedding=60).resolve(5, 50)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"size": "huge"}, {"attention": "some"}, {"dropout": 1.0}, {"dropout": -0.1}, {"dropout": float("nan")}),
        {"word_dropout": 1.0},
        *({"hidden": 0}, {"layers": 0}, {"embedding": -1}, {"latent": -1}, {"frame": -5}),
    ],
    ids=str,
)
def test_a_wrong_network_is_refused_by_name(wrong: dict[str, object]) -> None:
    with pytest.raises(RevupError, match=rf"network\.{next(iter(wrong)).replace('_', '-')}: expected"):
        Network(**wrong)  # type: ignore[arg-type]

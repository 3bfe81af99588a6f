"""The backbone: what is cached, batched or forced has the log-probabilities of one step after the other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.evaluation.baselines.autoregressive.backbone import MOST, QueryDecoder, Seq2Seq, padded
from pixnar.evaluation.baselines.autoregressive.beam import BeamOptions, beam_search, exhaustive, sequence_log_p
from pixnar.evaluation.baselines.autoregressive.gather import SEAL, SEAL_LM_FM, GatherOptions, Key, gather, seal_lm
from pixnar.evaluation.baselines.autoregressive.ids import END, FIRST, PAD, PieceTokens, text_ids
from pixnar.evaluation.baselines.autoregressive.layers import Pointer, encoder_layers
from pixnar.evaluation.baselines.autoregressive.substrings import Substrings
from pixnar.evaluation.baselines.autoregressive.trie import Trie
from pixnar.model.encoder import Encoder
from tests.helpers.tiny_model import KINDS, TEXTS, body, tokenizer


def tiny(kind: str = "bert", seed: int = 0) -> Encoder:
    pieces = tokenizer()
    return Encoder(body(kind, len(pieces), seed), pieces, name="tiny").eval()


def words(encoder: Encoder, texts: tuple[str, ...] = TEXTS) -> list[list[int]]:
    """Word pieces without the encoder's begin and end."""
    return [pieces[1:-1] for pieces in encoder.pieces(texts)]


def model_of(kind: str = "bert", *, markers: int = 0, views: int = 0) -> tuple[Seq2Seq, list[list[int]]]:
    """A model over the words of all texts, and each text with its end."""
    encoder = tiny(kind)
    pieces = words(encoder)
    tokens = PieceTokens([piece for text in pieces for piece in text], markers=markers)
    model = Seq2Seq(encoder, tokens, views=views).eval()
    with torch.no_grad():  # of a size that matters
        for part in model.parameters():
            part.add_(torch.randn(part.shape, generator=torch.Generator().manual_seed(1)) * 0.05)
    return model, [[*tokens.encode(text), END] for text in pieces]


@pytest.mark.parametrize("kind", KINDS)
def test_cached_steps_are_the_uncached_ones(kind: str) -> None:
    model, sequences = model_of(kind)
    source = model.source([TEXTS[0]])
    tokens = torch.tensor([[PAD, *sequences[3]]])
    cache = model.start(source)
    with torch.no_grad():
        whole = model.read(tokens, cache)[0][0]
        for place in range(tokens.shape[1]):
            log_p, cache = model.read(tokens[:, place : place + 1], cache)
            alone = model.read(tokens[:, : place + 1], model.start(source))[0][0, -1]
            torch.testing.assert_close(log_p[0, 0], alone, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(whole[place], alone, atol=1e-5, rtol=1e-5)
        assert cache.length == tokens.shape[1]
        first = model.read(tokens[:, :3], model.start(source))
        rest = model.read(tokens[:, 3:], first[1])[0]
    torch.testing.assert_close(torch.cat([first[0], rest], 1)[0], whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_texts_is_each_text_alone(kind: str) -> None:
    model, sequences = model_of(kind)
    with torch.no_grad():
        together = model.sequence_log_p(model.source(TEXTS), padded(sequences[::-1]))
        alone = [
            model.sequence_log_p(model.source([text]), torch.tensor([sequence]))
            for text, sequence in zip(TEXTS, sequences[::-1], strict=True)
        ]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-4, rtol=1e-4)


def test_a_batch_of_hypotheses_is_each_alone_and_teacher_forcing_their_sum() -> None:
    model, sequences = model_of()
    decoder = model.decoder(TEXTS[3])
    tuples = [tuple(sequence) for sequence in sequences]
    scores = sequence_log_p(decoder, tuples)
    with torch.no_grad():
        source = model.source([TEXTS[3]])
        forced = model.sequence_log_p(source, padded(sequences)).numpy()
    assert scores == pytest.approx(forced, abs=1e-4)
    assert scores == pytest.approx([sequence_log_p(decoder, [one])[0] for one in tuples], abs=1e-4)
    assert len({round(float(score), 4) for score in scores}) == len(scores)


def test_a_beam_over_the_model_is_exhaustive_when_it_is_wide() -> None:
    model, sequences = model_of()
    trie, tuples = Trie.of([sequence[:-1] for sequence in sequences], end=END), [tuple(one) for one in sequences]
    options = BeamOptions(width=len(sequences), steps=16, end=END)
    found, wanted = (
        beam_search(model.decoder("green tea"), trie, options),
        exhaustive(model.decoder("green tea"), tuples, len(tuples), options),
    )
    assert [one.tokens for one in found] == [one.tokens for one in wanted]
    assert [one.score for one in found] == pytest.approx([one.score for one in wanted], abs=1e-4)


@pytest.mark.parametrize("text", [TEXTS[3], "zzz"])
def test_probabilities_sum_to_one(text: str) -> None:
    model, sequences = model_of(markers=2)
    with torch.no_grad():
        log_p = model.forced(model.source([text]), torch.tensor([sequences[0]]))
    assert log_p.exp().sum(-1).numpy() == pytest.approx(1.0, abs=1e-5)


def test_cross_attention_reads_the_source_once_a_query() -> None:
    model, sequences = model_of()
    calls = []
    for layer in model.layers:
        assert isinstance(layer.cross, nn.Module)
        layer.cross.get_submodule("key").register_forward_hook(lambda *_: calls.append(1))
    decoder: QueryDecoder = model.decoder("rome")
    sequence_log_p(decoder, [tuple(sequence) for sequence in sequences])
    beam_search(decoder, Trie.of(sequences[:0], end=END), BeamOptions(width=2, steps=3, end=END))
    assert len(calls) == len(model.layers)


def test_the_pointer_copies_what_the_text_has() -> None:
    model, _ = model_of()
    assert model.pointer is not None
    with torch.no_grad():
        model.pointer.gate.bias.fill_(50.0)
        probabilities = model.forced(model.source([TEXTS[5]]), torch.tensor([[END]]))[0, 0].exp()
        encoder = model.encoder
        inside = {int(model.token_of_piece[piece]) for piece in words(encoder, (TEXTS[5],))[0]}
        assert sum(float(probabilities[token]) for token in inside) == pytest.approx(1.0, abs=1e-4)
        nothing = model.forced(model.source(["zzz"]), torch.tensor([[END]]))  # no piece of it has a token
        model.pointer.gate.bias.fill_(-50.0)
        torch.testing.assert_close(nothing, model.forced(model.source(["zzz"]), torch.tensor([[END]])))


def test_padding_is_not_copied_even_if_its_piece_has_a_token() -> None:
    encoder = tiny()
    tokens = PieceTokens([0, *words(encoder, ("green tea",))[0]])  # 0 pads
    found = Seq2Seq(encoder, tokens).source(["green tea", "tea"]).tokens
    green, tea = tokens.encode(words(encoder, ("green tea",))[0])
    assert found.tolist() == [[-1, green, tea, -1], [-1, tea, -1, -1]]


def test_the_pointer_is_a_mixture_by_token() -> None:
    torch.manual_seed(0)
    pointer = Pointer(4)
    log_p, h, keys = torch.randn(1, 2, 6).log_softmax(-1), torch.randn(1, 2, 4), torch.randn(1, 3, 4)
    tokens = torch.tensor([[5, -1, 5]])
    found = pointer(log_p, h, keys, tokens).exp()
    attention = (pointer.query(h) @ keys.mT / 2)[..., [0, 2]].softmax(-1)
    gate = pointer.gate(h).sigmoid()
    wanted = (1 - gate) * log_p.exp()
    wanted[..., 5] += gate[..., 0] * attention.sum(-1)
    torch.testing.assert_close(found, wanted)


def test_gradients_are_finite_where_nothing_can_be_copied() -> None:
    model, sequences = model_of()
    model.loss(model.source(["zzz", TEXTS[0]]), padded(sequences[:2])).backward()  # type: ignore[no-untyped-call]
    gradients = [part.grad for part in model.parameters() if part.grad is not None]
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert model.embeddings.grad is not None
    assert model.embeddings.grad.abs().sum() > 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_cross_entropy_with_label_smoothing(smoothing: float) -> None:
    model, sequences = model_of()
    source, targets = model.source(TEXTS), padded(sequences)
    log_p = model.forced(source, targets)
    wanted = nn.functional.cross_entropy(
        log_p.flatten(0, 1), targets.flatten(), ignore_index=PAD, label_smoothing=smoothing
    )
    torch.testing.assert_close(model.loss(source, targets, smoothing), wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_the_decoder_begins_as_layers_of_the_encoder(kind: str) -> None:
    encoder = tiny(kind)
    tokens = PieceTokens([9, 40, 41], markers=1)
    model = Seq2Seq(encoder, tokens)
    rows: Any = encoder.body.get_input_embeddings()  # type: ignore[operator]
    assert torch.equal(model.embeddings[tokens.size - 3 :], rows.weight[[9, 40, 41]])
    assert torch.equal(model.embeddings[END], rows.weight[encoder.tokenizer.sep_token_id])
    assert model.copied == (kind != "modernbert")  # whose layers are built in another way
    if model.copied:
        for layer, number in zip(model.layers, (0, 0, 1), strict=True):
            own: dict[str, Tensor] = layer.state_dict()
            of_encoder = encoder_layers(encoder.body)[number].state_dict()
            query = next(value for name, value in of_encoder.items() if "self.query" in name)
            assert torch.equal(own["own.query.weight"], query)
            assert torch.equal(own["cross.query.weight"], query)
            assert torch.equal(own["outer_norm.bias"], of_encoder["output.LayerNorm.bias"])
    if kind == "bert":
        first = encoder.body.get_submodule("embeddings")(input_ids=torch.tensor([[40, 9]]))
        generated = model.norm(model.embeddings[[tokens.encode([40])[0], tokens.encode([9])[0]]] + model.places[:2])
        torch.testing.assert_close(generated, first[0])
    before = rows.weight.clone()
    with torch.no_grad():
        model.embeddings.add_(1.0)
    assert torch.equal(rows.weight, before)  # copied, not shared


def test_ids_that_are_no_word_pieces_begin_at_random_and_are_not_copied() -> None:
    models = [Seq2Seq(tiny(), 32, seed=seed) for seed in (1, 1, 2)]
    assert models[0].embeddings.shape == (32, 32)
    assert models[0].pointer is None
    assert torch.equal(models[0].embeddings, models[1].embeddings)
    assert not torch.equal(models[0].embeddings, models[2].embeddings)
    log_p, _ = models[0].decoder("rome").step(models[0].decoder("rome").start(), np.array([PAD]))
    assert np.exp(log_p).sum() == pytest.approx(1.0, abs=1e-5)


@pytest.fixture(scope="module")
def trained() -> tuple[Seq2Seq, list[tuple[int, ...]]]:
    """A model that learned to generate the endings of another text than it reads, so not by copying; and all texts."""
    encoder = tiny()
    tokens, ids = text_ids(words(encoder))
    model = Seq2Seq(encoder, tokens)
    pairs = [
        (text, [*one[start:], END])
        for text, one in zip(TEXTS, (*ids[1:], ids[0]), strict=True)
        for start in range(len(one))
    ]
    texts, targets = [text for text, _ in pairs], padded([target for _, target in pairs])
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    torch.manual_seed(0)
    for _ in range(120):
        optimizer.zero_grad()
        model.loss(model.source(texts), targets).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model.eval(), ids


def test_a_few_steps_of_training_teach_a_text_to_each_query(trained: tuple[Seq2Seq, list[tuple[int, ...]]]) -> None:
    model, ids = trained
    trie = Trie.of(ids, end=END)
    for number, text in enumerate(TEXTS):
        best, *_ = beam_search(model.decoder(text), trie, BeamOptions(width=3, steps=16, end=END))
        assert trie.items(trie.find(best.tokens)).tolist() == [(number + 1) % len(TEXTS)]


@pytest.mark.parametrize("options", [SEAL, SEAL_LM_FM, seal_lm(3)], ids=["SEAL", "SEAL-LM+FM", "SEAL-LM"])
def test_generated_ngrams_find_the_document_they_were_learned_from(
    trained: tuple[Seq2Seq, list[tuple[int, ...]]], options: GatherOptions
) -> None:
    model, ids = trained
    index, options = Substrings.of(ids), replace(options, smoothing=0.1)  # of few tokens
    for number, text in enumerate(TEXTS):
        decoder = model.decoder(text)
        unigrams = decoder.step(decoder.start(), np.array([PAD]))[0][0]
        kept = beam_search(decoder, index, BeamOptions(width=8, steps=4, memory=True))
        scored = gather(index, [Key(one.tokens, one.log_p) for one in kept], options, unigrams)
        assert scored.first(1).tolist() == [(number + 1) % len(TEXTS)]


def test_sequences_that_are_too_long_are_refused() -> None:
    model = Seq2Seq(tiny(), 10)
    with pytest.raises(PixnarError, match=f"{MOST + 1} tokens are too many for a decoder of {MOST}"):
        model.forced(model.source(["tea"]), torch.full((1, MOST + 1), FIRST))
    with pytest.raises(PixnarError, match="layers 0 is not possible"):
        Seq2Seq(tiny(), 10, layers=0)


def test_a_view_is_one_vector_on_the_states_of_the_encoder() -> None:
    model, sequences = model_of(views=2)
    targets = padded(sequences[:2])
    with torch.no_grad():
        both = model.forced(model.source(TEXTS[:2], [0, 1]), targets)
        apart = [model.forced(model.source([TEXTS[i]], [i]), targets[i : i + 1])[0] for i in (0, 1)]
        torch.testing.assert_close(both, torch.stack(apart), atol=1e-5, rtol=1e-5)
        other = model.forced(model.source(TEXTS[:2], [1, 1]), targets)
        assert not torch.allclose(other[0], both[0], atol=1e-3)
        torch.testing.assert_close(other[1], both[1])
        model.views.zero_()
        torch.testing.assert_close(
            model.forced(model.source(TEXTS[:2], [0, 1]), targets), model.forced(model.source(TEXTS[:2]), targets)
        )


def test_decoders_of_views_encode_a_text_once() -> None:
    model, sequences = model_of(views=3)
    calls: list[int] = []
    model.encoder.body.register_forward_hook(lambda *_: calls.append(1))
    decoders = model.decoders(TEXTS[0], [2, 0])
    assert len(calls) == 1
    tuples = [tuple(sequence) for sequence in sequences]
    for decoder, view in zip(decoders, (2, 0), strict=True):
        with torch.no_grad():
            forced = model.sequence_log_p(model.source([TEXTS[0]], [view]), padded(sequences)).numpy()
        assert sequence_log_p(decoder, tuples) == pytest.approx(forced, abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_is_the_same_when_it_is_read(kind: str, tmp_path: Path) -> None:
    model, sequences = model_of(kind, markers=2, views=2)
    ids = Seq2Seq(tiny(kind), 12, layers=2, most=7, seed=3)
    for number, (one, targets) in enumerate(((model, padded(sequences)), (ids, torch.tensor([[5, 11, END]] * 6)))):
        one.save_pretrained(tmp_path / str(number))
        again = Seq2Seq.from_pretrained(tmp_path / str(number))
        assert (again.most, len(again.views), len(again.layers)) == (one.most, len(one.views), len(one.layers))
        with torch.no_grad():
            torch.testing.assert_close(
                again.loss(again.source(TEXTS), targets),
                one.eval().loss(one.source(TEXTS), targets),
                rtol=1e-5,
                atol=1e-5,
            )
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".bin", ".pt", ".pkl")]
    settings = tmp_path / "0" / "model.json"
    settings.write_text(settings.read_text().replace('"layers": 3', '"layers": 2'))
    with pytest.raises(FileFormatError, match="damaged or of another model"):
        Seq2Seq.from_pretrained(tmp_path / "0")
    settings.write_text(settings.read_text().replace('"most"', '"least"'))
    with pytest.raises(FileFormatError, match="does not say 'most'"):
        Seq2Seq.from_pretrained(tmp_path / "0")
    (tmp_path / "1" / "model.safetensors").write_bytes(b"short")
    with pytest.raises(FileFormatError, match="missing, damaged"):
        Seq2Seq.from_pretrained(tmp_path / "1")
    with pytest.raises(FileFormatError, match="cannot read"):
        Seq2Seq.from_pretrained(tmp_path / "2")

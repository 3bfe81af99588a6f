from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.model.build import build_model, calibrate, phrase_texts, start_bias
from pixnar.model.encoder import Encoder
from pixnar.model.features import FeatureCache
from pixnar.model.head import PhraseHead
from pixnar.model.nar import DESIGNS, Nar, make_slots
from pixnar.pipeline.context import x_of
from pixnar.scoring import Priors
from pixnar.vocab import Vocabulary
from tests.helpers.tiny_model import KINDS, TEXTS, WIDTH, save_encoder

SLOTS = 3
DAMAGES = [
    *("gone", "no-json", "bad-json", "list", "foreign", "newer", "keys"),
    *("no-tensors", "bad-tensors", "no-head", "other-slots", "no-encoder", "bad-encoder"),
]


def make(folder: Path, kind: str = "bert", design: str = "mlp", *, bias: bool = True) -> Nar:
    encoder = Encoder.load(save_encoder(folder, kind), max_pieces=20)
    torch.manual_seed(3)
    head = PhraseHead.random(11, WIDTH, std=0.5, bias=torch.randn(11) if bias else None)
    model = Nar(encoder, make_slots(design, WIDTH, SLOTS, 16), head)
    with torch.no_grad():
        for parameter in model.slots.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        model.log_z.normal_()
    return model.eval()


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("kind", KINDS)
def test_round_trip(tmp_path: Path, kind: str, design: str) -> None:
    model = make(tmp_path / "encoder", kind, design, bias=kind != "deberta")
    model.save_pretrained(tmp_path / "model")
    again = Nar.from_pretrained(tmp_path / "model")
    assert (again.design, again.slots.slots, again.encoder.max_pieces) == (design, SLOTS, 20)
    assert again.encoder.name == model.encoder.name
    assert not again.training
    for one, other in zip(model.query_vectors(TEXTS), again.query_vectors(TEXTS), strict=True):
        assert np.array_equal(one, other)
    assert torch.equal(model.log_z, again.log_z)
    assert torch.equal(model.head.rows, again.head.rows)
    assert (again.head.bias is None) == (model.head.bias is None)
    own, theirs = model.state_dict(), again.state_dict()
    assert own.keys() == theirs.keys()
    assert all(torch.equal(own[name], theirs[name]) for name in own)
    again.save_pretrained(tmp_path / "twice")
    for name in ("model.json", "model.safetensors", "encoder/model.safetensors", "encoder/config.json"):
        assert (tmp_path / "twice" / name).read_bytes() == (tmp_path / "model" / name).read_bytes(), name


@pytest.mark.parametrize("design", DESIGNS)
def test_query_vectors(tmp_path: Path, design: str) -> None:
    model = make(tmp_path, design=design)
    model.train()
    texts = [*TEXTS, "x", "tea " * 40]
    x, pooled = model.query_vectors(texts, batch=3)
    assert x.shape == (len(texts), SLOTS + 1, WIDTH)
    assert np.allclose(pooled, model.encoder.embed(texts), atol=1e-5)
    with torch.inference_mode():
        assert np.allclose(x, model.from_texts(texts).numpy(), atol=1e-5)
        if design == "mlp":
            assert np.allclose(x, model.from_vectors(torch.from_numpy(pooled)).numpy(), atol=1e-5)
    empty = model.query_vectors([])
    assert [part.shape for part in empty] == [(0, SLOTS + 1, WIDTH), (0, WIDTH)]


@pytest.mark.parametrize("design", DESIGNS)
def test_slot_vectors_take_one_pass(tmp_path: Path, design: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(tmp_path, design=design)
    texts = [*TEXTS, "x", "tea " * 40]
    wanted, _ = model.query_vectors(texts, batch=3)
    passes = 0
    plain = Encoder.states

    def counted(encoder: Encoder, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        nonlocal passes
        passes += 1
        return plain(encoder, ids, mask)

    monkeypatch.setattr(Encoder, "states", counted)
    assert np.array_equal(model.slot_vectors(texts, batch=3), wanted)
    assert passes == 3  # of three batches
    passes = 0
    assert np.array_equal(x_of(model, texts, None), model.slot_vectors(texts))
    assert passes == 2
    assert model.slot_vectors([]).shape == (0, SLOTS + 1, WIDTH)


def test_mask_slots_have_no_kept_vectors(tmp_path: Path) -> None:
    with pytest.raises(PixnarError, match="slot_design mask"):
        make(tmp_path, design="mask").from_vectors(torch.zeros(1, WIDTH))
    with pytest.raises(PixnarError, match="designs are mlp, mask"):
        make_slots("star", WIDTH, SLOTS, 16)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_or_foreign_folder(tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    where = tmp_path / "model"
    make(tmp_path / "encoder").save_pretrained(where)
    note, tensors = where / "model.json", where / "model.safetensors"
    settings = json.loads(note.read_text())
    if damage == "gone":
        where = tmp_path / "nothing"
    elif damage in ("no-json", "no-tensors"):
        (note if damage == "no-json" else tensors).unlink()
    elif damage in ("bad-json", "list"):
        note.write_text("{" if damage == "bad-json" else "[]")
    elif damage == "foreign":
        note.write_text(json.dumps({"architectures": ["BertModel"]}))
    elif damage == "newer":
        note.write_text(json.dumps(settings | {"version": 99}))
    elif damage == "keys":
        del settings["max_pieces"]
        note.write_text(json.dumps(settings))
    elif damage == "bad-tensors":
        tensors.write_bytes(tensors.read_bytes()[:-100])
    elif damage == "no-head":
        found = load_file(tensors)
        save_file({name: value for name, value in found.items() if name != "head.rows"}, tensors)
    elif damage == "other-slots":
        note.write_text(json.dumps(settings | {"slots": SLOTS + 1}))
    elif damage == "no-encoder":
        (where / "encoder" / "config.json").unlink()
    else:
        (where / "encoder" / "model.safetensors").write_bytes(b"\0" * 64)
    with pytest.raises(PixnarError) as caught:
        Nar.from_pretrained(where)
    message = str(caught.value)
    assert "\n" not in message
    assert str(where) in message
    assert isinstance(caught.value, FileFormatError) or "encoder" in damage
    if damage == "newer":
        assert "99" in message
        assert "upgrade" in message


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.build([*TEXTS, *TEXTS], 600, min_count=2, threads=1)


def test_an_untrained_model_scores_by_similarity(tmp_path: Path, vocabulary: Vocabulary) -> None:
    features = FeatureCache(Encoder.load(save_encoder(tmp_path)), None)
    counts = np.bincount(vocabulary.encode_batch(TEXTS).ids, minlength=len(vocabulary))
    priors = Priors.count(counts, [1, 2], SLOTS)
    model = build_model(vocabulary, features, priors, slots=SLOTS, hidden=8)
    assert model.head.total == len(vocabulary) + 1
    x, pooled = model.query_vectors(["green tea"])
    phrases = features.encoder.embed(phrase_texts(vocabulary))
    wanted = 20 * phrases @ pooled[0] + priors.tokens
    for t in range(SLOTS + 1):
        got = model.head.logits(torch.from_numpy(x[0, t])).detach().numpy()
        assert np.abs(got[:-1] - wanted).max() < 0.02  # rows are kept in 16 bits
        assert got[-1] == pytest.approx(start_bias(priors)[-1])
    paper = build_model(
        vocabulary, features, priors, slots=SLOTS, design="mask", head="random", bias=False, hidden=8, seed=1
    )
    assert paper.head.bias is None
    assert paper.design == "mask"
    assert float(paper.head.rows.detach().std()) == pytest.approx(0.02, rel=0.1)
    same = build_model(vocabulary, features, priors, slots=SLOTS, design="mask", head="random", bias=False, seed=1)
    assert torch.equal(paper.head.rows, same.head.rows)


def test_what_the_encoder_reads_of_a_phrase(vocabulary: Vocabulary) -> None:
    texts = phrase_texts(vocabulary)
    assert len(texts) == len(vocabulary)
    for v, text in enumerate(texts):
        token = vocabulary.token(v)
        assert text in (token, token.removeprefix("##"))
        assert text
        assert not text.startswith("##") or text == "##"


def test_calibration(tmp_path: Path) -> None:
    model = make(tmp_path)
    x, _ = model.query_vectors(TEXTS)
    left = calibrate(model, x)
    logits = model.head.logits(torch.from_numpy(x).flatten(0, 1)).view(len(TEXTS), SLOTS + 1, -1)
    log_z = torch.logsumexp(logits, 2).detach()
    assert torch.allclose(model.log_z, log_z.mean(0), atol=1e-4)
    assert np.allclose(left, (log_z - log_z.mean(0)).numpy(), atol=1e-4)

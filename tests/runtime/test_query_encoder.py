from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pixnar.base.errors import FileFormatError, MissingExtraError, PixnarError
from pixnar.model.export import export_onnx
from pixnar.runtime import QueryEncoder
from pixnar.runtime.encoder_folder import choose_precision
from pixnar.runtime.quantize import quantize_onnx
from tests.helpers.tiny_model import TEXTS, WIDTH
from tests.model.test_nar import SLOTS, make

PRECISIONS = ("fp32", "int8", "int8-blocks")
MANY = [*TEXTS, "", "tea " * 40, "x", *(" ".join(TEXTS[n % 6].split()[: n % 5]) for n in range(40))]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder in every precision."""
    where = tmp_path_factory.mktemp("encoder")
    export_onnx(make(where / "model"), where / "out")
    for precision in PRECISIONS[1:]:
        quantize_onnx(where / "out", precision)
    return where / "out"


@pytest.fixture
def copied(whole: Path, tmp_path: Path) -> Path:
    where = tmp_path / "copied"
    where.mkdir()
    for path in whole.iterdir():
        (where / path.name).write_bytes(path.read_bytes())
    return where


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_shares_a_batch_does_not_matter(whole: Path, precision: str) -> None:
    encoder = QueryEncoder.load(whole, precision=precision, threads=2)
    assert (encoder.precision, encoder.slots, encoder.width) == (precision, SLOTS, WIDTH)
    together = encoder.query_vectors(MANY)
    assert [part.shape for part in together] == [(len(MANY), SLOTS + 1, WIDTH), (len(MANY), WIDTH)]
    order = np.random.default_rng(0).permutation(len(MANY))
    alone = [np.concatenate(parts) for parts in zip(*(encoder.query_vectors([text]) for text in MANY), strict=True)]
    mixed = encoder.query_vectors([MANY[i] for i in order], batch=5)
    for all_at_once, one_by_one, other in zip(together, alone, mixed, strict=True):
        assert np.abs(all_at_once - one_by_one).max() < 1e-4
        assert np.abs(all_at_once[order] - other).max() < 1e-4


def test_nothing_to_encode(whole: Path) -> None:
    encoder = QueryEncoder.load(whole)
    assert [part.shape for part in encoder.query_vectors([])] == [(0, SLOTS + 1, WIDTH), (0, WIDTH)]
    x, pooled = encoder.query_vectors([""])
    assert np.isfinite(x).all()
    assert np.isclose(np.linalg.norm(pooled), 1, atol=1e-4)


def test_int8_is_near(whole: Path) -> None:
    exact = QueryEncoder.load(whole).query_vectors(MANY)
    for precision in PRECISIONS[1:]:
        near = QueryEncoder.load(whole, precision=precision).query_vectors(MANY)
        assert not np.array_equal(near[0], exact[0])
        for ours, wanted in zip(near, exact, strict=True):
            lengths = np.linalg.norm(ours, axis=-1) * np.linalg.norm(wanted, axis=-1)
            assert ((ours * wanted).sum(-1) / lengths).min() > 0.99


def test_mask_slots_are_quantised_in_both_passes(tmp_path: Path) -> None:
    model = make(tmp_path / "model", design="mask")
    export_onnx(model, tmp_path / "out")
    small = quantize_onnx(tmp_path / "out")
    assert small.read_bytes().count(b"MatMulInteger") > 2 * 6 * 2  # two passes, two layers, six products in each
    exact, near = model.query_vectors(TEXTS), QueryEncoder.load(tmp_path / "out", precision="int8").query_vectors(TEXTS)
    assert np.abs(exact[0] - near[0]).max() < 0.3


def test_timings(whole: Path) -> None:
    encoder = QueryEncoder.load(whole)
    x, pooled, timings = encoder.timed(TEXTS)
    assert all(np.array_equal(a, b) for a, b in zip((x, pooled), encoder.query_vectors(TEXTS), strict=True))
    assert timings.tokenise > 0
    assert timings.encode > 0


@pytest.mark.parametrize("precision", PRECISIONS)
def test_many_callers(whole: Path, precision: str) -> None:
    encoder = QueryEncoder.load(whole, threads=2, precision=precision)
    wanted = encoder.query_vectors(MANY)
    with ThreadPoolExecutor(8) as pool:
        for i, (x, pooled) in enumerate(pool.map(lambda i: encoder.query_vectors([MANY[i % len(MANY)]]), range(200))):
            assert np.abs(x[0] - wanted[0][i % len(MANY)]).max() < 1e-4
            assert np.abs(pooled[0] - wanted[1][i % len(MANY)]).max() < 1e-4


def test_choosing(copied: Path) -> None:
    assert QueryEncoder.load(copied).precision == "fp32"
    choose_precision(copied, "int8", keep_others=True)
    assert QueryEncoder.load(copied).precision == "int8"
    assert QueryEncoder.load(copied, precision="fp32").precision == "fp32"
    choose_precision(copied, "int8-blocks")
    assert QueryEncoder.load(copied).precision == "int8-blocks"
    names = sorted(path.name for path in copied.iterdir())
    assert names == ["encoder-int8-blocks.onnx", "encoder.json", "tokenizer.json"]
    for call in (
        lambda: choose_precision(copied, "fp32"),
        lambda: QueryEncoder.load(copied, precision="fp32"),
        lambda: quantize_onnx(copied),
    ):
        with pytest.raises(PixnarError, match="has no graph in fp32"):
            call()
    with pytest.raises(PixnarError, match="int8 and int8-blocks"):
        quantize_onnx(copied, "int3")
    with pytest.raises(PixnarError, match="threads 0"):
        QueryEncoder.load(copied, threads=0)


def test_quantising_without_onnx(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match="train"):
        quantize_onnx(copied)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", ["encoder.json", "encoder.onnx", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "changed"])
def test_damaged_files(copied: Path, name: str, damage: str, verify: bool) -> None:
    path = copied / name
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "changed":
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :])
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else b"")
    if damage == "changed" and not verify and name != "encoder.json":
        return  # without checksums a changed weight cannot be told
    with pytest.raises(FileFormatError) as caught:
        QueryEncoder.load(copied, verify=verify)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 99}, "upgrade"),
        ({"version": None}, "version"),
        ({"format": "pixnar-model"}, "no query encoder"),
        ({"slots": "three"}, "damaged"),
        ({"precision": "int4"}, "damaged"),
        ({"graphs": {"fp32": "../encoder.onnx"}}, "damaged"),
        ({"files": {}}, "damaged"),
        ({"files": []}, "damaged"),
        ({"graphs": None}, "damaged"),
    ],
    ids=str,
)
def test_foreign_newer_and_odd_notes(copied: Path, change: dict[str, object], said: str) -> None:
    path = copied / "encoder.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(FileFormatError, match=said) as caught:
        QueryEncoder.load(copied)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_note_that_lacks_a_key(copied: Path) -> None:
    path = copied / "encoder.json"
    content = json.loads(path.read_text())
    del content["max_pieces"]
    path.write_text(json.dumps(content))
    with pytest.raises(FileFormatError, match="incomplete"):
        QueryEncoder.load(copied)
    with pytest.raises(FileFormatError, match="cannot read"):
        QueryEncoder.load(copied / "nothing")


def test_the_graph_of_something_else(whole: Path, copied: Path) -> None:
    import onnx

    other = onnx.load(copied / "encoder.onnx")
    other.graph.output[1].name = other.graph.output[0].name = "y"
    onnx.save_model(other, copied / "encoder.onnx")
    with pytest.raises(FileFormatError, match=r"encoder\.onnx"):
        QueryEncoder.load(copied, verify=False)


_WITHOUT_TORCH = """
import sys

class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "onnx", "safetensors"):
            raise ImportError(name + " is forbidden here")

sys.meta_path.insert(0, Forbid())
from pixnar.runtime import QueryEncoder
x, pooled = QueryEncoder.load(sys.argv[1]).query_vectors(["green tea", ""])
print(x.shape, pooled.shape)
"""


def test_neither_torch_nor_transformers_is_needed(whole: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT_TORCH, whole], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[0] == f"{(2, SLOTS + 1, WIDTH)} {(2, WIDTH)}"
    assert not done.stderr

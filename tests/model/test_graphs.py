from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pixnar.base.errors import PixnarError
from pixnar.model import export, features
from pixnar.model.encoder import Encoder
from pixnar.model.export import exported
from pixnar.model.features import FeatureCache
from pixnar.runtime.encoder_folder import FP32, INT8
from tests.helpers.tiny_model import KINDS, TEXTS, save_encoder

MANY = [f"{text} {word}" for text in (*TEXTS, "") for word in ("", "tea", "rome paris tea", "x " * 90, "night")]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.load(save_encoder(tmp_path_factory.mktemp("encoder")))


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few texts go through onnxruntime, too."""
    monkeypatch.setattr(features, "_FEW", 0)


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_torch(kind: str, tmp_path: Path) -> None:
    one = Encoder.load(save_encoder(tmp_path / "encoder", kind))
    wanted = one.embed(MANY)
    seen: list[int] = []
    found = exported(one, tmp_path).bulk(MANY, progress=seen.append)
    assert np.abs(found - wanted).max() < 1e-5
    assert seen == sorted(seen)
    assert seen[-1] == len(MANY)
    assert exported(one, tmp_path).bulk([]).shape == (0, one.width)


@pytest.mark.parametrize("precision", [FP32, INT8])
def test_neither_order_nor_threads_matter(encoder: Encoder, tmp_path: Path, precision: str) -> None:
    texts = [f"{text} {i}" for i in range(20) for text in TEXTS]
    graph = exported(encoder, tmp_path, precision)
    first = graph.bulk(texts)
    order = np.random.default_rng(0).permutation(len(texts))
    assert np.array_equal(graph.bulk([texts[i] for i in order], threads=3), first[order])
    assert np.abs(first - encoder.embed(texts)).max() < (1e-5 if precision == FP32 else 0.2)


def test_a_graph_is_made_once(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = FeatureCache(encoder, tmp_path).vectors(MANY)
    monkeypatch.setattr(export, "export_onnx", None)
    assert np.array_equal(FeatureCache(encoder, tmp_path).vectors(MANY), first)
    for path in tmp_path.glob("*.features"):
        path.unlink()
    assert np.array_equal(FeatureCache(encoder, tmp_path).vectors(MANY), first)
    assert len(list(tmp_path.glob("*.encoder"))) == 1


def test_a_trained_encoder_is_exported_again(encoder: Encoder, tmp_path: Path) -> None:
    other = Encoder.load(save_encoder(tmp_path / "encoder"))
    before = FeatureCache(other, tmp_path / "cache").vectors(TEXTS)
    for parameter in other.body.parameters():
        parameter.data.mul_(1.5)
    after = FeatureCache(other, tmp_path / "cache").vectors(TEXTS)
    assert np.abs(after - other.embed(TEXTS)).max() < 1e-3
    assert not np.allclose(after, before, atol=1e-2)
    assert len(list((tmp_path / "cache").glob("*.encoder"))) == 2


@pytest.mark.parametrize("precision", [FP32, INT8])
@pytest.mark.parametrize("damage", ["flip", "cut", "no graph", "no note", "empty"])
def test_a_damaged_graph_is_made_again(encoder: Encoder, tmp_path: Path, damage: str, precision: str) -> None:
    first = exported(encoder, tmp_path, precision).bulk(TEXTS)
    (path,) = tmp_path.glob(f"*.{precision}.encoder")
    (graph,) = path.glob("*.onnx")
    whole = graph.read_bytes()
    if damage == "flip":
        graph.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
    elif damage == "cut":
        graph.write_bytes(whole[: len(whole) // 2])
    elif damage == "empty":
        shutil.rmtree(path)
        path.mkdir()
    else:
        (graph if damage == "no graph" else path / "encoder.json").unlink()
    assert np.array_equal(exported(encoder, tmp_path, precision).bulk(TEXTS), first)
    assert graph.read_bytes() == whole
    assert not list(tmp_path.glob(".*"))


def test_precisions_are_not_mixed_up(encoder: Encoder, tmp_path: Path) -> None:
    for _ in range(2):  # the second time from disk
        exact = FeatureCache(encoder, tmp_path).vectors(TEXTS)
        coarse = FeatureCache(encoder, tmp_path, precision=INT8).vectors(TEXTS)
        assert np.abs(exact - encoder.embed(TEXTS)).max() < 1e-3
        assert not np.array_equal(exact, coarse)
        assert len(list(tmp_path.glob("*.features"))) == 2


_STOPPED = """
import sys, time
from pathlib import Path
from pixnar.model import export
from pixnar.model.encoder import Encoder

def stopped(model, target):
    target.mkdir()
    (target / "encoder.onnx").write_bytes(b"half a graph")
    print("begun", flush=True)
    time.sleep(60)

export.export_onnx = stopped
export.exported(Encoder.load(sys.argv[1]), Path(sys.argv[2]))
"""
_MADE = """
import sys
from pathlib import Path
from pixnar.model import export
from pixnar.model.encoder import Encoder

encoder = Encoder.load(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(export.exported(encoder, Path(sys.argv[2]), "int8").bulk(["green tea", "rome"]).tobytes().hex())
"""


def _started(script: str, encoder: Encoder, folder: Path) -> subprocess.Popen[str]:
    """A process that has said its first line."""
    command = [sys.executable, "-W", "ignore", "-c", script, encoder.name, str(folder)]
    made = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert made.stdout
    assert made.stdout.readline().strip() in ("begun", "ready")
    return made


def test_a_killed_export_leaves_nothing_broken(encoder: Encoder, tmp_path: Path) -> None:
    with _started(_STOPPED, encoder, tmp_path) as worker:
        worker.kill()
    (left,) = tmp_path.glob(".*.part")
    graph = exported(encoder, tmp_path)
    assert np.abs(graph.bulk(TEXTS) - encoder.embed(TEXTS)).max() < 1e-5
    assert left.exists()  # it might be somebody's who is still at work
    os.utime(left, (0, 0))
    exported(encoder, tmp_path, INT8)
    assert not left.exists()


def test_two_processes_may_export_at_once(encoder: Encoder, tmp_path: Path) -> None:
    with _started(_MADE, encoder, tmp_path) as first, _started(_MADE, encoder, tmp_path) as second:
        for one in (first, second):
            assert one.stdin
            one.stdin.write("go\n")
            one.stdin.flush()
        told = [one.communicate()[0] for one in (first, second)]
    assert told[0] == told[1] != ""
    assert sorted(path.name.split(".", 1)[1] for path in tmp_path.iterdir()) == ["fp32.encoder", "int8.encoder"]


def test_without_onnx_torch_encodes(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    found = FeatureCache(encoder, tmp_path).vectors(TEXTS)
    assert np.array_equal(found, encoder.embed(TEXTS).astype(np.float16))
    with pytest.raises(PixnarError, match=r"pixnar\[train\]"):
        FeatureCache(encoder, tmp_path, precision=INT8).vectors(TEXTS)


def test_without_a_folder_no_graph_is_kept(encoder: Encoder) -> None:
    found = FeatureCache(encoder, None).vectors(MANY)
    assert np.abs(found - encoder.embed(MANY)).max() < 1e-3

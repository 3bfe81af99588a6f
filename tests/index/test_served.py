"""What an index ships: rows and encoder that need no torch, and the same through torch on a device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.index import Index
from pixnar.index.on_device import TorchHead
from pixnar.pipeline import fit
from pixnar.recipe import Recipe, override
from pixnar.runtime import HeadRows
from tests.helpers.fit_corpora import WORDS, settings, write_small
from tests.helpers.tiny_model import save_encoder

QUERIES = ["balin demor", "Rovek!", "nothing of this is known", "fista"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    write_small(folder / "corpus", 20, 3)
    save_encoder(folder / "encoder", texts=WORDS)
    return folder


def built(home: Path, name: str, **changes: Any) -> Path:
    wish = settings(home / "encoder", train__steps=2, scoring__tune=False, **changes)
    fit(home / "corpus", home / name, override(Recipe(), wish), cache=home / "cache", threads=1)
    return home / name


@pytest.fixture(scope="module")
def index(corpus: Path) -> Path:
    return built(corpus, "index", serve__encoder="fp32")


NO_TORCH = """
import sys
class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "safetensors", "onnx"):
            raise ModuleNotFoundError(f"{name} is not here", name=name)
sys.meta_path.insert(0, Forbid())
import json, pixnar
index = pixnar.Index.load(sys.argv[1])
index.verify()
print(json.dumps([[list(hit) for hit in hits] for hits in index.search_batch(json.loads(sys.argv[2]), k=5)]))
index.explain("balin", k=2)
try:
    pixnar.Index.load(sys.argv[1], device="cpu")
except pixnar.base.errors.PixnarError as error:
    assert "pixnar[train]" in str(error), error
else:
    raise AssertionError("torch was there")
"""


def test_searching_needs_no_torch(index: Path) -> None:
    command = [sys.executable, "-c", NO_TORCH, str(index), json.dumps(QUERIES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    here = [[list(hit) for hit in hits] for hits in Index.load(index).search_batch(QUERIES, k=5)]
    assert json.loads(done.stdout) == here


def test_training_without_torch_is_one_line(corpus: Path) -> None:
    code = NO_TORCH.split("import json")[0] + "from pixnar.cli import main\nmain(sys.argv[1:])"
    command = [sys.executable, "-c", code, "fit", str(corpus / "corpus"), "-o", str(corpus / "never")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("pixnar: this command needs torch")
    assert done.stderr.count("\n") == 1
    assert not (corpus / "never").exists()


@pytest.mark.parametrize("shortlist", [True, False])
def test_the_same_answers_through_torch(index: Path, shortlist: bool) -> None:
    native, torch = Index.load(index, shortlist=shortlist), Index.load(index, shortlist=shortlist, device="cpu")
    assert isinstance(native.ranker.scorer.head, HeadRows)
    assert isinstance(torch.ranker.scorer.head, TorchHead)
    for one, other in zip(native.search_batch(QUERIES), torch.search_batch(QUERIES), strict=True):
        assert [hit.id for hit in one] == [hit.id for hit in other]
        assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other], abs=1e-3)
    assert torch.explain("balin", k=2)["hits"]


@pytest.mark.parametrize("format", ["int8", "float16", "float32"])
@pytest.mark.parametrize("bias", [True, False])
def test_logits_through_torch(format: Any, bias: bool) -> None:
    import torch

    random = np.random.default_rng(0)
    dense = random.normal(size=(301, 50)).astype(np.float32)
    rows = HeadRows.build(dense, random.normal(size=301) if bias else None, format)
    x = random.normal(size=(4, 50)).astype(np.float32)
    x[2] = 0
    head = TorchHead(rows, torch.device("cpu"))
    for ids in (None, np.array([7, 300, 0, 7]), np.zeros(0, np.int64)):
        ours, theirs = head.logits(x, ids), rows.logits(x, ids)
        assert ours.shape == theirs.shape
        assert np.array_equal(ours, theirs) if format == "int8" else np.allclose(ours, theirs, atol=1e-4)


def test_devices_that_are_not_there(index: Path) -> None:
    for name in ("cuda:99", "nonsense"):
        with pytest.raises(PixnarError, match="cannot use the device"):
            Index.load(index, device=name)


def test_what_the_recipe_ships(corpus: Path) -> None:
    small = built(corpus, "small", serve__encoder="int8", serve__rows="float16", serve__keep_model=False)
    opened = Index.load(small)
    assert opened.rows.format == "float16"
    assert [path.name for path in (small / "encoder").glob("*.onnx")] == ["encoder-int8.onnx"]
    assert not (small / "model").exists()
    assert len(opened.search("balin demor", k=3)) == 3
    facts = opened.manifest["facts"]["served"]
    assert (facts["rows"], facts["encoder"]) == ("float16", "int8")
    assert set(facts["dev_mrr10_in_sample"]) == {"trained", "fp32", "int8"}
    with pytest.raises(FileFormatError, match="keep_model"):
        Index.load(small, device="cpu")


def test_auto_takes_the_encoder_that_dev_allows(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = Index.load(built(corpus, "auto")).manifest["facts"]["served"]
    measured = facts["dev_mrr10_in_sample"]
    allowed = [name for name in ("int8", "int8-blocks") if measured.get(name, 0) >= 0.995 * measured["fp32"]]
    assert facts["encoder"] == (allowed[0] if allowed else "fp32")
    monkeypatch.setattr("pixnar.pipeline.export.LOSS", -10.0)  # nothing is good enough
    assert Index.load(built(corpus, "strict")).manifest["facts"]["served"]["encoder"] == "fp32"
    assert [path.name for path in (corpus / "strict" / "encoder").glob("*.onnx")] == ["encoder.onnx"]


def test_served_rows_cost_little(index: Path) -> None:
    facts = Index.load(index).manifest["facts"]["served"]["dev_mrr10_in_sample"]
    assert facts["fp32"] == pytest.approx(facts["trained"], abs=0.05)


def test_explain_tells_every_stage(index: Path) -> None:
    opened = Index.load(index)
    told = opened.explain("balin demor", k=3)
    assert json.loads(json.dumps(told)) == told
    assert {"tokenise", "encode", "shortlist", "score", "decode", "map"} <= told["microseconds"].keys()
    assert all(spent >= 0 for spent in told["microseconds"].values())
    shortlist = opened.ranker.shortlist
    assert shortlist is not None
    assert len(told["clusters"]) == shortlist.k
    products = [one["inner_product"] for one in told["clusters"]]
    assert products == sorted(products, reverse=True)
    assert 0 < told["shortlist"] <= told["vocabulary"] == opened.table.vocab_size
    assert len(told["slots"]) == opened.ranker.scorer.slots + 1
    for slot in told["slots"]:
        chances = [chance for _, chance in slot]
        assert chances == sorted(chances, reverse=True)
        assert 0 < sum(chances) <= 1.001
    for hit in told["hits"]:
        scores = [one["score"] for one in hit["docids"]]
        assert scores == sorted(scores, reverse=True)
        assert hit["docids"]
        assert all(one["tokens"] for one in hit["docids"])

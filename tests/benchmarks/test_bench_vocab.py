"""The harness measures, resumes, and says so when it cannot measure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pixnar.benchmarks import generate, vocab

from pixnar.base.errors import PixnarError


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    generate.write_docids(tmp_path / "docids.txt", 2000)
    return tmp_path / "docids.txt"


def test_measures_and_resumes(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.json"

    def run(*methods: str, fresh: bool = False) -> vocab.Results:
        return vocab.run(
            [str(corpus)], sizes=[600], methods=",".join(methods), json_file=out, fresh=fresh, time_limit=60
        )

    (cell,) = run("bpe-ws").cells
    assert (cell.status, cell.corpus, cell.size, cell.tokens) == ("ok", "docids.txt", 600, 600)
    assert cell.docids < 2000  # duplicates are gone
    assert cell.mean_tokens is not None
    assert cell.p99_tokens is not None
    assert 6 < cell.mean_tokens < cell.p99_tokens
    for figure in (cell.build_seconds, cell.cpu_seconds, cell.peak_mb, cell.encode_mb_s):
        assert figure is not None
        assert figure > 0

    both = run("bpe-ws", "bpe-super")
    assert both.cells[0] == cell
    assert [cell.method for cell in both.cells] == ["bpe-ws", "bpe-super"]
    assert vocab.Results.load(out).cells == both.cells
    assert json.loads(out.read_text())["environment"]["versions"]["tokenizers"]
    assert [cell.method for cell in run("bpe-super", fresh=True).cells] == ["bpe-super"]


def test_what_cannot_be_measured_is_recorded(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results = vocab.run([str(corpus)], sizes=[600], methods="bpe-ws", time_limit=0.01)
    assert [(cell.status, cell.reason) for cell in results.cells] == [("timeout", "build: stopped after 0 s")]
    results = vocab.run([str(corpus)], sizes=[100], methods="bpe-ws")
    assert results.cells[0].status == "failed"
    assert "cannot hold the 256 bytes" in results.cells[0].reason
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    results = vocab.run([str(corpus)], sizes=[600], methods="bpe-ws")
    assert results.cells[0].status == "missing"
    shown = vocab.as_markdown(results)
    assert "| docids.txt | 600 | bpe-ws (missing) | – |" in shown
    assert "tokenizers is not installed" in shown


def test_bad_requests(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(PixnarError, match="there is no method 'bpe': choose from pixnar"):
        vocab.run([str(corpus)], methods="bpe")
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(PixnarError, match="not a result file"):
        vocab.run([str(corpus)], json_file=tmp_path / "other.json")


def test_prepare_normalises_and_drops_duplicates(tmp_path: Path) -> None:
    prepared = vocab.prepare("x", ["A  b", "", "c", "a B", " c ", "\u2028d"], tmp_path)
    assert prepared.path.read_text() == "a b\nc\nd\n"
    assert (prepared.docids, prepared.text_bytes) == (3, 5)
    with pytest.raises(PixnarError, match="x has no docids"):
        vocab.prepare("x", [" "], tmp_path)

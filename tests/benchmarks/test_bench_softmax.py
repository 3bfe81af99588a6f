"""The softmax and search benchmarks run through on a small index and say what they measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from pixnar.benchmarks import search, softmax
from pixnar.benchmarks.softmax_synthetic import SyntheticHead

from pixnar.pipeline import fit
from pixnar.recipe import Recipe, override
from tests.helpers.fit_corpora import WORDS, settings, write_small
from tests.helpers.tiny_model import save_encoder

METHODS = (
    "full softmax",
    "SVD-softmax",
    "HiRE, low rank",
    "HiRE, 4 bits",
    "centroid clustering",
    "fast vocabulary projection",
    "learned shortlist",
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bench")
    write_small(folder / "corpus", 20, 3)
    encoder = save_encoder(folder / "encoder", texts=WORDS)
    for name, kind in (("index", "phrase"), ("pieces", "wordpiece")):
        wish = settings(encoder, train__steps=2, vocab__kind=kind, shortlist__m=8, shortlist__r=40)
        fit(folder / "corpus", folder / name, override(Recipe(), wish), cache=folder / "cache", threads=1)
    return folder


def test_softmax_methods_on_an_index_and_on_noise(home: Path, tmp_path: Path) -> None:
    out, picture = tmp_path / "softmax.json", tmp_path / "softmax.png"
    softmax.run(
        home / "index",
        str(home / "corpus"),
        tokens=[3000],
        widths=[64],
        best=50,
        queries=10,
        slots=3,
        repeats=1,
        m=16,
        r=300,
        json_file=out,
        plot=picture,
    )
    found = json.loads(out.read_text())
    assert picture.read_bytes()[1:4] == b"PNG"
    trained, noise = found["indexes"]["index"], found["synthetic"]["3,000 x 64"]
    assert tuple(trained["methods"]) == METHODS
    assert len(noise["methods"]) == len(METHODS)
    assert trained["methods"]["full softmax"]["scored"] == trained["facts"]["tokens"] + 1
    for part in (trained, noise):
        assert part["methods"]["full softmax"]["found_of_top_10"] == 1.0
        assert 0 < part["facts"]["union"] <= part["facts"]["tokens"] + 1
        for row in part["methods"].values():
            assert 0 < row["found_of_top_10"] <= 1
            assert 0 < row["ms"]["mean"] <= row["ms"]["p99"]
    assert trained["methods"]["full softmax"]["MRR@10"] > 0
    assert "ms_batch_32" not in noise["methods"]["full softmax"]  # ten queries are no batch


def test_synthetic_heads_are_the_same_every_time_and_queries_find_their_tokens() -> None:
    head, again = (SyntheticHead.make(2000, 32, 20, seed=3) for _ in range(2))
    assert np.array_equal(head.rows.numbers(), again.rows.numbers())
    x = head.queries(6, 4, seed=1)
    assert np.array_equal(x, again.queries(6, 4, seed=1))
    assert x.shape == (6, 5, 32)
    assert np.allclose(np.linalg.norm(x, axis=-1), 20, atol=1e-3)
    lists = head.shortlist(100, 3).lists
    assert lists.shape == (20, 100)
    assert all(len(set(row)) == 100 for row in lists.tolist())


def test_search_beside_what_one_would_use_instead(home: Path, tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    out = tmp_path / "search.json"
    wordpiece = str(home / "pieces")
    corpus = str(home / "corpus")
    search.run(home / "index", corpus, wordpiece=wordpiece, queries=6, repeats=1, k=3, seconds=0.1, json_file=out)
    found = json.loads(out.read_text())
    assert set(found["latency_ms"]) == {
        "pixnar",
        "pixnar, docids alone",
        "word-pieces, all of 128,000 rows",
        "BM25 over docids (bm25s)",
        "BM25 over text (bm25s)",
        "dense, faiss flat",
        "dense, faiss HNSW",
    }
    assert {"tokenise", "encode", "shortlist", "score", "decode", "map"} <= found["stages_us"].keys()
    assert all(rate > 0 for rate in found["queries_per_second"].values())
    assert found["facts"]["resident_mb"] > 10
    assert found["latency_ms"]["pixnar"]["p99.9"] is None  # of six queries
    assert found["mrr10"]["dense, faiss flat"] == pytest.approx(found["mrr10"]["dense, faiss HNSW"], abs=0.2)
    assert found["mrr10"]["BM25 over docids (bm25s)"] > 0.3  # the queries share words with the right document

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt
import pytest

from pixnar.base.errors import PixnarError
from pixnar.evaluation.baselines import build_bm25, open_baseline
from pixnar.index import Index
from pixnar.integrations.pyterrier import PixnarRetriever

COLUMNS = ["qid", "query", "docno", "score", "rank", "docid_text"]
QUERIES = pd.DataFrame([["q1", "balin demor"], ["q2", "Rovek!"], ["q3", "fista"]], columns=["qid", "query"])


@pytest.fixture(autouse=True)
def java_stays_asleep() -> Iterator[None]:
    yield
    assert not pt.java.started()


def test_a_frame_of_queries(index: Index) -> None:
    found = PixnarRetriever(index, 7).transform(QUERIES)
    assert list(found.columns) == COLUMNS
    assert [str(found[name].dtype) for name in ("score", "rank")] == ["float64", "int64"]
    for qid, query in QUERIES.itertuples(index=False):
        rows = found[found["qid"] == qid]
        hits = index.search(query, 7)
        assert rows["docno"].tolist() == [hit.id for hit in hits]
        assert rows["score"].tolist() == pytest.approx([hit.score for hit in hits], abs=1e-4)
        assert rows["docid_text"].tolist() == [hit.docid for hit in hits]
        assert rows["rank"].tolist() == list(range(7))
        assert set(rows["query"]) == {query}
    records = PixnarRetriever(index, 7)([{"qid": "q1", "query": "balin demor"}])
    assert [one["docno"] for one in records] == found["docno"].tolist()[:7]


def test_empty_frames_keep_their_columns(index: Index) -> None:
    for found in (
        PixnarRetriever(index).transform(QUERIES.iloc[:0]),
        PixnarRetriever(index, threshold=1e9).transform(QUERIES),
    ):
        assert list(found.columns) == COLUMNS
        assert len(found) == 0
        assert found["rank"].dtype == "int64"


def test_pipelines(index: Index) -> None:
    retriever = PixnarRetriever(index, 20)
    cut = (retriever % 5).transform(QUERIES)
    assert cut.groupby("qid")["rank"].max().tolist() == [4, 4, 4]
    compiled: Any = (retriever % 5).compile()
    assert compiled.num_results == 5
    assert compiled.transform(QUERIES)["docno"].tolist() == cut["docno"].tolist()
    assert retriever.fuse_rank_cutoff(100) is retriever
    twice = (retriever + retriever).transform(QUERIES).sort_values(["qid", "docno"])
    once = retriever.transform(QUERIES).sort_values(["qid", "docno"])
    assert twice["score"].tolist() == pytest.approx((2 * once["score"]).tolist())
    both = (retriever % 3 | retriever % 5).transform(QUERIES)
    assert len(both) == 15
    assert retriever.search("balin demor")["docno"].tolist() == [hit.id for hit in index.search("balin demor", 20)]
    rewritten = (pt.apply.query(lambda row: row["query"] + " demor") >> retriever % 1).transform(QUERIES)
    assert rewritten["query_0"].tolist() == QUERIES["query"].tolist()
    assert rewritten["docno"].tolist() == [index.search(q + " demor", 1)[0].id for q in QUERIES["query"]]
    assert pt.inspect.transformer_outputs(retriever, ["qid", "query"]) == COLUMNS


def test_an_experiment(index: Index) -> None:
    qrels = pd.DataFrame([["q1", index.search("balin demor", 1)[0].id, 1]], columns=["qid", "docno", "label"])
    table = pt.Experiment([PixnarRetriever(index, 10)], QUERIES.iloc[:1], qrels, ["recip_rank"], names=["pixnar"])
    assert table["recip_rank"].tolist() == [1.0]


def test_filters(index: Index) -> None:
    found = PixnarRetriever(index, where='country = "de" and price < 7').transform(QUERIES)
    assert found.groupby("qid")["docno"].apply(set).tolist() == [{"d00", "d03", "d06"}] * 3


def test_a_baseline(folder: Path, tmp_path: Path) -> None:
    build_bm25(folder.parent / "corpus", tmp_path / "bm25", over="docids")
    baseline = open_baseline(tmp_path / "bm25")
    found = PixnarRetriever(baseline, 3).transform(QUERIES.iloc[:1])
    assert found["docno"].tolist() == [hit.id for hit in baseline.search("balin demor", 3)]


def test_errors(index: Index) -> None:
    with pytest.raises(PixnarError, match="num_results is 0"):
        PixnarRetriever(index, 0)
    with pytest.raises(KeyError, match="query"):
        PixnarRetriever(index).transform(QUERIES.drop(columns="query"))
    with pytest.raises(KeyError, match="docno"):
        PixnarRetriever(index).transform(QUERIES.assign(docno="d1"))
    assert repr(PixnarRetriever(index, 5, threshold=1.0)).endswith("num_results=5, threshold=1.0)")

"""Measures are those of trec_eval, also where scores tie."""

from __future__ import annotations

from typing import Any

import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from pixnar.base.errors import PixnarError
from pixnar.evaluation.measures import DEFAULT, means, parse, per_query, recalls, reciprocal_ranks
from pixnar.evaluation.queries import read_run

DOCUMENTS = [f"d{i}" for i in range(12)]
runs = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3", "unjudged"]),
    st.dictionaries(st.sampled_from(DOCUMENTS), st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=1),
    min_size=1,
)
qrels = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3", "missing"]),
    st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(0, 3), min_size=1),
    min_size=1,
)


@given(run=runs, judged=qrels)
def test_equal_to_trec_eval(tmp_path_factory: pytest.TempPathFactory, run: dict, judged: dict) -> None:  # type: ignore[type-arg]
    relevant = {query: grades for query, grades in judged.items() if max(grades.values()) > 0}
    if not relevant:
        return
    path = tmp_path_factory.mktemp("runs") / "run.trec"
    lines = [f"{query} Q0 {doc} 0 {score} x\n" for query, found in run.items() for doc, score in found.items()]
    path.write_text("".join(lines))
    names = {"MRR@100": "recip_rank", "R@5": "recall_5", "P@5": "P_5", "nDCG@10": "ndcg_cut_10", "Hits@5": "success_5"}
    ids, figures = per_query(read_run(path), judged, list(names))
    measures = {"recip_rank", "recall.5", "P.5", "ndcg_cut.10", "success.5"}
    theirs = pytrec_eval.RelevanceEvaluator(relevant, measures).evaluate(run)
    assert ids == list(relevant)
    for ours, name in names.items():
        for query, value in zip(ids, figures[ours], strict=True):
            assert value == pytest.approx(theirs.get(query, {}).get(name, 0.0), abs=1e-12)
    # A cut: what trec_eval says of a run that ends there.
    best = {query: [doc for doc, _ in found][:3] for query, found in read_run(path).items()}
    short = {query: {doc: run[query][doc] for doc in docs} for query, docs in best.items()}
    cut = pytrec_eval.RelevanceEvaluator(relevant, {"recip_rank"}).evaluate(short)
    for query, value in zip(ids, per_query(read_run(path), judged, ["MRR@3"])[1]["MRR@3"], strict=True):
        assert value == pytest.approx(cut.get(query, {}).get("recip_rank", 0.0), abs=1e-12)


@given(run=runs, judged=qrels)
def test_the_quick_metrics_agree(run: dict, judged: dict) -> None:  # type: ignore[type-arg]
    relevant = {query: {doc for doc, grade in grades.items() if grade > 0} for query, grades in judged.items()}
    relevant = {query: wanted for query, wanted in relevant.items() if wanted}
    if not relevant:
        return
    ranked = {query: list(found.items()) for query, found in run.items()}
    _, figures = per_query(ranked, judged, ["MRR@10", "R@5"])
    rows = [[doc for doc, _ in ranked.get(query, [])] for query in relevant]
    assert figures["MRR@10"].tolist() == pytest.approx(reciprocal_ranks(rows, list(relevant.values()), 10).tolist())
    assert figures["R@5"].tolist() == pytest.approx(recalls(rows, list(relevant.values()), 5).tolist())


def test_the_command_line_has_the_same_defaults() -> None:
    from pixnar.cli import evaluate

    assert tuple(evaluate._DEFAULT.split(",")) == DEFAULT


def test_a_cut_far_down() -> None:
    run = {"q": [(f"d{i}", float(-i)) for i in range(40_001)]}
    figures = per_query(run, {"q": {"d40000": 1}}, ["MRR@40000", "MRR@40001"])[1]
    assert figures["MRR@40000"][0] == 0
    assert figures["MRR@40001"][0] == pytest.approx(1 / 40_001)


def test_by_hand() -> None:
    run = {"a": [("x", 3.0), ("y", 2.0), ("z", 1.0)], "b": [("y", 1.0)]}
    judged = {"a": {"z": 1, "w": 1}, "b": {"y": 2}, "c": {"x": 1}, "nothing": {"x": 0}}
    ids, figures = per_query(run, judged, ["MRR@10", "MRR@2", "R@3", "Hits@3", "P@2"])
    assert ids == ["a", "b", "c"]
    assert figures["MRR@10"].tolist() == pytest.approx([1 / 3, 1, 0])
    assert figures["MRR@2"].tolist() == [0, 1, 0]
    assert figures["R@3"].tolist() == [0.5, 1, 0]
    assert figures["Hits@3"].tolist() == [1, 1, 0]
    assert figures["P@2"].tolist() == [0, 0.5, 0]
    assert means(figures)["R@3"] == 0.5


@pytest.mark.parametrize("name", ["MRR", "MRR@0", "map@10", "@10", "R@-5", "R@5@5", ""])
def test_no_measure(name: str) -> None:
    with pytest.raises(PixnarError, match="is no measure"):
        parse(name)


def test_no_judged_query() -> None:
    with pytest.raises(PixnarError, match="no judged queries"):
        per_query({"q": [("a", 1.0)]}, {"q": {"a": 0}})


def test_grades_that_trec_eval_has_no_room_for() -> None:
    with pytest.raises(PixnarError, match="query q has a document of grade 1,000,001: grades go to 1,000,000"):
        per_query({"q": [("a", 1.0)]}, {"q": {"a": 1_000_001}}, ["nDCG@10"])
    assert per_query({"q": [("a", 1.0)]}, {"q": {"a": 1_000_000, "b": -(10**9)}}, ["nDCG@10"])[1]["nDCG@10"] == [1.0]


@pytest.mark.parametrize(
    ("run", "judged"),
    [
        ({"q": [("\ud800", 1.0)]}, {"q": {"a": 1}}),
        ({"q": [("a", 1.0)]}, {"q": {"\ud800": 1}}),
        ({"\ud800": [("a", 1.0)]}, {"\ud800": {"a": 1}}),
    ],
)
def test_ids_that_are_no_text(run: Any, judged: Any) -> None:
    """trec_eval would take the whole process with it."""
    with pytest.raises(PixnarError, match="is no Unicode text, which trec_eval needs"):
        per_query(run, judged)
    assert per_query({"é": [("ü", 1.0)]}, {"é": {"ü": 1}}, ["MRR@10"])[1]["MRR@10"] == [1.0]

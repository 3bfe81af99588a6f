"""Fusion: scores by hand, and what choosing promises."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pixnar.evaluation.measures import mrr_at
from pixnar.fusion.fuse import Fusion, ScoreTable, choose

Relevant = list[set[int]]


def planted(
    weights: dict[str, float], noise: int = 1, n: int = 60, size: int = 30
) -> tuple[list[ScoreTable], Relevant]:
    """The relevant document of each query is the best by a weighted sum of columns; other columns are noise."""
    random = np.random.default_rng(7)
    tables, relevant = [], []
    for _ in range(n):
        documents = random.permutation(1000)[:size]
        columns = {name: random.normal(size=size).astype(np.float32) for name in weights}
        total = sum((weight * columns[name] for name, weight in weights.items()), np.zeros(size))
        columns |= {f"noise {i}": random.normal(size=size).astype(np.float32) for i in range(noise)}
        tables.append(ScoreTable(documents, columns))
        relevant.append({int(documents[total.argmax()])})
    return tables, relevant


def rank(fusion: Fusion, table: ScoreTable) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Documents and scores, best first; among equals the lower document."""
    scores = fusion.scores({name: table.columns[name] for name in fusion.weights})
    order = np.lexsort((table.documents, -scores))
    return table.documents[order].astype(np.int64), scores[order]


def mrr(fusion: Fusion, tables: list[ScoreTable], relevant: Relevant) -> float:
    return mrr_at([rank(fusion, table)[0].tolist() for table in tables], relevant)


def test_scores_by_hand() -> None:
    columns = {"a": np.array([1.0, 3.0, 5.0]), "b": np.array([np.nan, 4.0, 2.0]), "c": np.array([9.0, 9.0, 9.0])}
    assert Fusion({"a": 1.0, "b": 2.0}, {"b": 4.0}).scores(columns).tolist() == [2.0, 5.0, 6.0]
    assert Fusion({"a": 1.0}).scores({"a": np.array([np.nan, -np.inf])}).tolist() == [0, 0]
    assert Fusion({"a": 1.0}).scores({"a": np.zeros(0)}).tolist() == []
    with pytest.raises(ValueError, match="no column 'd'"):
        Fusion({"d": 1.0}).scores(columns)


def test_ranks_break_ties_by_document() -> None:
    table = ScoreTable(
        np.array([9, 4, 7, 1]), {"a": np.array([1, 2, 1, 0], np.float32), "unused": np.zeros(4, np.float32)}
    )
    documents, scores = rank(Fusion({"a": 2.0}), table)
    assert (documents.tolist(), scores.tolist()) == ([4, 7, 9, 1], [4, 2, 2, 0])
    assert rank(Fusion({"a": 2.0}), table)[0].tolist()[:2] == [4, 7]


def test_finds_the_planted_combination() -> None:
    tables, relevant = planted({"a": 1.0, "b": 0.5})
    fusion = choose(tables, relevant)
    assert mrr(fusion, tables, relevant) > 0.97
    assert mrr(Fusion({"a": 1.0}), tables, relevant) < 0.85
    assert fusion.weights["b"] / fusion.weights["a"] == pytest.approx(0.5, rel=0.3)
    assert fusion.weights.get("noise 0", 0) < 0.1


def test_scales_make_weights_compare() -> None:
    tables, relevant = planted({"a": 1.0, "b": 0.5}, noise=0)
    big = [ScoreTable(table.documents, {**table.columns, "b": 1000 * table.columns["b"] + 7}) for table in tables]
    fusion, same = choose(big, relevant), choose(tables, relevant)
    assert fusion.weights == pytest.approx(same.weights)
    assert fusion.scales["b"] == pytest.approx(1000 * same.scales["b"])


SCORES = st.lists(st.integers(-2, 2), min_size=6, max_size=6)
ROW = st.tuples(
    st.permutations(range(9)).map(lambda order: order[:6]),
    SCORES,
    SCORES,
    st.integers(1, 6),
    st.sets(st.integers(0, 8)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=6))
def test_no_source_alone_is_better(
    rows: list[tuple[list[int], list[int], list[int], int, set[int]]],
) -> None:
    tables = [
        ScoreTable(np.array(documents[:n]), {"a": np.array(a[:n], np.float32), "b": np.array(b[:n], np.float32)})
        for documents, a, b, n, _ in rows
    ]
    relevant = [wanted for *_, wanted in rows]
    fusion = choose(tables, relevant)
    for name in "ab":
        assert mrr(fusion, tables, relevant) >= mrr(Fusion({name: 1.0}), tables, relevant) - 1e-12


def test_noise_is_not_taken_in() -> None:
    tables, relevant = planted({"a": 1.0}, noise=3)
    assert choose(tables, relevant).weights == {"a": 1.0}


def test_same_answer_every_time() -> None:
    tables, relevant = planted({"a": 1.0, "b": 0.5, "c": 0.25}, noise=2)
    assert choose(tables, relevant) == choose(tables, relevant)


def test_queries_without_candidates_found_nothing() -> None:
    empty = ScoreTable(np.zeros(0, np.int64), {"a": np.zeros(0, np.float32)})
    full = ScoreTable(np.array([3, 4, 5]), {"a": np.array([-np.inf, 0.5, 1.0], np.float32)})
    assert mrr(choose([empty, full], [{3}, {5}]), [empty, full], [{3}, {5}]) == 0.5
    assert choose([empty], [{3}]).weights == {"a": 1.0}


def test_json_round_trip() -> None:
    tables, relevant = planted({"a": 1.0, "b": 0.5})
    fusion = choose(tables, relevant)
    assert Fusion.from_dict(json.loads(json.dumps(fusion.to_dict()))) == fusion
    assert Fusion.from_dict({"weights": {"a": 1}, "figures": {"MRR@10": 1}}) == Fusion(
        {"a": 1.0}
    )  # of a release before


def test_bad_input_is_refused() -> None:
    tables, relevant = planted({"a": 1.0}, n=2)
    with pytest.raises(ValueError, match="2 tables for 1 sets"):
        choose(tables, relevant[:1])
    with pytest.raises(ValueError, match="no sources"):
        choose(tables, relevant, [])


def columns_of(values: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
    return {str(i): column for i, column in enumerate(values)}


def test_takes_seconds() -> None:
    random = np.random.default_rng(0)
    values = random.normal(size=(500, 5, 300)).astype(np.float32)
    values[:, :, 0] += 2  # the relevant one
    tables = [ScoreTable(np.arange(300), columns_of(row)) for row in values]
    begin = time.process_time()
    fusion = choose(tables, [{0}] * 500)
    assert time.process_time() - begin < 10
    assert len(fusion.weights) == 5

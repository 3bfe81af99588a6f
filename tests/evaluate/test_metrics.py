"""Metrics: small cases by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pixnar.errors import PixnarError
from pixnar.evaluate import mrr_at, paired_difference, recall_at, recalls, reciprocal_ranks, summary


def test_reciprocal_ranks() -> None:
    ranked = [["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c"], []]
    relevant = [{"b", "c"}, {"c"}, {"x"}, {"a"}]
    assert reciprocal_ranks(ranked, relevant, 2).tolist() == [0.5, 0, 0, 0]
    assert mrr_at(ranked, relevant, 3) == pytest.approx((1 / 2 + 1 / 3) / 4)


def test_recall_counts_a_document_once() -> None:
    ranked = [["a", "a", "b"], ["a", "b", "c"]]
    relevant = [{"a", "b"}, {"a", "b", "c", "d"}]
    assert recalls(ranked, relevant, 2).tolist() == [0.5, 0.5]
    assert recall_at(ranked, relevant, 3) == pytest.approx((1 + 3 / 4) / 2)


def test_rows_may_be_numbers() -> None:
    ranked = np.array([[3, 1, 2], [0, 1, 2]])
    assert mrr_at(ranked.tolist(), [{1}, {0}]) == 0.75
    assert mrr_at(list(ranked), [{1}, {0}]) == 0.75


def test_as_many_rankings_as_judgements() -> None:
    with pytest.raises(ValueError, match="longer"):
        mrr_at([["a"]], [{"a"}, {"b"}])


def test_summary_over_judged_queries() -> None:
    long = [f"x{i}" for i in range(200)]
    run = {"q1": long, "q2": long, "q3": long, "unjudged": long}
    qrels = {"q1": {"x4", "x19"}, "q2": {"x10", "x100"}, "q3": {"none"}, "missing": {"x0"}, "empty": set[str]()}
    assert summary(run, qrels) == pytest.approx(
        {"MRR@10": 1 / 5 / 4, "R@5": 0.5 / 4, "R@20": 1.5 / 4, "R@100": 1.5 / 4}
    )


def test_nothing_to_average() -> None:
    with pytest.raises(PixnarError, match="no judged queries"):
        summary({"q": ["a"]}, {})


def test_difference_of_equals() -> None:
    figures = np.array([0.5, 0.25, 1.0])
    assert paired_difference(figures, figures) == (0.0, 1.0)


def test_difference_by_hand() -> None:
    # Of the 16 ways to toss four coins, two give a sum as far from 0 as all four differences with one sign.
    result = paired_difference(np.array([1, 1, 1, 1, 0.5]), np.array([0.5, 0.5, 0.5, 0.5, 0.5]), rounds=20_000)
    assert result.mean == pytest.approx(0.4)
    assert result.p_value == pytest.approx(2 / 16, abs=0.01)


def test_difference_is_seeded_and_symmetric() -> None:
    random = np.random.default_rng(1)
    a, b = random.random(100), random.random(100)
    first, again, other_way = paired_difference(a, b), paired_difference(a, b), paired_difference(b, a)
    assert first == again
    assert other_way == (-first.mean, first.p_value)
    assert first.p_value > 0.01
    assert paired_difference(a + 0.5, b).p_value < 0.001

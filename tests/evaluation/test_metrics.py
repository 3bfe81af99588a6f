"""Metrics: small cases by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pixnar.base.errors import PixnarError
from pixnar.evaluation import mrr_at, recall_at, recalls, reciprocal_ranks, summary


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

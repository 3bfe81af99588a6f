"""Significance: small cases by hand, and how often intervals hold the truth."""

from __future__ import annotations

import numpy as np
import pytest

from pixnar.base.errors import PixnarError
from pixnar.evaluation import bootstrap, compare, paired_difference


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


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    random = np.random.default_rng(5)
    held = 0
    for seed in range(200):
        low, high = bootstrap(random.binomial(1, 0.3, 150).astype(float), rounds=400, seed=seed)
        held += low <= 0.3 <= high
    assert 0.90 <= held / 200 <= 0.99


def test_an_interval_narrows_with_more_queries() -> None:
    few, many = np.tile([0.0, 1.0], 20), np.tile([0.0, 1.0], 2000)
    wide, narrow = bootstrap(few), bootstrap(many)
    assert narrow.high - narrow.low < (wide.high - wide.low) / 5
    assert bootstrap(few) == wide
    with pytest.raises(PixnarError, match="no judged queries"):
        bootstrap(np.zeros(0))


def test_compare() -> None:
    qrels = {f"q{i}": {"a": 1} for i in range(40)} | {"not asked": {"a": 1}}
    good = {f"q{i}": [("a", 1.0)] for i in range(40)}
    bad = {f"q{i}": [("b", 2.0), ("a", 1.0)] for i in range(40)}
    first, second, third = compare(
        {"good": good, "bad": bad, "again": good}, qrels, ["MRR@10", "R@5"], answered_only=True
    )
    assert compare({"good": good}, qrels, ["R@5"])[0].figures["R@5"] == pytest.approx(40 / 41)
    assert (first.figures, first.against_first) == ({"MRR@10": 1.0, "R@5": 1.0}, None)
    assert second.figures == {"MRR@10": 0.5, "R@5": 1.0}
    assert second.against_first is not None
    assert third.against_first is not None
    assert second.against_first["MRR@10"].mean == -0.5
    assert second.against_first["MRR@10"].p_value < 0.001
    assert second.against_first["R@5"] == third.against_first["MRR@10"] == (0.0, 1.0)
    assert first.intervals["MRR@10"] == (1.0, 1.0)
    with pytest.raises(PixnarError, match="no query of the runs is judged"):
        compare({"good": good}, {"other": {"a": 1}})
    with pytest.raises(PixnarError, match="nothing to compare"):
        compare({}, qrels)

"""Weights of n-grams, against the formula in fifty digits."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixnar.evaluation.baselines.autoregressive.weights import log_odds

_totals = st.sampled_from([1, 10, 3_000, 5_000_000])
_log_p = st.one_of(st.sampled_from([0.0, -1e-12, -1e-9, -1000.0]), st.floats(-60, 0))


def exact(log_p: float, count: int, total: int, smoothing: int = 5) -> float:
    with localcontext() as context:
        context.prec = 50
        p, chance = Decimal(log_p).exp(), Decimal(count + smoothing) / Decimal(total + smoothing)
        if chance == 1:
            return 0.0
        odds = p * (1 - chance) / (chance * (1 - (p - Decimal("1e-10"))))
        return max(0.0, float(odds.ln()))


@given(_log_p, _totals, st.floats(0, 1))
def test_a_weight_is_the_log_odds_ratio(log_p: float, total: int, share: float) -> None:
    count = round(share * total)
    assert log_odds(log_p, count, total) == pytest.approx(exact(log_p, count, total), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("total", [0, 1, 40, 5_000_000])
@pytest.mark.parametrize("log_p", [0.0, 1e-7, -1e-12, -1.0, -1000.0, -np.inf])
def test_all_weights_are_finite(log_p: float, total: int) -> None:
    counts = np.unique(np.linspace(0, total, 50).astype(np.int64))
    weights = log_odds(np.full(len(counts), log_p), counts, total)
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()
    assert weights[-1] == 0  # as frequent as the corpus is long


@given(st.lists(_log_p, min_size=2, max_size=8), _totals, st.floats(0, 1))
def test_weights_rise_with_the_probability_and_fall_with_the_count(
    log_p: list[float], total: int, share: float
) -> None:
    rising = log_odds(sorted(log_p), round(share * total), total)
    assert (np.diff(rising) >= 0).all()
    falling = log_odds(max(log_p), np.arange(0, total + 1, max(1, total // 20)), total)
    assert (np.diff(falling) <= 0).all()
    assert falling[0] > falling[-1] or falling[0] == 0


@given(_totals, st.floats(0, 1), st.floats(0, 20))
def test_what_is_no_likelier_than_by_chance_weighs_nothing(total: int, share: float, below: float) -> None:
    count = round(share * total)
    chance = float(np.log((count + 5) / (total + 5)))
    assert log_odds(chance - below, count, total) <= 1e-9
    if count < total and below > 1e-3:
        assert log_odds(min(0.0, chance + below), count, total) > 0


def test_more_smoothing_weighs_rare_ngrams_less() -> None:
    assert log_odds(-2.0, 1, 10_000, 1.0) > log_odds(-2.0, 1, 10_000) > log_odds(-2.0, 1, 10_000, 50.0)

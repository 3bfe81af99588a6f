"""Which settings dev may choose."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pixnar.evaluation.queries import Queries
from pixnar.pipeline import tune
from pixnar.scoring import ScoreRule


def engine(rule: ScoreRule) -> Any:
    return SimpleNamespace(scorer=SimpleNamespace(rule=rule))


@pytest.mark.parametrize(("start", "chosen"), [(0.0, 0.0), (0.15, 0.7)])
def test_a_copy_term_that_is_off_stays_off(monkeypatch: pytest.MonkeyPatch, start: float, chosen: float) -> None:
    """Even where the more is copied the better."""
    monkeypatch.setattr(tune, "with_rule", lambda _, rule: engine(rule))
    value = lambda one, *_: np.array([0.1 + one.scorer.rule.copy + one.scorer.rule.length_norm])  # noqa: E731
    monkeypatch.setattr(tune, "docid_ranks", value)
    rule = ScoreRule(copy=start)
    found = tune.RuleTuner(engine(rule), [], Queries([], [], [])).best(rule, orders=False)
    assert found.copy == chosen
    assert found.length_norm == 0.5
    assert found.order == ScoreRule().order

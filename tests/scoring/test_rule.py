from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixnar.base.errors import PixnarError
from pixnar.scoring import PAPER_RULE, ScoreRule

RULES = st.builds(
    ScoreRule,
    prior_weight=st.sampled_from([0.0, 0.75, 1.0]),
    copy=st.floats(0, 0.99),
    floor=st.sampled_from(["zero", "prior", "strict"]),
    order=st.sampled_from(["bag", "any", "slots"]),
    ends=st.booleans(),
    length_norm=st.floats(0, 10),
    aggregate=st.sampled_from(["max", "logsumexp", 1, 7]),
    scale=st.floats(0.01, 10),
    normalize=st.booleans(),
)


@given(RULES)
def test_round_trip(rule: ScoreRule) -> None:
    assert ScoreRule.from_dict(rule.to_dict()) == rule
    assert ScoreRule.from_dict(json.loads(json.dumps(rule.to_dict()))) == rule


def test_what_is_left_out_has_its_default() -> None:
    assert ScoreRule.from_dict({}) == ScoreRule()
    assert ScoreRule.from_dict({"copy": 0.1}) == ScoreRule().with_(copy=0.1)
    assert ScoreRule().with_(scale=2.0).scale == 2.0


def test_the_papers_rule() -> None:
    assert PAPER_RULE.to_dict() == {
        "score": "probability",
        "prior_weight": 0.0,
        "copy": 0.0,
        "floor": "strict",
        "order": "slots",
        "ends": True,
        "length_norm": 0.0,
        "aggregate": "max",
        "scale": 1.0,
        "normalize": False,
    }


@pytest.mark.parametrize(
    "wrong",
    [
        {"order": "best"},
        {"floor": "none"},
        {"copy": -0.1},
        {"copy": 1.0},
        {"length_norm": -1.0},
        {"length_norm": 11.0},
        {"scale": 0.0},
        {"aggregate": "mean"},
        {"aggregate": 0},
        {"aggregate": 2.5},
        {"copy": float("nan")},
        {"length_norm": float("nan")},
        {"scale": float("nan")},
        {"scale": float("inf")},
        {"prior_weight": float("nan")},
    ],
)
def test_what_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(PixnarError, match=r"^scoring: .*\bgive |^scoring: .*\bare ") as caught:
        ScoreRule(**wrong)
    assert "\n" not in str(caught.value)
    with pytest.raises(PixnarError):
        ScoreRule().with_(**wrong)


def test_an_unknown_setting() -> None:
    with pytest.raises(PixnarError, match=r"no setting 'lengthnorm': settings are aggregate, copy, .*scale"):
        ScoreRule.from_dict({"lengthnorm": 1})

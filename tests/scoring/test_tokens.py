from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pixnar.scoring import PAPER_RULE, Priors, ScoreRule, end_scores, floors, token_scores
from tests.scoring.test_rule import RULES

N = 6
LOGS = st.lists(st.floats(-40, 0), min_size=N, max_size=N)


@given(RULES, LOGS, LOGS, st.lists(st.booleans(), min_size=N, max_size=N), st.booleans())
def test_numpy_equals_torch(
    rule: ScoreRule, log_p: list[float], log_prior: list[float], own: list[bool], copied: bool
) -> None:
    log_copy = np.where(own, -math.log(max(1, sum(own))), -np.inf) if copied else None
    here = token_scores(np, np.array(log_p), log_copy, np.array(log_prior), rule)
    there = token_scores(
        torch,
        torch.tensor(log_p, dtype=torch.float64),
        None if log_copy is None else torch.from_numpy(log_copy),
        torch.tensor(log_prior, dtype=torch.float64),
        rule,
    )
    assert np.allclose(here, there.numpy(), rtol=1e-12, atol=1e-12)
    for i in range(N):  # by hand
        p = math.exp(log_p[i])
        if copied and rule.copy:
            p = (1 - rule.copy) * p + rule.copy * (1 / max(1, sum(own)) if own[i] else 0.0)
        assert here[i] == pytest.approx(rule.scale * (math.log(p) - rule.prior_weight * log_prior[i]), abs=1e-9)
    ends = end_scores(np, np.array(log_p), np.array(log_prior), rule)
    wide = torch.tensor([log_p, log_prior], dtype=torch.float64)
    assert np.allclose(ends, end_scores(torch, wide[0], wide[1], rule).numpy(), rtol=1e-12, atol=1e-12)
    assert np.allclose(ends, [rule.scale * (p - rule.prior_weight * q) for p, q in zip(log_p, log_prior, strict=True)])


def test_copy_lifts_what_the_query_says() -> None:
    rule = ScoreRule(copy=0.3, prior_weight=0.0)
    log_p, prior = np.log([0.5, 1e-9, 0.5]), np.log([0.1, 0.1, 0.1])
    own = np.array([-np.inf, 0.0, -np.inf])
    got = np.exp(token_scores(np, log_p, own, prior, rule))
    assert got == pytest.approx([0.35, 0.3, 0.35])
    assert got.sum() == pytest.approx(1.0)
    assert np.exp(token_scores(np, log_p, own, prior, rule.with_(copy=0.0))) == pytest.approx([0.5, 1e-9, 0.5])
    assert np.exp(token_scores(np, log_p, None, prior, rule)) == pytest.approx([0.5, 1e-9, 0.5])


def test_a_token_at_its_prior_scores_nothing() -> None:
    prior = np.log([0.7, 0.2, 0.1])
    assert token_scores(np, prior, None, prior, ScoreRule(prior_weight=1.0)) == pytest.approx([0, 0, 0])
    assert token_scores(np, prior, None, prior, ScoreRule(prior_weight=0.0)) == pytest.approx(prior)
    assert token_scores(np, prior, None, prior, ScoreRule(prior_weight=0.5, scale=4.0)) == pytest.approx(2 * prior)
    logits = np.array([3.0, -1.0, 7.5])
    assert np.array_equal(token_scores(np, logits, None, prior, PAPER_RULE), logits)
    assert np.array_equal(end_scores(np, logits, prior, PAPER_RULE), logits)


def test_priors() -> None:
    priors = Priors.count([3, 0, 1], lengths=[1, 1, 2, 5], slots=4)
    assert np.exp(priors.tokens) == pytest.approx([4 / 7, 1 / 7, 2 / 7])
    assert np.exp(priors.tokens).sum() == pytest.approx(1)
    # no docid of no tokens; two of four end after one; one of the two left ends after two; none of one after three
    assert np.exp(priors.ends) == pytest.approx([1 / 6, 3 / 6, 2 / 4, 1 / 3])
    assert priors.tokens.dtype == priors.ends.dtype == np.float32


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.lists(st.integers(1, 9), max_size=20))
def test_nothing_is_impossible(counts: list[int], lengths: list[int]) -> None:
    priors = Priors.count(counts, lengths, 5)
    assert np.isfinite(priors.tokens).all()
    assert np.isfinite(priors.ends).all()
    assert (priors.ends < 0).all()
    assert np.exp(priors.tokens.astype(float)).sum() == pytest.approx(1, abs=1e-5)


def test_floors() -> None:
    priors = Priors.count([3, 0, 1], [1], 2)
    assert floors(priors, PAPER_RULE) is None
    zero = floors(priors, ScoreRule(floor="zero"))
    assert zero is not None
    assert zero.tolist() == [0, 0, 0]
    low = floors(priors, ScoreRule(floor="prior", prior_weight=0.75, scale=2.0))
    assert low is not None
    assert low == pytest.approx(2 * (0.25 * priors.tokens - 1))
    assert low.dtype == np.float32
    # a token that gets a little less than its prior by the model is at the floor
    at = token_scores(
        np, priors.tokens - 1, None, priors.tokens, ScoreRule(floor="prior", prior_weight=0.75, scale=2.0)
    )
    assert at == pytest.approx(low, rel=1e-6)

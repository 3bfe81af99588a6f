"""From products with phrase rows to token scores. `xp` is numpy or torch: the formulas are the same for both."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.scoring.priors import Priors
from pixnar.scoring.rule import ScoreRule


def token_scores(xp: Any, log_p: Any, log_copy: Any | None, log_prior: Any, rule: ScoreRule) -> Any:
    """Scale · ( log[(1 − copy) P(v) + copy · C(v)] − prior_weight · log p(v) ); C(v) is uniform over own n-grams.

    >>> rule = ScoreRule(copy=0.5, prior_weight=1.0)
    >>> token_scores(np, np.log([0.2]), np.log([0.5]), np.log([0.1]), rule).round(4).tolist()
    [1.2528]
    """
    if rule.copy and log_copy is not None:
        log_p = xp.logaddexp(log_p + math.log1p(-rule.copy), log_copy + math.log(rule.copy))
    return (log_p - rule.prior_weight * log_prior) * rule.scale


def composed_scores(xp: Any, products: Any, bonus: Any | None, rule: ScoreRule) -> Any:
    """Scale · (x·w_v + bonus of v), from products x·w_v without any bias; the bonus is 0 for all but own n-grams."""
    return (products if bonus is None else products + bonus) * rule.scale


def own_bonus(own: NDArray[np.integer], priors: Priors, rule: ScoreRule) -> NDArray[np.float32] | None:
    """What the composed score adds for each n-gram of the query that is a token: copy · idf, idf = −log p(v)."""
    if not rule.copy:
        return None
    bonus: NDArray[np.float32] = (-rule.copy * priors.tokens[own]).astype(np.float32)
    return bonus


def floors(priors: Priors, rule: ScoreRule) -> NDArray[np.float32] | None:
    """What each token scores at least; None where a docid with an unscored token is not to be found."""
    if rule.score == "composed" or rule.floor == "zero":
        return np.zeros(len(priors.tokens), np.float32)
    if rule.floor == "strict":
        return None
    values = ((1 - rule.prior_weight) * priors.tokens - 1.0) * rule.scale
    return values.astype(np.float32)


def end_scores(xp: Any, log_p: Any, log_ends: Any, rule: ScoreRule) -> Any:
    """Scores of the end of a docid at each slot, corrected by the ending rate of the slot."""
    return (log_p - rule.prior_weight * log_ends) * rule.scale

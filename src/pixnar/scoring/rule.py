"""What a score is: its settings, the priors of tokens, and the formulas from products with phrase rows to scores."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixnar.base.errors import PixnarError

Matching = Literal["bag", "any", "slots"]
FloorKind = Literal["zero", "prior", "strict"]
ScoreKind = Literal["composed", "probability"]

MATCHINGS = ("bag", "any", "slots")
FLOORS = ("zero", "prior", "strict")
SCORES = ("composed", "probability")


@dataclass(frozen=True)
class ScoreRule:
    """How phrase rows and query vectors become scores of docids and documents. docs/scoring.md explains every setting.

    "composed": a docid's score is g_d · Σ x·w_v over its tokens, with a static factor g_d = 1/‖Σ w_v‖, and no token
    scores less than 0. Of the settings only copy, order, aggregate and scale count.
    "probability": the sum of token log probabilities, corrected by priors and divided by a power of the length.

    >>> ScoreRule().with_(copy=0.5).copy
    0.5
    """

    score: ScoreKind = "probability"
    prior_weight: float = 1.0  # how much of log p(v) is taken off log P(v): 0 = likelihood, 1 = pointwise information
    copy: float = 0.3  # probability: share that goes to the query's own n-grams; composed: what their idf adds
    floor: FloorKind = "zero"  # what a token scores at least: 0, its prior, or nothing (docids with it are not found)
    order: Matching = "bag"  # x_0 for every place; the best slot for every token; or slot t for place t
    ends: bool = False  # whether the end of a docid is scored as a token; counts with "probability" and "slots" only
    length_norm: float = 0.3  # a docid's sum is divided by (its length + 1) to this power
    aggregate: Literal["max", "logsumexp"] | int = "logsumexp"  # a document from its docids
    scale: float = 1.0  # of token scores: the larger, the closer logsumexp is to max
    normalize: bool = True  # divide by Z over the tokens that are scored; without, raw logits as in the paper

    def __post_init__(self) -> None:
        wrong = _first_wrong(self)
        if wrong:
            raise PixnarError(f"scoring: {wrong}")

    @cached_property
    def length_power(self) -> float:
        """The power of its length that a docid's sum is divided by; factors of docids take the place of such a rule."""
        return 0.0 if self.score == "composed" else self.length_norm

    def with_(self, **changes: Any) -> ScoreRule:
        """The same rule but for some settings."""
        return replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """For JSON and TOML."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ScoreRule:
        """The way back; unknown settings are an error."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise PixnarError(f"scoring has no setting {unknown[0]!r}: settings are {', '.join(sorted(known))}")
        return cls(**values)


def _first_wrong(rule: ScoreRule) -> str:
    if rule.order not in MATCHINGS or rule.floor not in FLOORS:
        return f"order {rule.order!r}, floor {rule.floor!r}: orders are {MATCHINGS}, floors {FLOORS}"
    if rule.score not in SCORES:
        return f"score {rule.score!r}: scores are {SCORES}"
    if not 0 <= rule.copy < 1:
        return f"copy = {rule.copy}: give a share of at least 0 and less than 1"
    if not 0 <= rule.prior_weight < math.inf:
        return f"prior_weight = {rule.prior_weight}: give a number of at least 0"
    if not 0 <= rule.length_norm <= 10 or not 0 < rule.scale < math.inf:
        return f"length_norm = {rule.length_norm}, scale = {rule.scale}: give 0 to 10, and more than 0"
    if rule.aggregate not in ("max", "logsumexp") and not (isinstance(rule.aggregate, int) and rule.aggregate >= 1):
        return f"aggregate {rule.aggregate!r}: give max, logsumexp or a number of docids"
    return ""


PAPER_RULE = ScoreRule(
    prior_weight=0.0,
    copy=0.0,
    floor="strict",
    order="slots",
    ends=True,
    length_norm=0.0,
    aggregate="max",
    normalize=False,
)
"""The paper's: the sum of raw logits of each slot's token, the end included; a document by its best docid."""

COMPOSED_RULE = ScoreRule(score="composed", copy=0.0, length_norm=0.0, normalize=False)
"""Docids as normalised sums of phrase rows, x_0 for every place, documents by log-sum-exp; nothing copied."""


@dataclass(frozen=True)
class Priors:
    """Log priors of tokens, smoothed so that none is impossible, and of the end of a docid by slot.

    >>> [round(float(p), 3) for p in Priors.count([3, 0], lengths=[1, 1, 2], slots=2).tokens]
    [-0.223, -1.609]
    """

    tokens: NDArray[np.float32]
    ends: NDArray[np.float32]

    @classmethod
    def count(cls, counts: ArrayLike, lengths: ArrayLike, slots: int) -> Priors:
        """From how often each token is used in the docids, and the docids' lengths.

        p(v) = (count + 1) / (N + V). The end is corrected by the ending rate of its slot: of the docids that have at
        least t tokens before slot t + 1, the share that ends there, smoothed alike.
        """
        used = np.asarray(counts, np.float64)
        tokens = np.log((used + 1) / (used.sum() + len(used)))
        sizes = np.asarray(lengths)
        ended = np.array([(sizes == t).sum() for t in range(slots)], np.float64)
        reached = np.array([(sizes >= t).sum() for t in range(slots)], np.float64)
        return cls(tokens.astype(np.float32), np.log((ended + 1) / (reached + 2)).astype(np.float32))


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

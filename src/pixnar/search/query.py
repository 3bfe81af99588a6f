"""A query's scores: from its vectors x_0 … x_s to what decoding takes, for every slot which tokens how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixnar.runtime import HeadRows
from pixnar.scoring import Priors, ScoreRule, composed_scores, end_scores, floors, own_bonus, token_scores
from pixnar.search.types import Order


@dataclass(frozen=True)
class SlotScores:
    """Scores of tokens by slot, and of the end of a docid, all of them 32-bit floats.

    >>> scores = SlotScores.sparse([([3, 5], [1.0, 0.5]), ([5], [2.0])], ends=[0.0, -1.0])
    >>> scores.slots
    2
    """

    tokens: NDArray[np.uint32]
    scores: NDArray[np.float32]
    offsets: NDArray[np.int64]
    ends: NDArray[np.float32]
    is_dense: bool = False

    @property
    def slots(self) -> int:
        """How many slots there are."""
        return len(self.ends)

    @classmethod
    def sparse(cls, slots: Sequence[tuple[ArrayLike, ArrayLike]], ends: ArrayLike) -> SlotScores:
        """From (tokens, scores) for each slot; all other tokens get their floor."""
        tokens = [_token_ids(ids) for ids, _ in slots]
        scores = [as_floats(values, f"the scores of slot {t}") for t, (_, values) in enumerate(slots)]
        for t, (ids, values) in enumerate(zip(tokens, scores, strict=True)):
            if len(ids) != len(values):
                raise ValueError(
                    f"slot {t} has {len(ids)} tokens and {len(values)} scores: give one score for each token"
                )
        offsets = np.zeros(len(slots) + 1, np.int64)
        np.cumsum([len(ids) for ids in tokens], out=offsets[1:])
        return cls(
            np.concatenate([*tokens, np.zeros(0, np.uint32)]),
            np.concatenate([*scores, np.zeros(0, np.float32)]),
            offsets,
            _ends(ends, len(slots)),
        )

    @classmethod
    def dense(cls, scores_sv: ArrayLike, ends: ArrayLike) -> SlotScores:
        """From one score for every slot and token."""
        given = np.asarray(scores_sv)
        if given.ndim != 2:
            raise ValueError(f"dense scores have {given.ndim} dimensions: give slots x vocabulary")
        values = as_floats(given.ravel(), "dense scores")
        return cls(np.zeros(0, np.uint32), values, np.zeros(0, np.int64), _ends(ends, len(given)), is_dense=True)


def as_floats(values: ArrayLike, what: str) -> NDArray[np.float32]:
    """One dimension of 32-bit floats, none of them out of range."""
    given = np.asarray(values)
    if given.ndim != 1:
        raise ValueError(f"{what} should be a list of numbers, and have {given.ndim} dimensions")
    if given.size and given.dtype.kind not in "fiu":
        raise ValueError(f"{what} should be numbers, and are {given.dtype}")
    with np.errstate(over="ignore"):
        floats = np.ascontiguousarray(given, np.float32)
    if given.dtype != np.float32 and (np.isinf(floats) & ~np.isinf(given.astype(np.float64))).any():
        raise ValueError(f"{what} do not fit in 32-bit floats: the largest is {np.abs(given).max():g}")
    return floats


def _token_ids(ids: ArrayLike) -> NDArray[np.uint32]:
    given = np.asarray(ids)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ValueError(f"token ids should be a list of whole numbers, and are {given.ndim}-dimensional {given.dtype}")
    if given.size and (int(given.min()) < 0 or int(given.max()) > 0xFFFFFFFF):
        raise ValueError(f"token ids go from {given.min()} to {given.max()}: give ids of the vocabulary")
    return np.ascontiguousarray(given, np.uint32)


def _ends(ends: ArrayLike, slots: int) -> NDArray[np.float32]:
    values = as_floats(ends, "end scores")
    if len(values) != slots:
        raise ValueError(f"{len(values)} end scores for {slots} slots: give one for each slot")
    return values


Floats = NDArray[np.float32]
_LOGITS_AT_ONCE = 32 * 1024 * 1024  # floats


class Head(Protocol):
    """The phrase rows: one per token, and a last one for the end of a docid."""

    @property
    def count(self) -> int:
        """Rows, the last one included."""
        ...

    @property
    def bias(self) -> Floats | None:
        """What is added to the product with each row."""
        ...

    def logits(self, x: Floats, ids: NDArray[np.integer] | None = None) -> Floats:
        """Logits [T, n] of vectors x [T, d] against some rows, or all."""
        ...


@dataclass(frozen=True)
class ArrayHead:
    """Rows [V + 1, d] and bias [V + 1] as training leaves them."""

    rows: Floats
    bias: Floats | None

    @property
    def count(self) -> int:
        """See `Head`."""
        return len(self.rows)

    def logits(self, x: Floats, ids: NDArray[np.integer] | None = None) -> Floats:
        """See `Head`."""
        some = slice(None) if ids is None else ids
        logits: Floats = x @ self.rows[some].T
        if self.bias is not None:
            logits += self.bias[some]
        return logits


class QueryScorer:
    """Scores tokens for queries: logits against the phrase rows, probabilities, copy term, prior correction.

    `log_z` [s + 1] is the mean log Z per slot.
    """

    def __init__(self, head: Head, log_z: Floats, priors: Priors, rule: ScoreRule) -> None:
        self.head, self.log_z, self.priors, self.rule = head, log_z, priors, rule
        self.slots = len(log_z) - 1
        self.floors = floors(priors, rule)

    def with_rule(self, rule: ScoreRule) -> QueryScorer:
        """The same with other settings."""
        return QueryScorer(self.head, self.log_z, self.priors, rule)

    @property
    def order(self) -> Order:
        """How the decoder is to match: token scores that do not depend on the place are matched in any."""
        return "slots" if self.rule.order == "slots" else "any"

    def batch(
        self,
        x: Floats,
        own: Sequence[NDArray[np.integer]],
        shortlists: Sequence[NDArray[np.integer]] | None = None,
    ) -> Iterator[SlotScores]:
        """The scores of queries with vectors x [Q, s + 1, d] and their own n-grams, over all tokens or shortlists."""
        if shortlists is not None or isinstance(self.head, HeadRows):
            for i, vectors in enumerate(x):
                yield self.one(vectors, own[i], None if shortlists is None else shortlists[i])
            return
        per_query = len(self._used(x[:1])[0]) * self.head.count if len(x) else 1
        size = max(1, _LOGITS_AT_ONCE // per_query)
        for start in range(0, len(x), size):
            logits = self._logits(x[start : start + size], None)
            for i, one in enumerate(logits):
                yield self._scores(one, own[start + i], None)

    def one(self, x: Floats, own: NDArray[np.integer], shortlist: NDArray[np.integer] | None = None) -> SlotScores:
        """The scores of one query with vectors x [s + 1, d]; the native core does it all in one pass over the rows."""
        if isinstance(self.head, HeadRows):
            found = self.head.score(x, shortlist, own, self.rule, self.priors, self.log_z, self.floors)
            return SlotScores(found.tokens, found.scores, found.offsets, found.ends, found.is_dense)
        ids = None if shortlist is None else np.asarray(shortlist, np.int64)
        return self._scores(self._logits(x[None], ids)[0], own, ids)

    def expansion(
        self, x: Floats, most: int, shortlist: NDArray[np.integer] | None = None
    ) -> tuple[NDArray[np.int64], Floats]:
        """The tokens that x_0 gains most on over their prior, and the gains: what the query may also be about."""
        if isinstance(self.head, HeadRows):
            nothing, bag = np.zeros(0, np.uint32), self.rule.with_(order="bag")
            parts = (self.priors, self.log_z, self.floors)
            found = self.head.score(x, shortlist, nothing, bag, *parts, expansion=most)
            order = np.argsort(found.expansion)
            return found.expansion[order].astype(np.int64), found.gains[order]
        ids = None if shortlist is None else np.asarray(shortlist, np.int64)
        logits = self.head.logits(x[:1], ids)[0]
        logits = logits[:-1] if ids is None else logits
        top = logits.max()
        log_z = top + np.log(np.exp(logits - top).sum())
        usual = self.priors.tokens
        if self.rule.score == "composed":
            usual = np.zeros_like(usual) if self.head.bias is None else self.head.bias[:-1]
        gains = logits - log_z - (usual if ids is None else usual[ids])
        rest = len(gains) - most
        chosen = np.argpartition(gains, rest - 1)[rest:] if rest > 0 else np.arange(len(gains))
        chosen = np.sort(chosen[gains[chosen] > 0])
        return (chosen if ids is None else ids[chosen]), gains[chosen].astype(np.float32)

    def _used(self, x: Floats) -> Floats:
        """The vectors that the rule scores with."""
        return x[:, :1] if self.rule.order == "bag" else x[:, 1:]

    def _logits(self, x: Floats, ids: NDArray[np.int64] | None) -> Floats:
        """Logits [Q, t, tokens + 1]: the given tokens, or all, then the end."""
        used = self._used(x)
        wanted = None if ids is None else np.append(ids, self.head.count - 1)
        logits = self.head.logits(used.reshape(-1, used.shape[-1]), wanted)
        shaped: Floats = logits.reshape(len(x), used.shape[1], -1)
        return shaped

    def _scores(self, logits: Floats, own: NDArray[np.integer], ids: NDArray[np.int64] | None) -> SlotScores:
        rule = self.rule
        if rule.score == "composed":
            scores, log_p = self._composed(logits, own, ids), logits
        else:
            log_p = self._log_p(logits)
            if rule.order != "slots":
                log_p = log_p.max(0, keepdims=True)
            prior = self.priors.tokens if ids is None else self.priors.tokens[ids]
            scores = token_scores(np, log_p[:, :-1], self._copied(own, ids, log_p.shape[1] - 1), prior, rule)
        ends = np.zeros(self.slots, np.float32)
        if rule.score != "composed" and rule.ends and rule.order == "slots":
            ends = end_scores(np, log_p[:, -1], self.priors.ends, rule).astype(np.float32)
        if ids is None and self.floors is None and rule.order == "slots":
            return SlotScores.dense(scores, ends)
        named = [self._named(row, ids) for row in scores]
        none = (np.zeros(0, np.uint32), np.zeros(0, np.float32))
        return SlotScores.sparse(named + [none] * (self.slots - len(named)), ends)

    def _composed(self, logits: Floats, own: NDArray[np.integer], ids: NDArray[np.int64] | None) -> Floats:
        """Scores of tokens [t, n] by their products with the query's vectors alone."""
        products, bias = logits[:, :-1], self.head.bias
        if bias is not None:
            products = products - (bias[:-1] if ids is None else bias[ids])
        if self.rule.order != "slots":
            products = products.max(0, keepdims=True)
        given, bonus = own_bonus(own, self.priors, self.rule), None
        if given is not None:
            bonus = np.zeros(products.shape[1], np.float32)
            places = own if ids is None else np.minimum(np.searchsorted(ids, own), max(len(ids) - 1, 0))
            known = np.ones(len(own), bool) if ids is None else (ids[places] == own if len(ids) else places < 0)
            bonus[places[known]] = given[known]
        scores: Floats = composed_scores(np, products, bonus, self.rule)
        return scores

    def _named(self, scores: Floats, ids: NDArray[np.int64] | None) -> tuple[NDArray[np.int64], Floats]:
        """Tokens above their floor, and their scores; the others would get their floor anyway."""
        if self.floors is None:
            return (np.arange(len(scores)) if ids is None else ids), scores
        above = np.flatnonzero(scores > (self.floors if ids is None else self.floors[ids]))
        return (above if ids is None else ids[above]), scores[above]

    def _log_p(self, logits: Floats) -> Floats:
        if not self.rule.normalize:
            first = 0 if self.rule.order == "bag" else 1
            return logits - self.log_z[first : first + len(logits), None]
        top = logits.max(1, keepdims=True)
        log_p: Floats = logits - (top + np.log(np.exp(logits - top).sum(1, keepdims=True)))
        return log_p

    def _copied(self, own: NDArray[np.integer], ids: NDArray[np.int64] | None, size: int) -> Floats | None:
        if not self.rule.copy or not len(own) or not size:
            return None
        out = np.full(size, -np.inf, np.float32)
        if ids is None:
            out[own] = -np.log(len(own))
        else:
            places = np.searchsorted(ids, own)
            places = places[(places < len(ids)) & (ids[np.minimum(places, len(ids) - 1)] == own)]
            out[places] = -np.log(len(own))
        return out

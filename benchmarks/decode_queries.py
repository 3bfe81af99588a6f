"""Scores such as a model would give, for the docids of a table.

A query is made for a docid of the table, its *target*. Tokens of the target, of docids that share a token with it and
of a random topic are lifted above their frequency, and every slot keeps its 1,000 (or so) most probable tokens. Scores
are prior-corrected, log P - 0.75 log p, and the floor of a token is what log p - 1 would score.

Two kinds, since how peaked a model is decides how hard the search is:

- *peaked*: probabilities fall with the rank as rank^-1 to rank^-1.5; the target stands near the top, then what is
  related to it, then tokens drawn by frequency, all of them far above their frequency.
- *calibrated*: log-probabilities are those of the token in that slot, plus noise, so that irrelevant tokens stay near
  or below their frequency, plus the lifts of what is relevant. Many docids are nearly as good as the hundredth.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pixnar import _native
from pixnar.search import SlotScores

PROFILES = ("peaked", "calibrated")
PRIOR_WEIGHT = 0.75
_SAMPLES = 200  # places of the table from which rows are taken
_ROWS = 2000  # rows at each

Floats = NDArray[np.float64]


class QueryMaker:
    """Makes queries for a table; the same seed gives the same ones."""

    def __init__(self, table: _native.DocidTable, *, slots: int = 8, candidates: int = 1000, seed: int = 0) -> None:
        self._table, self._slots = table, slots
        self._candidates = min(candidates, table.vocabulary)
        self._rng = np.random.default_rng(seed)
        counts_sv = np.zeros((slots, table.vocabulary))
        ended, alive = np.ones(slots), np.full(slots, 2.0)
        self._containing: dict[int, list[tuple[int, ...]]] = {}
        for first in range(0, table.rows, max(1, table.rows // _SAMPLES)):
            ids, offsets, _, _ = table.records(first, min(first + _ROWS, table.rows), None)
            for begin, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
                docid = tuple(ids[begin:end].tolist())
                seen = docid[:slots]
                counts_sv[np.arange(len(seen)), seen] += 1
                alive[: len(docid) + 1] += 1
                if len(docid) < slots:
                    ended[len(docid)] += 1
                for token in set(docid):
                    self._containing.setdefault(token, []).append(docid)
        total_v = counts_sv.sum(axis=0) + 0.05
        frequency_v = total_v / total_v.sum()
        self._prior_v = np.log(frequency_v)
        own_sv = counts_sv / np.maximum(counts_sv.sum(axis=1, keepdims=True), 1)
        self._slot_sv = np.log(0.7 * own_sv + 0.3 * frequency_v).astype(np.float32)
        self._reach_sv = np.cumsum(np.exp(self._slot_sv.astype(np.float64)), axis=1)
        self._end_s = np.log(ended / alive)
        self.floor = (self._prior_v - 1 - PRIOR_WEIGHT * self._prior_v).astype(np.float32)

    def query(self, profile: str) -> SlotScores:
        """The scores of a new query."""
        target = self._table.tokens(int(self._rng.integers(self._table.rows))).tolist()
        related = [docid for token in target for docid in self._sharing(token)]
        make = self._peaked if profile == "peaked" else self._calibrated
        slots, ends = [], np.zeros(self._slots)
        lifts = self._topic() if profile == "calibrated" else None
        for t in range(self._slots):
            end = 0.5 if t == len(target) else 0.7 if t > len(target) else 0.02 if t else 1e-4
            tokens, log_p = make(t, target, related, lifts)
            slots.append((tokens, log_p + np.log(1 - end) - PRIOR_WEIGHT * self._prior_v[tokens]))
            ends[t] = np.log(end) - PRIOR_WEIGHT * self._end_s[t]
        return SlotScores.sparse(slots, ends)

    def _sharing(self, token: int) -> list[tuple[int, ...]]:
        found = self._containing.get(token, [])
        return [found[i] for i in self._rng.integers(0, len(found), 40)] if found else []

    def _topic(self) -> tuple[NDArray[np.int64], Floats]:
        size = max(1, self._table.vocabulary // 200)
        return self._rng.integers(0, self._table.vocabulary, size), self._rng.uniform(0, 6, size)

    def _peaked(
        self, t: int, target: Sequence[int], related: Sequence[Sequence[int]], _: object
    ) -> tuple[NDArray[np.int64], Floats]:
        rng, n = self._rng, self._candidates
        here = [docid[t] for docid in related if len(docid) > t]
        rng.shuffle(here)
        drawn = np.searchsorted(self._reach_sv[t], rng.random(n) * self._reach_sv[t][-1])
        anywhere = [token for docid in related for token in docid] or [0]
        ranked = here[:150] + np.where(rng.random(n) < 0.2, rng.choice(anywhere, n), drawn).tolist()
        if t < len(target) and rng.random() < 0.9:
            ranked.insert(int(rng.geometric(0.4)) - 1, target[t])
        if rng.random() < 0.5:
            ranked.insert(int(rng.integers(0, 20)), target[int(rng.integers(len(target)))])
        ranked += rng.integers(0, self._table.vocabulary, n).tolist()
        tokens = np.array([*dict.fromkeys(ranked)][:n], np.int64)
        p = (np.arange(len(tokens)) + 1.0) ** -rng.uniform(1.0, 1.5)
        return tokens, np.log(p / p.sum())

    def _calibrated(
        self,
        t: int,
        target: Sequence[int],
        related: Sequence[Sequence[int]],
        topic: tuple[NDArray[np.int64], Floats] | None,
    ) -> tuple[NDArray[np.int64], Floats]:
        rng, own_v = self._rng, self._slot_sv[t]
        log_p = own_v + 0.8 * rng.standard_normal(len(own_v), dtype=np.float32) - 1

        def lift(token: int, low: float, high: float) -> None:
            log_p[token] = max(log_p[token], own_v[token] + rng.uniform(low, high))

        if topic is not None:
            np.maximum.at(log_p, topic[0], (own_v[topic[0]] + topic[1]).astype(np.float32))
        for docid in related:
            if len(docid) > t:
                lift(docid[t], 1, 6)
            lift(docid[int(rng.integers(len(docid)))], 0, 4)
        for place, token in enumerate(target):
            if rng.random() < 0.9:
                lift(token, *((6, 13) if place == t else (2, 8)))
        tokens = np.argpartition(log_p, -self._candidates)[-self._candidates :]
        top = float(log_p.max())
        return tokens, log_p[tokens] - (top + np.log(np.exp(log_p.astype(np.float64) - top).sum()))

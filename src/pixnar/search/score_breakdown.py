"""Score breakdown: a docid's score by its tokens, a document's by its docids, a hit's by its sources."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.fusion.fuse import DOCIDS
from pixnar.search import Decoded, DocidHit, SlotScores
from pixnar.search.ranker import Candidates, PreparedQuery, Ranker
from pixnar.search.types import SearchOptions

Floats = NDArray[np.float32]
Tokens = tuple[int, ...]

_DOCIDS = 3  # of a document, best first
_PATHS = 20
_NAMED = 3  # of the documents that a path names


class ScoreBreakdown:
    """The parts of one query's scores.

    `ids` are the tokens that were scored, ascending, and `logits` [s + 1, n] theirs in every slot; both may go on with
    the end of a docid.
    """

    def __init__(
        self,
        ranker: Ranker,
        query: PreparedQuery,
        scores: SlotScores,
        options: SearchOptions,
        ids: NDArray[np.int64],
        logits: Floats,
    ) -> None:
        self._ranker, self._scores, self._options, self._ids = ranker, scores, options, ids
        self._own = set(query.own.tolist())
        scorer = ranker.scorer
        self._rule, self._floors, self._slots = scorer.rule, scorer.floors, scorer.slots
        if self._rule.score == "composed":
            bias = scorer.head.bias
            self._said = logits if bias is None else logits - bias[ids]
        elif self._rule.normalize:
            top = logits.max(1, keepdims=True)
            self._said = logits - top - np.log(np.exp(logits - top).sum(1, keepdims=True))
        else:
            self._said = logits - scorer.log_z[:, None]
        self._rows: dict[int, NDArray[np.float64]] = {}

    def worth(self, token: int) -> float:
        """What a token scores at its best slot, 0 where no slot names it."""
        best = float(self._named(token).max())
        return best if best > -math.inf else 0.0

    def docid(self, tokens: Tokens) -> dict[str, Any]:
        """The parts of a docid's score: (its tokens + its end) × factor / divisor, to the last bit in that order.

        The factor is that of the composed score, 1 / the length of the docid's vector, and else 1.
        A token that no slot names scores its floor, and one beyond the last slot does not count.
        """
        parts = [self._token(place, v) for place, v in enumerate(tokens)]
        total = 0.0
        for part in parts:
            total += part["score"]
        short = len(tokens) < self._slots
        end = float(self._scores.ends[len(tokens)]) if short else None
        terms = len(tokens) + 1 if short else self._slots
        return {
            "tokens": parts,
            "end": end,
            "sum": total + (end or 0.0),
            "factor": self._factor(tokens),
            "divisor": float(terms**self._rule.length_power),
        }

    def _factor(self, tokens: Tokens) -> float:
        factors = self._ranker.factors
        return 1.0 if factors is None else factors.of(tokens)

    def document(self, doc_id: str) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        """The docids that speak most for a document, and its score: that of the best, and what the others add.

        A beam knows only the docids it came across, and takes the best of them.
        """
        if self._options.beam:
            hits = [hit for hit in self._best.hits if doc_id in hit.documents]
            scores = [hit.score for hit in hits]
            top = [hit.tokens for hit in hits[:_DOCIDS]]
        else:
            found = self._found(self._ranker.table.pairs, SearchOptions(allow=[doc_id]))
            scores = found.scores.tolist()
            top = [found.tokens(i) for i in range(min(_DOCIDS, len(scores)))]
        if not scores:
            return [], None
        aggregate = "max" if self._options.beam else self._rule.aggregate
        most = {"max": 1, "logsumexp": len(scores)}.get(str(aggregate), aggregate)
        counted = scores[: int(most)]
        others = math.log(math.fsum(math.exp(score - counted[0]) for score in counted))
        told = {"aggregate": aggregate, "docids": len(counted), "of": len(scores), "best": counted[0]}
        docids = [self._told(tokens, score) for tokens, score in zip(top, scores, strict=False)]
        return docids, told | {"others": others, "score": counted[0] + others}

    def paths(self) -> list[dict[str, Any]]:
        """The best docids of all that may be found: the ways through the trie that survived."""
        hits = self._best.hits[:_PATHS]
        return [
            {
                "docid": text,
                "score": hit.score,
                "parts": self.docid(hit.tokens),
                "documents": len(hit.documents),
                "doc_ids": list(hit.documents[:_NAMED]),
            }
            for hit, text in zip(hits, self._ranker.table.spellings([hit.tokens for hit in hits]), strict=True)
        ]

    @cached_property
    def _best(self) -> Decoded[DocidHit]:
        return self._found(_PATHS, self._options)

    def _found(self, k: int, options: SearchOptions) -> Decoded[DocidHit]:
        ranker = self._ranker
        if options.beam:
            return ranker.beam(self._scores, options)
        return ranker.decoder.docids(
            self._scores,
            k,
            order=ranker.scorer.order,
            length_norm=self._rule.length_power,
            allow=options.allow,
            forbid=options.forbid,
            where=options.where,
        )

    def _told(self, tokens: Tokens, score: float) -> dict[str, Any]:
        vocabulary = self._ranker.table.vocabulary
        return {
            "docid": self._ranker.table.spellings([tokens])[0],
            "score": score,
            "tokens": [[vocabulary.token(v), self.worth(v)] for v in tokens],
            "parts": self.docid(tokens),
        }

    def _token(self, place: int, v: int) -> dict[str, Any]:
        counts = place < self._slots
        floor = -math.inf if self._floors is None or not counts else float(self._floors[v])
        named = self._named(v)
        score = float(named[place] if self._rule.order == "slots" and counts else named.max()) if counts else -math.inf
        return {
            "token": self._ranker.table.vocabulary.token(v),
            "own": v in self._own,
            "slot": self._slot(place, v) if score > floor else None,
            "score": max(score, floor) if counts else 0.0,
            "floor": floor if floor > -math.inf else None,
            "counts": counts,
        }

    def _slot(self, place: int, v: int) -> int:
        """The slot that scores a token: x_0 for all of them, its own, or the one that expects it most."""
        if self._rule.order == "bag":
            return 0
        if self._rule.order == "slots":
            return place + 1
        return 1 + int(self._said[1:, np.searchsorted(self._ids, v)].argmax())

    def _named(self, v: int) -> NDArray[np.float64]:
        """What the query gives a token in every slot, -inf where it does not name it."""
        if v not in self._rows:
            scores = self._scores
            if scores.is_dense:
                row = scores.scores.reshape(scores.slots, -1)[:, v].astype(np.float64)
            else:
                row = np.full(scores.slots, -np.inf)
                places = np.flatnonzero(scores.tokens == v)
                np.maximum.at(row, np.searchsorted(scores.offsets, places, side="right") - 1, scores.scores[places])
            self._rows[v] = row
        return self._rows[v]


def alone(score: float) -> list[dict[str, Any]]:
    """What is added up where docids alone rank."""
    return [{"source": DOCIDS, "value": score, "weight": 1.0, "scale": 1.0, "known": True, "score": score}]


def contributions(ranker: Ranker, found: Candidates) -> list[list[dict[str, Any]]]:
    """For each candidate what every source adds to its score: weight × value / scale.

    Where a source says nothing of a document, that is as if it said its lowest value for the query (`known` is false).
    """
    fusion = ranker.fusion
    if fusion is None:
        return [alone(value) for value in found.columns[DOCIDS].tolist()]
    rows: list[list[dict[str, Any]]] = [[] for _ in range(len(found))]
    for name, (filled, added) in fusion.parts(found.columns).items():
        known = np.isfinite(found.columns[name]).tolist()
        for i, row in enumerate(rows):
            row.append(
                {
                    "source": name,
                    "value": float(filled[i]),
                    "weight": fusion.weights[name],
                    "scale": fusion.scales.get(name, 1.0),
                    "known": known[i],
                    "score": float(added[i]),
                }
            )
    return rows

"""A hybrid of dense retrieval and BM25: a weighted sum of both scores, or reciprocal rank fusion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.progress import Progress
from pixnar.base.storage import read_container, write_container
from pixnar.base.strings import SortedStrings
from pixnar.evaluation.baselines.bm25 import Bm25Retriever
from pixnar.evaluation.baselines.dense import DenseRetriever
from pixnar.evaluation.baselines.entries import (
    Aggregate,
    Floats,
    Ints,
    ScoredDocuments,
    choose,
    read_ids,
    reciprocal_rank,
    relevant_numbers,
    write_ids,
)
from pixnar.evaluation.queries import Queries
from pixnar.search import Hit

WEIGHTS, RRF = "weights", "rrf"
DEPTH = 1000
"""Documents that each side proposes; the other side scores them exactly."""

DENSE_FOLDER, BM25_FOLDER = "dense", "bm25"
_DOCUMENTS, _SIDES = "documents.pixnar", "sides.pixnar"
_KIND, _VERSION = "sides", 1
_GRID = (0.0, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.25, 0.5, 1.0)
_CONSTANTS = (60.0, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 100.0)  # the first without a dev split


@dataclass(frozen=True)
class WeightedSum:
    """dense · cosine + bm25 · BM25."""

    dense: float = 1.0
    bm25: float = 0.04  # without a dev split

    def scores(self, dense: Floats, bm25: Floats) -> Floats:
        """The fused scores of one query's candidates, which are in the order of their ids."""
        return np.float32(self.dense) * dense + np.float32(self.bm25) * bm25

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {"kind": WEIGHTS, "dense": self.dense, "bm25": self.bm25}


@dataclass(frozen=True)
class ReciprocalRanks:
    """Reciprocal rank fusion: Σ 1 / (constant + rank); a document that shares no word has no rank by BM25."""

    constant: float = _CONSTANTS[0]

    def scores(self, dense: Floats, bm25: Floats) -> Floats:
        """The fused scores of one query's candidates, which are in the order of their ids."""
        found = 1 / (self.constant + _ranks(dense)) + np.where(bm25 > 0, 1 / (self.constant + _ranks(bm25)), 0)
        return found.astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        """What JSON can hold."""
        return {"kind": RRF, "constant": self.constant}


Fusion = WeightedSum | ReciprocalRanks


def fusion_from(data: Any) -> Fusion:
    """The way back from `to_dict`."""
    try:
        if data["kind"] == RRF:
            return ReciprocalRanks(float(data["constant"]))
        return WeightedSum(float(data["dense"]), float(data["bm25"]))
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{data!r} is not a fusion: copy or build the baseline again") from error


def fusions(kind: str, weight: float | None = None) -> list[Fusion]:
    """What the dev split chooses from; without one, the default of the kind."""
    if kind == RRF:
        if weight is not None:
            raise PixnarError(f"weight is for the fusion {WEIGHTS}: leave it out with {RRF}")
        return [ReciprocalRanks(constant) for constant in _CONSTANTS]
    if kind != WEIGHTS:
        raise PixnarError(f"fusion {kind!r} is not possible: give {WEIGHTS} or {RRF}")
    if weight is not None:
        if not 0 <= weight < np.inf:
            raise PixnarError(f"weight {weight} is not possible: give 0 or more")
        return [WeightedSum(bm25=weight)]
    nearest = sorted(_GRID, key=lambda one: abs(one - WeightedSum.bm25))  # equals go to the default
    return [*(WeightedSum(bm25=one) for one in nearest), WeightedSum(dense=0.0, bm25=1.0)]


class HybridRetriever:
    """Dense retrieval and BM25 behind one score. Documents are those of either side, in the order of their ids.

    Each side proposes its best `depth` documents and scores those of the other side exactly. A document that one side
    does not know gets the lowest score that this side gives any candidate of the query.
    """

    def __init__(
        self,
        dense: DenseRetriever,
        bm25: Bm25Retriever,
        fusion: Fusion | None = None,
        *,
        depth: int = DEPTH,
        sides: tuple[Sequence[str] | SortedStrings, Ints, Ints] | None = None,
    ) -> None:
        if depth < 1:
            raise PixnarError(f"depth {depth} is not possible: give 1 or more")
        self.dense, self.bm25, self.fusion, self.depth = dense, bm25, fusion or WeightedSum(), depth
        self.doc_ids, *maps = sides or _joined(dense.entries.doc_ids, bm25.entries.doc_ids)
        self._dense, self._bm25 = (_Side(numbers, len(self.doc_ids)) for numbers in maps)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The k best documents."""
        return self.search_batch([query], k)[0]

    def search_batch(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """The same for many queries."""
        if isinstance(queries, str):
            raise TypeError("search_batch takes a list of queries; for one query use search")
        if k < 1:
            return [[] for _ in queries]
        hits = []
        for query, vector in zip(queries, self.dense.query_vectors(queries), strict=True):
            documents, (dense,), bm25 = self._columns(query, [self.dense.scored(vector)], max(k, self.depth))
            scores = self.fusion.scores(dense, bm25)
            order = np.lexsort((documents, -scores))[:k]
            hits.append(self._hits(vector, documents[order], scores[order]))
        return hits

    def choose(
        self, aggregates: Sequence[Aggregate], options: Sequence[Fusion], dev: Queries, progress: Progress | None = None
    ) -> dict[str, float]:
        """Take the aggregate of dense retrieval and the fusion that are best together on dev; figures of the choice.

        Without dev queries the aggregate stays, and the fusion is the default of its kind.
        """
        if not len(dev):
            self.fusion = options[0] if len(options) == 1 else type(options[0])()
            return {}
        ranks = np.zeros((len(aggregates) * len(options), len(dev)))
        wanted = relevant_numbers(dev, self.doc_ids)
        for i, (query, vector) in enumerate(zip(dev.texts, self.dense.query_vectors(dev.texts), strict=True)):
            if progress:
                progress("choosing the fusion on dev", i, len(dev))
            documents, columns, bm25 = self._columns(query, self.dense.scored_by(vector, aggregates), self.depth)
            relevant = np.isin(documents, wanted[i])
            if relevant.any():
                fused = (option.scores(dense, bm25) for dense in columns for option in options)
                ranks[:, i] = [reciprocal_rank(scores, relevant) for scores in fused]
        best, figures = choose(ranks)
        self.dense.aggregate, self.fusion = aggregates[best // len(options)], options[best % len(options)]
        return figures

    def _columns(self, query: str, dense: Sequence[ScoredDocuments], depth: int) -> tuple[Ints, list[Floats], Floats]:
        """All candidates of a query, ascending, and what both sides score them: dense under each of its aggregates."""
        words = self.bm25.scored(query)
        matching = words.best(depth)
        matching = matching[words.of(matching) > 0]
        nearest = [self._dense.numbers[side.best(depth)] for side in dense]
        documents = np.unique(np.concatenate([*nearest, self._bm25.numbers[matching]]))
        columns = [self._dense.filled(side, documents) for side in dense]
        return documents, columns, self._bm25.filled(words, documents)

    def _hits(self, vector: Floats, documents: Ints, scores: Floats) -> list[Hit]:
        own = self._dense.own[documents]
        rows = iter(self.dense.nearest_entries(vector, own[own >= 0]))
        spelled = [self.dense.entries.spelling(next(rows)) if known else "" for known in (own >= 0).tolist()]
        pairs = zip(documents.tolist(), scores.tolist(), spelled, strict=True)
        return [Hit(self.doc_ids[document], score, docid) for document, score, docid in pairs]

    def save(self, folder: Path) -> None:
        """Write the documents of both sides; the sides themselves are in folders of their own."""
        write_ids(folder / _DOCUMENTS, self.doc_ids)
        arrays = {DENSE_FOLDER: self._dense.numbers, BM25_FOLDER: self._bm25.numbers}
        write_container(folder / _SIDES, _KIND, _VERSION, {}, arrays)

    @classmethod
    def load(
        cls, folder: Path, fusion: Fusion, aggregate: Aggregate, *, depth: int = DEPTH, threads: int = 1
    ) -> HybridRetriever:
        """Open what `save` wrote, with both sides."""
        dense = DenseRetriever.load(folder / DENSE_FOLDER, aggregate=aggregate, threads=threads)
        bm25 = Bm25Retriever.load(folder / BM25_FOLDER)
        doc_ids, arrays = read_ids(folder / _DOCUMENTS), read_container(folder / _SIDES, _KIND, _VERSION).arrays
        maps = []
        for name, entries in ((DENSE_FOLDER, dense.entries), (BM25_FOLDER, bm25.entries)):
            numbers = arrays.get(name)
            fits = numbers is not None and len(numbers) == len(entries.doc_ids)
            if numbers is None or not fits or not 0 <= numbers.min() <= numbers.max() < len(doc_ids):
                raise FileFormatError(f"{folder / _SIDES} does not fit its sides: copy or build the baseline again")
            maps.append(numbers)
        return cls(dense, bm25, fusion, depth=depth, sides=(doc_ids, maps[0], maps[1]))


class _Side:
    """From the documents of a side to those of the hybrid, and back."""

    def __init__(self, numbers: Ints, n_documents: int) -> None:
        self.numbers = numbers
        self.own = np.full(n_documents, -1, np.int64)
        self.own[numbers] = np.arange(len(numbers))

    def filled(self, side: ScoredDocuments, documents: Ints) -> Floats:
        """Scores of documents; the lowest of them where the side does not know one."""
        own = self.own[documents]
        known = own >= 0
        scores = side.of(own[known])
        out = np.full(len(documents), scores.min(initial=np.inf) if len(scores) else 0, np.float32)
        out[known] = scores
        return out


def _joined(dense: Sequence[str] | SortedStrings, bm25: Sequence[str] | SortedStrings) -> tuple[list[str], Ints, Ints]:
    doc_ids = sorted({*dense, *bm25})
    number = {doc_id: i for i, doc_id in enumerate(doc_ids)}
    of_dense, of_bm25 = (np.array([number[doc_id] for doc_id in side], np.int64) for side in (dense, bm25))
    if len(doc_ids) == len(of_dense) + len(of_bm25):
        raise PixnarError("dense retrieval and BM25 have no document in common: build both from the same corpus")
    return doc_ids, of_dense, of_bm25


def _ranks(scores: Floats) -> NDArray[np.float64]:
    """The rank of each, from 1; the first comes first among equals."""
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return ranks

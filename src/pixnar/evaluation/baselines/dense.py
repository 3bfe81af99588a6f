"""Dense retrieval: one vector per docid or document in faiss, and the encoder that made them for the query."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from pixnar.base.errors import FileFormatError, MissingExtraError, PixnarError
from pixnar.evaluation.baselines.entries import (
    MAX,
    Aggregate,
    AllScores,
    Entries,
    Floats,
    Ints,
    ScoredDocuments,
    ScoredEntries,
    choose,
    reciprocal_rank,
    relevant_numbers,
)
from pixnar.evaluation.queries import Queries
from pixnar.runtime import QueryEncoder, TextEncoder
from pixnar.search import Hit
from pixnar.vocab import normalize

ENCODER, VECTORS = "encoder", "vectors.faiss"
FLAT, HNSW = "flat", "hnsw"

_LINKS, _WHEN_BUILT, _WHEN_ASKED = 32, 200, 128  # of HNSW: links of a vector, candidates for them and for a query
_BATCH = 64  # queries at a time
_CHOICE_DEPTH = 100  # documents that either way of aggregating proposes, when dev chooses between them


class DenseRetriever:
    """The nearest vectors by inner product: exactly (`flat`), or through a graph (`hnsw`), which may miss some.

    `aggregate` makes the score of a document from those of its entries. Queries are encoded by onnxruntime: no torch is
    needed.
    """

    def __init__(
        self,
        entries: Entries,
        near: Any,
        encoder: TextEncoder,
        *,
        aggregate: Aggregate = Aggregate(MAX),  # noqa: B008  # frozen
        threads: int = 1,
    ) -> None:
        self.entries, self.encoder, self.aggregate, self.threads = entries, encoder, aggregate, threads
        self._near, self._library = near, faiss_library()

    @classmethod
    def over(
        cls, entries: Entries, vectors: Floats, encoder: TextEncoder, *, kind: str = FLAT, threads: int = 1
    ) -> DenseRetriever:
        """From the vectors of all entries; `encoder` makes those of queries."""
        check_kind(kind)
        library, width = faiss_library(), vectors.shape[1]
        if kind == FLAT:
            near = library.IndexFlatIP(width)
        else:
            near = library.IndexHNSWFlat(width, _LINKS, library.METRIC_INNER_PRODUCT)
            near.hnsw.efConstruction, near.hnsw.efSearch = _WHEN_BUILT, _WHEN_ASKED
        with _threads(library, threads):
            near.add(np.ascontiguousarray(vectors, np.float32))
        return cls(entries, near, encoder, threads=threads)

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The k best documents, or as many as there are."""
        return self.search_batch([query], k)[0]

    def search_batch(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """The same for many queries."""
        if isinstance(queries, str):
            raise TypeError("search_batch takes a list of queries; for one query use search")
        if k < 1:
            return [[] for _ in queries]
        if self.aggregate.kind != MAX:
            vectors = self.query_vectors(queries)
            return [self.hits(vector, self.scored(vector), k) for vector in vectors]
        hits: list[list[Hit]] = []
        depth = self.entries.depth(k)
        for start in range(0, len(queries), _BATCH):
            vectors = self.query_vectors(queries[start : start + _BATCH])
            for vector, first in zip(vectors, self._nearest(vectors, depth), strict=True):
                # What all queries are asked together is enough for most; the others look deeper alone.
                find = partial(self._deeper, vector, {depth: first})
                hits.append(self.entries.best(k, find))
        return hits

    def query_vectors(self, queries: Sequence[str]) -> Floats:
        """The vectors of queries."""
        texts = [normalize(query) for query in queries]
        parts = [self.encoder.query_vectors(texts[start : start + _BATCH])[1] for start in range(0, len(texts), _BATCH)]
        return np.concatenate(parts) if parts else np.zeros((0, self.vectors.shape[1]), np.float32)

    def hits(self, vector: Floats, scored: ScoredDocuments, k: int) -> list[Hit]:
        """The k best documents by some scores, each with its docid nearest to a query's vector."""
        documents = scored.best(k)
        pairs = zip(
            documents.tolist(), scored.of(documents).tolist(), self.nearest_entries(vector, documents), strict=True
        )
        return [Hit(self.entries.doc_ids[i], score, self.entries.spelling(row)) for i, score, row in pairs]

    def nearest_entries(self, vector: Floats, documents: Ints) -> list[int]:
        """Of some documents the entry nearest to a query's vector."""
        rows, begins = self.entries.by_document
        own = [rows[begins[document] : begins[document + 1]] for document in documents.tolist()]
        return [int(some[(self.vectors[some] @ vector).argmax()]) for some in own]

    def scored(self, vector: Floats) -> ScoredDocuments:
        """The scores of documents for a query's vector."""
        return self.scored_by(vector, [self.aggregate])[0]

    def scored_by(self, vector: Floats, aggregates: Sequence[Aggregate]) -> list[ScoredDocuments]:
        """The same under several aggregates."""
        if not self.exact:
            return [_GraphScores(self, vector, aggregate) for aggregate in aggregates]
        rows, begins = self.entries.by_document
        scores = (self.vectors @ vector)[rows][None]
        return [AllScores(aggregate(scores, begins[:-1])[0]) for aggregate in aggregates]

    def choose_aggregate(self, options: Sequence[Aggregate], dev: Queries) -> dict[str, float]:
        """Take the aggregate that is best on dev, the first option without dev queries; figures of the choice."""
        self.aggregate = options[0]
        if not len(dev):
            return {}
        ranks = np.zeros((len(options), len(dev)))
        wanted = relevant_numbers(dev, self.entries.doc_ids)
        for i, vector in enumerate(self.query_vectors(dev.texts)):
            sides = self.scored_by(vector, options)
            documents = np.unique(np.concatenate([side.best(_CHOICE_DEPTH) for side in sides]))
            relevant = np.isin(documents, wanted[i])
            ranks[:, i] = [reciprocal_rank(side.of(documents), relevant) for side in sides]
        best, figures = choose(ranks)
        self.aggregate = options[best]
        return figures

    @property
    def exact(self) -> bool:
        """Whether all vectors are looked at."""
        return not hasattr(self._near, "hnsw")

    @cached_property
    def vectors(self) -> Floats:
        """The vectors of all entries, in the memory of faiss."""
        flat = self._near if self.exact else self._library.downcast_index(self._near.storage)
        whole: Floats = self._library.rev_swig_ptr(flat.get_xb(), flat.ntotal * flat.d).reshape(flat.ntotal, flat.d)
        return whole

    def nearest_documents(self, vector: Floats, entries: int) -> Ints:
        """The documents of the nearest entries."""
        rows = self._nearest(vector[None], entries)[0].rows
        offsets, documents = self.entries.offsets, self.entries.documents
        return np.unique(np.concatenate([documents[:0], *(documents[offsets[i] : offsets[i + 1]] for i in rows)]))

    def _deeper(self, vector: Floats, known: dict[int, ScoredEntries], depth: int) -> ScoredEntries:
        return known[depth] if depth in known else self._nearest(vector[None], depth)[0]

    def _nearest(self, vectors: Floats, depth: int) -> list[ScoredEntries]:
        depth = min(depth, len(self.entries))
        found = []
        with _threads(self._library, self.threads):
            nearest = self._near.search(np.ascontiguousarray(vectors), depth)
        for scores, rows in zip(*nearest, strict=True):
            there = rows >= 0
            whole = depth == len(self.entries) or not there.all()
            kept = there if whole else scores > scores[-1]  # others may be as good as the last
            found.append(ScoredEntries(rows[kept], scores[kept], whole))
        return found

    def save(self, folder: Path) -> None:
        """Write entries and vectors into a folder; the encoder is exported there by who has it in torch."""
        self.entries.save(folder)
        self._library.write_index(self._near, str(folder / VECTORS))

    @classmethod
    def load(cls, folder: Path, *, aggregate: Aggregate = Aggregate(MAX), threads: int = 1) -> DenseRetriever:  # noqa: B008
        """Open what `save` wrote, and the encoder beside it."""
        library, entries, path = faiss_library(), Entries.load(folder), folder / VECTORS
        encoder = QueryEncoder.load(folder / ENCODER, threads=threads)
        try:
            near = library.read_index(str(path))
        except RuntimeError as error:
            raise FileFormatError(f"{path} is damaged or missing: copy or build the baseline again") from error
        if (near.ntotal, near.d) != (len(entries), encoder.note.pooled_width):
            raise FileFormatError(
                f"{path} has {near.ntotal} vectors of {near.d} numbers, the other files have {len(entries)} of "
                f"{encoder.note.pooled_width}: copy or build the baseline again"
            )
        return cls(entries, near, encoder, aggregate=aggregate, threads=threads)


@dataclass(frozen=True)
class _GraphScores:
    """Documents that a graph finds, scored by all their entries."""

    dense: DenseRetriever
    vector: Floats
    aggregate: Aggregate

    def best(self, depth: int) -> Ints:
        """The best so many of the documents of the nearest entries."""
        found = self.dense.nearest_documents(self.vector, self.dense.entries.depth(depth))
        order = np.lexsort((found, -self.of(found)))
        return found[order[:depth]]

    def of(self, documents: Ints) -> Floats:
        """Exact scores, from all entries of the documents."""
        rows, begins = self.dense.entries.by_document
        own = [rows[begins[document] : begins[document + 1]] for document in documents.tolist()]
        if not own:
            return np.zeros(0, np.float32)
        starts = np.cumsum([0, *(len(some) for some in own[:-1])])
        scores: Floats = self.dense.vectors[np.concatenate(own)] @ self.vector
        return self.aggregate(scores[None], starts).ravel()


@contextlib.contextmanager
def _threads(library: Any, count: int) -> Iterator[None]:
    """So many threads of faiss. It shares OpenMP with torch, whose sums depend on the count: it is put back."""
    before = library.omp_get_max_threads()
    library.omp_set_num_threads(count)
    try:
        yield
    finally:
        library.omp_set_num_threads(before)


def check_kind(kind: str) -> None:
    """Raise unless it is one of the two."""
    if kind not in (FLAT, HNSW):
        raise PixnarError(f"index {kind!r} is not possible: give {FLAT} or {HNSW}")


def faiss_library() -> Any:
    """The library, or what to install to have it."""
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError("dense retrieval by faiss", "baselines") from error
    return faiss

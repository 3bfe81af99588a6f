"""Dense retrieval: one vector per docid or document in faiss, and the encoder that made them for the query."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from pixnar.baselines.entries import Entries, Floats, Found
from pixnar.encode import QueryEncoder, TextEncoder
from pixnar.errors import FileFormatError, MissingExtraError, PixnarError
from pixnar.search import Hit
from pixnar.vocab import normalize

ENCODER, VECTORS = "encoder", "vectors.faiss"
FLAT, HNSW = "flat", "hnsw"

_LINKS, _WHEN_BUILT, _WHEN_ASKED = 32, 200, 128  # of HNSW: links of a vector, candidates for them and for a query
_BATCH = 64  # queries at a time


class DenseRetriever:
    """The nearest vectors by inner product: exactly (`flat`), or through a graph (`hnsw`), which may miss some.

    A document is as good as its best entry. Queries are encoded by onnxruntime: no torch is needed.
    """

    def __init__(self, entries: Entries, near: Any, encoder: TextEncoder, *, threads: int = 1) -> None:
        self.entries, self.encoder, self.threads = entries, encoder, threads
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
        library.omp_set_num_threads(threads)
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
        hits: list[list[Hit]] = []
        depth = self.entries.depth(k)
        for start in range(0, len(queries), _BATCH):
            part = [normalize(query) for query in queries[start : start + _BATCH]]
            vectors = self.encoder.query_vectors(part)[1]
            for vector, first in zip(vectors, self._nearest(vectors, depth), strict=True):
                # What all queries are asked together is enough for most; the others look deeper alone.
                find = partial(self._deeper, vector, {depth: first})
                hits.append(self.entries.best(k, find))
        return hits

    def _deeper(self, vector: Floats, known: dict[int, Found], depth: int) -> Found:
        return known[depth] if depth in known else self._nearest(vector[None], depth)[0]

    def _nearest(self, vectors: Floats, depth: int) -> list[Found]:
        self._library.omp_set_num_threads(self.threads)
        depth = min(depth, len(self.entries))
        found = []
        for scores, rows in zip(*self._near.search(np.ascontiguousarray(vectors), depth), strict=True):
            there = rows >= 0
            whole = depth == len(self.entries) or not there.all()
            kept = there if whole else scores > scores[-1]  # others may be as good as the last
            found.append(Found(rows[kept], scores[kept], whole))
        return found

    def save(self, folder: Path) -> None:
        """Write entries and vectors into a folder; the encoder is exported there by who has it in torch."""
        self.entries.save(folder)
        self._library.write_index(self._near, str(folder / VECTORS))

    @classmethod
    def load(cls, folder: Path, *, threads: int = 1) -> DenseRetriever:
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
        return cls(entries, near, encoder, threads=threads)


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

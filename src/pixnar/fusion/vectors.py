"""Dense vectors of docids: how near the best docid of a document is to a query; the same after changes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.storage import read_container, write_container
from pixnar.fusion.postings import Changed, best, damaged
from pixnar.runtime import HeadRows
from pixnar.runtime.formats import stride_of

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

NO_DOCID = -1.0
"""The score of a document without docids: that of the farthest one there can be."""

_FILE_KIND, _FILE_VERSION = "vectors", 2
_CHUNK = 8_192  # docids whose vectors are in 32 bits at a time
_SCORES_HELD = 2**26  # scores of documents held at a time
_DIGITS = 6  # equal vectors get equal scores wherever they stand in a product; 16-bit vectors are coarser anyway


class DocidVectors:
    """A matrix of unit vectors in 16-bit floats, one row per docid, and the rows of every document.

    >>> vectors = DocidVectors.build(np.eye(3), rows=[0, 1, 1, 2], documents=[0, 0, 1, 1], n_documents=3)
    >>> vectors.best(np.array([1.0, 0, 0]), [0, 1, 2]).tolist()
    [1.0, 0.0, -1.0]
    """

    def __init__(
        self,
        matrix: NDArray[np.float16],
        offsets: Ints,
        rows: NDArray[np.uint32],
        names: NDArray[np.uint64] | None = None,
        *,
        verify: bool = True,
        where: str = "",
    ) -> None:
        """Over arrays that are not copied; without `verify` only their ends are looked at. `where` names a file.

        `names` are those of the docids by row, see `name_of`; without them no docid can be taken away later.
        """
        if matrix.ndim != 2 or matrix.dtype != np.float16 or offsets.dtype != np.int64 or rows.dtype != np.uint32:
            raise ValueError(f"{matrix.ndim}-dimensional {matrix.dtype}, offsets {offsets.dtype}, rows {rows.dtype}")
        sound = len(offsets) and offsets[0] == 0 and offsets[-1] == len(rows)
        if not sound or (verify and np.any(offsets[1:] < offsets[:-1])):
            raise ValueError("documents and their rows do not fit together")
        if verify and len(rows) and rows.max() >= len(matrix):
            raise ValueError(f"row {rows.max()} is not below {len(matrix)}")
        if names is not None and (names.dtype != np.uint64 or len(names) != len(matrix)):
            raise ValueError(f"{len(names)} names in {names.dtype} for {len(matrix)} rows")
        self.matrix, self.offsets, self.rows, self.names, self.where = matrix, offsets, rows, names, where

    @classmethod
    def build(
        cls,
        vectors: ArrayLike,
        rows: ArrayLike,
        documents: ArrayLike,
        n_documents: int,
        names: Iterable[int] | None = None,
    ) -> DocidVectors:
        """From the vectors of docids, of any length, and pairs: docid ``rows[i]`` names document ``documents[i]``."""
        matrix = in_16_bits(np.asarray(vectors))
        named, owners = np.asarray(rows, np.int64), np.asarray(documents, np.int64)
        if named.shape != owners.shape:
            raise ValueError(f"{len(named)} rows for {len(owners)} documents: give one of each per pair")
        for name, values, size in (("row", named, len(matrix)), ("document", owners, n_documents)):
            if values.size and not 0 <= values.min() <= values.max() < size:
                raise ValueError(f"every {name} must be in 0 … {size - 1}")
        offsets = np.zeros(n_documents + 1, np.int64)
        np.cumsum(np.bincount(owners, minlength=n_documents), out=offsets[1:])
        known = None if names is None else np.fromiter(names, np.uint64)
        return cls(matrix, offsets, named[np.lexsort((named, owners))].astype(np.uint32), known)

    @property
    def n_documents(self) -> int:
        """How many documents there are, those without docids included."""
        return len(self.offsets) - 1

    def best(self, query: ArrayLike, documents: ArrayLike) -> Floats:
        """For each given document how near its nearest docid is to a query vector."""
        rows, starts, owners = self._rows_of(np.asarray(documents, np.int64))
        out = np.full(len(np.asarray(documents)), NO_DOCID, np.float32)
        if len(rows):
            cosines = self._near(rows, _unit(np.asarray(query, np.float32)))
            out[owners] = np.maximum.reduceat(cosines, starts).round(_DIGITS)
        return out

    def every(self, query: ArrayLike) -> Floats:
        """The same for all documents, in their order, bit by bit."""
        out = np.full(self.n_documents, NO_DOCID, np.float32)
        owners = np.flatnonzero(self.offsets[1:] > self.offsets[:-1])
        if len(owners):
            cosines = self._near(np.arange(len(self.matrix), dtype=np.uint32), _unit(np.asarray(query, np.float32)))
            try:
                out[owners] = np.maximum.reduceat(cosines[self.rows], self.offsets[owners]).round(_DIGITS)
            except IndexError as error:
                raise damaged(self.where, f"a row is not below {len(self.matrix)}") from error
        return out

    def search(self, queries: ArrayLike, k: int) -> tuple[Ints, Floats]:
        """The `k` documents with the nearest docid for every query vector, by looking at all; best first.

        Both results are [queries, k], or less wide where there are fewer documents. Among equals the lower index wins.
        """
        units = _unit(np.asarray(queries, np.float32))
        if units.ndim != 2:
            raise ValueError(f"queries must be two-dimensional, not {units.shape}; for one query give [query]")
        k = min(k, self.n_documents)
        documents, scores = np.zeros((len(units), k), np.int64), np.zeros((len(units), k), np.float32)
        step = max(_SCORES_HELD // max(self.n_documents, 1), 1)
        for begin in range(0, len(units), step):
            held = self._all(units[begin : begin + step])
            for i, row in enumerate(held, begin):
                documents[i] = best(row, k)
                scores[i] = row[documents[i]]
        return documents, scores

    def _all(self, units: Floats) -> Floats:
        """The score of every document for some queries: [queries, documents]."""
        out = np.full((self.n_documents, len(units)), NO_DOCID, np.float32)
        for low, high in self._chunks():
            rows, starts, owners = self._rows_of(np.arange(low, high))
            if len(rows):
                cosines = self._cosines(rows, units.T)
                out[low + owners] = np.maximum.reduceat(cosines, starts, axis=0).round(_DIGITS)
        return np.ascontiguousarray(out.T)

    def _cosines(self, rows: NDArray[np.uint32], units: Floats) -> Floats:
        """Products of some rows with one or more queries, few rows in 32 bits at a time."""
        pieces = [rows[begin : begin + _CHUNK] for begin in range(0, len(rows), _CHUNK)]
        try:
            return np.concatenate([self.matrix[piece].astype(np.float32) @ units for piece in pieces])
        except IndexError as error:
            raise damaged(self.where, f"a row is not below {len(self.matrix)}") from error

    def _near(self, rows: NDArray[np.uint32], unit: Floats) -> Floats:
        """The same for one query, by the native core where rows lie as it wants them.

        A row's product does not depend on the rows beside it, which it may in a product of matrices.
        """
        if self._native is None:
            return self._one_by_one(rows, unit)
        if int(rows.max()) >= len(self.matrix):
            raise damaged(self.where, f"a row is not below {len(self.matrix)}")
        near: Floats = self._native.logits(unit[None], rows)[0]
        return near

    def _one_by_one(self, rows: NDArray[np.uint32], unit: Floats) -> Floats:
        pieces = [rows[begin : begin + _CHUNK] for begin in range(0, len(rows), _CHUNK)]
        try:
            sums = [(self.matrix[piece].astype(np.float64) * unit).sum(1) for piece in pieces]
        except IndexError as error:
            raise damaged(self.where, f"a row is not below {len(self.matrix)}") from error
        return np.concatenate(sums).astype(np.float32)

    @cached_property
    def _native(self) -> HeadRows | None:
        count, width = self.matrix.shape
        if not count or stride_of("float16", width) != 2 * width or not self.matrix.flags.c_contiguous:
            return None
        return HeadRows(self.matrix.view(np.uint8).reshape(-1), "float16", count, width, None, None, None)

    def _chunks(self) -> list[tuple[int, int]]:
        """Ranges of documents with about `_CHUNK` docids each."""
        marks = np.searchsorted(self.offsets, np.arange(0, len(self.rows), _CHUNK))
        borders = sorted({0, *marks.tolist(), self.n_documents})
        return list(pairwise(borders))

    def _rows_of(self, documents: Ints) -> tuple[NDArray[np.uint32], Ints, Ints]:
        """The rows of documents one after the other, and of each document that has any, its first and its place."""
        if documents.size and not 0 <= documents.min() <= documents.max() < self.n_documents:
            raise IndexError(f"documents must be in 0 … {self.n_documents - 1}")
        begins, lengths = self.offsets[documents], self.offsets[documents + 1] - self.offsets[documents]
        if documents.size and (begins.min() < 0 or lengths.min() < 0 or (begins + lengths).max() > len(self.rows)):
            raise damaged(self.where, "the rows of a document are out of range")
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(begins - ends + lengths, lengths)
        owners = np.flatnonzero(lengths)
        return self.rows[places], (ends - lengths)[owners], owners

    def part(self, documents: NDArray[np.int64]) -> DocidVectors:
        """The same of some documents, which are 0, 1, 2 … there, with the vectors that they need."""
        rows, _, _ = self._rows_of(documents)
        used, renumbered = np.unique(rows, return_inverse=True)
        offsets = np.zeros(len(documents) + 1, np.int64)
        np.cumsum(self.offsets[documents + 1] - self.offsets[documents], out=offsets[1:])
        names = None if self.names is None else self.names[used]
        return DocidVectors(self.matrix[used], offsets, renumbered.astype(np.uint32), names, where=self.where)

    def rows_of(self, documents: Ints) -> tuple[NDArray[np.uint32], Ints]:
        """The rows of documents one after the other, and the place in `documents` that each belongs to."""
        rows, starts, owners = self._rows_of(documents)
        return rows, np.repeat(owners, np.diff(np.append(starts, len(rows))))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file, atomically."""
        flat = self.matrix.reshape(-1).view(np.uint16)
        arrays: dict[str, NDArray[Any]] = {"vectors": flat, "offsets": self.offsets, "rows": self.rows}
        if self.names is not None:
            arrays["names"] = self.names
        write_container(path, _FILE_KIND, _FILE_VERSION, {"dimensions": self.matrix.shape[1]}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = True) -> DocidVectors:
        """Map a file that `save` wrote; `verify` reads all of it to find damage."""
        container = read_container(path, _FILE_KIND, _FILE_VERSION, verify=verify)
        arrays = container.arrays
        try:
            dimensions = int(container.meta["dimensions"])
            if arrays["vectors"].dtype != np.uint16 or dimensions < 1:
                raise ValueError(f"vectors are {arrays['vectors'].dtype} with {dimensions} dimensions")
            matrix = arrays["vectors"].view(np.float16).reshape(-1, dimensions)
            parts = (arrays["offsets"], arrays["rows"], arrays.get("names"))
            return cls(matrix, *parts, verify=verify, where=os.fspath(path))
        except (KeyError, ValueError, TypeError) as error:
            raise FileFormatError(f"{path} holds no usable vectors ({error}): build them again") from error


def name_of(tokens: ArrayLike) -> int:
    """What stands for a docid in a file of vectors: a hash of its tokens."""
    return xxhash.xxh3_64_intdigest(np.asarray(tokens, "<u4").tobytes())


def _unit(vectors: Floats) -> Floats:
    """Vectors along the last axis, brought to length 1; those without a direction stay 0."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def in_16_bits(vectors: NDArray[np.floating]) -> NDArray[np.float16]:
    """Vectors of length 1, as they are kept."""
    if vectors.ndim != 2 or vectors.shape[1] == 0:
        raise ValueError(f"vectors must be two-dimensional and not empty, not {vectors.shape}")
    out = np.empty(vectors.shape, np.float16)
    for begin in range(0, len(vectors), _CHUNK):
        out[begin : begin + _CHUNK] = _unit(vectors[begin : begin + _CHUNK].astype(np.float32))
    return out


class ChangedVectors:
    """Scores documents as `DocidVectors` does, each by the docids it has now.

    >>> built = DocidVectors.build(np.eye(2), rows=[0, 1], documents=[0, 1], n_documents=2, names=[7, 8])
    >>> changed = Changed(np.array([0]), np.array([False]), 1, [(1, "new")], [(0, "old")], [7])
    >>> ChangedVectors(built, changed, np.array([[1.0, 0]])).every([1.0, 0]).tolist()
    [-1.0, 0.0, 1.0]
    """

    def __init__(self, built: DocidVectors, changed: Changed, gained: Floats) -> None:
        """`gained` are the vectors of the docids that were added, one for each of `changed.gained`."""
        kept = np.flatnonzero(~changed.cleared)
        rows, places = built.rows_of(changed.units[kept])
        owners = kept[places]
        left = _without(built, rows, owners, changed)
        rows, owners = rows[left], np.append(owners[left], [number for number, _ in changed.gained]).astype(np.int64)
        order = np.argsort(owners, kind="stable")
        offsets = np.searchsorted(owners[order], np.arange(changed.size + 1)).astype(np.int64)
        matrix = np.concatenate([built.matrix[rows], in_16_bits(gained)])
        self._built, self._aside = built, DocidVectors(matrix, offsets, order.astype(np.uint32))
        self._places = changed.places(built.n_documents)
        self.n_documents = built.n_documents + changed.new

    def best(self, query: ArrayLike, documents: ArrayLike) -> Floats:
        """For each given document how near its nearest docid is to a query vector."""
        wanted = np.asarray(documents, np.int64)
        at, aside = np.searchsorted(self._places, wanted), np.isin(wanted, self._places)
        out = np.empty(len(wanted), np.float32)
        out[aside] = self._aside.best(query, at[aside])
        out[~aside] = self._built.best(query, wanted[~aside])
        return out

    def every(self, query: ArrayLike) -> Floats:
        """The same for all documents, in their order."""
        out = np.full(self.n_documents, NO_DOCID, np.float32)
        out[: self._built.n_documents] = self._built.every(query)
        out[self._places] = self._aside.every(query)
        return out


def _without(built: DocidVectors, rows: NDArray[np.uint32], owners: Ints, changed: Changed) -> Ints:
    """The places of rows that are still docids of their documents."""
    if not changed.lost:
        return np.arange(len(rows))
    if built.names is None:
        raise ValueError("vectors without the names of their docids cannot lose any: build them with names")
    lost = {(number, name) for (number, _), name in zip(changed.lost, changed.lost_names, strict=True)}
    pairs = zip(owners.tolist(), built.names[rows].tolist(), strict=True)
    return np.array([i for i, pair in enumerate(pairs) if pair not in lost], np.int64)

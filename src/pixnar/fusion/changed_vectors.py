"""Vectors of docids after changes: documents that gained or lost docids have vectors of their own, aside."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pixnar.fusion.recount import Changed
from pixnar.fusion.vectors import NO_DOCID, DocidVectors, Floats, Ints, in_16_bits


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

"""Exact top-k merge of the answers of the parts of an index.

A part answers with the best of its documents, `depth` of them by each source. Whatever is among the `depth` best of the
whole is among the `depth` best of its own part, so the parts' answers hold every candidate that the whole would have;
here the others are left out again, and what is left is fused as the whole fuses it. Equals are told apart as there:
by the tokens of the best docid, then by the bytes of the id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar.documents.columns import word_bytes
from pixnar.fusion.fuse import DOCIDS, Fusion, Top
from pixnar.fusion.postings import best
from pixnar.search import DocumentHit
from pixnar.search.hits import Tokens
from pixnar.search.ranker import Floats

Ints = NDArray[np.int64]

_BEHIND = 1 << 40  # documents added after the fit stand behind all others, by id


class ShardCandidates(NamedTuple):
    """The candidates of one part, by id, and their scores by each source.

    `scores` are those of their docids in full, `tokens` their best docids. `places` says where they stand among the
    documents of the whole, as units of `tops` do, the best of each source whether or not they may be found; -1 - i is
    for those that were added after the fit, the i-th of `new`. Without a fusion there are neither columns nor tops.
    """

    doc_ids: list[str]
    scores: NDArray[np.float64]
    tokens: list[Tokens]
    places: Ints
    columns: dict[str, Floats]
    tops: dict[str, Top]
    new: list[str]


def merged(parts: Sequence[ShardCandidates], k: int, fusion: Fusion | None, depth: int) -> list[DocumentHit]:
    """The k best documents of the whole, given those of all its parts."""
    doc_ids = [doc_id for part in parts for doc_id in part.doc_ids]
    tokens = [docid for part in parts for docid in part.tokens]
    scores = np.concatenate([np.zeros(0), *(part.scores for part in parts)])

    def rank(number: int) -> tuple[float, Tokens, bytes]:
        return -float(scores[number]), tokens[number], word_bytes(doc_ids[number])

    if fusion is None:
        chosen = sorted(_near_top(scores, k).tolist(), key=rank)[:k]
        return [DocumentHit(doc_ids[i], float(scores[i]), tokens[i]) for i in chosen]
    decoded = sorted(_near_top(scores, depth).tolist(), key=rank)[:depth]
    parts = _numbered(parts)
    places = np.concatenate([np.zeros(0, np.int64), *(part.places for part in parts)])
    above = [_best([part.tops[name] for part in parts], depth) for name in (parts[0].tops if parts else ())]
    named = np.isin(places, np.concatenate([np.zeros(0, np.int64), *above]))
    named[decoded] = True
    order = np.array(sorted(np.flatnonzero(named).tolist(), key=doc_ids.__getitem__), np.int64)  # equals go by id
    columns: dict[str, Floats] = {DOCIDS: scores[order].astype(np.float32)}
    for name in parts[0].columns if parts else ():
        columns[name] = np.concatenate([part.columns[name] for part in parts])[order]
    top, fused = fusion.best(columns, k)
    return [DocumentHit(doc_ids[order[i]], float(fused[i]), tokens[order[i]]) for i in top.tolist()]


def _numbered(parts: Sequence[ShardCandidates]) -> list[ShardCandidates]:
    """The same with one number for every document that was added after the fit, as the whole counts them."""
    new = sorted((doc_id for part in parts for doc_id in part.new), key=word_bytes)
    number = {doc_id: _BEHIND + i for i, doc_id in enumerate(new)}
    numbered = []
    for part in parts:
        numbers = np.array([number[doc_id] for doc_id in part.new], np.int64)

        def places(given: Ints, numbers: Ints = numbers) -> Ints:
            out = given.copy()
            out[given < 0] = numbers[-1 - given[given < 0]]
            return out

        tops = {name: Top(places(top.units), top.scores) for name, top in part.tops.items()}
        numbered.append(part._replace(places=places(part.places), tops=tops))
    return numbered


def _best(tops: Sequence[Top], depth: int) -> Ints:
    """The places that a source scores highest in all parts together; among equals the lower place wins."""
    places, scores = np.concatenate([top.units for top in tops]), np.concatenate([top.scores for top in tops])
    by_place = np.argsort(places)
    chosen: Ints = places[by_place[best(scores[by_place], depth)]]
    return chosen


def _near_top(scores: NDArray[np.float64], k: int) -> Ints:
    """Those that are no worse than the k-th."""
    if k <= 0:
        return np.zeros(0, np.int64)
    if k >= len(scores):
        return np.arange(len(scores))
    return np.flatnonzero(scores >= np.partition(scores, len(scores) - k)[len(scores) - k])

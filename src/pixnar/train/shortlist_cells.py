"""Shortlist cells for the composed score: clusters of similar docids, each with the list of its docids' tokens.

A query's best docids lie in the cells nearest to its x_0, because a docid's score is the inner product of x_0 and the
docid's vector. Their lists therefore hold every token that these docids need, also those that score little alone. Of
very many docids a sample makes the cells; the lists then hold the tokens of the sampled docids.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pixnar.base.progress import Progress
from pixnar.model.kmeans import assign, kmeans
from pixnar.runtime.shortlist import Ids, Shortlist

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

MOST_CELLS = 16_384
DOCIDS_A_CELL = 2  # at least, on average
TOKENS_A_CELL = 2  # of the vocabulary: comparing x_0 with more cells would cost more than half of scoring all tokens
BLOCK = 256  # cells of a block, about
SHARE = 0.05  # of the vocabulary that a query scores


def cell_count(docids: int, vocabulary: int) -> int:
    """How many cells to make where the recipe does not say."""
    return max(1, min(MOST_CELLS, docids // DOCIDS_A_CELL, vocabulary // TOKENS_A_CELL))


def cluster(vectors: Floats, m: int, *, seed: int = 0, progress: Progress | None = None) -> tuple[Floats, Ints]:
    """About m unit vectors c [m, d], and the one that each of the unit vectors [N, d] belongs to.

    Clusters in two levels: blocks first, then cells in each block, in proportion to its size. The time grows with
    N · (m / 256 + 256), not with N · m, and memory beside the vectors with one block.
    """
    blocks = min(len(vectors), max(1, round(m / BLOCK)))
    block_of = assign(vectors, kmeans(vectors, blocks, seed=seed)).numpy()
    centres: list[Floats] = []
    members = np.zeros(len(vectors), np.int64)
    first = 0
    for block in range(blocks):
        if progress:
            progress("shortlist: cells of docids", block + 1, blocks)
        own = np.flatnonzero(block_of == block)
        if not len(own):
            continue
        points = vectors[own]
        cells = kmeans(points, max(1, min(len(own), round(m * len(own) / len(vectors)))), seed=seed)
        places = assign(points, cells).numpy()
        used, places = np.unique(places, return_inverse=True)  # a cell without docids would take a query's place
        members[own] = first + places
        first += len(used)
        found = cells.numpy()[used]
        centres.append(found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12))
    return np.concatenate(centres), members


def count_tokens(cells: Ints, tokens: Ints, m: int, vocabulary: int) -> tuple[Ids, Ints]:
    """The lists of m cells from (cell, token) pairs, the tokens that occur most often first, and their offsets.

    >>> lists, offsets = count_tokens(np.array([1, 1, 1, 0]), np.array([4, 7, 7, 2]), 2, 9)
    >>> lists.tolist(), offsets.tolist()
    ([2, 7, 4], [0, 1, 3])
    """
    keys, counts = np.unique(cells * np.int64(vocabulary) + tokens, return_counts=True)
    cell, token = np.divmod(keys, vocabulary)
    order = np.lexsort((token, -counts, cell))
    return token[order].astype(np.uint32), np.searchsorted(cell, np.arange(m + 1)).astype(np.int64)


def lists_for(shortlist: Shortlist, x0: Floats, size: float) -> int:
    """The largest number of lists with which the queries x_0 [N, d] score `size` tokens or fewer, on average."""
    low, high = 1, len(shortlist.c)
    vocabulary = 1 + int(shortlist.lists.max(initial=0))
    while low < high:
        k = (low + high + 1) // 2
        some = shortlist.take(k)
        if np.mean([len(some.tokens(one, None, vocabulary)) for one in x0]) <= size:
            low = k
        else:
            high = k - 1
    return low

"""Hard negatives: the docids nearest to each input; and the teacher, how similar dense retrieval calls the two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pixnar.fusion.bm25 import K1, B, index_words, lucene
from pixnar.fusion.postings import Lengths
from pixnar.model.kmeans import assign, kmeans
from pixnar.train.data import TrainingData, gathered

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

_EXACT = 1.5e12  # multiply-adds up to which every docid is looked at
_PIECE = 1024  # inputs compared at once
_PROBES = 4  # clusters that an input looks into
_POOL = 1_000_000  # docids among which neighbours are looked for, at most


def nearest(inputs: Floats, docids: Floats, k: int, *, seed: int = 0) -> Ints:
    """The k docids [N, k] with the largest inner product with each input [N, d]; equal ones in any order.

    Beyond some 40 thousand inputs times as many docids the docids are clustered, and an input looks into the clusters
    nearest to it: most of the k are then the true ones.
    """
    k = min(k, len(docids))
    if float(len(inputs)) * len(docids) * docids.shape[1] <= _EXACT:
        whole = torch.from_numpy(docids)
        found = [
            (torch.from_numpy(inputs[i : i + _PIECE]) @ whole.t()).topk(k, dim=1).indices.numpy()
            for i in range(0, len(inputs), _PIECE)
        ]
        return np.concatenate([np.zeros((0, k), np.int64), *found])
    return _by_clusters(inputs, docids, k, seed)


def pool_of(count: int, seed: int) -> Ints:
    """The docids that may be neighbours: all, or of very many a million, drawn at random."""
    if count <= _POOL:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, _POOL, replace=False))


def _by_clusters(inputs: Floats, docids: Floats, k: int, seed: int) -> Ints:
    centres = kmeans(docids, max(1, round(len(docids) ** 0.5)), seed=seed, rounds=4)
    members = assign(docids, centres).numpy()
    order = np.argsort(members, kind="stable")
    begins = np.searchsorted(members[order], np.arange(len(centres) + 1))
    best = torch.full((len(inputs), k), -torch.inf)
    ids = torch.zeros((len(inputs), k), dtype=torch.int64)
    near = np.concatenate([_probed(inputs[i : i + 8192], centres) for i in range(0, len(inputs), 8192)])
    for cluster in range(len(centres)):
        own = torch.from_numpy(order[begins[cluster] : begins[cluster + 1]])
        asking = torch.from_numpy(np.flatnonzero((near == cluster).any(1)))
        if not len(own) or not len(asking):
            continue
        rows = torch.from_numpy(docids[own.numpy()])
        scores = torch.from_numpy(inputs[asking.numpy()]) @ rows.t()
        scores = torch.cat([best[asking], scores], 1)
        known = torch.cat([ids[asking], own.expand(len(asking), -1)], 1)
        best[asking], places = scores.topk(k, dim=1)
        ids[asking] = known.gather(1, places)
    return torch.where(best == -torch.inf, ids[:, :1], ids).numpy()  # fewer than k: the nearest one again


def _probed(inputs: Floats, centres: Tensor) -> Ints:
    probes = min(_PROBES, len(centres))
    found: Ints = (torch.from_numpy(inputs) @ centres.t()).topk(probes, dim=1).indices.numpy()
    return found


_COSINE = 20.0  # scale of cosines before they go into a softmax
_BM25 = 0.8  # weight of BM25 beside them: 0.04 beside plain cosines, about what dev splits select for a hybrid


@dataclass(frozen=True)
class Teacher:
    """Scores docids for inputs by the encoder's own vectors, and, where it has words, by BM25 as well."""

    data: TrainingData
    words: _InputWords | None = None

    @classmethod
    def of(cls, data: TrainingData, kind: str) -> Teacher:
        """A teacher by name: dense, or hybrid."""
        return cls(data, _InputWords.of(data) if kind == "hybrid" else None)

    def scores(self, inputs: Ints, docids: Ints) -> Floats:
        """How well each docid [N] answers each input [B]: [B, N]."""
        vectors = self.data.vectors
        assert vectors is not None
        found: Floats = _COSINE * (vectors[inputs].astype(np.float32) @ vectors[docids].astype(np.float32).T)
        return found if self.words is None else found + _BM25 * self.words.scores(inputs, docids)


@dataclass(frozen=True)
class _InputWords:
    """The words of every input, and the BM25 weight of each in it: only those of docids are used."""

    terms: Ints  # one input after the other
    offsets: Ints
    weights: Floats

    @classmethod
    def of(cls, data: TrainingData) -> _InputWords:
        terms, rows, _, n = index_words(data.inputs)
        n_docids = len(data.docids)
        size = int(terms.max(initial=0)) + 1
        keys, counts = np.unique(rows * size + terms, return_counts=True)
        rows, terms = np.divmod(keys, size)
        weights = np.zeros(len(keys), np.float32)
        own = rows < n_docids
        sizes = np.bincount(rows[own], counts[own], minlength=n_docids).astype(np.uint32)
        lengths = Lengths(sizes, max(float(sizes.mean()), 1.0), K1, B)
        weights[own] = lucene(n_docids, lengths)(terms[own], rows[own], counts[own].astype(np.float64))
        return cls(terms, np.searchsorted(rows, np.arange(n + 1)), weights)

    def scores(self, inputs: Ints, docids: Ints) -> Floats:
        """BM25 of docids [N] for inputs [B]; a word that an input repeats counts once."""
        asked, asker = gathered(self.offsets[inputs], np.diff(self.offsets)[inputs])
        known, column = np.unique(self.terms[asked], return_inverse=True)
        if not len(known):  # inputs without a word
            return np.zeros((len(inputs), len(docids)), np.float32)
        query = np.zeros((len(inputs), len(known)), np.float32)
        query[asker, column] = 1.0
        places, owner = gathered(self.offsets[docids], np.diff(self.offsets)[docids])
        at = np.minimum(np.searchsorted(known, self.terms[places]), len(known) - 1)
        shared = known[at] == self.terms[places]
        entries = np.zeros((len(docids), len(known)), np.float32)
        entries[owner[shared], at[shared]] = self.weights[places[shared]]
        found: Floats = query @ entries.T
        return found

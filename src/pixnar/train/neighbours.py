"""Hard negatives: the docids nearest to each training input, by the encoder's vectors or by the model itself."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pixnar.model.kmeans import assign, kmeans

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

"""Nearest docids: the exact form against numpy, the clustered one by how many of the true ones it finds."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pixnar.train import neighbours
from pixnar.train.neighbours import nearest, pool_of

Floats = NDArray[np.float32]


def unit(count: int, width: int, seed: int, *, around: Floats | None = None, spread: float = 0.3) -> Floats:
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(count, width))
    if around is not None:
        vectors = around[random.integers(0, len(around), count)] + spread * vectors / np.sqrt(width)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def slow(inputs: Floats, docids: Floats, k: int) -> list[list[int]]:
    return [np.argsort(-(docids.astype(np.float64) @ x), kind="stable")[:k].tolist() for x in inputs]


@pytest.mark.parametrize(("inputs", "docids", "k"), [(50, 200, 7), (3, 5, 5), (4, 5, 16), (1, 1, 1), (0, 4, 2)])
def test_exact_equals_numpy(inputs: int, docids: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "_PIECE", 16)
    x, d = unit(inputs, 12, 1), unit(docids, 12, 2)
    found = nearest(x, d, k)
    assert found.shape == (inputs, min(k, docids))
    assert found.dtype == np.int64
    assert found.tolist() == slow(x, d, k)


def test_clusters_find_most_of_the_true_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "_EXACT", 0)
    topics = unit(60, 24, 3)
    docids, inputs = unit(3000, 24, 4, around=topics), unit(400, 24, 5, around=topics)
    found = nearest(inputs, docids, 16, seed=1)
    assert found.shape == (400, 16)
    assert all(len(set(row)) == 16 for row in found.tolist())
    true = slow(inputs, docids, 16)
    share = np.mean([len(set(a) & set(b)) / 16 for a, b in zip(found.tolist(), true, strict=True)])
    assert share >= 0.8
    scores = np.take_along_axis(inputs @ docids.T, found, 1)
    assert (np.diff(scores, axis=1) <= 1e-6).all()  # best first
    assert np.array_equal(found, nearest(inputs, docids, 16, seed=1))


def test_small_clusters_make_no_neighbours_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the clusters that are looked into have fewer than k docids, the nearest one is said again."""
    monkeypatch.setattr(neighbours, "_EXACT", 0)
    monkeypatch.setattr(neighbours, "_PROBES", 1)
    axes = np.eye(8, dtype=np.float32)
    docids = np.repeat(axes, 2, 0)  # 16 docids in 8 places, 4 clusters
    found = nearest(axes, docids, 12)
    assert any(len(set(row)) < 12 for row in found.tolist())
    for place, row in enumerate(found.tolist()):
        assert set(row[:2]) == {2 * place, 2 * place + 1}
        assert all(docid == row[0] or row.count(docid) == 1 for docid in row)


def test_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pool_of(5, 0).tolist() == [0, 1, 2, 3, 4]
    assert len(pool_of(0, 0)) == 0
    monkeypatch.setattr(neighbours, "_POOL", 10)
    assert pool_of(10, 3).tolist() == list(range(10))
    drawn = pool_of(1000, 3)
    assert len(set(drawn.tolist())) == 10
    assert drawn.tolist() == sorted(drawn.tolist())
    assert 0 <= drawn[0] <= drawn[-1] < 1000
    assert drawn[-1] > 300  # from all over
    assert drawn.tolist() == pool_of(1000, 3).tolist() != pool_of(1000, 4).tolist()

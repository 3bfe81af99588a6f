from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixnar.runtime import Shortlist
from pixnar.train.shortlist_cells import MOST_CELLS, cell_count, cluster, count_tokens, lists_for

pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=60)


def counted_slowly(found: list[tuple[int, int]], m: int) -> list[list[int]]:
    counts = [Counter(token for cell, token in found if cell == i) for i in range(m)]
    return [sorted(one, key=lambda token, one=one: (-one[token], token)) for one in counts]  # type: ignore[misc]


@settings(max_examples=100, deadline=None)
@given(pairs)
def test_counting_is_the_slow_count(found: list[tuple[int, int]]) -> None:
    cells, tokens = (np.array([pair[side] for pair in found], np.int64) for side in (0, 1))
    lists, offsets = count_tokens(cells, tokens, 5, 10)
    assert lists.dtype == np.uint32
    assert [lists[offsets[i] : offsets[i + 1]].tolist() for i in range(5)] == counted_slowly(found, 5)


def unit_vectors(count: int, seed: int = 0) -> np.ndarray:
    points = np.random.default_rng(seed).standard_normal((count, 8)).astype(np.float32)
    unit: np.ndarray = points / np.linalg.norm(points, axis=1, keepdims=True)
    return unit


@pytest.mark.parametrize(("count", "m"), [(1, 1), (5, 5), (40, 7), (900, 600)])
def test_every_cell_has_members_and_is_a_unit_vector(count: int, m: int) -> None:
    points = unit_vectors(count)
    c, members = cluster(points, m)
    assert np.abs(np.linalg.norm(c, axis=1) - 1).max() < 1e-5
    assert set(members.tolist()) == set(range(len(c)))
    assert 0.5 * m <= len(c) <= 1.1 * m + 1
    same = (points * c[members]).sum(1)
    assert same.mean() > (points @ c.T).mean() + 0.2 or m == 1


def test_clusters_are_the_same_for_a_seed() -> None:
    points = unit_vectors(700)
    one, again, other = cluster(points, 520, seed=3), cluster(points, 520, seed=3), cluster(points, 520, seed=4)
    assert np.array_equal(one[0], again[0])
    assert np.array_equal(one[1], again[1])
    assert not np.array_equal(one[1], other[1])


def test_points_that_are_all_equal_are_one_cell() -> None:
    c, members = cluster(np.repeat(unit_vectors(1), 30, axis=0), 4)
    assert len(c) == 1
    assert members.tolist() == [0] * 30


def test_as_many_lists_as_the_size_allows() -> None:
    shortlist = Shortlist(unit_vectors(6), np.arange(12, dtype=np.uint32), 1, np.arange(0, 13, 2))
    queries = unit_vectors(5, seed=1)
    assert [lists_for(shortlist, queries, size) for size in (0, 2, 5, 6, 12, 100)] == [1, 1, 2, 3, 6, 6]


def test_cell_count_follows_docids_and_vocabulary() -> None:
    assert cell_count(1, 1) == 1
    assert cell_count(20_000, 10**6) == 10_000
    assert cell_count(10**6, 12_000) == 6_000
    assert cell_count(10**8, 10**6) == MOST_CELLS

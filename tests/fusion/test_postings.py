"""Postings: the same as a matrix product, on disk and off it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.storage import write_container
from pixnar.fusion import Postings, best

TERMS, UNITS = 5, 7
rows = st.lists(st.tuples(st.integers(0, TERMS - 1), st.integers(0, UNITS - 1), st.integers(1, 9)), max_size=30)
asked = st.lists(st.tuples(st.integers(0, TERMS - 1), st.floats(-2, 2, width=32)), max_size=6)


def build(rows: list[tuple[int, int, int]]) -> tuple[Postings, NDArray[np.float64]]:
    terms, units, counts = np.array(rows, np.int64).reshape(-1, 3).T
    dense = np.zeros((TERMS, UNITS))
    np.add.at(dense, (terms, units), counts)
    return Postings.from_counts(terms, units, counts, TERMS, UNITS), dense


@given(rows, asked)
def test_scores_are_a_matrix_product(rows: list[tuple[int, int, int]], asked: list[tuple[int, float]]) -> None:
    postings, dense = build(rows)
    terms, weights = [term for term, _ in asked], np.array([weight for _, weight in asked], np.float32)
    scores = postings.score(terms, weights)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, weights @ dense[terms], atol=1e-3)
    assert (postings.frequency == (dense > 0).sum(axis=1)).all()


def test_weights_see_merged_counts() -> None:
    seen: list[tuple[int, int, float]] = []

    def halves(terms: NDArray[np.int64], units: NDArray[np.int64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
        seen.extend(zip(terms.tolist(), units.tolist(), counts.tolist(), strict=True))
        return counts / 2

    postings = Postings.from_counts([1, 0, 1], [2, 0, 2], [3, 1, 4], weight=halves)
    assert seen == [(0, 0, 1.0), (1, 2, 7.0)]
    assert postings.score([1]).tolist() == [0, 0, 3.5]


def test_counts_are_one_by_default_and_terms_add_up() -> None:
    postings = Postings.from_counts([0, 0, 2], [1, 1, 0], n_terms=4)
    assert (postings.n_terms, postings.n_units) == (4, 2)
    assert postings.score([0, 0, 2, 3]).tolist() == [1, 4]


def test_rows_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="unit 5 does not fit into 3 units"):
        Postings.from_counts([0], [5], n_units=3)
    with pytest.raises(ValueError, match="term -1 is negative"):
        Postings.from_counts([-1], [0])
    with pytest.raises(ValueError, match="2 counts for 1 rows"):
        Postings.from_counts([0], [0], [1, 2])
    postings = Postings.from_counts([0], [0])
    with pytest.raises(IndexError, match="term 1 is not in 0 … 0"):
        postings.score([1])


@pytest.mark.parametrize("rows", [[], [(0, 1, 2), (4, 6, 1), (0, 0, 1)]])
def test_files(tmp_path: Path, rows: list[tuple[int, int, int]]) -> None:
    postings, _ = build(rows)
    postings.save(tmp_path / "p")
    loaded = Postings.load(tmp_path / "p")
    assert loaded.n_units == UNITS
    assert loaded.score([0, 4]).tolist() == postings.score([0, 4]).tolist()
    assert not loaded.weights.flags.writeable


@pytest.mark.parametrize(
    ("units", "offsets", "reason"),
    [
        ([1, 0], [0, 2], "do not ascend"),
        ([0, 9], [0, 2], "unit 9 is not below 3"),
        ([0, 1], [0, 3], "do not fit together"),
        ([0, 1], [0, 2, 1, 2], "offsets go down"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, units: list[int], offsets: list[int], reason: str) -> None:
    arrays: dict[str, NDArray[Any]] = {
        "offsets": np.array(offsets, np.int64),
        "units": np.array(units, np.uint32),
        "weights": np.ones(2, np.float32),
    }
    write_container(tmp_path / "p", "postings", 1, {"n_units": 3}, arrays)
    with pytest.raises(FileFormatError, match=reason):
        Postings.load(tmp_path / "p")


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), max_size=12), st.integers(0, 14))
def test_best_is_a_stable_sort(scores: list[float], k: int) -> None:
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k]
    assert best(np.array(scores, np.float32), k).tolist() == expected


def test_damage_that_nobody_looked_for_is_told_when_it_is_met(tmp_path: Path) -> None:
    arrays: dict[str, NDArray[Any]] = {
        "offsets": np.array([0, 1, 2, 3], np.int64),
        "units": np.array([0, 9, 2], np.uint32),
        "weights": np.ones(3, np.float32),
    }
    write_container(tmp_path / "p", "postings", 1, {"n_units": 3}, arrays)
    postings = Postings.load(tmp_path / "p", verify=False)
    assert postings.score([0, 2]).tolist() == [1, 0, 1]
    with pytest.raises(FileFormatError, match=r"p is damaged \(term 1 is in units from 3 on\)"):
        postings.score([1])
    for wild in (-(2**62), -2, 7, 2**62):
        arrays |= {"offsets": np.array([0, wild, 2, 3], np.int64), "units": np.array([0, 1, 2], np.uint32)}
        write_container(tmp_path / "p", "postings", 1, {"n_units": 3}, arrays)
        postings = Postings.load(tmp_path / "p", verify=False)
        assert len(postings.score([0, 1, 2])) == 3

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixnar.base.errors import FileFormatError
from pixnar.base.storage import write_container
from pixnar.runtime import Shortlist, defaults, token_lists


def whole_numbers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Small whole numbers: their products are exact, and many scores are equal."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


def naive(c: np.ndarray, rows: np.ndarray, bias: np.ndarray | None, r: int) -> list[list[int]]:
    scores = c @ rows[:-1].T + (0 if bias is None else bias[:-1])
    return [sorted(range(len(line)), key=lambda v: (-line[v], v))[:r] for line in scores]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(1, 40), st.integers(1, 45), st.integers(1, 50), st.integers(1, 5), st.booleans())
def test_lists_are_the_naive_top_r(m: int, size: int, r: int, chunk: int, block: int, biased: bool) -> None:
    c, rows = whole_numbers((m, 3), m), whole_numbers((size + 1, 3), size)
    bias = whole_numbers((size + 1,), 7) if biased else None
    found = token_lists(c, rows, bias, r, chunk=chunk, block=block)
    assert found.dtype == np.uint32
    assert found.tolist() == naive(c, rows, bias, r)


def test_end_token_is_in_no_list() -> None:
    rows = np.eye(4, dtype=np.float32)
    bias = np.array([0, 0, 0, 100], dtype=np.float32)
    assert token_lists(np.ones((1, 4)), rows, bias, 9).tolist() == [[0, 1, 2]]


def test_tokens_that_can_never_win_still_fill_a_list() -> None:
    bias = np.array([-np.inf, 1, -np.inf, 0, 0], dtype=np.float32)
    rows = np.zeros((5, 2), dtype=np.float32)
    assert token_lists(np.ones((1, 2)), rows, bias, 4, chunk=2).tolist() == [[1, 3, 0, 2]]


def test_first_shifts_the_ids_of_a_shard() -> None:
    assert token_lists(np.ones((1, 1)), np.array([[1.0], [3.0], [9.0]]), None, 1, first=50).tolist() == [[51]]


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot list"):
        token_lists(np.ones((1, 2)), np.ones((4, 3)), None, 1)


@pytest.fixture
def shortlist() -> Shortlist:
    c = np.array([[1, 0], [0, 1], [1, 0], [-1, -1]], dtype=np.float32)
    return Shortlist(c, np.array([[5, 1], [1, 7], [2, 5], [9, 8]], dtype=np.uint32), 2)


def test_tokens_are_the_union_of_the_best_lists(shortlist: Shortlist) -> None:
    assert shortlist.nearest([2, 1]).tolist() == [0, 2]  # a tie: the first comes first
    assert shortlist.tokens([2, 1]).tolist() == [1, 2, 5]
    assert shortlist.tokens([-1, 3]).tolist() == [1, 5, 7] or shortlist.nearest([-1, 3])[0] == 1


def test_extra_tokens_join(shortlist: Shortlist) -> None:
    found = shortlist.tokens([2, 1], extra=[30, 5, 0, 30])
    assert found.tolist() == [0, 1, 2, 5, 30]
    assert found.dtype == np.uint32
    assert shortlist.tokens([2, 1], extra=[]).tolist() == [1, 2, 5]


def test_cut_takes_the_best_of_each_list(shortlist: Shortlist) -> None:
    assert shortlist.cut(1, 3).tokens([1, 0.5]).tolist() == [1, 2, 5]
    assert shortlist.cut(1, 1).tokens([1, 0.5]).tolist() == [5]


@pytest.mark.parametrize("k", [0, 5])
def test_k_must_fit(shortlist: Shortlist, k: int) -> None:
    with pytest.raises(ValueError, match=f"k = {k}"):
        shortlist.cut(1, k)


def test_save_and_load(shortlist: Shortlist, tmp_path: Path) -> None:
    shortlist.save(tmp_path / "s")
    again = Shortlist.load(tmp_path / "s")
    assert np.array_equal(again.c, shortlist.c)
    assert np.array_equal(again.lists, shortlist.lists)
    assert again.k == 2
    assert not again.lists.flags.owndata
    assert again.tokens([2, 1], extra=[3]).tolist() == [1, 2, 3, 5]
    again.cut(1, 1).save(tmp_path / "cut")
    assert Shortlist.load(tmp_path / "cut").lists.tolist() == [[5], [1], [2], [9]]


def test_a_damaged_file_is_named(shortlist: Shortlist, tmp_path: Path) -> None:
    path = tmp_path / "s"
    shortlist.save(path)
    whole = path.read_bytes()
    for place in (3, 70, len(whole) - 2):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(FileFormatError, match=str(path)):
            Shortlist.load(path)
    path.write_bytes(whole[:-4])
    with pytest.raises(FileFormatError, match="damaged or incomplete"):
        Shortlist.load(path)


def test_parts_that_do_not_fit_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "s"
    arrays = {"c": np.zeros(4, np.float32), "lists": np.zeros(3, np.uint32)}
    write_container(path, "shrtlist", 2, {"m": 2, "d": 2, "r": 2, "k": 1}, arrays)
    with pytest.raises(FileFormatError, match="do not fit"):
        Shortlist.load(path)
    write_container(path, "shrtlist", 2, {"m": 2}, arrays)
    with pytest.raises(FileFormatError, match="do not fit"):
        Shortlist.load(path)


def test_files_of_version_1_are_read_and_later_ones_refused(shortlist: Shortlist, tmp_path: Path) -> None:
    arrays = {"c": shortlist.c.ravel(), "lists": shortlist.lists.ravel()}
    meta = {"m": 4, "d": 2, "r": 2, "k": 2}
    write_container(tmp_path / "s", "shrtlist", 1, meta, arrays)
    assert Shortlist.load(tmp_path / "s").tokens([2, 1]).tolist() == [1, 2, 5]
    write_container(tmp_path / "s", "shrtlist", 3, meta, arrays)
    with pytest.raises(FileFormatError, match="format 3, this release reads up to 2: upgrade pixnar"):
        Shortlist.load(tmp_path / "s")


@pytest.fixture
def unequal() -> Shortlist:
    c = np.array([[1, 0], [0, 1], [1, 0.5], [-1, -1]], dtype=np.float32)
    lists = np.array([5, 1, 7, 1, 2, 8], dtype=np.uint32)
    return Shortlist(c, lists, 2, np.array([0, 2, 2, 5, 6]))


def test_lists_may_have_any_length(unequal: Shortlist) -> None:
    assert [unequal.list_of(i).tolist() for i in range(4)] == [[5, 1], [], [7, 1, 2], [8]]
    assert unequal.mean_length == 1.5
    assert unequal.nearest([2, 1]).tolist() == [2, 0]
    assert unequal.tokens([2, 1]).tolist() == [1, 2, 5, 7]
    assert unequal.tokens([2, 1], [0, 7], 9).tolist() == [0, 1, 2, 5, 7]
    assert unequal.take(1).tokens([-1, 3]).tolist() == []
    with pytest.raises(ValueError, match="token 7"):
        unequal.tokens([2, 1], None, 7)


def test_cut_shortens_the_lists_that_are_longer(unequal: Shortlist) -> None:
    cut = unequal.cut(2, 3)
    assert cut.k == 3
    assert [cut.list_of(i).tolist() for i in range(4)] == [[5, 1], [], [7, 1], [8]]
    assert [unequal.cut(1, 1).list_of(i).tolist() for i in range(4)] == [[5], [], [7], [8]]


def test_unequal_lists_are_saved_and_loaded(unequal: Shortlist, tmp_path: Path) -> None:
    unequal.save(tmp_path / "s")
    again = Shortlist.load(tmp_path / "s")
    assert again.offsets is not None
    assert again.offsets.tolist() == [0, 2, 2, 5, 6]
    assert np.array_equal(again.lists, unequal.lists)
    assert again.tokens([2, 1], [3]).tolist() == unequal.tokens([2, 1], [3]).tolist()


@pytest.mark.parametrize("offsets", [[0, 2, 2, 5, 7], [1, 2, 2, 5, 6], [0, 3, 2, 5, 6], [0, 2, 5, 6], []])
def test_offsets_that_do_not_fit_are_an_error(unequal: Shortlist, tmp_path: Path, offsets: list[int]) -> None:
    arrays: dict[str, np.ndarray] = {"c": unequal.c.ravel(), "lists": unequal.lists}
    arrays["offsets"] = np.array(offsets, np.int64)
    write_container(tmp_path / "s", "shrtlist", 2, {"m": 4, "d": 2, "k": 2}, arrays)
    with pytest.raises(FileFormatError, match="do not fit"):
        Shortlist.load(tmp_path / "s")


def test_defaults() -> None:
    assert defaults(5_000_000, 10**7) == (4096, 20_000, 5)
    assert defaults(3, 1) == (1, 1, 1)
    for size in (40_000, 128_000, 1_000_000):
        m, r, k = defaults(size, 20_000)
        assert (m, k) == (2500, 5 if size == 1_000_000 else 8)
        assert r == min(20_000, 0.03 * size)


def test_searching_needs_no_torch() -> None:
    code = "import sys, pixnar.runtime; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

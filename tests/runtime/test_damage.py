"""What is wrong is said, by ValueError for arguments and FileFormatError for files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pixnar import _native
from pixnar.base.errors import FileFormatError
from pixnar.base.storage import read_container, write_container
from pixnar.runtime import FORMATS, HeadRows
from pixnar.runtime.formats import Format
from tests.helpers.head_cases import head, random_rows


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("places", [True, False])
def test_a_file_comes_back(format: Format, bias: bool, places: bool, tmp_path: Path) -> None:
    rows, path = head(70, 33, format, 1, bias=bias, places=places), tmp_path / "rows.pixnar"
    rows.save(path)
    x = random_rows(3, 33, 9)
    for verify in (True, False):
        back = HeadRows.load(path, verify=verify)
        assert (back.count, back.dim, back.format, back.nbytes) == (70, 33, format, rows.nbytes)
        assert len(back) == 70
        assert np.array_equal(back.logits(x), rows.logits(x))
        assert (back.bias is None) == (not bias)
        assert np.array_equal(back.decoded([5, 6]), rows.decoded([5, 6]))
    back.save(tmp_path / "again.pixnar")
    assert (tmp_path / "again.pixnar").read_bytes() == path.read_bytes()


def test_every_damaged_byte_is_found(tmp_path: Path) -> None:
    path = tmp_path / "rows.pixnar"
    head(6, 5, "int8", 1, bias=True, places=True).save(path)
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            HeadRows.load(path)
        except FileFormatError:
            continue
        assert whole[at] == 0  # padding between arrays means nothing
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FileFormatError, match="should have"):
        HeadRows.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 7},
        {"d": 500},
        {"d": 0},
        {"d": -1},
        {"d": "many"},
        {"format": "float32"},
        {"format": "int3"},
        {"stride": 128},
        {"rows": None},
    ],
)
def test_a_sound_file_that_makes_no_sense(change: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "rows.pixnar"
    head(6, 5, "int8", 1, bias=True, places=False).save(path)
    found = read_container(path, "headrows", 1)
    write_container(path, "headrows", 1, {**found.meta, **change}, found.arrays)
    with pytest.raises(FileFormatError, match="no usable phrase rows"):
        HeadRows.load(path)


@pytest.mark.parametrize("missing", ["data", "scales"])
def test_a_file_without_a_part(missing: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.pixnar"
    head(6, 5, "int8", 1, bias=True, places=False).save(path)
    found = read_container(path, "headrows", 1)
    write_container(path, "headrows", 1, found.meta, {k: v for k, v in found.arrays.items() if k != missing})
    with pytest.raises(FileFormatError, match="no usable phrase rows"):
        HeadRows.load(path)


def test_native_rows_that_do_not_fit() -> None:
    data, ones = np.zeros(3 * 64, np.uint8), np.ones(3, np.float32)
    good: dict[str, Any] = {
        "data": data,
        "format": "int8",
        "count": 3,
        "dim": 10,
        "stride": 64,
        "scales": ones,
        "bias": ones,
        "places": np.array([2, 1, 0], np.uint32),
    }
    _native.HeadRows(**good)
    wrong: dict[str, list[Any]] = {
        "data": [data[:-1], np.zeros(3 * 64, np.int8), np.zeros(4 * 64, np.uint8)],
        "format": ["int9", "", "float32"],
        "count": [2, 4],
        "dim": [0, 65, 70_000],
        "stride": [63, 32, 128, 0],
        "scales": [None, ones[:2], np.ones(3)],
        "bias": [ones[:2]],
        "places": [np.array([0, 1, 3], np.uint32), np.array([0, 1], np.uint32)],
    }
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(ValueError, match=r"rows|array"):
                _native.HeadRows(**{**good, name: value})


def test_arguments_that_do_not_fit() -> None:
    rows, x = head(20, 6, "int8", 1, bias=False, places=False), np.ones((2, 6), np.float32)
    for ids in ([20], [-1], [0.5], [[1]], [2**32]):
        with pytest.raises(ValueError, match="token"):
            rows.logits(x, np.array(ids))
        with pytest.raises(ValueError, match="token"):
            rows.top(x, 3, np.array(ids))
    with pytest.raises(ValueError, match="not among 20"):
        rows.top_each(x, 3, [[1], [20]])
    for wrong in (np.ones(6), np.ones((2, 7)), np.ones((1, 2, 6))):
        with pytest.raises(ValueError, match="vectors of shape"):
            rows.logits(wrong)
    with pytest.raises(ValueError, match="not finite"):
        rows.logits(np.full((1, 6), np.nan))
    with pytest.raises(ValueError, match="offsets"):
        rows.top_each(x, 3, [[1]])
    with pytest.raises(ValueError, match="offsets"):
        rows._native.top_each(x.ravel(), 2, np.zeros(3, np.uint32), np.array([0, 5, 3]), 1, 1)
    with pytest.raises(ValueError, match="not 2 vectors"):
        rows._native.top(x.ravel()[1:], 2, None, 1, 1)
    with pytest.raises(ValueError, match="tokens go from"):
        rows.decoded([20])


def test_nothing_asked_for() -> None:
    rows = head(20, 6, "int8", 1, bias=False, places=False)
    nothing = np.zeros((0, 6), np.float32)
    assert rows.logits(nothing).shape == (0, 20)
    assert rows.logits(np.ones((2, 6)), []).shape == (2, 0)
    assert rows.top(nothing, 3) == []
    assert [len(tokens) for tokens, _ in rows.top(np.ones((2, 6)), 3, [])] == [0, 0]
    assert rows.top_each(nothing, 3, []) == []


def test_what_cannot_be_built() -> None:
    rows = random_rows(4, 3, 0)
    with pytest.raises(ValueError, match="a bias of shape"):
        HeadRows.build(rows, np.zeros(3))
    with pytest.raises(ValueError, match="a place of its own"):
        HeadRows.build(rows, places=[0, 1, 1, 2])
    with pytest.raises(ValueError, match="not finite"):
        HeadRows.build(np.full((2, 2), np.inf, np.float32))
    with pytest.raises(ValueError, match="float16"):
        HeadRows.build(np.full((2, 2), 1e6, np.float32), format="float16")
    with pytest.raises(ValueError, match="format"):
        HeadRows.build(rows, format="int2")  # type: ignore[arg-type]

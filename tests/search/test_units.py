"""Document ids in two flat arrays: what a dict would say, and no crash whatever the arrays hold."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.storage import read_container, write_container
from pixnar.fusion.word_table import WordTable
from pixnar.index.files import read_units, write_units
from pixnar.search.units import Units

ids = st.text(st.characters(), max_size=5) | st.text("ab\ud800é", max_size=4)  # lone surrogates too


@given(st.sets(ids, max_size=20), st.lists(ids, max_size=8))
def test_units_are_what_a_dict_would_say(known: set[str], others: list[str]) -> None:
    listed = sorted(known)
    units, number = Units.of(listed), {doc_id: i for i, doc_id in enumerate(listed)}
    assert list(units) == listed
    assert len(units) == len(listed)
    asked = [*others, *listed[::-1], *others]
    assert units.numbers(asked).tolist() == [number.get(doc_id, -1) for doc_id in asked]
    assert units.numbers([]).tolist() == []


@pytest.mark.parametrize("wrong", [["b", "a"], ["a", "a"]])
def test_order_is_kept(wrong: list[str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not sorted"):
        Units.of(wrong)
    bad = {"bytes": np.frombuffer("".join(wrong).encode(), np.uint8), "offsets": np.array([0, 1, 2])}
    write_container(tmp_path / "u", "units", 1, {"count": 2}, bad)
    with pytest.raises(FileFormatError, match="not sorted"):
        read_units(tmp_path / "u")
    assert len(read_units(tmp_path / "u", verify=False)) == 2  # nobody looked


def test_files(tmp_path: Path) -> None:
    write_units(tmp_path / "u", ["d1", "d2", "é"])
    for verify in (True, False):
        assert list(read_units(tmp_path / "u", verify=verify)) == ["d1", "d2", "é"]
    units = read_units(tmp_path / "u", verify=False)
    for unit in (-1, 3):
        with pytest.raises(IndexError, match=f"unit {unit} is not in 0 … 2"):
            units[unit]
    good = read_container(tmp_path / "u", "units", 1).arrays
    for change in (
        {"offsets": good["offsets"][:-1]},
        {"offsets": good["offsets"][:0]},
        {"bytes": good["bytes"][1:]},
        {"offsets": good["offsets"].astype(np.uint32)},
    ):
        write_container(tmp_path / "u", "units", 1, {"count": 3}, {**good, **change})
        with pytest.raises(FileFormatError, match="no usable document ids"):
            read_units(tmp_path / "u", verify=False)
    write_container(tmp_path / "u", "units", 1, {"count": 3}, {"bytes": good["bytes"]})
    with pytest.raises(FileFormatError, match="offsets"):
        read_units(tmp_path / "u", verify=False)


offsets = arrays(np.int64, st.integers(0, 8), elements=st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 9))


@given(st.binary(max_size=8), offsets, st.lists(ids, max_size=4))
def test_damage_stays_inside(data: bytes, inner: NDArray[np.int64], asked: list[str]) -> None:
    borders = np.concatenate([[0], inner, [len(data)]])
    units = Units(np.frombuffer(data, np.uint8), borders, verify=False)
    assert all(-1 <= number < len(units) for number in units.numbers(asked).tolist())
    words = WordTable(units.data, units.offsets, verify=False)
    words.find("ab")
    for unit in range(len(units)):
        with contextlib.suppress(FileFormatError):
            units[unit]

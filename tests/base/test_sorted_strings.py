"""Sorted texts in two flat arrays: what a dict would say, and no crash whatever the arrays hold."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.strings import SortedStrings

some_texts = st.text(st.characters(), max_size=5) | st.text("ab\ud800é中", max_size=4)  # lone surrogates too


@given(st.sets(some_texts, max_size=20), st.lists(some_texts, max_size=8))
def test_numbers_are_what_a_dict_would_say(known: set[str], others: list[str]) -> None:
    listed = sorted(known)
    texts, number = SortedStrings.of(listed), {text: i for i, text in enumerate(listed)}
    assert list(texts) == listed
    assert len(texts) == len(listed)
    asked = [*others, *listed[::-1], *others]
    assert texts.numbers(asked).tolist() == [number.get(text, -1) for text in asked]
    assert [texts.find(text) for text in asked] == [number.get(text) for text in asked]
    assert texts.numbers([]).tolist() == []


@pytest.mark.parametrize("wrong", [["b", "a"], ["a", "a"]])
def test_order_is_kept(wrong: list[str]) -> None:
    with pytest.raises(ValueError, match="not sorted"):
        SortedStrings.of(wrong)
    parts = np.frombuffer("".join(wrong).encode(), np.uint8), np.array([0, 1, 2])
    with pytest.raises(ValueError, match="not sorted"):
        SortedStrings(*parts)
    assert len(SortedStrings(*parts, verify=False)) == 2  # nobody looked


def test_arrays_that_do_not_fit_together_are_refused() -> None:
    good = SortedStrings.of(["d1", "d2", "é"])
    assert list(SortedStrings(good.data, good.offsets)) == ["d1", "d2", "é"]
    for number in (-1, 3):
        with pytest.raises(IndexError, match=f"text {number} is not in 0 … 2"):
            good[number]
    for data, offsets in (
        (good.data, good.offsets[:-1]),
        (good.data, good.offsets[:0]),
        (good.data[1:], good.offsets),
    ):
        with pytest.raises(ValueError, match="do not fit together"):
            SortedStrings(data, offsets, verify=False)
    with pytest.raises(ValueError, match="uint8 and uint32"):
        SortedStrings(good.data, good.offsets.astype(np.uint32), verify=False)
    with pytest.raises(ValueError, match="do not fit together"):
        SortedStrings(good.data, np.array([0, 3, 2, 6]))


offsets = arrays(np.int64, st.integers(0, 8), elements=st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 9))


@given(st.binary(max_size=8), offsets, st.lists(some_texts, max_size=4))
def test_damage_stays_inside(data: bytes, inner: NDArray[np.int64], asked: list[str]) -> None:
    borders = np.concatenate([[0], inner, [len(data)]])
    texts = SortedStrings(np.frombuffer(data, np.uint8), borders, verify=False)
    assert all(-1 <= number < len(texts) for number in texts.numbers(asked).tolist())
    texts.find("ab")
    for number in range(len(texts)):
        with contextlib.suppress(FileFormatError):
            texts[number]

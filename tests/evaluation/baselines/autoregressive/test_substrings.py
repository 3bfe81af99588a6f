"""Substrings of a corpus, against a scan of every place of every document."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import read_container, write_container
from pixnar.evaluation.baselines.autoregressive import substrings
from pixnar.evaluation.baselines.autoregressive.substrings import Substrings, suffix_array

_tokens = st.integers(0, 3)
_document = st.one_of(
    st.lists(_tokens, max_size=12),
    st.tuples(st.lists(_tokens, min_size=1, max_size=2), st.integers(1, 20)).map(lambda both: both[0] * both[1]),
)
documents = st.lists(_document, max_size=6).flatmap(
    lambda texts: (
        st.lists(st.sampled_from(texts), max_size=2).map(lambda again: texts + again) if texts else st.just([])
    )
)
patterns = st.lists(st.integers(0, 4), max_size=5)


def scan(texts: list[list[int]], pattern: list[int]) -> list[tuple[int, int]]:
    """Every document and place where a pattern is; the empty one is at every token."""
    size = max(1, len(pattern))
    return [
        (number, place)
        for number, text in enumerate(texts)
        for place in range(len(text) - size + 1)
        if text[place : place + len(pattern)] == pattern
    ]


@given(documents, patterns, st.sampled_from([0, 2, 2048]))
@example([[1, 1], [1, 1]], [1, 1, 1], 2048)
def test_count_places_and_continuations_are_those_of_a_scan(
    texts: list[list[int]], pattern: list[int], gathered: int
) -> None:
    index = Substrings.of(texts)
    wanted = scan(texts, pattern)
    following = Counter(
        texts[number][place + len(pattern) :][0] for number, place in wanted if texts[number][place + len(pattern) :]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(substrings, "_GATHERED", gathered)  # few rows, and searched borders
        span = index.range(pattern)
        tokens, counts = index.continuations(span)
    assert index.count(pattern) == span.size == len(wanted)
    places = index.locate(span)
    numbers = index.document_of(places)
    assert list(zip(numbers.tolist(), (places - index.starts[numbers]).tolist(), strict=True)) == wanted
    assert dict(zip(tokens.tolist(), counts.tolist(), strict=True)) == following
    assert tokens.tolist() == sorted(following)


@given(documents, patterns)
def test_a_span_is_that_of_its_ranks(texts: list[list[int]], pattern: list[int]) -> None:
    index = Substrings.of(texts)
    span = index.range(pattern)
    there = np.flatnonzero((index.ranks >= span.low) & (index.ranks < span.high))
    assert there.tolist() == index.locate(span).tolist()


@given(documents)
def test_documents_and_token_counts_are_given_back(texts: list[list[int]]) -> None:
    index = Substrings.of(texts)
    assert [index.tokens(number).tolist() for number in range(len(index))] == texts
    counts = Counter(token for text in texts for token in text)
    assert {token: count for token, count in enumerate(index.token_counts.tolist()) if count} == counts
    assert index.n_tokens == sum(map(len, texts))


@given(st.lists(st.integers(1, 5), max_size=40), st.sampled_from([1, 2**31, 2**62]))
def test_suffixes_are_sorted_whatever_fits_into_a_key(symbols: list[int], scale: int) -> None:
    text = [symbol * (scale // 8 or 1) for symbol in symbols] + [0]
    order = sorted(range(len(text)), key=lambda place: text[place:])
    assert suffix_array(np.array(text)).tolist() == order


def test_long_repeats_are_told_apart() -> None:
    text = [1, 2, 3] * 400
    index = Substrings.of([text, [*text, 1], [9]])
    assert index.count([1, 2, 3] * 400) == 2
    assert index.count([*text, 1]) == 1
    assert index.count([3, 1] * 2) == 0
    assert index.allowed(index.range(text)).tolist() == [1]


def test_what_is_saved_answers_the_same(tmp_path: Path) -> None:
    texts = [[5, 1, 5, 1], [], [1, 5], [70_000]]
    index, path = Substrings.of(texts), tmp_path / "substrings.pixnar"
    index.save(path)
    opened = Substrings.load(path)
    assert [opened.tokens(number).tolist() for number in range(len(opened))] == texts
    assert opened.locate(opened.range([5, 1])).tolist() == index.locate(index.range([5, 1])).tolist() == [0, 2]
    assert opened.root() == index.root()


def test_a_file_whose_arrays_do_not_fit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "substrings.pixnar"
    Substrings.of([[1, 2], [3]]).save(path)
    found = read_container(path, "suffixes", 1)
    write_container(path, "suffixes", 1, found.meta, {**found.arrays, "suffixes": found.arrays["suffixes"][1:]})
    with pytest.raises(FileFormatError, match="do not fit together: copy or build"):
        Substrings.load(path)
    write_container(path, "suffixes", 1, {}, found.arrays)
    with pytest.raises(FileFormatError, match="does not say 'documents'"):
        Substrings.load(path)


def test_a_token_that_is_not_possible_is_named() -> None:
    with pytest.raises(PixnarError, match="document 2 has the token -1: tokens are 0 to"):
        Substrings.of([[1], [], [2, -1]])

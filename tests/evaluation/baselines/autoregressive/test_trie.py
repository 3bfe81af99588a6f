"""The trie of token sequences, against the sequences themselves, and constraints of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import read_container, write_container
from pixnar.evaluation.baselines.autoregressive.constraint import Constraint, FreeConstraint
from pixnar.evaluation.baselines.autoregressive.substrings import Substrings
from pixnar.evaluation.baselines.autoregressive.trie import NOWHERE, Trie

END = 2
sequences = st.lists(st.lists(st.sampled_from([0, 1, 3, 4]), max_size=5), max_size=12)


def paths(constraint: Constraint[Any], most: int) -> set[tuple[int, ...]]:
    """Every sequence of at most so many tokens that a constraint allows and that nothing may follow."""
    ends: set[tuple[int, ...]] = set()
    frontier: list[tuple[tuple[int, ...], Any]] = [((), constraint.root())]
    for _ in range(most + 1):
        grown: list[tuple[tuple[int, ...], Any]] = []
        for tokens, state in frontier:
            allowed = constraint.allowed(state).tolist()
            ends |= set() if allowed else {tokens}
            grown += [((*tokens, token), constraint.child(state, token)) for token in allowed]
        frontier = grown
    return ends


@given(sequences)
def test_paths_to_leaves_are_the_sequences_with_their_end(texts: list[list[int]]) -> None:
    trie = Trie.of(texts, end=END)
    assert paths(trie, 6) == ({(*text, END) for text in texts} or {()})
    assert len(trie) == len({tuple([*text, END][:size]) for text in texts for size in range(len(text) + 2)} | {()})


@given(sequences, st.lists(st.integers(0, 5), max_size=4))
def test_what_is_allowed_follows_the_prefix_in_some_sequence(texts: list[list[int]], prefix: list[int]) -> None:
    trie = Trie.of(texts, end=END)
    ended = [[*text, END] for text in texts]
    following = {text[len(prefix)] for text in ended if len(text) > len(prefix) and text[: len(prefix)] == prefix}
    node = trie.find(prefix)
    assert trie.allowed(node).tolist() == sorted(following)
    for token in range(6):
        assert (trie.child(node, token) == NOWHERE) == (token not in following)


@given(sequences)
def test_leaves_know_all_sequences_that_end_there_and_inner_nodes_none(texts: list[list[int]]) -> None:
    trie = Trie.of(texts, end=END)
    for text in texts:
        equal = [number for number, other in enumerate(texts) if other == text]
        assert trie.items(trie.find([*text, END])).tolist() == equal
        assert trie.items(trie.find(text)).tolist() == []
    assert trie.items(NOWHERE).tolist() == []


@given(st.lists(st.lists(st.sampled_from([0, 1, 3, 4]), min_size=1, max_size=5), min_size=1, max_size=8))
def test_a_trie_is_the_substrings_that_begin_at_the_start_of_a_document(texts: list[list[int]]) -> None:
    begin = 9  # a marker before and the end behind each document
    trie, index = Trie.of(texts, end=END), Substrings.of([[begin, *text, END] for text in texts])
    pairs = [(trie.root(), index.range([begin]))]
    while pairs:
        node, span = pairs.pop()
        assert trie.allowed(node).tolist() == index.allowed(span).tolist()
        pairs += [(trie.child(node, token), index.child(span, token)) for token in trie.allowed(node).tolist()]


@pytest.mark.parametrize("tokens", [3, [0, 1, 2], [2, 1, 0, 1]])
def test_a_free_constraint_allows_every_sequence(tokens: int | list[int]) -> None:
    free: Constraint[None] = FreeConstraint(tokens)
    state = free.root()
    for token in (2, 0, 1, 1):
        assert free.allowed(state).tolist() == [0, 1, 2]
        state = free.child(state, token)


def test_a_saved_trie_allows_the_same(tmp_path: Path) -> None:
    texts: Sequence[Sequence[int]] = [[0, 1], [0], [70_000, 3], [0, 1]]
    Trie.of(texts, end=END).save(tmp_path / "trie.pixnar")
    opened = Trie.load(tmp_path / "trie.pixnar")
    assert paths(opened, 4) == {(0, 1, END), (0, END), (70_000, 3, END)}
    assert opened.items(opened.find([0, 1, END])).tolist() == [0, 3]
    assert opened.end == END


@pytest.mark.parametrize("name", ["offsets", "tokens", "item_offsets", "item_numbers"])
def test_a_trie_whose_arrays_do_not_fit_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "trie.pixnar"
    Trie.of([[0, 1], [3]], end=END).save(path)
    found = read_container(path, "trie", 1)
    write_container(path, "trie", 1, found.meta, {**found.arrays, name: found.arrays[name][:-1]})
    with pytest.raises(FileFormatError, match="do not fit together: copy or build"):
        Trie.load(path)
    kept = {other: array for other, array in found.arrays.items() if other != name}
    write_container(path, "trie", 1, found.meta, kept)
    with pytest.raises(FileFormatError, match=f"does not say '{name}'"):
        Trie.load(path)


@pytest.mark.parametrize("token", [END, -3])
def test_a_token_that_no_sequence_may_have_is_named(token: int) -> None:
    with pytest.raises(PixnarError, match=f"sequence 1 has the token {token}: give tokens from 0, without 2"):
        Trie.of([[0], [1, token]], end=END)


def test_many_long_sequences_take_a_moment() -> None:
    rng = np.random.default_rng(0)
    texts = rng.integers(3, 60, (20_000, 8)).tolist()
    texts.append(list(range(3, 5_000)))  # one that is long costs the others nothing
    trie = Trie.of(texts, end=END)
    assert trie.items(trie.find([*texts[777], END])).tolist() == [777]
    assert trie.items(trie.find([*texts[-1], END])).tolist() == [20_000]

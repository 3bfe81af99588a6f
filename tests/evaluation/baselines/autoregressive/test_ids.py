"""Ids that a decoder generates: each names one document, and can be read back."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError
from pixnar.evaluation.baselines.autoregressive.ids import (
    END,
    FIRST,
    NAIVE_TOKENS,
    PieceTokens,
    PlaceTokens,
    Tokens,
    cluster_paths,
    kmeans,
    naive_ids,
    text_ids,
)
from pixnar.evaluation.baselines.autoregressive.trie import Trie

_pieces = st.lists(st.integers(0, 40_000), max_size=8)


def random_vectors(count: int, seed: int, width: int = 6, copies: int = 0) -> NDArray[np.float32]:
    """Some vectors around a few points, and copies of the first."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(5, width)) * 4
    vectors = points[rng.integers(0, 5, count)] + rng.normal(size=(count, width))
    return np.concatenate([vectors, np.repeat(vectors[:1], copies, axis=0)]).astype(np.float32)


def check_paths(paths: list[Tokens], k: int, leaf: int) -> None:
    """What holds for the paths of any vectors."""
    assert len(set(paths)) == len(paths)
    assert all(paths)
    for one, other in pairwise(sorted(paths)):
        assert other[: len(one)] != one, "one path begins another"
    inside: dict[Tokens, set[Tokens]] = defaultdict(set)
    for path in paths:
        for size in range(len(path)):
            inside[path[:size]].add(path)
    for prefix, own in inside.items():
        digits = {path[len(prefix)] for path in own}
        if len(own) > leaf:  # a cluster that was split
            assert digits <= set(range(k))
            assert len(digits) > 1
        else:  # a running number at the end
            assert digits == set(range(len(own)))
            assert {len(path) for path in own} == {len(prefix) + 1}
            assert len(own) > 1 or not prefix


@given(
    st.integers(0, 120), st.integers(0, 60), st.sampled_from([2, 3, 30]), st.sampled_from([1, 4, 30]), st.integers(0, 9)
)
@example(1, 0, 2, 1, 0)
def test_paths_are_distinct_and_none_begins_another(count: int, copies: int, k: int, leaf: int, seed: int) -> None:
    vectors = random_vectors(count, seed, copies=copies if count else 0)
    paths = cluster_paths(vectors, k=k, leaf=leaf, seed=seed)
    assert len(paths) == len(vectors)
    check_paths(paths, k, leaf)


@pytest.mark.parametrize(("k", "leaf"), [(2, 1), (10, 3), (30, 30)])
def test_equal_vectors_get_paths_of_even_length(k: int, leaf: int) -> None:
    paths = cluster_paths(np.ones((500, 4), np.float32), k=k, leaf=leaf)
    check_paths(paths, k, leaf)
    lengths = [len(path) for path in paths]
    assert max(lengths) - min(lengths) <= 1
    assert k ** (max(lengths) - 2) * leaf < 500


def test_the_same_seed_gives_the_same_paths() -> None:
    vectors = random_vectors(400, 1)
    paths = [cluster_paths(vectors, k=4, leaf=5, seed=seed) for seed in (3, 3, 4)]
    assert paths[0] == paths[1] != paths[2]


def test_near_vectors_share_the_beginning_of_their_paths() -> None:
    points = np.eye(4, dtype=np.float32) * 50
    groups = np.arange(80) % 4
    vectors = points[groups] + np.random.default_rng(0).normal(size=(80, 4)).astype(np.float32)
    paths = cluster_paths(vectors, k=4, leaf=20)
    assert len({path[0] for path in paths}) == 4
    assert len({(group, path[0]) for group, path in zip(groups.tolist(), paths, strict=True)}) == 4


def test_centers_are_the_means_of_what_is_nearest_to_them() -> None:
    vectors = random_vectors(300, 2)
    labels = kmeans(vectors, 5, np.random.default_rng(0))
    centers = np.stack([vectors[labels == label].mean(0) for label in range(5)])
    nearest = np.square(vectors[:, None] - centers).sum(2).argmin(1)
    assert (nearest == labels).mean() > 0.99


def test_many_vectors_are_clustered_by_a_sample_of_them() -> None:
    vectors = random_vectors(5_000, 3)
    labels = kmeans(vectors, 3, np.random.default_rng(0))
    assert len(labels) == 5_000
    assert set(labels.tolist()) == {0, 1, 2}


@pytest.mark.parametrize(
    ("settings", "message"), [({"k": 1}, "k 1 is not possible: give 2"), ({"leaf": 0}, "leaf 0 is")]
)
def test_settings_that_are_not_possible_are_named(settings: dict[str, int], message: str) -> None:
    with pytest.raises(PixnarError, match=message):
        cluster_paths(random_vectors(5, 0), **settings)


@given(st.integers(1, 40), st.integers(1, 6))
def test_tokens_with_places_are_a_bijection(base: int, places: int) -> None:
    tokens = PlaceTokens(base=base, places=places)
    pairs = {}
    for place in range(places):
        for digit in range(base):
            token = tokens.encode([*[0] * place, digit])[-1]
            pairs[token] = (place, digit)
            assert (tokens.place(token), tokens.decode([token])) == (place, [digit])
            assert token in tokens.allowed(place)
    assert sorted(pairs) == list(range(FIRST, tokens.size))
    assert len(pairs) == base * places


def test_what_is_allowed_at_a_place_are_its_digits_and_the_end() -> None:
    tokens = PlaceTokens(base=3, places=2)
    assert tokens.allowed(0).tolist() == [2, 3, 4]
    assert tokens.allowed(1).tolist() == [END, 5, 6, 7]
    assert tokens.allowed(2).tolist() == [END]


@given(st.lists(st.integers(0, 29), max_size=4))
def test_paths_are_read_back(path: list[int]) -> None:
    tokens = PlaceTokens(base=30, places=4)
    assert tokens.decode([*tokens.encode(path), END]) == path
    trie = Trie.of([tokens.encode(path)], end=END)
    for place in range(len(path) + 1):
        node = trie.find(tokens.encode(path)[:place])
        assert set(trie.allowed(node).tolist()) <= set(tokens.allowed(place).tolist()) or not path


@pytest.mark.parametrize("path", [[0, 0, 0], [3], [-1]])
def test_a_path_that_is_not_possible_is_named(path: list[int]) -> None:
    with pytest.raises(PixnarError, match=r"the path \[.*\] is not possible: give at most 2 digits from 0 to 2"):
        PlaceTokens(base=3, places=2).encode(path)


@given(st.lists(_pieces, max_size=8), st.integers(0, 3))
def test_texts_are_read_back_from_their_tokens(texts: list[list[int]], markers: int) -> None:
    tokens, ids = text_ids(texts, markers=markers)
    assert [tokens.decode([*one, END]) for one in ids] == texts
    used = {token for one in ids for token in one}
    assert used == set(range(FIRST + markers, tokens.size))  # none that no text has
    assert used.isdisjoint(tokens.marker(number) for number in range(markers))


def test_what_has_no_token_is_named() -> None:
    tokens = PieceTokens([5, 9], markers=1)
    for piece in (7, 10, -1):
        with pytest.raises(PixnarError, match=f"word piece {piece} has no token: it occurs in none of the texts"):
            tokens.encode([5, piece])
    with pytest.raises(PixnarError, match="marker 1 is not possible: there are 1"):
        tokens.marker(1)


@pytest.mark.parametrize("count", [0, 1, 10, 1234])
def test_naive_ids_are_all_numbers_in_a_random_order(count: int) -> None:
    ids = naive_ids(count)
    numbers = [int("".join(str(token - FIRST) for token in one)) for one in ids]
    assert sorted(numbers) == list(range(count))
    assert {token for one in ids for token in one} <= set(range(FIRST, NAIVE_TOKENS))
    assert ids == naive_ids(count)
    assert count < 10 or (numbers != sorted(numbers) and ids != naive_ids(count, seed=1))

"""Every way to the best tokens, against numpy and against the full softmax."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pixnar.research.softmax import (
    Full,
    LearnedShortlist,
    Softmax,
    Top,
    active_lists,
    centroid_lists,
    int4_preview,
    low_rank_preview,
)
from pixnar.runtime import HeadRows
from pixnar.runtime.shortlist import Shortlist, token_lists

Floats = NDArray[np.float32]
V, D, S, GROUPS = 900, 40, 3, 12


@pytest.fixture(scope="module")
def head() -> tuple[Floats, Floats]:
    random = np.random.default_rng(0)
    centres = random.normal(size=(GROUPS, D))
    rows = centres[random.integers(0, GROUPS, V + 1)] + 0.4 * random.normal(size=(V + 1, D))
    return rows.astype(np.float32), random.normal(size=V + 1).astype(np.float32)


@pytest.fixture(scope="module")
def rows(head: tuple[Floats, Floats]) -> HeadRows:
    return HeadRows.build(*head)


@pytest.fixture(scope="module")
def x(head: tuple[Floats, Floats]) -> Floats:
    random = np.random.default_rng(1)
    near = head[0][random.integers(0, V, 5 * (S + 1))] + 0.2 * random.normal(size=(5 * (S + 1), D))
    return near.reshape(5, S + 1, D).astype(np.float32)


def best(rows: HeadRows, vector: Floats, ids: NDArray[np.integer], n: int) -> list[int]:
    """By numpy, from the logits of these tokens."""
    tokens = np.unique(ids)
    logits = rows.logits(vector[None])[0][tokens]
    return [int(v) for v in tokens[np.lexsort((tokens, -logits))[:n]]]


def found(top: Top) -> list[list[int]]:
    return [ids.tolist() for ids, _ in top]


def slots_of(x: Floats) -> list[Floats]:
    return list(x[:, 1:].reshape(-1, D))


def test_full(rows: HeadRows, x: Floats) -> None:
    everything = np.arange(V + 1)
    top = Full(rows).top(x, 7)
    assert found(top) == [best(rows, vector, everything, 7) for vector in slots_of(x)]
    for (ids, logits), vector in zip(top, slots_of(x), strict=True):
        assert np.array_equal(logits, rows.logits(vector[None], ids)[0])


def test_the_learned_shortlist_scores_the_union_of_its_lists(
    head: tuple[Floats, Floats], rows: HeadRows, x: Floats
) -> None:
    c = x[:, 0] * 1.1
    shortlist = Shortlist(c, token_lists(c, *head, 60), 2)
    method = LearnedShortlist(rows, shortlist)
    expected = []
    for one in x:
        near = np.argsort(-(c @ one[0]))[:2]
        tokens = np.append(np.unique(shortlist.lists[near]), V)
        assert method.tokens(one[0]).tolist() == tokens.tolist()
        expected += [best(rows, vector, tokens, 9) for vector in one[1:]]
    assert found(method.top(x, 9)) == expected
    assert found(method.top(x, 9, threads=2)) == expected
    assert found(method.top(x[:1], 9)) == expected[:S]
    assert method.nbytes() >= shortlist.lists.nbytes


def test_centroids(rows: HeadRows, x: Floats) -> None:
    centres = x[:, 1]
    method = centroid_lists(rows, centres, 50)
    expected = []
    for vector in slots_of(x):
        near = int(np.argmin(np.square(centres - vector).sum(1)))
        expected.append(best(rows, vector, np.array(best(rows, centres[near], np.arange(V + 1), 50)), 8))
    assert found(method.top(x, 8)) == expected


def test_active_tokens_are_those_of_the_states_of_the_cluster(rows: HeadRows, x: Floats) -> None:
    centres, states = x[:2, 1], np.stack(slots_of(x))
    method = active_lists(rows, centres, states, 5)
    owners = [int(np.argmin(np.square(centres - state).sum(1))) for state in states]
    for i in range(2):
        mine = [state for state, owner in zip(states, owners, strict=True) if owner == i]
        wanted = {v for state in [centres[i], *mine] for v in best(rows, state, np.arange(V + 1), 5)} | {V}
        assert set(method.ids[method.offsets[i] : method.offsets[i + 1]].tolist()) == wanted


@pytest.mark.parametrize("kind", ["low rank", "4 bits"])
def test_a_preview_that_keeps_all_changes_nothing(rows: HeadRows, x: Floats, kind: str) -> None:
    def preview(keep: int) -> Softmax:
        return low_rank_preview(rows, D // 4, keep, kind) if kind == "low rank" else int4_preview(rows, keep)

    full = Full(rows).top(x, 6)
    assert found(preview(V + 1).top(x, 6)) == found(full)
    some = preview(40)
    shared = [len(set(a) & set(b)) / 6 for a, b in zip(found(some.top(x, 6)), found(full), strict=True)]
    assert np.mean(shared) > 0.8
    assert some.nbytes() > 0


def test_a_preview_knows_the_main_directions(x: Floats) -> None:
    """Rows that lie in four dimensions lose nothing by a preview of four."""
    random = np.random.default_rng(2)
    flat = (random.normal(size=(V + 1, 4)) @ random.normal(size=(4, D))).astype(np.float32)
    rows = HeadRows.build(flat, format="float32")
    method = low_rank_preview(rows, 4, 30, "SVD")
    assert method.turn is not None
    assert np.allclose(method.cheap.decoded(slice(None)) @ method.turn.T, flat, atol=0.15)
    assert found(method.top(x, 3)) == found(Full(rows).top(x, 3))

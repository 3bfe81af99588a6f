"""The fused scores against QueryScorer, and unions of lists against numpy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pixnar.runtime import HeadRows, head_path, head_paths, union_of_lists
from pixnar.runtime.formats import Format
from pixnar.scoring import Priors, ScoreRule
from pixnar.search.query import ArrayHead, QueryScorer, SlotScores

rules = st.builds(
    ScoreRule,
    score=st.sampled_from(["composed", "probability"]),
    prior_weight=st.sampled_from([0.0, 0.5, 1.0, 1.3]),
    copy=st.sampled_from([0.0, 0.3, 0.9]),
    floor=st.sampled_from(["zero", "prior", "strict"]),
    order=st.sampled_from(["bag", "any", "slots"]),
    ends=st.booleans(),
    scale=st.sampled_from([1.0, 0.6]),
    normalize=st.booleans(),
)


def same_scores(found: SlotScores, wanted: SlotScores, floors: Any, *, near: float = 1e-4) -> None:
    """Equal but for tokens that are within rounding of their floor."""
    assert found.is_dense == wanted.is_dense
    assert np.allclose(found.ends, wanted.ends, atol=near)
    if found.is_dense:
        assert np.allclose(found.scores, wanted.scores, atol=near)
        return
    assert len(found.offsets) == len(wanted.offsets)
    for t in range(found.slots):
        ours, theirs = (
            dict(zip(s.tokens[s.offsets[t] : s.offsets[t + 1]].tolist(), s.scores[s.offsets[t] :], strict=False))
            for s in (found, wanted)
        )
        assert list(ours) == sorted(ours)
        for token in ours.keys() | theirs.keys():
            if token in ours and token in theirs:
                assert ours[token] == pytest.approx(theirs[token], abs=near)
            else:
                assert (ours.get(token) or theirs.get(token)) == pytest.approx(floors[token], abs=near)


def of_query(rows: HeadRows, scorer: QueryScorer, x: Any, own: Any, ids: Any, **more: Any) -> tuple[SlotScores, Any]:
    found = rows.score(x, ids, own, scorer.rule, scorer.priors, scorer.log_z, scorer.floors, **more)
    return SlotScores(found.tokens, found.scores, found.offsets, found.ends, found.is_dense), found


@pytest.mark.parametrize("path", head_paths())
@settings(max_examples=120, deadline=None)
@given(
    rule=rules,
    size=st.integers(1, 900),
    slots=st.integers(1, 9),
    share=st.sampled_from([None, 0.0, 0.01, 0.5, 1.0]),
    own_size=st.integers(0, 4),
    most=st.sampled_from([0, 1, 5, 2000]),
    seed=st.integers(0, 10**6),
    bias=st.booleans(),
    format=st.sampled_from(["float32", "int8"]),
)
def test_as_the_slow_scorer(
    path: str,
    rule: ScoreRule,
    size: int,
    slots: int,
    share: float | None,
    own_size: int,
    most: int,
    seed: int,
    bias: bool,
    format: Format,
) -> None:
    random = np.random.default_rng(seed)
    dim = int(random.integers(1, 70))
    dense = (random.normal(size=(size + 1, dim)) * 2 / np.sqrt(dim)).astype(np.float32)
    rows = HeadRows.build(dense, random.normal(size=size + 1).astype(np.float32) if bias else None, format)
    x = random.normal(size=(slots + 1, dim)).astype(np.float32)
    if format == "int8":  # whole numbers up to 127, one of them 127: no rounding on the way to int8
        x = np.rint(np.clip(x * 40, -127, 127)).astype(np.float32)
        x[:, 0] = 127
        x /= 64
    priors = Priors.count(random.integers(0, 20, size), random.integers(1, 6, 30), slots)
    log_z = random.normal(size=slots + 1).astype(np.float32)
    scorer = QueryScorer(ArrayHead(rows.decoded(slice(None)), rows.bias), log_z, priors, rule)
    ids = None if share is None else np.flatnonzero(random.random(size) < share).astype(np.uint32)
    own = np.sort(random.choice(size, min(size, own_size), replace=False)).astype(np.uint32)
    (wanted,) = scorer.batch(x[None], [own], None if ids is None else [ids])
    with head_path(path):
        found, whole = of_query(rows, scorer, x, own, ids, expansion=most)
        again, twice = of_query(rows, scorer, x, own, ids, expansion=most, threads=2)
    same_scores(found, wanted, scorer.floors)
    assert np.array_equal(found.tokens, again.tokens)
    assert np.array_equal(found.scores, again.scores)
    assert np.array_equal(whole.gains, twice.gains)
    if ids is not None and not len(ids):
        assert not len(whole.expansion)
        return
    tokens, gains = scorer.expansion(x, most, ids)
    ours, theirs = dict(zip(whole.expansion.tolist(), whole.gains, strict=True)), dict(zip(tokens, gains, strict=True))
    assert list(ours) == sorted(ours)
    for token in ours.keys() & theirs.keys():
        assert ours[token] == pytest.approx(theirs[token], abs=1e-4)
    least = min(theirs.values(), default=0)
    for token in ours.keys() ^ theirs.keys():  # on the border only
        assert (ours.get(token) or theirs.get(token)) == pytest.approx(least if len(theirs) == most else 0, abs=1e-3)


def test_paths_give_the_same_bits() -> None:
    random = np.random.default_rng(0)
    rows = HeadRows.build(random.normal(size=(5001, 48)).astype(np.float32), random.normal(size=5001))
    priors, x = Priors.count(random.integers(0, 20, 5000), [1, 2], 4), random.normal(size=(5, 48)).astype(np.float32)
    scorer = QueryScorer(ArrayHead(rows.decoded([0]), None), np.zeros(5, np.float32), priors, ScoreRule(order="slots"))
    found = []
    for path in head_paths():
        with head_path(path):
            found.append(of_query(rows, scorer, x, [3, 4], None, expansion=50)[1])
    for one in found[1:]:
        assert np.array_equal(one.scores.view(np.uint32), found[0].scores.view(np.uint32))
        assert np.array_equal(one.gains.view(np.uint32), found[0].gains.view(np.uint32))
        assert np.array_equal(one.tokens, found[0].tokens)


def test_log_z_of_many_and_of_extreme_logits() -> None:
    size = 70_000
    bias = np.linspace(-300, 200, size + 1).astype(np.float32)
    rows = HeadRows.build(np.zeros((size + 1, 1), np.float32), bias)
    priors = Priors(np.zeros(size, np.float32), np.zeros(1, np.float32))
    rule = ScoreRule(copy=0.0, floor="strict")
    found = rows.score(np.zeros((2, 1)), None, [], rule, priors, np.zeros(2, np.float32), None)
    log_z = 200 + np.log(np.exp(bias.astype(np.float64) - 200).sum())
    assert np.allclose(found.scores, bias[:-1] - log_z, atol=1e-4)


def test_scores_that_cannot_be() -> None:
    random = np.random.default_rng(0)
    rows = HeadRows.build(random.normal(size=(11, 4)).astype(np.float32))
    priors, x = Priors.count([1] * 10, [1, 2], 2), np.ones((3, 4), np.float32)
    floors, log_z = np.zeros(10, np.float32), np.zeros(3, np.float32)
    good: dict[str, Any] = {"x": x, "ids": [1, 2], "own": [], "rule": ScoreRule()}
    good |= {"priors": priors, "log_z": log_z, "floors": floors}
    rows.score(**good)
    wrong: dict[str, list[Any]] = {
        "x": [x[:2]],
        "ids": [[2, 1], [1, 1], [10], [11]],
        "own": [[10]],
        "priors": [replace(priors, tokens=floors[:9]), replace(priors, ends=log_z)],
        "log_z": [log_z[:1], log_z[:0]],
        "floors": [floors[:9]],
    }
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(ValueError, match=r"token|vectors|priors|log Z"):
                rows.score(**{**good, name: value})


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 12), st.integers(1, 200), st.integers(1, 3000), st.integers(0, 10**6), st.booleans())
def test_union(m: int, r: int, vocabulary: int, seed: int, crowded: bool) -> None:
    random = np.random.default_rng(seed)
    lists = random.integers(0, min(70, vocabulary) if crowded else vocabulary, (m, r)).astype(np.uint32)
    chosen = random.integers(0, m, random.integers(0, m + 1))
    extra = random.integers(0, vocabulary, random.integers(0, 9)).astype(np.uint32)
    wanted = np.unique(np.concatenate([lists[chosen].ravel(), extra]))
    for _ in range(2):  # nothing is left from the call before
        assert union_of_lists(lists, chosen, extra, vocabulary).tolist() == wanted.tolist()
        assert union_of_lists(lists, [], [], vocabulary).tolist() == []


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 99), max_size=20), min_size=1, max_size=9), st.data())
def test_union_of_lists_of_any_length(lists: list[list[int]], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=5))
    extra = data.draw(st.lists(st.integers(0, 99), max_size=5))
    flat = np.array([token for one in lists for token in one], np.uint32)
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in lists])])
    wanted = sorted({token for i in chosen for token in lists[i]} | set(extra))
    assert union_of_lists(flat, chosen, extra, 100, offsets).tolist() == wanted


def test_offsets_outside_the_lists_are_refused() -> None:
    lists = np.array([1, 2, 3], np.uint32)
    for offsets in ([0, 4], [-1, 2], [2, 1]):
        with pytest.raises(ValueError, match="not among 3 tokens"):
            union_of_lists(lists, [0], [], 9, np.array(offsets))
    with pytest.raises(ValueError, match="with offsets"):
        union_of_lists(lists[None], [0], [], 9, np.array([0, 3]))


def test_unions_that_cannot_be() -> None:
    lists = np.array([[1, 2], [3, 9]], np.uint32)
    for chosen, extra in (([1], []), ([0], [9]), ([2], []), ([-1], [])):
        with pytest.raises(ValueError, match=r"token 9|no list"):
            union_of_lists(lists, chosen, extra, 9)
        assert union_of_lists(lists, [0], [8], 9).tolist() == [1, 2, 8]
    with pytest.raises(ValueError, match="lists of shape"):
        union_of_lists(lists[0], [0], [], 9)

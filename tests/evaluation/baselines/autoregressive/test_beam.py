"""Constrained beam search, against the scores of all sequences and against a beam in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError
from pixnar.evaluation.baselines.autoregressive.beam import (
    BeamOptions,
    Hypothesis,
    beam_search,
    exhaustive,
    sequence_log_p,
)
from pixnar.evaluation.baselines.autoregressive.constraint import Constraint, FreeConstraint
from pixnar.evaluation.baselines.autoregressive.substrings import Substrings
from pixnar.evaluation.baselines.autoregressive.trie import Trie
from tests.helpers.prefix_model import PrefixModel, Tokens, everything

SIZE, END = 5, 1
_seeds = st.integers(0, 2**16)
_sequences = st.lists(st.lists(st.sampled_from([0, 2, 3, 4]), max_size=5), min_size=1, max_size=12)
_widths = st.sampled_from([1, 2, 3, 5])


def ended(texts: Sequence[Sequence[int]]) -> list[Tokens]:
    return sorted({(*text, END) for text in texts})


def same(found: Sequence[Hypothesis], wanted: Sequence[Hypothesis]) -> bool:
    """Equal scores (to rounding) in the same order."""
    scores = [pytest.approx(one.score, abs=1e-9) for one in wanted]
    return [one.score for one in found] == scores and {one.tokens for one in found} == {one.tokens for one in wanted}


def slow_beam(model: PrefixModel, constraint: Constraint[Any], width: int, steps: int) -> dict[Tokens, float]:
    """Everything that is ever among the best 2 · width of a step; the best `width` that do not end go on."""
    live: list[tuple[float, Tokens, Any]] = [(0.0, (), constraint.root())]
    kept: dict[Tokens, float] = {}
    for _ in range(steps):
        candidates = [
            (score + float(model.log_p(tokens)[token]), (*tokens, token), constraint.child(state, token))
            for score, tokens, state in live
            for token in constraint.allowed(state).tolist()
        ]
        candidates.sort(key=lambda one: (-one[0], one[1]))
        best = candidates[: 2 * width]
        kept |= {tokens: score for score, tokens, _ in best}
        live = [one for one in best if one[1][-1] != END][:width]
    return kept


@given(_sequences, _seeds)
def test_a_beam_as_wide_as_the_trie_is_exhaustive(texts: list[list[int]], seed: int) -> None:
    model, sequences = PrefixModel(SIZE, seed), ended(texts)
    options = BeamOptions(width=len(sequences), steps=6, end=END)
    found = beam_search(model, Trie.of(texts, end=END), options)
    assert same(found, exhaustive(model, sequences, len(sequences), options))
    assert [one.score for one in found] == pytest.approx(sorted(map(model.score, sequences), reverse=True))


@given(st.lists(st.lists(st.integers(2, 4), max_size=8), min_size=1, max_size=4), st.integers(1, 4), _seeds)
def test_a_beam_as_wide_as_the_corpus_finds_all_its_ngrams(texts: list[list[int]], length: int, seed: int) -> None:
    grams = {tuple(text[i : i + length]) for text in texts for i in range(len(text) - length + 1)}
    model, options = PrefixModel(SIZE, seed), BeamOptions(width=100, steps=length)
    found = beam_search(model, Substrings.of(texts), options)
    assert same(found, exhaustive(model, sorted(grams), 100, options))


@given(st.none() | _sequences, _seeds, _widths, st.booleans(), st.sampled_from([0.0, 1.2]))
def test_a_narrow_beam_is_the_slow_one(
    texts: list[list[int]] | None, seed: int, width: int, coarse: bool, length_power: float
) -> None:
    model = PrefixModel(SIZE, seed, coarse=coarse)
    constraint: Constraint[Any] = FreeConstraint(SIZE) if texts is None else Trie.of(texts, end=END)
    slow = slow_beam(model, constraint, width, 6)
    complete = {tokens: score / len(tokens) ** length_power for tokens, score in slow.items() if tokens[-1] == END}
    options = BeamOptions(width=width, steps=6, end=END, length_power=length_power)
    found = beam_search(model, constraint, options)
    best = sorted(complete, key=lambda tokens: (-complete[tokens], tokens))[:width]
    assert [one.tokens for one in found] == best
    assert [one.score for one in found] == pytest.approx([complete[tokens] for tokens in best])
    memory = beam_search(model, constraint, BeamOptions(width=width, steps=6, end=END, memory=True))
    assert {one.tokens: pytest.approx(one.log_p) for one in memory} == slow


@given(_sequences, _seeds, _widths)
def test_every_output_is_allowed_once_and_scored_by_its_own_tokens(
    texts: list[list[int]], seed: int, width: int
) -> None:
    model, trie, sequences = PrefixModel(SIZE, seed), Trie.of(texts, end=END), ended(texts)
    found = beam_search(model, trie, BeamOptions(width=width, steps=6, end=END))
    assert {one.tokens for one in found} <= set(sequences)
    assert len({one.tokens for one in found}) == len(found) <= width
    assert [one.log_p for one in found] == pytest.approx([model.score(one.tokens) for one in found])
    assert (
        [one.log_p for one in found] == [one.score for one in found] == sorted((one[1] for one in found), reverse=True)
    )
    assert max(map(model.score, sequences)) >= max((one.score for one in found), default=-np.inf) - 1e-9


def test_wider_beams_find_better_sequences_on_average() -> None:
    """Of one query that need not hold: what a wider beam goes on with may end badly."""
    rng = np.random.default_rng(3)
    best = []
    for seed in range(60):
        texts = [[2 + int(token) for token in rng.integers(0, 3, 5)] for _ in range(60)]
        model, trie = PrefixModel(SIZE, seed), Trie.of(texts, end=END)
        best.append([beam_search(model, trie, BeamOptions(width=w, steps=6, end=END))[0].score for w in (1, 2, 4, 60)])
    means = np.array(best).mean(0)
    assert (np.diff(means) > 0).all()
    assert (np.array(best)[:, -1:] >= np.array(best) - 1e-9).all()


@given(_sequences, _seeds, _widths)
def test_memory_has_what_is_complete_and_every_prefix_of_what_it_has(
    texts: list[list[int]], seed: int, width: int
) -> None:
    model, trie = PrefixModel(SIZE, seed), Trie.of(texts, end=END)
    plain = beam_search(model, trie, BeamOptions(width=width, steps=6, end=END))
    memory = beam_search(model, trie, BeamOptions(width=width, steps=6, end=END, memory=True))
    tokens = [one.tokens for one in memory]
    assert {one.tokens for one in plain} <= {one.tokens for one in memory if one.complete}
    assert {prefix for one in tokens for size in range(1, len(one)) if (prefix := one[:size])} <= set(tokens)
    assert [one.complete for one in memory] == [one[-1] == END for one in tokens]
    assert all(sum(len(one) == size for one in tokens) <= 2 * width for size in range(1, 7))


@given(_seeds, _widths)
def test_without_a_constraint_nothing_is_scaled(seed: int, width: int) -> None:
    model, options = PrefixModel(SIZE, seed), BeamOptions(width=width, steps=4)
    found = beam_search(model, FreeConstraint(SIZE), options)
    live: list[Tokens] = [()]
    for _ in range(4):  # a beam over the whole vocabulary
        grown = [(*tokens, token) for tokens in live for token in range(SIZE)]
        live = sorted(grown, key=lambda tokens: (-model.score(tokens), tokens))[:width]
    assert [one.tokens for one in found] == live
    wide = beam_search(model, FreeConstraint(SIZE), BeamOptions(width=SIZE**3, steps=3))
    assert sum(np.exp(one.log_p) for one in wide) == pytest.approx(1)
    assert same(wide, exhaustive(model, everything(SIZE, 3), SIZE**3, options))


def test_a_mask_leaves_the_probability_of_what_it_allows() -> None:
    model = PrefixModel(SIZE, 4)
    (only,) = beam_search(model, Trie.of([[2, 3]], end=END), BeamOptions(width=3, steps=3, end=END))
    assert only.log_p == pytest.approx(model.score((2, 3, END)))
    assert only.log_p < -1


@given(_sequences, _seeds, st.lists(st.sampled_from([0, 2, 3, 4]), max_size=3))
def test_a_prefix_is_what_every_sequence_begins_with(texts: list[list[int]], seed: int, prefix: list[int]) -> None:
    model, options = PrefixModel(SIZE, seed), BeamOptions(width=12, steps=6, end=END, prefix=tuple(prefix))
    found = beam_search(model, Trie.of(texts, end=END), options)
    beginning = [one for one in ended(texts) if one[: len(prefix)] == tuple(prefix)]
    assert same(found, exhaustive(model, beginning, 12, options))
    memory = beam_search(model, FreeConstraint(SIZE), BeamOptions(width=2, steps=5, prefix=tuple(prefix), memory=True))
    assert {one.tokens[: len(prefix)] for one in memory} == {tuple(prefix)}
    assert {len(one.tokens) for one in memory} == set(range(len(prefix) + 1, 6))


def rarity(sequences: Sequence[Tokens]) -> NDArray[np.float64]:
    return np.array([-2.5 * (len(tokens) % 3) - tokens[0] for tokens in sequences], np.float64)


@given(_sequences, _seeds, st.sampled_from([0.0, 0.8, 1.0]), st.sampled_from([0.0, 0.7]))
def test_length_and_prior_count_in_the_last_ranking(
    texts: list[list[int]], seed: int, length_power: float, prior_weight: float
) -> None:
    model, sequences = PrefixModel(SIZE, seed), ended(texts)
    options = BeamOptions(width=12, steps=6, end=END, length_power=length_power, prior_weight=prior_weight)
    found = beam_search(model, Trie.of(texts, end=END), options, rarity)
    wanted = {one: model.score(one) - prior_weight * float(rarity([one])[0]) for one in sequences}
    wanted = {one: score / len(one) ** length_power for one, score in wanted.items()}
    assert {one.tokens: pytest.approx(one.score) for one in found} == wanted
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert [one.log_p for one in found] == pytest.approx([model.score(one.tokens) for one in found])


def test_a_search_ends_when_nothing_can_become_better() -> None:
    model = PrefixModel(SIZE, 8)
    options = BeamOptions(width=2, steps=400, end=END)
    found = beam_search(model, FreeConstraint(SIZE), options)
    assert len(found) == 2
    assert len(model.batches) < 40


@pytest.mark.parametrize("width", [2, 3])
def test_a_search_ends_no_earlier(width: int) -> None:
    for seed in range(60):
        model = PrefixModel(SIZE, seed, spread=0.7)
        slow = slow_beam(model, FreeConstraint(SIZE), width, 7)
        complete = sorted((-score, tokens) for tokens, score in slow.items() if tokens[-1] == END)
        found = beam_search(model, FreeConstraint(SIZE), BeamOptions(width=width, steps=7, end=END))
        assert [one.tokens for one in found] == [tokens for _, tokens in complete[:width]]


@given(st.lists(st.lists(st.integers(0, 4), max_size=5).map(tuple), max_size=20), _seeds, st.sampled_from([1, 3, 100]))
def test_scores_of_sequences_do_not_depend_on_the_batch(sequences: list[Tokens], seed: int, batch: int) -> None:
    model = PrefixModel(SIZE, seed)
    assert sequence_log_p(model, sequences, batch=batch) == pytest.approx([model.score(one) for one in sequences])
    if batch == 100:
        prefixes = {one[:size] for one in sequences for size in range(len(one))}
        assert sum(model.batches) == len(prefixes)  # each is read once


def test_a_constraint_that_allows_nothing_finds_nothing() -> None:
    model = PrefixModel(SIZE)
    assert beam_search(model, FreeConstraint([]), BeamOptions(width=2, steps=3)) == []
    assert beam_search(model, Substrings.of([]), BeamOptions(width=2, steps=3, memory=True)) == []
    assert beam_search(model, Substrings.of([[2, 3]]), BeamOptions(width=2, steps=5, prefix=(3, 2))) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (BeamOptions(width=0), "width 0 is not possible: give 1 or more"),
        (BeamOptions(steps=2, prefix=(3, 4)), "steps 2 is not possible: give 3 or more"),
        (BeamOptions(prior_weight=0.5), "prior_weight 0.5 has no prior to weigh: give one, or the weight 0"),
    ],
)
def test_settings_that_are_not_possible_are_named(options: BeamOptions, message: str) -> None:
    with pytest.raises(PixnarError, match=message):
        beam_search(PrefixModel(SIZE), FreeConstraint(SIZE), options)

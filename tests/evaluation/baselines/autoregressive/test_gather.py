"""Scores of documents from n-grams, against a scan of every document."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError
from pixnar.evaluation.baselines.autoregressive.gather import (
    MAX,
    SEAL,
    SEAL_LM_FM,
    GatheredDocuments,
    GatherOptions,
    Key,
    gather,
    seal_lm,
)
from pixnar.evaluation.baselines.autoregressive.substrings import Substrings
from pixnar.evaluation.baselines.autoregressive.weights import log_odds

Tokens = tuple[int, ...]
ALL = 10**9
WHOLE = replace(SEAL, max_hits=ALL, fully_score=ALL, smoothing=0.05)  # so that much weighs something among few tokens
SIZE = 6

_texts = st.lists(st.lists(st.integers(0, SIZE - 1), max_size=10), min_size=1, max_size=8)
_keys = st.lists(
    st.builds(
        Key,
        st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=3).map(tuple),
        st.sampled_from([-0.1, -0.1, -0.5, -2.0, -4.0]),
    ),
    max_size=12,
)
_log_p = st.none() | st.integers(0, 99).map(lambda seed: np.log(np.random.default_rng(seed).random(SIZE)))
_options = st.builds(
    GatherOptions,
    alpha=st.sampled_from([1.0, 2.0]),
    beta=st.sampled_from([0.0, 0.8, 1.0]),
    unigrams=st.sampled_from([0, 2, 5000]),
    excluded=st.sampled_from([(), (1, 77)]),
    smoothing=st.just(0.05),
    max_hits=st.sampled_from([1, 3, ALL]),
    fully_score=st.sampled_from([1, 2, ALL]),
)


def places(text: Sequence[int], tokens: Tokens) -> list[int]:
    return [i for i in range(len(text) - len(tokens) + 1) if tuple(text[i : i + len(tokens)]) == tokens]


class SlowGather:
    """Scores one document after the other, key by key, token by token."""

    def __init__(
        self, texts: list[list[int]], keys: list[Key], options: GatherOptions, log_p: NDArray[np.float64] | None
    ) -> None:
        self.texts, self.options = texts, options
        self.total = sum(map(len, texts))
        likeliest: dict[Tokens, float] = {}
        for key in keys:
            likeliest[key.tokens] = max(key.log_p, likeliest.get(key.tokens, -np.inf))
        self.counts = {tokens: sum(len(places(text, tokens)) for text in texts) for tokens in likeliest}
        weights = {tokens: self.weight(log_p, self.counts[tokens]) for tokens, log_p in likeliest.items()}
        self.keys = {tokens: weight for tokens, weight in weights.items() if weight > 0 and self.counts[tokens]}
        self.token_counts = Counter(token for text in texts for token in text)
        self.unigrams = self.best_unigrams(log_p) if log_p is not None else {}

    def weight(self, log_p: float, count: int) -> float:
        return float(log_odds(log_p, count, self.total, self.options.smoothing))

    def best_unigrams(self, log_p: NDArray[np.float64]) -> dict[int, float]:
        weights = {token: self.weight(log_p[token], count) for token, count in self.token_counts.items()}
        possible = [
            token
            for token, weight in weights.items()
            if weight > 0 and (token,) not in self.keys and token not in self.options.excluded
        ]
        possible.sort(key=lambda token: (-weights[token], token))
        return {token: weights[token] for token in possible[: self.options.unigrams]}

    def score(self, text: list[int], keys: dict[Tokens, float], unigrams: dict[int, float]) -> float:
        covered, had, total = [False] * len(text), set[int](), 0.0
        for tokens in sorted(keys, key=lambda tokens: (-keys[tokens], tokens)):
            taken = False
            for place in places(text, tokens):
                if not any(covered[place : place + len(tokens)]):
                    covered[place : place + len(tokens)] = [True] * len(tokens)
                    taken = True
            if taken:
                total += float((np.array([keys[tokens]]) ** self.options.alpha)[0]) * self.cover(set(tokens), had)
                had |= set(tokens)
        for token in {token for token, over in zip(text, covered, strict=True) if not over}:
            total += unigrams.get(token, 0.0) * self.cover({token}, had)
        return total

    def cover(self, tokens: set[int], had: set[int]) -> float:
        return 1 - self.options.beta + self.options.beta * len(tokens - had) / len(tokens)

    def ranked(self) -> dict[int, float]:
        most = self.options.max_hits
        rare = {tokens: weight for tokens, weight in self.keys.items() if self.counts[tokens] <= most}
        added = list(self.unigrams)[: len(self.keys)]
        few = {token: self.unigrams[token] for token in added if self.token_counts[token] <= most}
        proposed = {
            number: self.score(text, rare, few)
            for number, text in enumerate(self.texts)
            if any(places(text, tokens) for tokens in rare) or few.keys() & set(text)
        }
        best = sorted(proposed, key=lambda number: (-proposed[number], number))[: self.options.fully_score]
        return {number: self.score(self.texts[number], self.keys, self.unigrams) for number in best}


def scores(found: GatheredDocuments) -> dict[int, float]:
    assert [*found.scores] == sorted(found.scores, reverse=True)
    return dict(zip(found.documents.tolist(), found.scores.tolist(), strict=True))


@given(_texts, _keys, _options, _log_p)
@example([[1, 1, 1], [2] * 9], [Key((1, 1), -0.1)], WHOLE, np.full(SIZE, -0.2))  # the last 1 stands alone
def test_scores_are_those_of_a_scan(
    texts: list[list[int]], keys: list[Key], options: GatherOptions, log_p: NDArray[np.float64] | None
) -> None:
    found = gather(Substrings.of(texts), keys, options, log_p)
    wanted = SlowGather(texts, keys, options, log_p).ranked()
    assert scores(found) == pytest.approx(wanted)


@given(_texts, _keys)
def test_the_best_key_alone_is_seal_lm_fm(texts: list[list[int]], keys: list[Key]) -> None:
    options = replace(SEAL_LM_FM, smoothing=0.05)
    slow = SlowGather(texts, keys, options, None)
    wanted = {
        number: max(own)
        for number, text in enumerate(texts)
        if (own := [weight for tokens, weight in slow.keys.items() if places(text, tokens)])
    }
    assert scores(gather(Substrings.of(texts), keys, options, np.zeros(SIZE))) == pytest.approx(wanted)


@given(_texts, _keys, st.integers(1, 3))
def test_the_likeliest_key_of_one_length_is_seal_lm(texts: list[list[int]], keys: list[Key], length: int) -> None:
    wanted = {
        number: max(own)
        for number, text in enumerate(texts)
        if (own := [key.log_p for key in keys if len(key.tokens) == length and places(text, key.tokens)])
    }
    assert scores(gather(Substrings.of(texts), keys, seal_lm(length))) == wanted


def test_one_key_counts_its_weight_to_alpha_however_often_it_occurs() -> None:
    index = Substrings.of([[1, 2, 0, 1, 2], [1, 2], *[[3]] * 60])
    weight = float(log_odds(-0.5, 3, index.n_tokens))
    found = scores(gather(index, [Key((1, 2), -0.5)], SEAL))
    assert found == {0: pytest.approx(weight**2), 1: pytest.approx(weight**2)}
    assert scores(gather(index, [Key((1, 2), -0.5)], replace(SEAL, alpha=1.0)))[0] == pytest.approx(weight)


def test_keys_apart_add_up_and_repeated_words_are_worth_less() -> None:
    index = Substrings.of([[1, 2, 9, 3, 4, 9, 2, 5], *[[9]] * 40])
    weights = [float(log_odds(log_p, 1, index.n_tokens)) for log_p in (-0.1, -0.2, -0.3)]
    keys = [Key((1, 2), -0.1), Key((3, 4), -0.2), Key((2, 5), -0.3)]
    assert scores(gather(index, keys, replace(SEAL, alpha=1.0, beta=0.0))) == {0: pytest.approx(sum(weights))}
    covers = (1, 1, 0.2 + 0.8 / 2)
    wanted = sum(weight**2 * cover for weight, cover in zip(weights, covers, strict=True))
    found = gather(index, keys)
    assert scores(found) == {0: pytest.approx(wanted)}
    assert found.pair_keys.tolist() == [0, 1, 2]
    assert found.pair_documents.tolist() == [0, 0, 0]
    assert found.pair_covers.tolist() == pytest.approx(covers)


def test_an_occurrence_inside_that_of_a_better_key_counts_nothing() -> None:
    index = Substrings.of([[1, 2, 3], [3, 4], *[[9]] * 60])
    keys = [Key((1, 2, 3), -0.1), Key((2, 3), -0.4), Key((3,), -0.5)]
    long, _, single = (
        float(log_odds(key.log_p, count, index.n_tokens)) for key, count in zip(keys, (1, 1, 2), strict=True)
    )
    assert scores(gather(index, keys)) == {0: pytest.approx(long**2), 1: pytest.approx(single**2)}


def test_of_equally_good_keys_that_overlap_the_first_by_its_tokens_counts() -> None:
    index = Substrings.of([[1, 2, 3], *[[9]] * 60])
    for keys in ([Key((1, 2), -0.1), Key((2, 3), -0.1)], [Key((2, 3), -0.1), Key((1, 2), -0.1)]):
        assert [keys[number].tokens for number in gather(index, keys).pair_keys] == [(1, 2)]


def test_unigrams_count_once_a_document_where_no_key_is_and_are_not_raised() -> None:
    index = Substrings.of([[1, 2, 3, 3, 2], [3, 9], *[[9]] * 60])
    log_p = np.full(10, -40.0)
    log_p[[2, 3]] = -0.5, -0.7
    key = float(log_odds(-0.1, 1, index.n_tokens))
    two, three = (float(log_odds(log_p[token], count, index.n_tokens)) for token, count in ((2, 2), (3, 3)))
    found = gather(index, [Key((1, 2), -0.1)], SEAL, log_p)
    assert scores(found) == {0: pytest.approx(key**2 + 0.2 * two + three)}  # 3 is not among as many unigrams as keys
    more = gather(index, [Key((1, 2), -0.1), Key((1, 2, 3), -1.0)], SEAL, log_p)
    assert scores(more)[1] == pytest.approx(three)


@given(_texts, _keys, st.lists(st.integers(0, SIZE - 1), min_size=1, max_size=3).map(tuple))
def test_one_more_key_never_lowers_a_score_if_it_is_the_last(
    texts: list[list[int]], keys: list[Key], tokens: Tokens
) -> None:
    """A better one may: where it is, others that overlap it do not count."""
    index = Substrings.of(texts)
    before = gather(index, keys, WHOLE)
    last = min((weight for weight in SlowGather(texts, keys, WHOLE, None).keys.values()), default=np.inf)
    for log_p in np.linspace(-4, 0, 8):
        more = [*keys, Key(tokens, float(log_p))]
        old, new = scores(before), scores(gather(index, more, WHOLE))
        if (
            tokens not in {key.tokens for key in keys}
            and log_odds(log_p, index.count(tokens), index.n_tokens, 0.05) < last
        ):
            assert all(new[number] >= score - 1e-9 for number, score in old.items())
        best, better = (scores(gather(index, some, replace(WHOLE, rule=MAX))) for some in (keys, more))
        assert all(better[number] >= score for number, score in best.items())


@given(_texts, _keys, _log_p, st.randoms(use_true_random=False))
def test_the_order_of_documents_and_keys_changes_nothing(
    texts: list[list[int]], keys: list[Key], log_p: NDArray[np.float64] | None, rng: random.Random
) -> None:
    before = gather(Substrings.of(texts), keys, WHOLE, log_p)
    order, shuffled = rng.sample(range(len(texts)), len(texts)), rng.sample(keys, len(keys))
    after = gather(Substrings.of([texts[number] for number in order]), shuffled, WHOLE, log_p)
    assert {order[number]: score for number, score in scores(after).items()} == scores(before)


@given(_texts, _keys)
def test_the_pairs_of_a_result_add_up_to_its_scores(texts: list[list[int]], keys: list[Key]) -> None:
    index = Substrings.of(texts)
    found, totals = gather(index, keys, WHOLE), dict.fromkeys(range(len(texts)), 0.0)
    for number, key, cover in zip(found.pair_documents, found.pair_keys, found.pair_covers, strict=True):
        weight = log_odds(keys[key].log_p, index.count(keys[key].tokens), index.n_tokens, 0.05)
        totals[int(number)] += float(weight**2 * cover)
    assert scores(found) == pytest.approx({number: totals[number] for number in found.documents.tolist()})
    assert {number for number, total in totals.items() if total} == set(found.documents.tolist())


@pytest.mark.parametrize("options", [SEAL, SEAL_LM_FM, seal_lm(2)])
def test_without_keys_or_documents_nothing_is_found(options: GatherOptions) -> None:
    for texts, keys in (([[1, 2]], []), ([], [Key((1, 2), -1.0)]), ([[1, 2]], [Key((2, 1), -1.0), Key((), 0.0)])):
        found = gather(Substrings.of(texts), keys, options, np.zeros(SIZE))
        assert found.documents.tolist() == []
        assert found.scores.tolist() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (GatherOptions(rule="mean"), "rule 'mean' is not possible: give sum or max"),
        (GatherOptions(counts=False), "the rule sum needs weights above 0: give counts, or the rule max"),
        (GatherOptions(beta=1.5), "beta 1.5 is not possible: give a number from 0 to 1"),
        (GatherOptions(rule=MAX, max_hits=0), "max_hits 0 is not possible: give 1 or more"),
    ],
)
def test_settings_that_are_not_possible_are_named(options: GatherOptions, message: str) -> None:
    with pytest.raises(PixnarError, match=message):
        gather(Substrings.of([[1]]), [], options)

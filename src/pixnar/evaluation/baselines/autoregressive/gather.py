"""Document scores from generated n-grams: the best one of a document, or the sum of all that do not overlap.

`SEAL`, `SEAL_LM_FM` and `seal_lm(n)` are settings of the one function `gather`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError
from pixnar.evaluation.baselines.autoregressive.substrings import Span, Substrings
from pixnar.evaluation.baselines.autoregressive.weights import SMOOTHING, log_odds

Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]
Find = Callable[[Span], Ints]
"""From the span of a pattern to the places where it begins, ascending."""

SUM, MAX = "sum", "max"


class Key(NamedTuple):
    """An n-gram with its log-probability given the query."""

    tokens: tuple[int, ...]
    log_p: float


@dataclass(frozen=True, kw_only=True)
class GatherOptions:
    """How keys become scores of documents.

    `max` takes the best key of a document. `sum` adds weight ^ alpha · cover for all of its keys, best first: only
    occurrences that no better key overlaps count, and cover = 1 - beta + beta · the share of the key's distinct tokens
    that no better key of the document has.
    """

    rule: str = SUM
    counts: bool = True  # weigh keys by their log odds against counts in the corpus; else by log p
    length: int = 0  # the only length of keys that counts; 0: all
    alpha: float = 2.0
    beta: float = 0.8
    smoothing: float = SMOOTHING
    unigrams: int = 5000  # the best single tokens, which add to sums where no key is
    excluded: tuple[int, ...] = ()  # tokens that are never such unigrams, as markers
    max_hits: int = 1500  # keys that occur more often propose no documents
    fully_score: int = 1500  # documents that are scored by all keys, after those that propose documents

    def check(self) -> None:
        """Raise where a setting is not possible."""
        if self.rule not in (SUM, MAX):
            raise PixnarError(f"rule {self.rule!r} is not possible: give {SUM} or {MAX}")
        if self.rule == SUM and not self.counts:
            raise PixnarError(f"the rule {SUM} needs weights above 0: give counts, or the rule {MAX}")
        if not 0 <= self.beta <= 1:
            raise PixnarError(f"beta {self.beta} is not possible: give a number from 0 to 1")
        for name, least in (("length", 0), ("unigrams", 0), ("alpha", 0), ("max_hits", 1), ("fully_score", 1)):
            if getattr(self, name) < least:
                raise PixnarError(f"{name} {getattr(self, name)} is not possible: give {least} or more")


SEAL = GatherOptions()
SEAL_LM_FM = GatherOptions(rule=MAX)


def seal_lm(length: int) -> GatherOptions:
    """The settings of SEAL-LM: the best log p among keys of one length."""
    return GatherOptions(rule=MAX, counts=False, length=length)


class GatheredDocuments(NamedTuple):
    """Documents, best first, the lower number among equals; and which keys they have.

    Pair i says that document `pair_documents[i]` has key `pair_keys[i]` (its place among those given) with a cover.
    """

    documents: Ints
    scores: Doubles
    pair_documents: Ints
    pair_keys: Ints
    pair_covers: Doubles

    def first(self, count: int) -> Ints:
        """The best so many documents."""
        return self.documents[:count]


def gather(
    index: Substrings,
    keys: Sequence[Key],
    options: GatherOptions = SEAL,
    unigram_log_p: NDArray[np.floating] | None = None,
) -> GatheredDocuments:
    """The documents that have some of the keys, with their scores.

    `unigram_log_p` are log-probabilities of all tokens as the first of a key. First the rare keys alone, and as many of
    the best unigrams, score what they occur in; then all keys and unigrams score the best of these documents.

    >>> index = Substrings.of([[4, 5, 6], [4, 5], [6]])
    >>> gather(index, [Key((4, 5), -0.1), Key((6,), -2.0)], SEAL_LM_FM).documents.tolist()
    [0, 1]
    """
    options.check()
    chosen = _choose(index, keys, options)
    unigrams = _unigram_weights(index, chosen, unigram_log_p, options)
    rare = [key for key in chosen if key.span.size <= options.max_hits]
    places = _proposing(index, unigrams, len(chosen), options)
    proposed = _score(index, rare, index.locate, places, unigrams, options)
    region = _Region(index, proposed.first(options.fully_score))
    return _score(index, chosen, region.locate, region.places, unigrams, options)


class _Chosen(NamedTuple):
    number: int
    tokens: tuple[int, ...]
    value: float
    span: Span


def _choose(index: Substrings, keys: Sequence[Key], options: GatherOptions) -> list[_Chosen]:
    """The keys that count, best first; of equal ones the likeliest."""
    best: dict[tuple[int, ...], int] = {}
    for number in sorted(range(len(keys)), key=lambda number: -keys[number].log_p):
        tokens = keys[number].tokens
        if tokens and options.length in (0, len(tokens)):
            best.setdefault(tokens, number)
    spans = _spans(index, best)
    values = np.array([keys[number].log_p for number in best.values()], np.float64)
    if options.counts:
        values = log_odds(values, [spans[tokens].size for tokens in best], index.n_tokens, options.smoothing)
    found = [
        _Chosen(number, tokens, value, spans[tokens])
        for (tokens, number), value in zip(best.items(), values.tolist(), strict=True)
        if spans[tokens].size and (value > 0 or not options.counts)
    ]
    return sorted(found, key=lambda key: (-key.value, key.tokens))


def _spans(index: Substrings, patterns: Iterable[tuple[int, ...]]) -> dict[tuple[int, ...], Span]:
    """The span of every pattern, and of all its beginnings, each of which is looked for once."""
    spans: dict[tuple[int, ...], Span] = {(): index.root()}
    for pattern in patterns:
        for size in range(1, len(pattern) + 1):
            if pattern[:size] not in spans:
                spans[pattern[:size]] = index.child(spans[pattern[: size - 1]], pattern[size - 1])
    return spans


def _unigram_weights(
    index: Substrings, chosen: list[_Chosen], log_p: NDArray[np.floating] | None, options: GatherOptions
) -> Doubles:
    """The weight of every token as a unigram, 0 of those that are none."""
    weights = np.zeros(len(index.token_counts))
    if log_p is None or options.rule != SUM or not options.unigrams:
        return weights
    known = min(len(weights), len(log_p))
    counts = index.token_counts[:known]
    weights[:known] = np.where(counts > 0, log_odds(log_p[:known], counts, index.n_tokens, options.smoothing), 0.0)
    others = [*options.excluded, *(key.tokens[0] for key in chosen if len(key.tokens) == 1)]
    weights[[token for token in others if token < len(weights)]] = 0.0
    weights[_heaviest(weights)[options.unigrams :]] = 0.0
    return weights


def _heaviest(weights: Doubles) -> Ints:
    tokens = np.flatnonzero(weights)
    return tokens[np.argsort(-weights[tokens], kind="stable")]


def _proposing(index: Substrings, unigrams: Doubles, count: int, options: GatherOptions) -> Ints:
    """The places of the `count` best unigrams, without those that occur too often to propose documents."""
    tokens = _heaviest(unigrams)[:count]
    rare = tokens[index.token_counts[tokens] <= options.max_hits]
    return np.concatenate([np.zeros(0, np.int64), *(index.locate(index.range([token])) for token in rare.tolist())])


class _Region:
    """Some documents, in which patterns are found by the rows of their places."""

    def __init__(self, index: Substrings, documents: Ints) -> None:
        starts = index.starts[documents]
        sizes = np.append(index.starts, len(index.text))[documents + 1] - starts - 1
        self.places = _ranges(starts, sizes)
        ranks = index.ranks[self.places]
        order = np.argsort(ranks)
        self._ranks, self._places = ranks[order], self.places[order]

    def locate(self, span: Span) -> Ints:
        """The places where a pattern begins, ascending."""
        low, high = self._ranks.searchsorted([span.low, span.high]).tolist()
        return np.sort(self._places[low:high])


def _ranges(starts: Ints, sizes: Ints) -> Ints:
    """starts[0], starts[0] + 1 … for each of some starts, so many numbers as its size."""
    ends = np.cumsum(sizes)
    numbers: Ints = np.arange(int(sizes.sum())) + np.repeat(starts - (ends - sizes), sizes)
    return numbers


def _score(
    index: Substrings, keys: list[_Chosen], find: Find, places: Ints, unigrams: Doubles, options: GatherOptions
) -> GatheredDocuments:
    """Scores of all documents where keys are found, or unigrams at some of the places."""
    covered = np.zeros(len(index.text), np.bool_)
    lists = [np.zeros(0, np.int64)]
    for key in keys:
        at = find(key.span)
        if options.rule == SUM:
            at = _cover(covered, at, key.span.depth)
        lists.append(np.unique(index.document_of(at)))
    documents = np.concatenate(lists)
    rows = np.repeat(np.arange(len(keys)), [len(found) for found in lists[1:]])
    numbers = np.array([key.number for key in keys], np.int64)[rows]
    values = np.array([key.value for key in keys])[rows]
    if options.rule == MAX:
        of, first = np.unique(documents, return_index=True)
        return _sorted(of, values[first], documents, numbers, np.ones(len(rows)))
    covers, seen = _covers(documents, rows, keys, len(unigrams), options.beta)
    more, gains = _uncovered(index, places[~covered[places]], unigrams, seen, options.beta)
    of, inverse = np.unique(np.concatenate([documents, more]), return_inverse=True)
    gains = np.concatenate([values**options.alpha * covers, gains])
    return _sorted(of, np.bincount(inverse, gains, len(of)).astype(np.float64), documents, numbers, covers)


def _uncovered(index: Substrings, places: Ints, unigrams: Doubles, seen: Ints, beta: float) -> tuple[Ints, Doubles]:
    """Documents with what each token at some of their places adds, once a document; `seen` as of `_covers`."""
    n_tokens, tokens = max(1, len(unigrams)), index.text[places].astype(np.int64) - 1
    weighty = unigrams[tokens] > 0
    pairs = np.sort(index.document_of(places[weighty]) * n_tokens + tokens[weighty])
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    return pairs // n_tokens, np.where(np.isin(pairs, seen), 1 - beta, 1.0) * unigrams[pairs % n_tokens]


def _sorted(
    documents: Ints, scores: Doubles, pair_documents: Ints, numbers: Ints, covers: Doubles
) -> GatheredDocuments:
    order = np.lexsort((documents, -scores))
    return GatheredDocuments(documents[order], scores[order], pair_documents, numbers, covers)


def _cover(covered: NDArray[np.bool_], places: Ints, size: int) -> Ints:
    """Those occurrences of a key that nothing covers yet; afterwards they are covered."""
    along = np.arange(size)
    free: Ints = places[~covered[places[:, None] + along].any(1)]
    if np.any(np.diff(free) < size):  # it overlaps itself: the first of two counts
        apart, end = [], -1
        for place in free.tolist():
            if place >= end:
                apart.append(place)
                end = place + size
        free = np.array(apart, np.int64)
    covered[free[:, None] + along] = True
    return free


def _covers(documents: Ints, rows: Ints, keys: list[_Chosen], n_tokens: int, beta: float) -> tuple[Doubles, Ints]:
    """The cover of each pair of document and key, best keys first; and document · n_tokens + token of all of them."""
    sets = [np.unique(np.array(key.tokens, np.int64)) for key in keys]
    sizes = np.array([len(tokens) for tokens in sets], np.int64)
    starts, own = np.cumsum(sizes) - sizes, sizes[rows]
    tokens = np.concatenate([np.zeros(0, np.int64), *sets])[_ranges(starts[rows], own)]
    pairs = np.repeat(np.arange(len(rows)), own)
    seen, first = np.unique(documents[pairs] * n_tokens + tokens, return_index=True)
    new = np.bincount(pairs[first], minlength=len(rows))
    covers: Doubles = 1 - beta + beta * new / own
    return covers, seen

"""Beam search for token sequences that a constraint allows, and the exact search that scores all of them.

Log-probabilities are those over the whole vocabulary: a mask removes tokens and the others are not scaled up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError
from pixnar.evaluation.baselines.autoregressive.constraint import Constraint

Ints = NDArray[np.int64]
Doubles = NDArray[np.float64]
Tokens = tuple[int, ...]
Prior = Callable[[Sequence[Tokens]], Doubles]
"""Log-probabilities of sequences without a query."""

States = TypeVar("States")
Place = TypeVar("Place")

_CANDIDATES = 2  # per hypothesis and step: as many as end there leave the beam full
_BATCH = 256  # sequences that are scored at a time


class LanguageModel(Protocol[States]):
    """One query's language model: it reads a token of several hypotheses at a time.

    `begin` stands before the first token of every sequence. Log-probabilities are [B, V].
    """

    @property
    def begin(self) -> int:
        """The token that every sequence is generated from."""
        ...

    def start(self) -> States:
        """The states of a batch of one, which has read nothing."""
        ...

    def step(self, states: States, last: Ints) -> tuple[NDArray[np.floating], States]:
        """The log-probabilities of what follows `last` in each hypothesis, and the states after it."""
        ...

    def select(self, states: States, rows: Ints) -> States:
        """The states of some hypotheses, which may be there several times."""
        ...


class Hypothesis(NamedTuple):
    """A sequence with its Σ log p, its score for the ranking, and whether it is complete."""

    tokens: Tokens
    log_p: float
    score: float
    complete: bool


@dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """The settings of a search.

    A sequence is complete after the token `end`; without one, after `steps` tokens. Scores of the final ranking are
    (log p − prior_weight · log p of the prior) / length ^ length_power, where the length counts all tokens.
    """

    width: int = 10
    steps: int = 16  # tokens of a sequence at most, with those of the prefix
    end: int | None = None
    prefix: Tokens = ()  # what every sequence begins with
    memory: bool = False  # also give every candidate that was ever kept, of any length
    length_power: float = 0.0
    prior_weight: float = 0.0

    def check(self) -> None:
        """Raise where a setting is not possible."""
        for name, least in (("width", 1), ("steps", len(self.prefix) + 1)):
            if getattr(self, name) < least:
                raise PixnarError(f"{name} {getattr(self, name)} is not possible: give {least} or more")


def beam_search(
    decoder: LanguageModel[States], constraint: Constraint[Place], options: BeamOptions, prior: Prior | None = None
) -> list[Hypothesis]:
    """The best `width` of the complete sequences that a beam finds; with `memory` all that it ever kept.

    In each step the 2 · width best candidates are looked at: those that end are kept for the ranking, and the best
    `width` of the others go on. Equal scores come in the order of their tokens.
    """
    options.check()
    beam = _Beam(decoder, constraint, options)
    log_p_ranks = options.length_power == 0 and options.prior_weight == 0
    for _ in range(options.steps - len(options.prefix)):
        if not beam.tokens or (log_p_ranks and not options.memory and beam.settled()):
            break
        beam.step()
    found = ranked(beam.kept, options, prior)
    return found if options.memory else found[: options.width]


def exhaustive(
    decoder: LanguageModel[States],
    sequences: Sequence[Tokens],
    k: int,
    options: BeamOptions,
    prior: Prior | None = None,
) -> list[Hypothesis]:
    """The k best of some sequences, by scoring every one of them; of the options, those of the ranking count."""
    scores = sequence_log_p(decoder, sequences).tolist()
    return ranked([(tokens, score, True) for tokens, score in zip(sequences, scores, strict=True)], options, prior)[:k]


def sequence_log_p(decoder: LanguageModel[States], sequences: Sequence[Tokens], *, batch: int = _BATCH) -> Doubles:
    """Σ log p of the tokens of each sequence, by teacher forcing; beginnings that sequences share are read once."""
    out = np.zeros(len(sequences))
    order = sorted(range(len(sequences)), key=lambda number: sequences[number])
    for start in range(0, len(order), batch):
        numbers = order[start : start + batch]
        out[numbers] = _forced(decoder, [sequences[number] for number in numbers])
    return out


def ranked(found: Sequence[tuple[Tokens, float, bool]], options: BeamOptions, prior: Prior | None) -> list[Hypothesis]:
    """Hypotheses, best first, from sequences with their log p and whether they are complete."""
    sequences = [tokens for tokens, _, _ in found]
    scores = np.array([log_p for _, log_p, _ in found], np.float64)
    if options.prior_weight and found:
        if prior is None:
            raise PixnarError(f"prior_weight {options.prior_weight} has no prior to weigh: give one, or the weight 0")
        scores -= options.prior_weight * prior(sequences)
    scores /= np.array([max(1, len(tokens)) for tokens in sequences], np.float64) ** options.length_power
    pairs = zip(found, scores.tolist(), strict=True)
    hypotheses = [Hypothesis(tokens, log_p, score, complete) for (tokens, log_p, complete), score in pairs]
    return sorted(hypotheses, key=lambda hypothesis: (-hypothesis.score, hypothesis.tokens))


class _Beam(Generic[States, Place]):
    """Live hypotheses, in the order of their tokens, and what was kept for the ranking."""

    def __init__(self, decoder: LanguageModel[States], constraint: Constraint[Place], options: BeamOptions) -> None:
        self.decoder, self.constraint, self.options = decoder, constraint, options
        self.kept: list[tuple[Tokens, float, bool]] = []
        self.tokens: list[Tokens] = [options.prefix]
        self.scores, self.last = np.zeros(1), np.array([decoder.begin])
        self.places, self.states = [constraint.root()], decoder.start()
        for token in options.prefix:
            self._force(token)

    def settled(self) -> bool:
        """Whether the `width` best are known: log-probabilities of what is live can only fall."""
        complete = sorted((log_p for _, log_p, _ in self.kept), reverse=True)[: self.options.width]
        return len(complete) == self.options.width and complete[-1] > self.scores.max()

    def step(self) -> None:
        """Lengthen all live hypotheses by one token."""
        log_p, states = self.decoder.step(self.states, self.last)
        rows, tokens, scores = self._candidates(log_p)
        live: list[int] = []
        for i in _best(scores, _CANDIDATES * self.options.width).tolist():
            sequence = (*self.tokens[rows[i]], int(tokens[i]))
            ended = tokens[i] == self.options.end
            complete = ended if self.options.end is not None else len(sequence) == self.options.steps
            if complete or self.options.memory:
                self.kept.append((sequence, float(scores[i]), bool(complete)))
            if not ended and len(live) < self.options.width:
                live.append(i)
        chosen = np.sort(np.array(live, np.int64))
        self._go_on(rows[chosen], tokens[chosen], scores[chosen], states)

    def _candidates(self, log_p: NDArray[np.floating]) -> tuple[Ints, Ints, Doubles]:
        """Rows, tokens and scores of all that the constraint allows, in the order of their tokens."""
        allowed = [self.constraint.allowed(place) for place in self.places]
        rows = np.repeat(np.arange(len(allowed)), [len(tokens) for tokens in allowed])
        tokens = np.concatenate(allowed)
        scores = self.scores[rows] + log_p[rows, tokens]
        possible = scores > -np.inf
        return rows[possible], tokens[possible], scores[possible]

    def _go_on(self, rows: Ints, tokens: Ints, scores: Doubles, states: States) -> None:
        pairs = list(zip(rows.tolist(), tokens.tolist(), strict=True))
        self.tokens = [(*self.tokens[row], token) for row, token in pairs]
        self.places = [self.constraint.child(self.places[row], token) for row, token in pairs]
        self.scores, self.last = scores, tokens
        if pairs:
            self.states = self.decoder.select(states, rows)

    def _force(self, token: int) -> None:
        """Read a token of the prefix."""
        if token not in self.constraint.allowed(self.places[0]):
            self.tokens = []
            return
        log_p, self.states = self.decoder.step(self.states, self.last)
        self.scores = self.scores + log_p[:, token]
        self.places, self.last = [self.constraint.child(self.places[0], token)], np.array([token])


def _best(scores: Doubles, count: int) -> Ints:
    """The places of the best scores, best first; the first of equals comes first."""
    rows = np.arange(len(scores))
    if len(scores) > count:
        least = np.partition(scores, len(scores) - count)[len(scores) - count]
        rows = np.flatnonzero(scores >= least)
    return rows[np.argsort(-scores[rows], kind="stable")[:count]]


def _forced(decoder: LanguageModel[States], sequences: list[Tokens]) -> Doubles:
    totals, lengths = np.zeros(len(sequences)), np.array([len(sequence) for sequence in sequences])
    rows, alive = np.zeros(len(sequences), np.int64), np.flatnonzero(lengths > 0)
    states, last = decoder.start(), np.array([decoder.begin])
    depth = 0
    while len(alive):
        log_p, states = decoder.step(states, last)
        tokens = np.array([sequences[i][depth] for i in alive.tolist()])
        totals[alive] += log_p[rows[alive], tokens]
        depth += 1
        longer = lengths[alive] > depth
        alive, tokens = alive[longer], tokens[longer]
        size = log_p.shape[1]
        prefixes, rows[alive] = np.unique(rows[alive] * size + tokens, return_inverse=True)
        if len(alive):
            states, last = decoder.select(states, prefixes // size), prefixes % size
    return totals

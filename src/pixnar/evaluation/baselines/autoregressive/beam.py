"""Beam search for token sequences that a constraint allows, and the exact search that scores all of them.

Log-probabilities are those over the whole vocabulary: a mask removes tokens and the others are not scaled up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

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


class Decoder(Protocol[States]):
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
    decoder: Decoder[States], constraint: Constraint[Place], options: BeamOptions, prior: Prior | None = None
) -> list[Hypothesis]:
    """The complete sequences that a beam finds, best first; with `memory` the incomplete ones as well.

    In each step the 2 · width best candidates are looked at: those that end are kept for the ranking, and the best
    `width` of the others go on. Equal scores come in the order of their tokens.
    """
    options.check()
    beam = _Beam(decoder, constraint, options)
    rankable = options.length_power == 0 and options.prior_weight == 0
    for _ in range(options.steps - len(options.prefix)):
        if not beam.tokens or (rankable and not options.memory and beam.settled()):
            break
        beam.step()
    return ranked([*beam.kept], options, prior)


def exhaustive(
    decoder: Decoder[States], sequences: Sequence[Tokens], k: int, options: BeamOptions, prior: Prior | None = None
) -> list[Hypothesis]:
    """The k best of some sequences, by scoring every one of them."""
    scores = sequence_log_p(decoder, sequences).tolist()
    return ranked([(tokens, score, True) for tokens, score in zip(sequences, scores, strict=True)], options, prior)[:k]


def sequence_log_p(decoder: Decoder[States], sequences: Sequence[Tokens], *, batch: int = _BATCH) -> Doubles:
    """Σ log p of the tokens of each sequence, by teacher forcing; prefixes that sequences share are read once."""
    out = np.zeros(len(sequences))
    order = sorted(range(len(sequences)), key=lambda number: sequences[number])
    for start in range(0, len(order), batch):
        numbers = order[start : start + batch]
        out[numbers] = _forced(decoder, [sequences[number] for number in numbers])
    return out


def ranked(found: Sequence[tuple[Tokens, float, bool]], options: BeamOptions, prior: Prior | None) -> list[Hypothesis]:
    """Sequences with their log p and whether they are complete, as hypotheses in the order of their scores."""
    scores = np.array([log_p for _, log_p, _ in found])
    if options.prior_weight:
        if prior is None:
            raise PixnarError(f"prior_weight {options.prior_weight} has no prior to weigh: give one, or the weight 0")
        scores -= options.prior_weight * prior([tokens for tokens, _, _ in found])
    scores /= np.array([max(1, len(tokens)) for tokens, _, _ in found], np.float64) ** options.length_power
    made = [Hypothesis(*one, score) for one, score in ()]
    return sorted(made, key=lambda one: (-one.score, one.tokens))

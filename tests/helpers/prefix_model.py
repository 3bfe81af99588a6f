"""A random language model whose log-probabilities depend on the whole prefix, and searches that look at everything."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

Tokens = tuple[int, ...]


class PrefixModel:
    """A `Decoder`: the state of a hypothesis is what it has read. `batches` has the size of every step.

    If it is `coarse`, log-probabilities are whole numbers, so that many sums of them tie.
    """

    begin = 0

    def __init__(self, vocabulary: int, seed: int = 0, *, spread: float = 1.5, coarse: bool = False) -> None:
        self.vocabulary, self.seed, self.spread, self.coarse = vocabulary, seed, spread, coarse
        self.batches: list[int] = []

    def log_p(self, prefix: Tokens) -> NDArray[np.float64]:
        """What may follow a prefix, as log-probabilities over the whole vocabulary."""
        logits = np.random.default_rng([self.seed, *prefix, len(prefix)]).normal(size=self.vocabulary) * self.spread
        out: NDArray[np.float64] = logits - np.log(np.exp(logits).sum())
        return out if not self.coarse else np.round(out)

    def start(self) -> list[Tokens]:
        return [()]

    def step(self, states: list[Tokens], last: NDArray[np.int64]) -> tuple[NDArray[np.float64], list[Tokens]]:
        assert len(states) == len(last) > 0
        self.batches.append(len(states))
        read = [(*state, token) for state, token in zip(states, last.tolist(), strict=True)]
        assert all(state[0] == self.begin for state in read)
        return np.stack([self.log_p(state[1:]) for state in read]), read

    def select(self, states: list[Tokens], rows: NDArray[np.int64]) -> list[Tokens]:
        return [states[row] for row in rows.tolist()]

    def score(self, tokens: Sequence[int]) -> float:
        """Σ log p, one token after the other."""
        return sum(float(self.log_p(tuple(tokens[:place]))[token]) for place, token in enumerate(tokens))


def everything(vocabulary: int, length: int) -> list[Tokens]:
    """Every sequence of a length."""
    return list(product(range(vocabulary), repeat=length))

"""Constraint of decoding: which tokens may follow what was generated so far."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
State = TypeVar("State")


class Constraint(Protocol[State]):
    """Sequences that may be generated, walked token by token; `Substrings`, `Trie` and `FreeConstraint` are some."""

    def root(self) -> State:
        """The state before the first token."""
        ...

    def allowed(self, state: State) -> Ints:
        """The tokens that may follow, ascending; none where nothing may."""
        ...

    def child(self, state: State, token: int) -> State:
        """The state after one of the allowed tokens, or after another one a state in which nothing is allowed."""
        ...


class FreeConstraint:
    """The constraint that allows some tokens everywhere: all of a vocabulary, or those that ids are made of.

    >>> FreeConstraint(3).allowed(None).tolist(), FreeConstraint([7, 4]).allowed(None).tolist()
    ([0, 1, 2], [4, 7])
    """

    def __init__(self, tokens: int | list[int]) -> None:
        self._tokens = np.arange(tokens) if isinstance(tokens, int) else np.unique(np.array(tokens, np.int64))

    def root(self) -> None:
        """Nothing has to be remembered."""

    def allowed(self, state: None) -> Ints:
        """The same tokens in every state."""
        return self._tokens

    def child(self, state: None, token: int) -> None:
        """Nothing has to be remembered."""

"""Estimate of how long a fit takes, before it begins: from rates a core reached, and the cores of this machine."""

from __future__ import annotations

import os
from typing import NamedTuple

from pixnar.recipe import Recipe

_TEXTS = 600.0  # short texts that a core encodes a second, with MiniLM's 11 million weights beside its embeddings
_WEIGHTS = 11e6
_SOLVED = 6e7  # rows that a core adds up a second while solving, 384 numbers each
_ROUNDS = 40
_SEARCHES = 250.0  # dev queries that a core answers a second for a hundred thousand docids
_TRIES = 14  # times that dev is asked while settings and weights are chosen


class Estimate(NamedTuple):
    """Minutes of the long stages."""

    encoding: float
    solving: float
    training: float
    shortlist: float
    choices: float

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {_minutes(value)}" for name, value in self._asdict().items() if value > 0)
        return f"about {_minutes(sum(self))} minutes in all: {parts}"


def estimate(
    recipe: Recipe, *, docids: int, tokens: int, texts: int, weights: float, width: int, minutes: float, dev: int
) -> Estimate:
    """Estimate a fit of so many docids with so many tokens in all, and `texts` to encode by an encoder of some weights.

    >>> sizes = {"docids": 20_000, "tokens": 63_000, "texts": 21_000, "weights": 11e6, "width": 384}
    >>> print(estimate(Recipe(), **sizes, minutes=2, dev=1000))  # doctest: +ELLIPSIS
    about ... minutes in all: encoding ..., solving ..., training 2, choices ...
    """
    cores = min(os.cpu_count() or 1, 8)
    encoding = texts * max(weights, 1e5) / _WEIGHTS / (_TEXTS * cores) / 60
    solving = 0.0
    if recipe.model.head == "solved":
        solving = _ROUNDS * 2 * tokens * width / 384 / (_SOLVED * cores) / 60
    searches = dev * _TRIES * max(1.0, docids / 1e5)
    learned = recipe.shortlist.learn and recipe.scoring.score != "composed"  # cells take seconds
    shortlist = recipe.shortlist.minutes if learned else 0.0
    return Estimate(encoding, solving, minutes, shortlist, searches / (_SEARCHES * cores) / 60)


def _minutes(value: float) -> str:
    return "under 1" if value < 1 else f"{value:.0f}"

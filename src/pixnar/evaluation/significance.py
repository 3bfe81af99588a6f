"""Significance: paired randomisation tests, bootstrap confidence intervals, and the comparison of runs by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError
from pixnar.evaluation.measures import DEFAULT, mean_of, means, per_query
from pixnar.evaluation.queries import Qrels, Run

Figures = NDArray[np.float64]

_CHUNK = 4_000_000  # random numbers held at a time


class MeanDifference(NamedTuple):
    """How much the first of two systems is better in the mean, and how likely luck alone does as much."""

    mean: float
    p_value: float


class Interval(NamedTuple):
    """Where a mean lies, were other queries of the same kind asked."""

    low: float
    high: float


def paired_difference(first: Figures, second: Figures, *, rounds: int = 10_000, seed: int = 0) -> MeanDifference:
    """Compare two systems by a figure per query, the same queries in the same order, such as `reciprocal_ranks`.

    The p-value is that of a two-sided randomisation test: were the systems equal, the two figures of each query could
    change places by the toss of a coin, and the mean would be as far from 0 in this share of `rounds` tosses.

    >>> paired_difference(np.ones(20), np.zeros(20)).p_value < 0.001
    True
    """
    differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    mean = mean_of(differences)
    moving = differences[differences != 0]
    if not len(moving):
        return MeanDifference(mean, 1.0)
    random = np.random.default_rng(seed)
    seen, least = 0, abs(moving.sum()) * (1 - 1e-9)  # sums in another order may differ in the last digits
    chunk = max(_CHUNK // len(moving), 1)
    for done in range(0, rounds, chunk):
        signs = random.integers(0, 2, (min(chunk, rounds - done), len(moving)), np.int8)
        sums = 2 * (signs @ moving) - moving.sum()
        seen += int(np.count_nonzero(np.abs(sums) >= least))
    return MeanDifference(mean, (seen + 1) / (rounds + 1))


def bootstrap(values: Figures, *, level: float = 0.95, rounds: int = 2000, seed: int = 0) -> Interval:
    """The interval that holds the mean in a share of `level` of all samples drawn, with return, from these queries.

    >>> low, high = bootstrap(np.array([0.0, 1.0] * 50))
    >>> 0.38 < low < 0.44 and 0.56 < high < 0.62
    True
    """
    figures = np.asarray(values, np.float64)
    mean_of(figures)
    random = np.random.default_rng(seed)
    sums: list[Figures] = []
    chunk = max(_CHUNK // len(figures), 1)
    for done in range(0, rounds, chunk):
        drawn = random.integers(0, len(figures), (min(chunk, rounds - done), len(figures)))
        sums.append(figures[drawn].mean(axis=1))
    low, high = np.quantile(np.concatenate(sums), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


class ComparisonRow(NamedTuple):
    """One run: figures, where they may lie, and how they differ from the first run's (None for the first itself)."""

    name: str
    figures: dict[str, float]
    intervals: dict[str, Interval]
    against_first: dict[str, MeanDifference] | None


def compare(
    runs: Mapping[str, Run],
    qrels: Qrels,
    measures: Sequence[str] = DEFAULT,
    *,
    answered_only: bool = False,
    seed: int = 0,
) -> list[ComparisonRow]:
    """Measure runs over the same judged queries; every run is held against the first, query by query.

    A judged query that a run does not have found nothing. With `answered_only` queries that no run has are left out,
    for runs that asked a part of the queries only.
    """
    if not runs:
        raise PixnarError("there is nothing to compare: give at least one run")
    asked = set().union(*(run.keys() for run in runs.values()))
    if asked.isdisjoint(qrels):
        raise PixnarError("no query of the runs is judged: check that runs and qrels belong together")
    judged = {query: grades for query, grades in qrels.items() if query in asked} if answered_only else qrels
    rows: list[ComparisonRow] = []
    first = None
    for name, run in runs.items():
        _, figures = per_query(run, judged, measures)
        difference = None
        if first is not None:
            difference = {key: paired_difference(values, first[key], seed=seed) for key, values in figures.items()}
        first = first or figures
        rows.append(
            ComparisonRow(
                name, means(figures), {key: bootstrap(figures[key], seed=seed) for key in figures}, difference
            )
        )
    return rows

"""Comparison of runs, with significance tests against the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pixnar.base.errors import PixnarError
from pixnar.evaluation.measures import DEFAULT, means, per_query
from pixnar.evaluation.significance import Interval, MeanDifference, bootstrap, paired_difference
from pixnar.evaluation.trec import Qrels, Run


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

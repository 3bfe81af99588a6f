"""evaluation: rankings and judgements come in; figures, intervals and p-values go out; baselines are measured alike."""

from pixnar.corpus.queries import Perturbation
from pixnar.evaluation.latency import Latency, latencies, latency
from pixnar.evaluation.measures import mrr_at, per_query, recall_at, recalls, reciprocal_ranks, summary
from pixnar.evaluation.queries import Qrels, Run, check_ids, read_qrels, read_run, write_qrels, write_run
from pixnar.evaluation.run import Evaluation, PerturbationEffect, evaluate
from pixnar.evaluation.significance import (
    ComparisonRow,
    Interval,
    MeanDifference,
    bootstrap,
    compare,
    paired_difference,
)

__all__ = [
    "ComparisonRow",
    "Evaluation",
    "Interval",
    "Latency",
    "MeanDifference",
    "Perturbation",
    "PerturbationEffect",
    "Qrels",
    "Run",
    "bootstrap",
    "check_ids",
    "compare",
    "evaluate",
    "latencies",
    "latency",
    "mrr_at",
    "paired_difference",
    "per_query",
    "read_qrels",
    "read_run",
    "recall_at",
    "recalls",
    "reciprocal_ranks",
    "summary",
    "write_qrels",
    "write_run",
]

"""evaluation: rankings and judgements come in; figures, intervals and p-values go out; baselines are measured alike."""

from pixnar.corpus.queries import Perturbation
from pixnar.evaluation.latency import Latency, latencies, latency
from pixnar.evaluation.measures import mrr_at, recall_at, recalls, reciprocal_ranks, summary
from pixnar.evaluation.queries import check_ids, read_qrels, read_run, write_qrels, write_run
from pixnar.evaluation.run import Evaluation, evaluate
from pixnar.evaluation.significance import ComparisonRow, bootstrap, compare, paired_difference

__all__ = [
    "ComparisonRow",
    "Evaluation",
    "Latency",
    "Perturbation",
    "bootstrap",
    "check_ids",
    "compare",
    "evaluate",
    "latencies",
    "latency",
    "mrr_at",
    "paired_difference",
    "read_qrels",
    "read_run",
    "recall_at",
    "recalls",
    "reciprocal_ranks",
    "summary",
    "write_qrels",
    "write_run",
]

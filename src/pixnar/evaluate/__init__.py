"""evaluate: rankings and judgements come in; figures, and how sure they are, come out."""

from pixnar.corpus.perturb import Perturbation
from pixnar.evaluate.compare import Row, compare
from pixnar.evaluate.latency import Latency, latencies, latency
from pixnar.evaluate.measures import per_query
from pixnar.evaluate.metrics import mrr_at, recall_at, recalls, reciprocal_ranks, summary
from pixnar.evaluate.run import Change, Evaluation, evaluate
from pixnar.evaluate.significance import Difference, Interval, bootstrap, paired_difference
from pixnar.evaluate.trec import Qrels, Run, check_ids, read_qrels, read_run, write_qrels, write_run

__all__ = [
    "Change",
    "Difference",
    "Evaluation",
    "Interval",
    "Latency",
    "Perturbation",
    "Qrels",
    "Row",
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

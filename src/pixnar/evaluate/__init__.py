"""evaluate: rankings and judgements come in; figures, and how sure they are, come out."""

from pixnar.evaluate.metrics import Difference, mrr_at, paired_difference, recall_at, recalls, reciprocal_ranks, summary

__all__ = ["Difference", "mrr_at", "paired_difference", "recall_at", "recalls", "reciprocal_ranks", "summary"]

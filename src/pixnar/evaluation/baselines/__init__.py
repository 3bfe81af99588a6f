"""baselines: BM25, dense retrieval and hybrids of both, each behind the same `Retriever`."""

from pixnar.evaluation.baselines.bm25 import Bm25Retriever
from pixnar.evaluation.baselines.build import build_bm25, build_dense, build_hybrid
from pixnar.evaluation.baselines.dense import DenseRetriever
from pixnar.evaluation.baselines.folder import describe, is_baseline, open_baseline, open_retriever, verify
from pixnar.evaluation.baselines.hybrid import HybridRetriever

__all__ = [
    "Bm25Retriever",
    "DenseRetriever",
    "HybridRetriever",
    "build_bm25",
    "build_dense",
    "build_hybrid",
    "describe",
    "is_baseline",
    "open_baseline",
    "open_retriever",
    "verify",
]

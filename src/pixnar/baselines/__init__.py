"""baselines: what one would use instead, each behind the same `Retriever`: BM25, dense retrieval, word-piece models."""

from pixnar.baselines.bm25 import Bm25Retriever
from pixnar.baselines.build import build_bm25, build_dense
from pixnar.baselines.dense import DenseRetriever
from pixnar.baselines.folder import is_baseline, open_baseline, open_retriever, verify

__all__ = [
    "Bm25Retriever",
    "DenseRetriever",
    "build_bm25",
    "build_dense",
    "is_baseline",
    "open_baseline",
    "open_retriever",
    "verify",
]

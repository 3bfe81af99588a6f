"""PyTerrier: an index, or a baseline, as the first stage of a pipeline. Java is never started."""

from __future__ import annotations

from typing import Any

from pixnar.base.errors import MissingExtraError, PixnarError
from pixnar.search.types import Retriever

try:
    import pandas as pd
    import pyterrier as pt
except ImportError as error:
    raise MissingExtraError("the PyTerrier transformer", "pyterrier") from error

_FOUND = ("docno", "score", "rank", "docid_text")


class PixnarRetriever(pt.Transformer):
    """Queries come in (`qid`, `query`), for each its best documents come out, best first.

    To the input's columns it adds `docno`, `score`, `rank` (from 0, as PyTerrier counts) and `docid_text`, the docid
    that speaks best for the document. (`docid` is PyTerrier's name for a document's number in a Terrier index.)

    `where` and `threshold` are those of `Index.search`; a baseline has neither.
    """

    def __init__(
        self, index: Retriever, num_results: int = 1000, *, where: str | None = None, threshold: float | None = None
    ) -> None:
        if num_results < 1:
            raise PixnarError(f"num_results is {num_results}: ask for at least one document")
        self.index, self.num_results, self.where, self.threshold = index, num_results, where, threshold

    def __repr__(self) -> str:
        name = getattr(self.index, "folder", None) or type(self.index).__name__
        wanted = "".join(f", {option}={value!r}" for option, value in self._options().items())
        return f"PixnarRetriever({str(name)!r}, num_results={self.num_results}{wanted})"

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """The best documents of every query; all queries are searched together."""
        pt.validate.query_frame(inp, extra_columns=["query"], context=self)
        queries = inp["query"].tolist()
        found = self.index.search_batch(queries, self.num_results, **self._options()) if queries else []
        rows = [place for place, hits in enumerate(found) for _ in hits]
        values = [
            (hit.id, float(hit.score), rank, hit.docid)
            for hits in found
            for rank, hit in enumerate(hits, pt.model.FIRST_RANK)
        ]
        results = inp.drop(columns=[*_FOUND], errors="ignore").iloc[rows].reset_index(drop=True)
        for name, column, kind in zip(_FOUND, _columns(values), (str, float, int, str), strict=True):
            results[name] = pd.Series(column, dtype=kind)
        return results

    def fuse_rank_cutoff(self, k: int) -> PixnarRetriever:
        """`retriever % k`, compiled: no more than k are searched for."""
        if k >= self.num_results:
            return self
        return PixnarRetriever(self.index, k, where=self.where, threshold=self.threshold)

    def _options(self) -> dict[str, Any]:
        given = {"where": self.where, "threshold": self.threshold}
        return {name: value for name, value in given.items() if value is not None}


def _columns(rows: list[tuple[str, float, int, str]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in _FOUND]

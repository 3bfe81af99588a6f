"""The strongest simple rival: dense retrieval of docids plus a weight times BM25, beside an index.

    python -m pixnar.benchmarks.hybrid CORPUS INDEX --queries 2000

How a document is scored by its docids (best, or log-sum-exp) and the weight of BM25 are selected on dev.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from pixnar.corpus import Corpus, open_corpus
from pixnar.evaluate.metrics import reciprocal_ranks
from pixnar.evaluate.queries import Queries, read_queries
from pixnar.evaluate.significance import paired_difference
from pixnar.evidence.bm25 import Bm25
from pixnar.evidence.ranking import best
from pixnar.fit.run import default_cache
from pixnar.index import Index
from pixnar.model.encoder import MINILM, Encoder
from pixnar.model.features import FeatureCache
from pixnar.train.names import Names, read_names

WEIGHTS = (0.0, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.2)
_SCALE = 20.0  # of cosines under log-sum-exp
Floats = NDArray[np.float32]


class _Columns(NamedTuple):
    """Scores of all documents for one query."""

    best: Floats  # cosine of the best docid
    logsumexp: Floats  # over all docids
    bm25: Floats


@dataclass
class _Hybrid:
    names: Names
    features: FeatureCache
    vectors: Floats
    bm25: Bm25

    @classmethod
    def of(cls, corpus: Corpus, encoder: str, text: bool) -> _Hybrid:
        names = read_names(corpus)
        features = FeatureCache(Encoder.load(encoder), default_cache() / "features", precision="int8")
        texts, groups = [names.docids[i] for i in names.pair_docid], names.pair_document
        if text:
            said = {document.doc_id: f"{document.title} {document.text}" for document in corpus.documents()}
            texts += [said[doc_id] for doc_id in names.doc_ids]
            groups = np.append(groups, np.arange(len(names.doc_ids)))
        bm25 = Bm25.build(texts, groups, join=True, n_documents=len(names.doc_ids))
        return cls(names, features, features.vectors(names.docids).astype(np.float32), bm25)

    def columns(self, queries: Queries) -> list[_Columns]:
        names = self.names
        order = np.lexsort((names.pair_docid, names.pair_document))
        docids, documents = names.pair_docid[order], names.pair_document[order]
        first = np.searchsorted(documents, np.arange(len(names.doc_ids)))
        out = []
        for text, vector in zip(queries.texts, self.features.vectors(queries.texts).astype(np.float32), strict=True):
            cosines = (self.vectors @ vector)[docids]
            top = cosines.max()
            sums = np.add.reduceat(np.exp(_SCALE * (cosines - top)), first)
            logs = (np.log(sums) / _SCALE + top).astype(np.float32)
            out.append(_Columns(np.maximum.reduceat(cosines, first), logs, self.bm25.documents(text)))
        return out

    def ranks(self, columns: Sequence[_Columns], queries: Queries, kind: str, weight: float) -> Any:
        """Reciprocal ranks at 10."""
        ids = self.names.doc_ids
        fused = ((getattr(row, kind) + weight * row.bm25).astype(np.float32) for row in columns)
        return reciprocal_ranks([[ids[i] for i in best(scores, 10)] for scores in fused], queries.relevant, 10)


def main(
    corpus: str,
    index: Path,
    queries: Annotated[int, typer.Option(help="Test queries.")] = 2000,
    text: Annotated[bool, typer.Option(help="BM25 reads the documents' text, too.")] = False,
    encoder: Annotated[str, typer.Option(help="Encoder of the hybrid.")] = MINILM,
) -> None:
    """Test MRR@10 of dense, the hybrid and an index, with p-values against the hybrid."""
    source = open_corpus(corpus)
    dev, test = read_queries(source, "dev", 1000), read_queries(source, "test", queries)
    hybrid = _Hybrid.of(source, encoder, text)
    found = hybrid.columns(dev)
    grid = [(kind, weight) for kind in ("best", "logsumexp") for weight in WEIGHTS]
    kind, weight = max(grid, key=lambda pair: float(np.mean(hybrid.ranks(found, dev, *pair))))
    asked = hybrid.columns(test)
    rows = {
        "dense, best docid": hybrid.ranks(asked, test, "best", 0.0),
        "dense, log-sum-exp": hybrid.ranks(asked, test, "logsumexp", 0.0),
        f"hybrid: dense ({kind}) + {weight} · BM25": hybrid.ranks(asked, test, kind, weight),
    }
    rival = list(rows)[-1]
    for sources in ("docids", "all"):
        opened = Index.load(index, sources=sources)
        hits = [[hit.doc_id for hit in row] for row in opened.search_batch(test.texts, 10)]
        rows[f"pixnar, {sources}"] = reciprocal_ranks(hits, test.relevant, 10)
    table = Table("", "MRR@10", "p against the hybrid", title=f"{source.name}, test, {len(test)} queries")
    for label, ranks in rows.items():
        p_value = "" if label == rival else f"{paired_difference(ranks, rows[rival]).p_value:.4f}"
        table.add_row(label, f"{100 * float(np.mean(ranks)):.1f}", p_value)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)

"""Opening what an index needs beside its model: everything is mapped, nothing is read through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.docids import DocidTable
from pixnar.errors import FileFormatError
from pixnar.evidence.bm25 import Bm25
from pixnar.evidence.documents import DocumentEvidence
from pixnar.evidence.fuse import Fusion
from pixnar.evidence.ngrams import Ngrams
from pixnar.evidence.vectors import DocidVectors
from pixnar.index.files import BM25_FILE, EVIDENCE, PRIORS, SHORTLIST, UNITS, VECTORS, read_priors, read_units
from pixnar.index.retriever import BM25, DENSE, OWN, Retriever, needed_by
from pixnar.scoring import Priors
from pixnar.search.query import QueryScorer
from pixnar.shortlist.lists import Shortlist


def open_retriever(
    where: Path,
    content: dict[str, Any],
    table: DocidTable,
    scorer: Callable[[Priors, NDArray[np.float32]], QueryScorer],
    *,
    threads: int = 2,
    shortlist: bool = True,
    warm_up: bool = False,
) -> Retriever:
    """The retriever of an index folder with this manifest; `scorer` makes one from priors and log Z."""
    (priors, log_z), units = read_priors(where / PRIORS, verify=False), read_units(where / UNITS, verify=False)
    if len(priors.tokens) != table.vocab_size:
        raise FileFormatError(f"{where}: {len(priors.tokens)} priors, the docid table has {table.vocab_size} tokens")
    retriever = Retriever(
        table,
        scorer(priors, log_z),
        Ngrams(table.vocabulary),
        units,
        Shortlist.load(where / SHORTLIST, verify=False) if shortlist and (where / SHORTLIST).exists() else None,
        fusion=Fusion.from_dict(content["fusion"]) if content["fusion"] else None,
        depth=content["depth"],
        expansion=content["expansion"],
        threads=threads,
    )
    needed = needed_by(retriever.fusion)
    counted = {}
    if OWN in needed:
        retriever.evidence = DocumentEvidence.load(where / EVIDENCE, table.vocabulary, verify=False)
        counted[EVIDENCE] = retriever.evidence.n_units
    if BM25 in needed:
        retriever.bm25 = Bm25.load(where / BM25_FILE, verify=False)
        counted[BM25_FILE] = retriever.bm25.n_documents
    if DENSE in needed:
        retriever.vectors = DocidVectors.load(where / VECTORS, verify=False)
        counted[VECTORS] = retriever.vectors.n_documents
    for name, documents in counted.items():
        if documents != len(units):
            raise FileFormatError(f"{where / name} is about {documents} documents, {UNITS} lists {len(units)}")
    if warm_up:
        retriever.warm_up()
    return retriever

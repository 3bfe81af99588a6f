"""In which precision the vectors of a corpus are computed: chosen on a sample, before all texts are encoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import PixnarError
from pixnar.evaluation.metrics import mrr_at
from pixnar.evaluation.queries import Queries
from pixnar.fusion.vectors import DocidVectors
from pixnar.model.encoder import Encoder
from pixnar.model.features import FeatureCache
from pixnar.pipeline.export import LOSS
from pixnar.runtime.encoder_folder import FP32, INT8
from pixnar.train.data import TrainingInputs

WORTH = 20_000  # texts from which on int8 saves more time than measuring it takes
_QUERIES, _NAMED, _OTHERS = 400, 2000, 2000  # of the sample: queries, docids of what they look for, other docids
_LEAST = 20  # queries of a sample that says anything

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Sample:
    """Queries, docids, and which docid names which document; every query has the documents that it should find."""

    queries: list[str]
    docids: list[str]
    rows: Ints
    documents: Ints
    relevant: list[set[int]]
    kind: str  # of the queries, in words

    @classmethod
    def draw(cls, names: TrainingInputs, dev: Queries) -> Sample:
        """Dev queries; without any, docids in search of their siblings. The same corpus gives the same sample."""
        chance = np.random.default_rng(0)
        by_document = np.argsort(names.pair_document, kind="stable")
        bounds = np.searchsorted(names.pair_document[by_document], np.arange(len(names.doc_ids) + 1))
        docids = names.pair_docid[by_document]
        asked: set[int] = set()  # docids that are queries: a query is not to find itself
        if len(dev):
            some, number = dev.first(_QUERIES), {doc_id: i for i, doc_id in enumerate(names.doc_ids)}
            relevant = [{number[one] for one in found if one in number} for found in some.relevant]
            queries, kind = some.texts, "dev queries"
        else:
            several = np.flatnonzero(np.diff(bounds) > 1)
            wanted = np.sort(chance.permutation(several)[:_QUERIES])
            first = dict(zip((int(docids[bounds[d]]) for d in wanted), map(int, wanted), strict=True))
            asked, relevant = set(first), [{d} for d in first.values()]
            queries, kind = [names.docids[i] for i in first], "docids in search of their siblings"
        known = sorted({d for found in relevant for d in found})
        each = max(1, _NAMED // max(1, len(known)))
        kept = {int(i) for d in known for i in [i for i in docids[bounds[d] : bounds[d + 1]] if i not in asked][:each]}
        kept |= {int(i) for i in chance.permutation(len(names.docids))[:_OTHERS]} - asked
        chosen = np.array(sorted(kept), np.int64)
        pairs = np.isin(names.pair_docid, chosen)
        rows = np.searchsorted(chosen, names.pair_docid[pairs])
        units, documents = np.unique(names.pair_document[pairs], return_inverse=True)
        unit = {int(d): i for i, d in enumerate(units)}
        return cls(
            queries=list(queries),
            docids=[names.docids[int(i)] for i in chosen],
            rows=rows.astype(np.int64),
            documents=documents.astype(np.int64),
            relevant=[{unit[d] for d in found if d in unit} for found in relevant],
            kind=kind,
        )

    def mrr(self, features: FeatureCache) -> float:
        """MRR@10 of dense retrieval."""
        vectors = features.vectors([*self.docids, *self.queries], None)
        count = len(self.docids)
        index = DocidVectors.build(vectors[:count], self.rows, self.documents, int(self.documents.max()) + 1)
        found, _ = index.search(vectors[count:], 10)
        return mrr_at([row.tolist() for row in found], self.relevant, 10)


def choose_precision(
    encoder: Encoder,
    folder: Path,
    setting: str,
    names: TrainingInputs,
    dev: Queries,
    phrases: int,
    say: Callable[[str], None],
    threads: int = 0,
) -> dict[str, Any]:
    """The precision of a corpus' vectors, and the figures behind it, as facts for the report."""
    if encoder.device.type != "cpu":  # torch encodes there
        return {"precision": FP32}
    if setting != "auto":
        say(f"vectors: encoder in {setting}, as the recipe says")
        return {"precision": setting}
    texts = len(names.docids) + len(names.queries) + phrases
    if texts < WORTH:
        say(f"vectors: encoder in fp32; int8 is tried from {WORTH:,} texts on, here are {texts:,}")
        return {"precision": FP32}
    sample = Sample.draw(names, dev)
    if len(sample.queries) < _LEAST:
        say("vectors: encoder in fp32; too few queries and siblings to measure what int8 would cost")
        return {"precision": FP32}
    figures: dict[str, float] = {}
    try:
        for precision in (INT8, FP32):  # int8 first: where it cannot be made, fp32 need not be measured
            figures[precision] = sample.mrr(FeatureCache(encoder, folder, precision=precision, threads=threads))
    except PixnarError as error:
        say(f"vectors: encoder in fp32; int8 is not possible ({error})")
        return {"precision": FP32}
    chosen = INT8 if figures[INT8] >= (1 - LOSS) * figures[FP32] else FP32
    say(
        f"vectors: encoder in {chosen}; dense MRR@10 {figures[FP32]:.4f} in fp32 and {figures[INT8]:.4f} in int8, "
        f"{len(sample.queries)} {sample.kind} against {len(sample.docids):,} docids"
    )
    return {"precision": chosen, "mrr10": figures, "queries": len(sample.queries), "docids": len(sample.docids)}

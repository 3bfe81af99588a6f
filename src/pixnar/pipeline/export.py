"""What an index ships to be searched without torch: rows for the native core, the encoder for onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from pixnar.base.progress import Progress
from pixnar.evaluation.measures import mrr_at
from pixnar.evaluation.queries import Queries
from pixnar.index.files import ENCODER, FACTORS, HEAD
from pixnar.model.export import export_onnx
from pixnar.model.nar import Nar
from pixnar.recipe import Serve
from pixnar.runtime import HeadRows, QueryEncoder
from pixnar.runtime.encoder_folder import FP32, INT8, INT8_BLOCKS, choose_precision
from pixnar.runtime.formats import Format
from pixnar.runtime.quantize import quantize_onnx
from pixnar.search.query import QueryScorer
from pixnar.search.ranker import Ranker

LOSS = 0.005  # of dev MRR@10, relative: what 8-bit weights of the encoder may cost
_QUERIES = 400


def write_rows(model: Nar, folder: Path, settings: Serve) -> HeadRows:
    """The phrase rows as they are served."""
    path = folder / HEAD
    HeadRows.build(*model.head.arrays(), format=cast(Format, settings.rows)).save(path)
    return HeadRows.load(path, verify=False)


def ship(
    model: Nar,
    ranker: Ranker,
    dev: Queries,
    folder: Path,
    settings: Serve,
    say: Callable[[str], None],
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write rows and encoder, and measure on dev what serving them costs; facts for the report."""
    told = progress or (lambda *_: None)
    told("writing what is served", 0, 4)
    rows = write_rows(model, folder, settings)
    served = ranker.with_scorer(_served(ranker.scorer, rows))
    if served.factors is not None:
        served.factors.save(folder / FACTORS)
    some, home = dev.first(_QUERIES), folder / ENCODER
    export_onnx(model, home)
    told("writing what is served", 1, 4)
    tried = {"auto": [INT8, INT8_BLOCKS] if len(some) else [], FP32: []}.get(settings.encoder, [settings.encoder])
    figures: dict[str, float] = {}
    if len(some):
        figures["trained"] = _mrr(ranker, some, *model.query_vectors(some.texts))
        figures[FP32] = _mrr(served, some, *QueryEncoder.load(home).query_vectors(some.texts))
    chosen = FP32
    for done, precision in enumerate(tried, 2):
        told(f"trying the encoder in {precision}", done, 4)
        quantize_onnx(home, precision)
        if len(some):
            encoder = QueryEncoder.load(home, precision=precision)
            figures[precision] = _mrr(served, some, *encoder.query_vectors(some.texts))
        if settings.encoder != "auto" or figures[precision] >= (1 - LOSS) * figures[FP32]:
            chosen = precision
            break
    choose_precision(home, chosen)
    shown = ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
    say(
        f"served: rows in {settings.rows}, encoder in {chosen}"
        + (f"; dev MRR@10, in sample, to compare: {shown}" if shown else "")
    )
    return {"rows": settings.rows, "encoder": chosen, "dev_mrr10_in_sample": figures}


def _served(scorer: QueryScorer, rows: HeadRows) -> QueryScorer:
    return QueryScorer(rows, scorer.log_z, scorer.priors, scorer.rule)


def _mrr(ranker: Ranker, dev: Queries, x: Any, pooled: Any) -> float:
    """MRR@10 of whole searches."""
    found = ranker.search(ranker.queries(dev.texts, x, pooled))
    return mrr_at([[hit.doc_id for hit in hits] for hits in found], dev.relevant, 10)

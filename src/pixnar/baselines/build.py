"""From a corpus to the folder of a baseline."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pixnar.baselines.bm25 import K1, B, Bm25Retriever
from pixnar.baselines.dense import ENCODER, FLAT, DenseRetriever, check_kind, faiss_library
from pixnar.baselines.entries import DOCIDS, TEXT, Entries
from pixnar.baselines.folder import BM25, DENSE, building, seal
from pixnar.corpus import Corpus, open_corpus
from pixnar.encode import QueryEncoder
from pixnar.errors import PixnarError
from pixnar.progress import Progress

if TYPE_CHECKING:
    from pixnar.baselines.bi_encoder import Tuning
    from pixnar.model.encoder import Encoder

PIECES = {DOCIDS: 64, TEXT: 256}
"""Word pieces of an entry that the encoder reads."""


def build_bm25(
    corpus: str | os.PathLike[str] | Corpus,
    folder: str | os.PathLike[str],
    *,
    over: str = DOCIDS,
    k1: float = K1,
    b: float = B,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write a BM25 baseline; facts about it."""
    source = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    with building(Path(folder), overwrite=overwrite) as aside:
        made = Bm25Retriever.build(source, over, k1=k1, b=b, progress=progress)
        made.save(aside)
        facts = _facts(made.entries)
        seal(aside, BM25, {"over": over, "k1": k1, "b": b}, facts, source.name)
    return facts


def build_dense(
    corpus: str | os.PathLike[str] | Corpus,
    folder: str | os.PathLike[str],
    *,
    encoder: str | os.PathLike[str] | None = None,
    over: str = DOCIDS,
    index: str = FLAT,
    max_pieces: int = 0,
    tuning: Tuning | None = None,
    cache: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    threads: int = 1,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Write a dense baseline; facts about it. With `tuning` the encoder is fine-tuned first.

    `encoder` is MiniLM where none is given; `cache` is where vectors of the encoder as it comes are kept.
    """
    from pixnar.model.encoder import MINILM, Encoder
    from pixnar.model.export import export_onnx
    from pixnar.model.features import FeatureCache

    if over not in PIECES:
        raise PixnarError(f"over {over!r} is not possible for dense retrieval: give {' or '.join(PIECES)}")
    check_kind(index)
    faiss_library()  # or minutes would pass before it is missed
    if tuning:
        tuning.check()
    source = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    with building(Path(folder), overwrite=overwrite) as aside:
        entries, texts = Entries.read(source, over, progress)
        model = Encoder.load(encoder or MINILM, max_pieces=max_pieces or PIECES[over])
        if max_pieces > model.most_pieces:
            raise PixnarError(
                f"{model.name} reads at most {model.most_pieces} word pieces, not {max_pieces}: give less"
            )
        model.max_pieces = min(model.max_pieces, model.most_pieces)
        facts = _facts(entries)
        if tuning:
            facts |= _fine_tuned(source, model, entries, texts, tuning, progress, say)
        kept = Path(cache) / "features" if cache and not tuning else None
        vectors = FeatureCache(model, kept).vectors(texts, progress, f"encoding {over}").astype(np.float32)
        export_onnx(model, aside / ENCODER)
        DenseRetriever.over(entries, vectors, QueryEncoder.load(aside / ENCODER), kind=index, threads=threads).save(
            aside
        )
        options = {"over": over, "index": index, "encoder": model.name, "max_pieces": model.max_pieces}
        seal(aside, DENSE, options | {"tuning": asdict(tuning) if tuning else None}, facts, source.name)
    return facts


def _fine_tuned(
    source: Corpus,
    model: Encoder,
    entries: Entries,
    texts: list[str],
    tuning: Tuning,
    progress: Progress | None,
    say: Callable[[str], None] | None,
) -> dict[str, Any]:
    from pixnar.baselines.bi_encoder import fine_tune
    from pixnar.evaluate.queries import read_queries
    from pixnar.train.names import read_names

    names, dev = read_names(source, progress), read_queries(source, "dev", tuning.dev_queries)
    if say and not len(dev):
        say("no dev split: the weights of the last step are kept, whatever they are worth")
    return {"fine_tuning": asdict(fine_tune(model, names, entries, texts, dev, tuning, progress=progress, say=say))}


def _facts(entries: Entries) -> dict[str, Any]:
    return {"documents": len(entries.doc_ids), "entries": len(entries)}

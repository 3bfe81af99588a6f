"""Baseline builders: from a corpus to the folder of a baseline."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pixnar.base.errors import PixnarError
from pixnar.base.progress import Progress
from pixnar.corpus import Corpus, open_corpus, state_of
from pixnar.evaluation.baselines.bm25 import Bm25Retriever
from pixnar.evaluation.baselines.dense import ENCODER, FLAT, DenseRetriever, check_kind, faiss_library
from pixnar.evaluation.baselines.entries import (
    AUTO,
    BOTH,
    DEV_QUERIES,
    DOCIDS,
    JOINED,
    TEXT,
    Aggregate,
    Entries,
    Floats,
    options,
    readable,
)
from pixnar.evaluation.baselines.folder import BASELINE, BM25, DENSE, HYBRID, building, seal
from pixnar.evaluation.baselines.hybrid import BM25_FOLDER, DENSE_FOLDER, DEPTH, WEIGHTS, HybridRetriever, fusions
from pixnar.evaluation.queries import read_queries
from pixnar.index import manifest
from pixnar.recipe import Train
from pixnar.runtime import QueryEncoder

if TYPE_CHECKING:
    from pixnar.evaluation.baselines.bi_encoder import Tuning
    from pixnar.model.encoder import Encoder

Place = str | os.PathLike[str]

PIECES = {DOCIDS: 64, TEXT: 256}
"""Word pieces of an entry that the encoder reads."""

_FORMS = {DOCIDS: (JOINED, DOCIDS), TEXT: (TEXT,), BOTH: (BOTH, TEXT, JOINED, DOCIDS)}
"""What BM25 may be where these are read; the dev split selects one, without it the first is taken."""


def build_bm25(
    corpus: Place | Corpus,
    folder: Place,
    *,
    over: str = DOCIDS,
    k1: float | None = None,
    b: float | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write a BM25 baseline; facts about it.

    What is not given of k1 and b is chosen on dev, and with ``over="auto"`` the form as well.
    """
    source = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    forms = _FORMS[readable(source)] if over == AUTO else (over,)
    with building(Path(folder), overwrite=overwrite) as aside:
        chosen, facts = _bm25(source, aside, forms, k1, b, progress)
        seal(aside, BM25, chosen, facts, source.name)
    return facts


def _bm25(
    source: Corpus,
    folder: Path,
    forms: Sequence[str],
    k1: float | None,
    b: float | None,
    progress: Progress | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Write the form of BM25 that is best on dev; its options and facts."""
    dev = read_queries(source, "dev", DEV_QUERIES)
    over, best = Bm25Retriever.best(source, forms, k1=k1, b=b, dev=dev, progress=progress)
    best.save(folder)
    return {"over": over, "k1": best.k1, "b": best.b}, _facts(best.entries, best.figures)


def build_dense(
    corpus: Place | Corpus,
    folder: Place,
    *,
    encoder: Place | None = None,
    over: str = DOCIDS,
    index: str = FLAT,
    aggregate: str = AUTO,
    scale: float = 0.0,
    max_pieces: int = 0,
    precision: str = "fp32",
    tuning: Tuning | None = None,
    cache: Place | None = None,
    overwrite: bool = False,
    threads: int = 1,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Write a dense baseline; facts about it. With `tuning` the encoder is fine-tuned first.

    `encoder` is MiniLM where none is given; `cache` is where vectors of the encoder as it comes are kept. `aggregate`
    and `scale` make a document's score from those of its entries; `auto` and 0 are chosen on dev. With `over="auto"`
    dev chooses docids or both, too. An interrupted fine-tuning resumes with the same output and settings.
    """
    from pixnar.model.encoder import MINILM, Encoder
    from pixnar.model.export import export_onnx

    aggregates = options(aggregate, scale)
    for one in aggregates:
        one.check()
    check_kind(index)
    faiss_library()  # or minutes would pass before it is missed
    if tuning:
        tuning.check()
    source = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    place = Path(os.path.abspath(folder))  # "." and ".." have no name
    if over == AUTO:
        if tuning:
            raise PixnarError(f"over {AUTO} is not possible with fine-tuning: give {DOCIDS}, {TEXT} or {BOTH}")
        shared: dict[str, Any] = {"encoder": encoder, "index": index, "aggregate": aggregate, "scale": scale}
        shared |= {"max_pieces": max_pieces, "precision": precision, "cache": cache, "threads": threads}
        with building(place, overwrite=overwrite) as aside:
            return _best_dense(source, aside, shared | {"progress": progress})
    work = place.with_name(f".{place.name}.tuning")  # outlives a kill, unlike what `building` gives
    with building(place, overwrite=overwrite) as aside:
        entries, texts = Entries.read_apart(source, over, progress)
        model = Encoder.load(encoder or MINILM, max_pieces=max_pieces or PIECES.get(over, PIECES[TEXT]))
        if max_pieces > model.most_pieces:
            raise PixnarError(
                f"{model.name} reads at most {model.most_pieces} word pieces, not {max_pieces}: give less"
            )
        model.max_pieces = min(model.max_pieces, model.most_pieces)
        tuned = _fine_tuned(source, model, entries, texts, tuning, work, progress, say) if tuning else {}
        kept = Path(cache) / "features" if cache and not tuning else None
        vectors = _vectors(model, entries, texts, max_pieces, kept, precision, progress)
        export_onnx(model, aside / ENCODER)
        made = DenseRetriever.over(entries, vectors, QueryEncoder.load(aside / ENCODER), kind=index, threads=threads)
        dev = read_queries(source, "dev", DEV_QUERIES)
        figures = made.choose_aggregate(aggregates[:1] if over == TEXT else aggregates, dev)
        made.save(aside)
        facts = _facts(entries, figures) | tuned
        chosen = {
            "over": over,
            "index": index,
            "aggregate": made.aggregate.to_dict(),
            "encoder": model.name,
            "max_pieces": model.max_pieces,
            "precision": precision,
            "tuning": asdict(tuning) if tuning else None,
        }
        seal(aside, DENSE, chosen, facts, source.name)
    shutil.rmtree(work, ignore_errors=True)
    return facts


def _best_dense(source: Corpus, folder: Path, shared: dict[str, Any]) -> dict[str, Any]:
    """Write dense retrieval over docids or both, as is better on dev, over both without dev queries."""
    found = readable(source)
    forms = (BOTH, DOCIDS) if found == BOTH else (found,)
    with tempfile.TemporaryDirectory(dir=folder) as spare:
        places = {form: Path(spare) / form for form in forms}
        facts = {form: build_dense(source, place, over=form, **shared) for form, place in places.items()}
        over = max(forms, key=lambda form: facts[form]["dev"].get("MRR@10", 0.0))
        content = manifest.read_manifest(places[over], BASELINE)
        (places[over] / manifest.NAME).unlink()
        shutil.copytree(places[over], folder, dirs_exist_ok=True)
    if len(forms) > 1:
        facts[over]["dev"].pop("MRR@10 cross-validated", None)  # it knows nothing of the choice between forms
    seal(folder, DENSE, content["options"], facts[over], source.name)
    return facts[over]


def _vectors(
    model: Encoder,
    entries: Entries,
    texts: list[str],
    max_pieces: int,
    cache: Path | None,
    precision: str,
    progress: Progress | None,
) -> Floats:
    """Vectors of all entries: docids, which an index has in the cache, and texts apart."""
    from pixnar.model.features import FeatureCache

    most, parts = model.max_pieces, []
    docids = 0 if entries.spellings is None else sum(map(bool, entries.spellings))
    for noun, some in ((DOCIDS, texts[:docids]), (TEXT, texts[docids:])):
        if some:
            model.max_pieces = min(max_pieces or PIECES[noun], most)
            features = FeatureCache(model, cache, precision=precision)
            parts.append(features.vectors(some, progress, f"encoding {noun}").astype(np.float32))
    model.max_pieces = most
    return np.concatenate(parts)


def build_hybrid(
    corpus: Place | Corpus,
    folder: Place,
    *,
    over: str = AUTO,
    fusion: str = WEIGHTS,
    weight: float | None = None,
    depth: int = DEPTH,
    aggregate: str = AUTO,
    scale: float = 0.0,
    dense: Place | None = None,
    bm25: Place | None = None,
    encoder: Place | None = None,
    precision: str | None = None,
    cache: Place | None = None,
    overwrite: bool = False,
    threads: int = 1,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write a hybrid of dense retrieval and BM25; facts about it.

    `dense` and `bm25` are baselines that are taken as they are; what is not given is built over docids, text or both
    (`auto`: what the corpus has). Weight, aggregate and the form of BM25 are chosen on dev.
    """
    source = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    fused, aggregates = fusions(fusion, weight), options(aggregate, scale)
    for name, value in (("encoder", encoder), ("precision", precision)):
        if dense is not None and value is not None:
            raise PixnarError(f"{name} is for a dense side that is built: leave it out, or leave out dense")
    if over not in (AUTO, *_FORMS):
        raise PixnarError(f"over {over!r} is not possible for a hybrid: give {AUTO}, {', '.join(_FORMS)}")
    if dense is not None and bm25 is not None and over != AUTO:
        raise PixnarError("over is for a side that is built: leave it out, or leave out dense or bm25")
    over = readable(source) if over == AUTO else over
    with building(Path(folder), overwrite=overwrite) as aside:
        one, other = aside / DENSE_FOLDER, aside / BM25_FOLDER
        if bm25 is None:
            other.mkdir()
            chosen = _bm25(source, other, _FORMS[over], None, None, progress)
            seal(other, BM25, *chosen, source.name)
        else:
            _copy(Path(bm25), other, BM25)
        if dense is None:
            shared: dict[str, Any] = {"encoder": encoder, "cache": cache, "threads": threads, "progress": progress}
            shared |= {"precision": precision or "fp32", "aggregate": aggregate, "scale": scale}
            build_dense(source, one, over=over, **shared)
        else:
            _copy(Path(dense), one, DENSE)
        nearest, words = (manifest.read_manifest(side, BASELINE) for side in (one, other))
        if nearest["options"]["over"] == TEXT:
            aggregates = aggregates[:1]  # a document has one entry
        made = HybridRetriever(DenseRetriever.load(one, threads=threads), Bm25Retriever.load(other), depth=depth)
        known = Aggregate.from_dict(nearest["options"]["aggregate"])
        made.dense.aggregate = known if aggregate == AUTO else aggregates[0]  # what stays without a dev split
        figures = made.choose(aggregates, fused, read_queries(source, "dev", DEV_QUERIES), progress)
        made.save(aside)
        facts = {"documents": len(made.doc_ids), "entries": len(made.dense.entries), "dev": figures}
        facts |= {name: value for name, value in nearest["facts"].items() if name == "fine_tuning"}
        settings = {"fusion": made.fusion.to_dict(), "aggregate": made.dense.aggregate.to_dict(), "depth": depth}
        seal(aside, HYBRID, settings | {"dense": nearest["options"], "bm25": words["options"]}, facts, source.name)
    return facts


def _copy(folder: Path, to: Path, kind: str) -> None:
    """Take a baseline that is there as one side of a hybrid."""
    found = manifest.read_manifest(folder, BASELINE)["kind"]
    if found != kind:
        raise PixnarError(f"{folder} is a {found} baseline: give one that pixnar baseline {kind} wrote")
    shutil.copytree(folder, to)


def _fine_tuned(
    source: Corpus,
    model: Encoder,
    entries: Entries,
    texts: list[str],
    tuning: Tuning,
    work: Path,
    progress: Progress | None,
    say: Callable[[str], None] | None,
) -> dict[str, Any]:
    from pixnar.evaluation.baselines.bi_encoder import fine_tune
    from pixnar.train.data import read_inputs

    default = Train()  # the inputs that an index trains on by default
    names = read_inputs(source, progress, passages=default.passages, typos=default.typos)
    dev = read_queries(source, "dev", tuning.dev_queries)
    if say and not len(dev):
        say("no dev split: the weights of the last step are kept, whatever they are worth")
    made_of = [state_of(source), model.fingerprint(), len(entries), entries.spellings is None]
    run = fine_tune(model, names, entries, texts, dev, tuning, folder=work, of=made_of, progress=progress, say=say)
    return {"fine_tuning": asdict(run)}


def _facts(entries: Entries, dev: dict[str, float]) -> dict[str, Any]:
    return {"documents": len(entries.doc_ids), "entries": len(entries), "dev": dev}

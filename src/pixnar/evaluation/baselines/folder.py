"""Baseline folders: their manifest, their description in one line, and opening whatever can be searched."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.workdir import staged
from pixnar.evaluation.baselines.bm25 import Bm25Retriever
from pixnar.evaluation.baselines.dense import VECTORS, DenseRetriever
from pixnar.evaluation.baselines.entries import BOTH, DOCIDS, JOINED, TEXT, Aggregate
from pixnar.evaluation.baselines.hybrid import DENSE_FOLDER, RRF, HybridRetriever, fusion_from
from pixnar.fusion.fuse import DENSE as DENSE_SOURCE
from pixnar.fusion.fuse import DOCIDS as DOCID_SCORE
from pixnar.fusion.fuse import EXPANSION, LEXICAL
from pixnar.fusion.fuse import TEXT as TEXT_SOURCE
from pixnar.index import Index, manifest
from pixnar.search import Retriever

BASELINE = manifest.Kind(
    "pixnar-baseline",
    2,  # names its aggregate, and BM25 has the words of an index
    ("version", "files", "kind", "options"),
    "baseline",
    "pixnar baseline",
    oldest=2,
)
BM25, DENSE, HYBRID = "bm25", "dense", "hybrid"
AUTOREGRESSIVE = {"seal-lm": "SEAL-LM", "seal-lm-fm": "SEAL-LM+FM", "seal": "SEAL", "minder": "MINDER", "dsi": "DSI"}
"""The kinds of folders of the autoregressive baselines, and their names."""


@contextlib.contextmanager
def building(folder: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to build a baseline in; it replaces `folder` when the block ends well, else nothing is left of it.

    With `overwrite` a baseline that is there stays and answers until then.
    """
    if folder.exists() and not folder.is_dir():
        raise PixnarError(f"{folder} is a file: choose another output")
    if folder.exists() and any(folder.iterdir()):
        if manifest.format_of(folder) != BASELINE.format:
            raise PixnarError(f"{folder} is not empty and no baseline: choose another output")
        if not overwrite:
            raise PixnarError(f"{folder} holds a baseline: choose another output, or give --overwrite to replace it")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PixnarError(f"cannot write {folder}: {error.strerror}; choose another place") from error
    with staged(folder) as built:
        yield built


def seal(folder: Path, kind: str, options: dict[str, Any], facts: dict[str, Any], corpus: str) -> None:
    """Write the manifest of a baseline whose files are all there."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
    manifest.write_manifest(folder, {"kind": kind, "options": options, "facts": facts, "corpus": corpus}, BASELINE)


def is_baseline(folder: str | os.PathLike[str]) -> bool:
    """Whether a folder's manifest is that of a baseline."""
    return manifest.format_of(Path(folder)) == BASELINE.format


def open_retriever(folder: str | os.PathLike[str], *, threads: int = 2, sources: str = "all") -> Retriever:
    """Open an index or a baseline, whichever a folder holds; `sources` are those by which an index ranks.

    ``open_retriever("bm25.baseline").search("tea", k=5)``
    """
    where = Path(folder)
    if is_baseline(where):
        return open_baseline(where, threads=threads)
    return Index.load(where, threads=threads, sources=sources)


def open_baseline(folder: Path, *, threads: int = 2) -> Retriever:
    """Open a baseline; its files must be there in their sizes, damage inside shows when it is met or with `verify`."""
    content = manifest.read_manifest(folder, BASELINE)
    kind, options = content["kind"], content["options"]
    if kind == BM25:
        return Bm25Retriever.load(folder)
    try:
        if kind == DENSE:
            manifest.check_files(folder, content, [VECTORS], BASELINE)  # faiss trusts what it reads
            return DenseRetriever.load(folder, aggregate=Aggregate.from_dict(options["aggregate"]), threads=threads)
        if kind == HYBRID:
            manifest.check_files(folder, content, [f"{DENSE_FOLDER}/{VECTORS}"], BASELINE)
            fusion, aggregate = fusion_from(options["fusion"]), Aggregate.from_dict(options["aggregate"])
            return HybridRetriever.load(folder, fusion, aggregate, depth=options["depth"], threads=threads)
        if kind in AUTOREGRESSIVE:
            from pixnar.evaluation.baselines.autoregressive.retriever import load_autoregressive  # with torch

            manifest.check_files(folder, content, list(content["files"]), BASELINE)
            return load_autoregressive(folder, options["settings"], threads=threads)
    except KeyError as error:
        raise FileFormatError(f"{folder} does not say {error}: copy or build the baseline again") from error
    raise FileFormatError(f"{folder} is a baseline of the kind {content['kind']!r}, unknown here: upgrade pixnar")


def verify(folder: str | os.PathLike[str]) -> int:
    """Check every checksum of an index or a baseline; how many files were read."""
    where = Path(folder)
    return manifest.verify(where, BASELINE) if is_baseline(where) else Index.load(where).verify()


_READS = {DOCIDS: "docids", JOINED: "docids joined", TEXT: "text", BOTH: "text and docids"}
_NAMES = {
    LEXICAL: "lexical BM25 of words and phrases",
    EXPANSION: "expansion by phrases",
    DENSE_SOURCE: "dense",
    TEXT_SOURCE: "dense over text",
}


def describe(folder: str | os.PathLike[str], sources: str = "all") -> str:
    """What a baseline or an index ranks by; `sources` are those of an index.

    For example: dense (docids, log-sum-exp, scale 20, zero-shot) + 0.04 · BM25 (docids, k1 0.9, b 0.4), whose weight
    multiplies the scores; and of an index 87% docids (log-sum-exp) + 13% lexical BM25 of words and phrases.
    """
    where = Path(folder)
    if is_baseline(where):
        content = manifest.read_manifest(where, BASELINE)
        return _baseline(content["kind"], content["options"], content.get("facts", {}))
    return _index(manifest.read_manifest(where), sources)


def _baseline(kind: str, options: dict[str, Any], facts: dict[str, Any]) -> str:
    if kind == BM25:
        return f"BM25 ({_READS[options['over']]}, k1 {options['k1']:g}, b {options['b']:g})"
    if kind == DENSE:
        return _dense(options, facts.get("fine_tuning"), Aggregate.from_dict(options["aggregate"]))
    if kind in AUTOREGRESSIVE:
        return _autoregressive(kind, options, facts["training"])
    parts = options["dense"], facts.get("fine_tuning"), Aggregate.from_dict(options["aggregate"])
    dense, bm25 = _dense(*parts), _baseline(BM25, options["bm25"], {})
    fusion = options["fusion"]
    if fusion["kind"] == RRF:
        return f"reciprocal ranks (constant {fusion['constant']:g}) of {dense} and {bm25}"
    weights = ((fusion["dense"], dense), (fusion["bm25"], bm25))
    return " + ".join(side if weight == 1 else f"{weight:g} · {side}" for weight, side in weights)


def _dense(options: dict[str, Any], tuned: dict[str, Any] | None, aggregate: Aggregate) -> str:
    how = "zero-shot" if not tuned else f"fine-tuned, step {tuned['best_step']:,} of {tuned['steps']:,}"
    if tuned and not tuned["best_step"]:
        how = f"untrained: the best of {tuned['steps']:,} steps is step 0"
    several = [] if options["over"] == TEXT else [str(aggregate)]
    return f"dense ({', '.join([_READS[options['over']], *several, how])})"


def _autoregressive(kind: str, options: dict[str, Any], training: dict[str, Any]) -> str:
    settings = options["settings"]
    own = {"seal-lm": f"n-grams of {settings['length']}", "minder": f"boost {settings['boost']:g}"}
    own |= {"dsi": f"{options.get('ids')} ids"}
    pairs = f"best of {training['pairs']:,} training pairs at {training['best_pairs']:,}"
    parts = [_READS[options["over"]], *([own[kind]] if kind in own else []), f"beam {settings['beam']}", pairs]
    return f"{AUTOREGRESSIVE[kind]} ({', '.join([*parts, 'no generative pre-training'])})"


def _index(content: dict[str, Any], sources: str) -> str:
    """Sources by their share of the ranking: weights of scores in units of their spread among a query's candidates."""
    weights = (manifest.fusion_of(content, sources) or {"weights": {DOCID_SCORE: 1.0}})["weights"]
    parts, total = [], sum(weights.values())
    for name, weight in weights.items():
        noun = f"docids ({_rule(content['rule'])})" if name == DOCID_SCORE else _NAMES.get(name, name)
        parts.append(f"{weight / total:.0%} {noun}" if len(weights) > 1 else noun)
    untrained = content.get("facts", {}).get("best_step") == 0
    return " + ".join(parts) + ("; untrained: the best step on dev is step 0" if untrained else "")


def _rule(rule: dict[str, Any]) -> str:
    aggregate = rule["aggregate"]
    of_several = "max" if aggregate == "max" else "log-sum-exp"
    if isinstance(aggregate, int):
        of_several += f" of the best {aggregate}"
    return of_several + (f", copy {rule['copy']:g}" if rule["copy"] else "")

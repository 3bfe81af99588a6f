"""Baseline folders and their manifest; opens whatever can be searched, baseline or index."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.workdir import staged
from pixnar.evaluation.baselines.aggregate import Aggregate
from pixnar.evaluation.baselines.bm25 import Bm25Retriever
from pixnar.evaluation.baselines.dense import VECTORS, DenseRetriever
from pixnar.evaluation.baselines.hybrid import DENSE_FOLDER, HybridRetriever, fusion_from
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


def open_retriever(folder: str | os.PathLike[str], *, threads: int = 2) -> Retriever:
    """Open an index or a baseline, whichever a folder holds.

    ``open_retriever("bm25.baseline").search("tea", k=5)``
    """
    where = Path(folder)
    return open_baseline(where, threads=threads) if is_baseline(where) else Index.load(where, threads=threads)


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
    except KeyError as error:
        raise FileFormatError(f"{folder} does not say {error}: copy or build the baseline again") from error
    raise FileFormatError(f"{folder} is a baseline of the kind {content['kind']!r}, unknown here: upgrade pixnar")


def verify(folder: str | os.PathLike[str]) -> int:
    """Check every checksum of an index or a baseline; how many files were read."""
    where = Path(folder)
    return manifest.verify(where, BASELINE) if is_baseline(where) else Index.load(where).verify()

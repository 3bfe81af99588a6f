"""Fingerprint of a corpus: the state of its files, so that a run resumes only on unchanged files."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from pixnar.corpus.reader import Corpus


def state_of(corpus: Corpus, *, but: Collection[Path] = ()) -> list[Any]:
    """Where a corpus is, and size and time of each of its files, as JSON can hold it; `but` names paths to leave out.

    ``state_of(open_corpus("folder")) == state_of(open_corpus("folder"))`` until somebody changes a file
    """
    where = Path(corpus.name)
    return state_of_files(where, but=but) if where.exists() else [corpus.name]


def state_of_files(where: Path, *, but: Collection[Path] = ()) -> list[Any]:
    """The same for a file or a folder that is there."""
    out = {path.resolve() for path in but}
    files = sorted(path for path in where.rglob("*") if path.is_file()) if where.is_dir() else [where]
    files = [path for path in files if not path.relative_to(where).name.startswith(".")]  # what a kill left behind
    kept = [path for path in files if not out.intersection([path.resolve(), *path.resolve().parents])]
    facts = [[str(path.relative_to(where)), path.stat().st_size, path.stat().st_mtime_ns] for path in kept]
    return [str(where.resolve()), facts]

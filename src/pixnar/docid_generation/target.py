"""Where docids go when nobody says: where the reader of the corpus will look for them."""

from __future__ import annotations

from pathlib import Path

from pixnar.base.errors import PixnarError
from pixnar.corpus.folder import find_file


def target_of(corpus: str, output: Path | None) -> Path:
    """The file to write: the one given, docids.jsonl in the folder given, or the corpus' own.

    >>> target_of("irds:beir/scifact", Path("scifact.jsonl"))
    PosixPath('scifact.jsonl')
    """
    if output is not None:
        return output / "docids.jsonl" if output.is_dir() else output
    folder = Path(corpus)
    if find_file(folder, "corpus.jsonl"):
        return find_file(folder, "docids.jsonl") or folder / "docids.jsonl"
    if find_file(folder, "collection.tsv"):
        return find_file(folder, "docids.tsv") or folder / "docids.tsv"
    raise PixnarError(f"{corpus} has no place for a docids.jsonl: give -o FILE, then corpus convert --docids FILE")

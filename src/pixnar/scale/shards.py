"""An index cut by document: parts that each answer for some documents, exactly as the whole would.

All docids of a document lie in its part, so its score is the whole's to the last bit; a docid that names documents of
several parts is in each of them. What a score takes from the whole collection (how rare a term is, mean lengths,
priors) stays that of the whole. docs/ray-serving.md says why a merge of the parts' answers is exact.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from pixnar.corpus.records import Document
from pixnar.docids import DocidTable
from pixnar.docids.columns import word_bytes
from pixnar.docids.journal import Tokens
from pixnar.errors import FileFormatError, PixnarError
from pixnar.evidence.bm25 import Bm25
from pixnar.evidence.documents import DocumentEvidence
from pixnar.evidence.vectors import DocidVectors
from pixnar.index.files import (
    BM25_FILE,
    DOCIDS,
    ENCODER,
    EVIDENCE,
    HEAD,
    PRIORS,
    SHORTLIST,
    UNITS,
    VECTORS,
    read_units,
    write_units,
)
from pixnar.index.manifest import read_manifest, write_manifest
from pixnar.progress import Progress
from pixnar.storage import atomic_write, link_or_copy, put_in_place, read_container, write_container

NAME = "shards.json"
_FORMAT, _VERSION = "pixnar-shards", 1
_PLACES, _KIND = "places.pixnar", "places"
_SHARED = (HEAD, PRIORS, SHORTLIST, ENCODER)
_MOST = 1000


def part_of(doc_id: str, parts: int) -> int:
    """The part that a document belongs to, known or new: by its id alone, on every machine.

    >>> [part_of(doc_id, 3) for doc_id in ("d1", "d2", "d3")]
    [0, 1, 0]
    """
    return xxhash.xxh3_64_intdigest(word_bytes(doc_id)) % parts


class Cut(NamedTuple):
    """The documents of each part, by their place among all."""

    places: list[NDArray[np.int64]]

    @classmethod
    def of(cls, doc_ids: Iterable[str], parts: int) -> Cut:
        """Of sorted ids."""
        owners = np.fromiter((part_of(doc_id, parts) for doc_id in doc_ids), np.int64)
        return cls([np.flatnonzero(owners == part) for part in range(parts)])


@dataclass(frozen=True)
class Shards:
    """A folder of parts, and what is known of the whole."""

    folder: Path
    content: dict[str, Any]

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Shards:
        """Read what a folder of parts says of itself."""
        where = Path(folder) / NAME
        try:
            content = json.loads(where.read_bytes())
            if content["format"] != _FORMAT or not all(isinstance(name, str) for name in content["parts"]):
                raise ValueError(f"its format is {content['format']!r}")
            keys = content["keys"]
            if not isinstance(keys, dict) or content["version"] > _VERSION:
                raise ValueError(f"version {content['version']!r}, this release reads up to {_VERSION}")
        except FileNotFoundError as error:
            raise FileFormatError(f"{folder} holds no parts ({NAME} is missing): cut an index with pixnar shard") from (
                error
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FileFormatError(f"{where} is damaged ({error}): cut the index again with pixnar shard") from error
        return cls(Path(folder), content)

    @property
    def parts(self) -> list[Path]:
        """The folders of the parts; each is an index."""
        return [self.folder / name for name in self.content["parts"]]

    @property
    def keys(self) -> list[str]:
        """The metadata keys that a filter might name when the index was cut."""
        return list(self.content["keys"]["columns"])

    def why_not(self, key: str) -> Literal["nested", "rare", "unknown"]:
        """Why a filter may not name a key, as the whole would say."""
        known = self.content["keys"]
        return "nested" if key in known["nested"] else "rare" if key in known["rare"] else "unknown"

    def part_of(self, doc_id: str) -> int:
        """The part that a document belongs to."""
        return part_of(doc_id, len(self.content["parts"]))


def is_shards(folder: Path) -> bool:
    """Whether a folder holds the parts of an index."""
    return (folder / NAME).is_file()


def split(
    index: str | os.PathLike[str],
    target: str | os.PathLike[str],
    parts: int,
    *,
    overwrite: bool = False,
    threads: int = 0,
    progress: Progress | None = None,
) -> Shards:
    """Cut an index into parts, with all changes made to it so far; the folder is there whole or not at all."""
    source, folder = Path(index), Path(target)
    content = read_manifest(source)
    table = DocidTable.open(source / DOCIDS)
    _check(folder, parts, table.documents, overwrite)
    built = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    shutil.rmtree(built, ignore_errors=True)
    built.mkdir()
    try:
        cut = Cut.of(read_units(source / UNITS, verify=False), parts)
        names = [f"part-{number:03}" for number in range(parts)]
        documents = []
        for number, name in enumerate(names):
            if progress:
                progress(f"cutting: part {number + 1} of {parts}", number, parts)
            made = _write_part(source, built / name, table, cut.places[number], number, parts, threads)
            documents.append(made.documents)
            rest = {key: value for key, value in content.items() if key not in ("format", "version", "files")}
            write_manifest(built / name, rest | {"part": {"number": number, "of": parts}})
        snapshot = table.snapshot()
        columns = snapshot.documents.columns
        keys = {"columns": sorted({*columns.keys, *snapshot.new_keys}), **columns.others}
        about = {"format": _FORMAT, "version": _VERSION, "parts": names, "documents": documents, "keys": keys}
        with atomic_write(built / NAME) as file:
            file.write(json.dumps(about, indent=1, ensure_ascii=True).encode() + b"\n")
        put_in_place(built, folder)
    finally:
        shutil.rmtree(built, ignore_errors=True)
    if progress:
        progress("cutting", parts, parts)
    return Shards.open(folder)


def read_places(part: Path) -> NDArray[np.int64]:
    """For each unit of a part its place among the units of the whole."""
    try:
        return read_container(part / _PLACES, _KIND, 1, verify=False).arrays["places"]
    except KeyError as error:
        raise FileFormatError(f"{part / _PLACES} is damaged: cut the index again with pixnar shard") from error


def change(
    tables: Sequence[DocidTable],
    *,
    add: Iterable[tuple[str, Tokens]] = (),
    remove_documents: Iterable[str] = (),
    remove_docids: Iterable[Tokens] = (),
    remove_pairs: Iterable[tuple[str, Tokens]] = (),
    spellings: Sequence[str] = (),
    documents: Iterable[Document] = (),
) -> None:
    """`DocidTable.change` for the tables of all parts: whatever is about a document goes to its part.

    A docid that is in another part is spelled as it is there. A change is whole within each part; whoever searches
    while it is made may see it in some parts first.
    """
    count = len(tables)
    removed = list(remove_docids)
    wishes: list[dict[str, list[Any]]] = [
        {"add": [], "remove_documents": [], "remove_docids": removed, "remove_pairs": [], "documents": []}
        for _ in tables
    ]
    pairs = list(add)
    for name, rows in (("remove_pairs", list(remove_pairs)), ("add", pairs)):
        for doc_id, tokens in rows:
            wishes[part_of(doc_id, count)][name].append((doc_id, tokens))
    for doc_id in remove_documents:
        wishes[part_of(doc_id, count)]["remove_documents"].append(doc_id)
    for document in documents:
        wishes[part_of(document.doc_id, count)]["documents"].append(document)
    first: dict[str, list[Any]] = {"add": [], "documents": []}
    for table, wish in zip(tables, wishes, strict=True):  # removals first, everywhere: they decide what is still there
        table.change(**(wish | first))
    told = _spellings(tables, pairs, spellings)
    for table, wish in zip(tables, wishes, strict=True):
        if wish["add"] or wish["documents"]:
            spelled = [told.get(tokens, "") for _, tokens in wish["add"]] if spellings else []
            table.change(add=wish["add"], documents=wish["documents"], spellings=spelled)


def _spellings(
    tables: Sequence[DocidTable], pairs: Sequence[tuple[str, Tokens]], spellings: Sequence[str]
) -> dict[Tokens, str]:
    """How each docid is spelled: as it is where it is there already, else as it was given first."""
    told: dict[Tokens, str] = {}
    for (_, tokens), given in zip(pairs, spellings or [""] * len(pairs), strict=True):
        if tokens not in told:
            known = next((table for table in tables if table.named(tokens)), None)
            told[tokens] = given if known is None else known.spelling(tokens) or ""
    return told


def _check(folder: Path, parts: int, documents: int, overwrite: bool) -> None:
    if not 1 <= parts <= _MOST:
        raise PixnarError(f"{parts} parts: give 1 to {_MOST}")
    if parts > max(documents, 1):
        raise PixnarError(f"{parts} parts for {documents} documents: give fewer parts than documents")
    if not folder.parent.is_dir():
        raise PixnarError(f"cannot write {folder}: the folder {folder.parent} does not exist; create it first")
    if folder.exists() and not is_shards(folder):
        raise PixnarError(f"{folder} exists and holds no parts: choose another name or remove it")
    if folder.exists() and not overwrite:
        raise PixnarError(f"{folder} exists: choose another name or say --overwrite")


def _write_part(
    source: Path, part: Path, table: DocidTable, places: NDArray[np.int64], number: int, parts: int, threads: int
) -> DocidTable:
    part.mkdir()
    made = table.write_part(part / DOCIDS, lambda doc_id: part_of(doc_id, parts) == number, threads=threads)
    units = read_units(source / UNITS, verify=False)
    write_units(part / UNITS, (units[place] for place in places.tolist()))
    write_container(part / _PLACES, _KIND, 1, {}, {"places": places})
    if (source / EVIDENCE).exists():
        DocumentEvidence.load(source / EVIDENCE, table.vocabulary, verify=False).part(places).save(part / EVIDENCE)
    if (source / BM25_FILE).exists():
        Bm25.load(source / BM25_FILE, verify=False).part(places).save(part / BM25_FILE)
    if (source / VECTORS).exists():
        DocidVectors.load(source / VECTORS, verify=False).part(places).save(part / VECTORS)
    for name in _SHARED:
        if (source / name).is_dir():
            (part / name).mkdir()
            for file in filter(Path.is_file, (source / name).iterdir()):
                link_or_copy(file, part / name / file.name)
        elif (source / name).exists():
            link_or_copy(source / name, part / name)
    return made

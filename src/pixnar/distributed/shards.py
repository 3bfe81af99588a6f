"""An index cut by document: parts that each answer for some documents, exactly as the whole would.

All docids of a document lie in its part, so its score is the whole's to the last bit; a docid that names documents of
several parts is in each of them. What a score takes from the whole collection (how rare a term is, mean lengths,
priors) stays that of the whole. docs/ray-serving.md says why a merge of the parts' answers is exact.

Parts of different cuts give wrong answers together. So a cut has a name, made of what was cut and into how many parts;
`shards.json` and every part bear it, and whoever opens parts compares.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xxhash
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.progress import Progress
from pixnar.base.storage import link_or_copy, read_container, write_container, write_json
from pixnar.base.workdir import staged
from pixnar.corpus.records import Document
from pixnar.fusion.lexical import LexicalIndex
from pixnar.fusion.vectors import DocidVectors
from pixnar.index.files import (
    DOCIDS,
    ENCODER,
    FACTORS,
    HEAD,
    LEXICAL_FILE,
    LEXICON,
    PRIORS,
    SHORTLIST,
    TEXT_FILE,
    VECTORS,
)
from pixnar.index.manifest import NAME as MANIFEST
from pixnar.index.manifest import read_manifest, write_manifest
from pixnar.runtime import HeadRows
from pixnar.runtime.factors import DocidFactors
from pixnar.table import DocidTable
from pixnar.table.journal import Tokens
from pixnar.table.table import part_of

NAME = "shards.json"
_FORMAT, _VERSION = "pixnar-shards", 1
_PLACES, _KIND = "places.pixnar", "places"
_SHARED = (HEAD, PRIORS, SHORTLIST, ENCODER, LEXICON)
_MOST = 1000
_AGAIN = "cut the index again with pixnar shard --overwrite"


@dataclass(frozen=True)
class Shards:
    """A folder of parts, and what is known of the whole."""

    folder: Path
    content: dict[str, Any]

    @classmethod
    def open(cls, folder: str | os.PathLike[str], cut: str | None = None) -> Shards:
        """Read what a folder of parts says of itself, and see that its parts are all there and of one cut.

        With `cut` it must be that one: whoever opens a part later than others must not get one of a newer cut.
        """
        shards = cls(Path(folder), _read(Path(folder)))
        if cut is not None and shards.cut != cut:
            raise PixnarError(f"{folder} has been cut again since it was opened: open all of it again")
        for number in range(len(shards.parts)):
            shards.check(number)
        return shards

    @property
    def cut(self) -> str:
        """The name of the cut."""
        return str(self.content["cut"])

    def member(self, number: int) -> dict[str, Any]:
        """What a part says of itself: of which cut it is, its number, and of how many."""
        return {"cut": self.cut, "number": number, "of": len(self.content["parts"])}

    def check(self, number: int) -> dict[str, Any]:
        """The manifest of a part, which must be that part of this cut."""
        part = self.parts[number]
        if not (part / MANIFEST).exists():
            raise FileFormatError(f"{part} is missing or no index: copy it there, or {_AGAIN}")
        content = read_manifest(part)
        self._compare(part, number, content)
        return content

    def table(self, number: int) -> DocidTable:
        """The docids of a part, which must be those of that part of this cut."""
        table = DocidTable.open(self.parts[number] / DOCIDS)
        self._compare(self.parts[number] / DOCIDS, number, table.meta)
        return table

    def _compare(self, where: Path, number: int, content: dict[str, Any]) -> None:
        if content.get("part") != self.member(number):
            count = len(self.content["parts"])
            raise FileFormatError(f"{where} is not part {number} of the {count} that {NAME} beside it names: {_AGAIN}")

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


def _read(folder: Path) -> dict[str, Any]:
    where = folder / NAME
    try:
        content: dict[str, Any] = json.loads(where.read_bytes())
        if content["format"] != _FORMAT:
            raise ValueError(f"its format is {content['format']!r}")
        if content["version"] > _VERSION:
            raise ValueError(f"version {content['version']!r}, this release reads up to {_VERSION}")
        names, keys = content["parts"], content["keys"]
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise ValueError("it names no parts")
        if not all(isinstance(keys[name], list) for name in ("columns", "nested", "rare")):
            raise ValueError("it names no keys")
        if not isinstance(content.get("cut"), str):
            raise ValueError("it does not say which cut its parts are of")
    except FileNotFoundError as error:
        raise FileFormatError(f"{folder} holds no parts ({NAME} is missing): cut an index with pixnar shard") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"{where} is damaged or old ({error}): {_AGAIN}") from error
    return content


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
    whole = _SourceIndex.open(source)
    _check(folder, parts, whole.table.documents, overwrite)
    with staged(folder) as built:
        owners = whole.table.owners(parts)
        about: dict[str, Any] = {"format": _FORMAT, "version": _VERSION, "cut": whole.cut(parts), "keys": whole.keys()}
        documents: list[int] = []
        names = [f"part-{number:03}" for number in range(parts)]
        shards = Shards(built, about | {"parts": names, "documents": documents})
        for number, part in enumerate(shards.parts):
            if progress:
                progress(f"cutting: part {number + 1} of {parts}", number, parts)
            part.mkdir()
            table = whole.table.write_part(part / DOCIDS, owners == number, shards.member(number), threads=threads)
            documents.append(table.documents)
            whole.write_part(part, whole.table.places(owners == number), shards.member(number))
        if read_manifest(source) != whole.content:
            raise PixnarError(f"{source} was built again while it was cut: cut it again")
        write_json(built / NAME, shards.content, indent=1)
    if progress:
        progress("cutting", parts, parts)
    return Shards.open(folder)


def read_places(part: Path) -> NDArray[np.int64]:
    """For each document that a part was built of, its number in the table of the whole when that was built."""
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
    _check_order(tables)
    removed = list(remove_docids)
    changes: list[dict[str, list[Any]]] = [
        {"add": [], "remove_documents": [], "remove_docids": removed, "remove_pairs": [], "documents": []}
        for _ in tables
    ]
    pairs = list(add)
    for name, rows in (("remove_pairs", list(remove_pairs)), ("add", pairs)):
        for doc_id, tokens in rows:
            changes[part_of(doc_id, count)][name].append((doc_id, tokens))
    for doc_id in remove_documents:
        changes[part_of(doc_id, count)]["remove_documents"].append(doc_id)
    for document in documents:
        changes[part_of(document.doc_id, count)]["documents"].append(document)
    first: dict[str, list[Any]] = {"add": [], "documents": []}
    for table, own in zip(tables, changes, strict=True):  # removals first, everywhere: they decide what is still there
        table.change(**(own | first))
    spelling_of = _spellings(tables, pairs, spellings)
    for table, own in zip(tables, changes, strict=True):
        if own["add"] or own["documents"]:
            spelled = [spelling_of.get(tokens, "") for _, tokens in own["add"]] if spellings else []
            table.change(add=own["add"], documents=own["documents"], spellings=spelled)


def _check_order(tables: Sequence[DocidTable]) -> None:
    """A change that goes to the wrong parts must not begin."""
    parts = [table.meta.get("part") for table in tables]
    if parts != [parts[0] and parts[0] | {"number": number, "of": len(tables)} for number in range(len(tables))]:
        raise PixnarError("these tables are not all parts of one cut, in their order: give those of `Shards.parts`")


def _spellings(
    tables: Sequence[DocidTable], pairs: Sequence[tuple[str, Tokens]], spellings: Sequence[str]
) -> dict[Tokens, str]:
    """How each docid is spelled: as it is where it is there already, else as it was given first."""
    spelling_of: dict[Tokens, str] = {}
    for (_, tokens), given in zip(pairs, spellings or [""] * len(pairs), strict=True):
        if tokens not in spelling_of:
            known = next((table for table in tables if table.named(tokens)), None)
            spelling_of[tokens] = given if known is None else known.spelling(tokens) or ""
    return spelling_of


def _check(folder: Path, parts: int, documents: int, overwrite: bool) -> None:
    if not 1 <= parts <= _MOST:
        raise PixnarError(f"{parts} parts: give 1 to {_MOST}")
    if parts > max(documents, 1):
        raise PixnarError(f"{parts} parts for {documents} documents: give at most one for each document")
    if not folder.parent.is_dir():
        raise PixnarError(f"cannot write {folder}: the folder {folder.parent} does not exist; create it first")
    if folder.exists() and not is_shards(folder):
        raise PixnarError(f"{folder} exists and holds no parts: choose another name or remove it")
    if folder.exists() and not overwrite:
        raise PixnarError(f"{folder} exists: choose another name or say --overwrite")


@dataclass(frozen=True)
class _SourceIndex:
    """The index that is cut, opened once for all parts."""

    folder: Path
    content: dict[str, Any]
    table: DocidTable
    lexical: LexicalIndex | None
    vectors: DocidVectors | None
    text: DocidVectors | None
    factors: DocidFactors | None

    @classmethod
    def open(cls, folder: Path) -> _SourceIndex:
        content, table = read_manifest(folder), DocidTable.open(folder / DOCIDS)
        rows = HeadRows.load(folder / HEAD, verify=False)

        def there(name: str, load: Callable[[Path], Any]) -> Any:
            return load(folder / name) if (folder / name).exists() else None

        return cls(
            folder,
            content,
            table,
            there(LEXICAL_FILE, lambda path: LexicalIndex.load(path, table.vocabulary, verify=False)),
            there(VECTORS, lambda path: DocidVectors.load(path, verify=False)),
            there(TEXT_FILE, lambda path: DocidVectors.load(path, verify=False)),
            there(FACTORS, lambda path: DocidFactors.load(path, rows, content["slots"])),
        )

    def cut(self, parts: int) -> str:
        """A name for this index, as it is now, in so many parts."""
        state = json.dumps([self.content, self.table.state, parts], sort_keys=True)
        return xxhash.xxh3_128_hexdigest(state.encode())

    def keys(self) -> dict[str, Any]:
        """The metadata keys that filters may name, and those that they may not."""
        snapshot = self.table.snapshot()
        columns = snapshot.documents.columns
        return {"columns": sorted({*columns.keys, *snapshot.new_keys}), **columns.others}

    def write_part(self, part: Path, places: NDArray[np.int64], member: dict[str, Any]) -> None:
        """Write what a part has beside its docids, and seal it."""
        write_container(part / _PLACES, _KIND, 1, {}, {"places": places})
        if self.lexical is not None:
            self.lexical.part(places).save(part / LEXICAL_FILE)
        if self.vectors is not None:
            self.vectors.part(places).save(part / VECTORS)
        if self.text is not None:
            self.text.part(places).save(part / TEXT_FILE)
        if self.factors is not None:
            self.factors.of_table(DocidTable.open(part / DOCIDS).snapshot().table).save(part / FACTORS)
        for name in _SHARED:
            if (self.folder / name).is_dir():
                (part / name).mkdir()
                for file in filter(Path.is_file, (self.folder / name).iterdir()):
                    link_or_copy(file, part / name / file.name)
            elif (self.folder / name).exists():
                link_or_copy(self.folder / name, part / name)
        rest = {key: value for key, value in self.content.items() if key not in ("format", "version", "files")}
        write_manifest(part, rest | {"part": member})

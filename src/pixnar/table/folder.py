"""A docid table on disk: a folder whose one small file, replaced in one step, says which other files count.

    table.pixnar                which files are in force, and their seals; written last, renamed into place
    docids-000001.pixnar        the docids of generation 1 and whom they name
    documents-000001.pixnar     ids, titles and metadata
    spellings-000001.pixnar     the docids as they were written
    vocabulary-000001.pixnar    what docids are encoded with; compacted tables go on with the one they have
    difference-000002.pixnar    of a compacted table: what changed since it was built
    changes-000001.log          what was added and removed since
    lock                        held by whoever changes the table

A file never changes once it is in force, but for the changes, which are added to at the end. Compacting a table and
building it anew both write a new generation beside the old one, then replace `table.pixnar`. Whatever is there besides
is left over from work that was cut short, and is removed by the next change.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import read_container, sync_folder, write_container
from pixnar.base.workdir import LOCK, locked_folder, remove_unlocked

PATIENCE = 2.0  # seconds to wait for others: longer than a change takes, shorter than people wait without a word

_MANIFEST = "table.pixnar"
_KIND, _VERSION = "table", 1
_PART = r"(?:docids|documents|spellings|vocabulary|difference)-(\d{6,})\.pixnar"
_FILE = re.compile(rf"{_PART}|changes-(\d{{6,}})\.log")
_ASIDE = re.compile(rf"\.(?:{_PART}|table\.pixnar)\..*\.part")
_SEAL = slice(48, 56)  # of a container: the checksum of its header, and through it of everything in the file


class File(NamedTuple):
    """A file in force."""

    name: str
    seal: str


class Manifest(NamedTuple):
    """What is in force."""

    generation: int
    files: dict[str, File]
    meta: dict[str, Any]

    @property
    def changes(self) -> str:
        """The name of the file of changes."""
        return f"changes-{self.generation:06}.log"

    @property
    def seal(self) -> int:
        """What changes bear that are changes to this very table."""
        return xxhash.xxh3_64_intdigest(json.dumps(self.files, sort_keys=True).encode())


class TableFolder:
    """The files of one table."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))  # the working folder may change, and this not with it

    def manifest(self) -> Manifest:
        """What is in force now."""
        where = self.path / _MANIFEST
        try:
            if not where.is_file():
                raise FileFormatError(self._no_table())
        except OSError as error:
            raise FileFormatError(f"cannot open {self.path}: {error.strerror}; see who may read it") from error
        found = read_container(where, _KIND, _VERSION).meta
        try:
            files = {str(part): File(str(name), str(seal)) for part, (name, seal) in found["files"].items()}
            manifest = Manifest(int(found["generation"]), files, dict(found["meta"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileFormatError(f"{where} does not say which files count: build the table again") from error
        if not all(_FILE.fullmatch(file.name) for file in files.values()):
            raise FileFormatError(f"{where} names files that cannot be its own: build the table again")
        return manifest

    def file(self, manifest: Manifest, part: str) -> Path:
        """Where a part in force lies; an error if it is not the file that was written for this table."""
        if part not in manifest.files:
            raise FileFormatError(f"{self.path / _MANIFEST} names no {part}: build the table again")
        name, seal = manifest.files[part]
        if self._seal(name) != seal:
            raise FileFormatError(
                f"{self.path / name} is damaged or belongs to another table: copy the whole table again, or build it"
            )
        return self.path / name

    def in_force(self, manifest: Manifest) -> tuple[list[str], list[str]]:
        """The names of all files that a copy of the table needs: those that change in place or go, and the others."""
        return [_MANIFEST, manifest.changes], sorted(file.name for file in manifest.files.values())

    def new_file(self, part: str, generation: int) -> Path:
        """Where to write a part of a new generation."""
        return self.path / f"{part}-{generation:06}.pixnar"

    def sealed(self, part: str, generation: int) -> File:
        """A part that was written."""
        name = self.new_file(part, generation).name
        return File(name, self._seal(name))

    def commit(self, manifest: Manifest) -> None:
        """Put a generation, whose files are all there, in force."""
        meta = {"generation": manifest.generation, "files": manifest.files, "meta": manifest.meta}
        write_container(self.path / _MANIFEST, _KIND, _VERSION, meta, {})

    def sweep(self, manifest: Manifest) -> None:
        """Remove what is not in force; call it with the lock."""
        wanted = {file.name for file in manifest.files.values()} | {manifest.changes}
        self._remove(name for name in os.listdir(self.path) if name not in wanted)

    def discard(self, generation: int) -> None:
        """Remove a generation that will never be in force; call it with the lock."""
        self._remove(name for name in os.listdir(self.path) if _generation(name) in (None, generation))

    def _remove(self, names: Iterator[str]) -> None:
        for name in names:
            if _FILE.fullmatch(name) or _ASIDE.fullmatch(name):
                with contextlib.suppress(OSError):  # the next one will remove it
                    os.unlink(self.path / name)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Be the only one that changes the table; an error if another process is at it for long."""
        if (self.path / _MANIFEST).is_symlink():  # what a change appends would end up in the file behind the link
            raise PixnarError(
                f"cannot change {self.path}: its files are links, as in a cache of downloads; work on a copy"
            )
        with locked_folder(self.path, PATIENCE):
            yield

    @contextlib.contextmanager
    def building(self, *, overwrite: bool) -> Iterator[int]:
        """Lock the folder, made if need be, and give the number of the generation to write and `commit`.

        When the block raises, what it wrote is gone.
        """
        self.check_target(overwrite=overwrite)
        fresh = not (self.path / _MANIFEST).exists()
        try:
            self.path.mkdir(exist_ok=True)
            sync_folder(self.path.parent)
        except OSError as error:
            raise PixnarError(f"cannot write {self.path}: {error.strerror}; choose another place") from error
        with self.locked():
            self.check_target(overwrite=overwrite)  # another process may have built it since
            if fresh:
                self._remove(iter(os.listdir(self.path)))
            generation = 1 + max((_generation(name) or 0 for name in os.listdir(self.path)), default=0)
            try:
                yield generation
            except BaseException:
                self.discard(generation)
                if fresh:
                    remove_unlocked(self.path)
                raise

    def check_target(self, *, overwrite: bool) -> None:
        """Raise before the work if a table could not be built there."""
        target = self.path
        if not target.parent.is_dir():
            raise PixnarError(f"cannot write {target}: the folder {target.parent} does not exist; create it first")
        if not target.exists():
            return
        if (target / _MANIFEST).is_file():
            if not overwrite:
                raise PixnarError(f"{target} exists: choose another name or say --overwrite")
        elif not target.is_dir() or not self._is_unfinished():
            raise PixnarError(f"{target} exists and is no docid table: choose another name or remove it")

    def _is_unfinished(self) -> bool:
        """Whether all that is in the folder comes from a build that was cut short."""
        names = set(os.listdir(self.path)) - {LOCK}
        return all(_FILE.fullmatch(name) or _ASIDE.fullmatch(name) for name in names)

    def _no_table(self) -> str:
        if not self.path.exists():
            return f"no docid table {self.path}: it does not exist; give the folder that pixnar table wrote"
        if not self.path.is_dir():
            return f"no docid table {self.path}: it is a file; give the folder that pixnar table wrote"
        if os.listdir(self.path) and self._is_unfinished():
            return f"{self.path} is no docid table yet: wait until it is built, or build it again with pixnar table"
        return f"{self.path} is no docid table: it has no {_MANIFEST}; build one with pixnar table"

    def _seal(self, name: str) -> str:
        try:
            with open(self.path / name, "rb") as file:
                return file.read(64)[_SEAL].hex()
        except OSError as error:
            raise FileFormatError(
                f"cannot open {self.path / name}: {error.strerror}; copy the whole table again, or build it"
            ) from error


def _generation(name: str) -> int | None:
    """The number in the name of a file of ours."""
    match = _FILE.fullmatch(name)
    return int(match[1] or match[2]) if match else None

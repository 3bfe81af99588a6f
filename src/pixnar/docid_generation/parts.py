"""Work done so far: a folder beside the file that is to be made, with a part for every so many documents."""

from __future__ import annotations

import contextlib
import errno
import gzip
import json
import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import xxhash

from pixnar.base.errors import PixnarError
from pixnar.base.storage import LOCK, atomic_write, locked_folder, sync_folder

_NOTE = "begun.json"
_TOLD = ("documents", "unnamed", "dropped", "made")  # of a part, beside its lines


@dataclass
class Part:
    """The docids of some consecutive documents as lines of the output, and what there is to tell of them."""

    documents: int = 0
    unnamed: int = 0  # documents without a docid
    dropped: int = 0  # queries that did not find their document
    made: dict[str, int] = field(default_factory=dict)  # docids by source
    lines: list[bytes] = field(default_factory=list)


class Parts:
    """Parts by number. Each is one file, written whole, whose first line has the checksum of the rest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._given_up = False  # the folder is not ours any more

    @classmethod
    @contextlib.contextmanager
    def claim(cls, target: Path, settings: dict[str, Any], *, overwrite: bool = False) -> Iterator[Parts]:
        """Begin the work for a file, or go on with what was begun by the same settings; nobody else can meanwhile."""
        folder = target.with_name(f"{target.name}.work")
        if folder.exists() and not folder.is_dir():
            raise PixnarError(f"{folder} is a file, where a folder for the work is to be: remove it")
        if folder.exists() and not (folder / _NOTE).exists() and any(map(_is_foreign, folder.iterdir())):
            raise PixnarError(
                f"{folder} is not empty, and no docids were begun there: remove it or choose another output"
            )
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PixnarError(f"cannot write {folder}: {error.strerror}; choose another output with -o") from error
        with locked_folder(folder):
            _begin(folder, settings, overwrite=overwrite)
            yield cls(folder)

    def write(self, number: int, part: Part) -> None:
        """Keep a part."""
        body = b"".join(part.lines)
        told = {name: getattr(part, name) for name in _TOLD}
        head = {**told, "xxh3": _sum(body)}
        with atomic_write(self._path(number)) as file:
            file.write(json.dumps(head).encode() + b"\n" + body)

    def read(self, number: int) -> Part | None:
        """A part, or None if it is not there or damaged, and is to be made again."""
        try:
            with open(self._path(number), "rb") as file:
                head, body = json.loads(file.readline()), file.read()
            if head["xxh3"] != _sum(body):
                return None
            return Part(**{name: head[name] for name in _TOLD}, lines=body.splitlines(keepends=True))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def finish(self, target: Path, count: int) -> None:
        """Put the parts together into the file they are for, whole or not at all, and clear up.

        They are joined in our own folder: what a kill leaves there is cleared away by the next run, and is no new file
        of a corpus.
        """
        whole = self.folder / "whole"
        with atomic_write(whole) as raw, _packed(raw, target) as file:
            for number in range(count):
                part = self.read(number)
                if part is None:
                    raise PixnarError(f"{self._path(number)} was changed by somebody else: run the command again")
                file.writelines(part.lines)
        place = Path(os.path.realpath(target))  # a link stays a link
        try:
            os.replace(whole, place)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with atomic_write(place) as file, open(whole, "rb") as made:  # the link leads to another disk
                shutil.copyfileobj(made, file)
        sync_folder(place.parent)
        self.forget(all_of_it=True)

    def forget(self, *, all_of_it: bool = False) -> None:
        """Remove the folder, if no part was done or there is nothing in any: that is no work to go on with."""
        if self._given_up or (not all_of_it and any(self.folder.glob("*.docids"))):
            return  # a folder that is there again is another run's
        self._given_up = True
        _clear(self.folder, but=())
        with contextlib.suppress(OSError):  # the lock last: until then nobody else begins here
            os.unlink(self.folder / LOCK)
            os.rmdir(self.folder)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:07}.docids"


def _clear(folder: Path, *, but: Collection[str]) -> None:
    """Remove what is in a folder, save the lock and what is named."""
    for path in list(folder.iterdir()):
        if path.name == LOCK or path.name in but:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _is_foreign(path: Path) -> bool:
    return path.name != LOCK and path.suffix != ".part"


def _begin(folder: Path, settings: dict[str, Any], *, overwrite: bool) -> None:
    """Note what is made in a folder; what was begun with other settings is in the way, or goes."""
    note = folder / _NOTE
    wanted = json.loads(json.dumps(settings))  # lists, not tuples, as in the note
    anew = note.exists() and _noted(note) != wanted
    if anew and not overwrite:
        raise PixnarError(
            f"{folder} was begun with another corpus or other settings: use those again, give --overwrite to begin "
            "anew, or remove it"
        )
    if anew:
        _clear(folder, but=(_NOTE,))
        note.unlink()  # last: a folder without it, but with parts, is nobody's
    for left in folder.glob("*.part"):  # what a kill interrupted
        left.unlink(missing_ok=True)
    if not note.exists():
        with atomic_write(note) as file:
            file.write(json.dumps(settings).encode())


@contextlib.contextmanager
def _packed(raw: IO[bytes], target: Path) -> Iterator[IO[bytes]]:
    if target.suffix != ".gz":
        yield raw
        return
    with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
        yield packed  # type: ignore[misc]


def total(parts: Iterable[Part]) -> Part:
    """What there is to tell of several parts, without their lines."""
    out = Part()
    for part in parts:
        out.documents += part.documents
        out.unnamed += part.unnamed
        out.dropped += part.dropped
        for source, count in part.made.items():
            out.made[source] = out.made.get(source, 0) + count
    return out


def _sum(body: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(body)


def _noted(note: Path) -> Any:
    try:
        return json.loads(note.read_bytes())
    except (OSError, ValueError):
        return None

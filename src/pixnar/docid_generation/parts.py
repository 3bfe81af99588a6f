"""Finished parts of a docid file, each of so many documents, in the working folder beside it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from pixnar.base.errors import PixnarError
from pixnar.base.storage import atomic_write, gzipped, write_json
from pixnar.base.workdir import Workdir, may_resume, read_note

_NOTE = "begun.json"
_PARTS = "*.docids"
_COUNTS = ("documents", "unnamed", "dropped", "made")  # of a part, beside its lines


@dataclass
class Part:
    """The docids of consecutive documents as lines of the output, and counts of them."""

    documents: int = 0
    unnamed: int = 0  # documents without a docid
    dropped: int = 0  # queries that did not find their document
    made: dict[str, int] = field(default_factory=dict)  # docids by source
    lines: list[bytes] = field(default_factory=list)


class Parts:
    """Parts by number. Each is one file, written whole, whose first line has the checksum of the rest."""

    def __init__(self, work: Workdir) -> None:
        self._work, self.folder = work, work.path

    @classmethod
    @contextlib.contextmanager
    def claim(cls, target: Path, settings: dict[str, Any], *, overwrite: bool = False) -> Iterator[Parts]:
        """Begin the work for a file, or resume what was begun with the same settings; no other process can."""
        work = Workdir(target, mark=_NOTE)
        with work.claim():
            note = work.path / _NOTE
            if note.exists() and not may_resume(work.path, read_note(note), settings, overwrite=overwrite):
                work.clear()
            if not note.exists():
                write_json(note, settings)
            yield cls(work)

    def write(self, number: int, part: Part) -> None:
        """Keep a part."""
        body = b"".join(part.lines)
        head = {name: getattr(part, name) for name in _COUNTS} | {"xxh3": _sum(body)}
        with atomic_write(self._path(number)) as file:
            file.write(json.dumps(head).encode() + b"\n" + body)

    def read(self, number: int) -> Part | None:
        """A part, or None if it is not there or damaged, and is to be made again."""
        try:
            with open(self._path(number), "rb") as file:
                head, body = json.loads(file.readline()), file.read()
            if head["xxh3"] != _sum(body):
                return None
            return Part(**{name: head[name] for name in _COUNTS}, lines=body.splitlines(keepends=True))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def finish(self, count: int) -> None:
        """Join the parts to the file they are for, whole or not at all, and remove the folder."""
        with self._work.output() as raw, gzipped(raw, self._work.target) as file:
            for number in range(count):
                part = self.read(number)
                if part is None:
                    raise PixnarError(f"{self._path(number)} was changed by somebody else: run the command again")
                file.writelines(part.lines)
        self._work.remove()

    def forget(self, *, all_of_it: bool = False) -> None:
        """Remove the folder if no part was done or, with `all_of_it`, in any case."""
        self._work.remove() if all_of_it else self._work.forget(_PARTS)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:07}.docids"


def total(parts: Iterable[Part]) -> Part:
    """The counts of several parts together, without their lines."""
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

"""Lines of a text file, plain or gzip, in batches: decoded once per block, with line numbers and bytes read so far."""

from __future__ import annotations

import codecs
import contextlib
import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pixnar.base.errors import CorpusError
from pixnar.base.progress import Progress
from pixnar.corpus.records import BadRow

_BLOCK = 1 << 18
_VISIBLE = re.compile(rb"[!-~]")
_GZIP_MAGIC = b"\x1f\x8b"  # can start no UTF-8 text, so a compressed file is known whatever its name


class LineBatch(NamedTuple):
    """Lines without their ends; blank and undecodable ones are in `bad`, with the same numbering from 1."""

    numbers: Sequence[int]
    lines: list[str]
    bad: list[BadRow]


class Meter:
    """Adds up the bytes of several files for one progress bar."""

    def __init__(self, stage: str, total: int, progress: Progress | None) -> None:
        self._stage = stage
        self._total = total
        self._progress = progress
        self._base = 0

    @classmethod
    def for_files(cls, stage: str, paths: Sequence[Path], progress: Progress | None) -> Meter:
        """A meter whose total is the size of the files on disk."""
        return cls(stage, sum(path.stat().st_size for path in paths) if progress else 0, progress)

    def at(self, done: int) -> None:
        """Report bytes read within the present file."""
        if self._progress:
            self._progress(self._stage, self._base + done, self._total)

    def finish_file(self, size: int) -> None:
        """The present file is done; the next one counts from here."""
        self.at(size)
        self._base += size


def read_lines(path: Path, meter: Meter) -> Iterator[LineBatch]:
    """Stream a file's lines. Blank lines at its end are dropped, others are bad rows; a byte order mark is dropped."""
    with _open(path) as (read, position, size):
        yield from split_lines(_checked(read, path), lambda: meter.at(position()))
        meter.finish_file(size)


def read_span(path: Path, begin: int, end: int) -> Iterator[LineBatch]:
    """The lines of a plain file between two offsets, which line ends stand before; numbered from 1."""
    with open(path, "rb") as raw:
        raw.seek(begin)
        left = end - begin

        def within(size: int) -> bytes:
            nonlocal left
            data = raw.read(min(size, left))
            left -= len(data)
            return data

        yield from split_lines(_checked(within, path), lambda: None)


def cut_points(path: Path, parts: int) -> list[int]:
    """Offsets that cut a file into about equal parts, each to be read by itself with `read_span`.

    A part ends behind a line with something in it, so that blank lines are in the middle or at the end of a part just
    if they are in the middle or at the end of the file. A compressed file is not cut.
    """
    try:
        raw = open(path, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise CorpusError(f"cannot read {path}: {error.strerror}; give a file that can be read") from error
    with raw:
        size = os.fstat(raw.fileno()).st_size
        if path.suffix == ".gz" or raw.peek(2).startswith(_GZIP_MAGIC):
            return [0, size]
        cuts = [0]
        for part in range(1, parts):
            raw.seek(max(size * part // parts - 1, cuts[-1]))
            raw.readline()
            while line := raw.readline():
                if _VISIBLE.search(line) and line.endswith(b"\n") and not raw.peek(3).startswith(codecs.BOM_UTF8):
                    break
            if cuts[-1] < raw.tell() < size:
                cuts.append(raw.tell())
    return [*cuts, size]


def lines_before(path: Path, offset: int) -> int:
    """How many lines end before an offset of a plain file."""
    with open(path, "rb") as raw:
        return sum(raw.read(min(_BLOCK, offset - at)).count(b"\n") for at in range(0, offset, _BLOCK))


def split_lines(read: Callable[[int], bytes], tick: Callable[[], None]) -> Iterator[LineBatch]:
    """Stream the lines of anything with a read function; `tick` is called after every block."""
    first = 1
    held: list[int] = []
    for block in _whole_lines(read):
        if first == 1:
            block = block.removeprefix(codecs.BOM_UTF8)
        lines, bad = _decode(block, first)
        count = len(lines)
        numbers: Sequence[int] = range(first, first + count)
        if bad or not all(map(str.strip, lines)):
            undecodable = {row.number for row in bad}
            full = [n for n, line in zip(numbers, lines, strict=True) if line.strip() or n in undecodable]
            last_full = full[-1] if full else 0
            blank = set(numbers).difference(full)
            if full:
                bad += [BadRow(n, "blank line", "blank line") for n in [*held, *blank] if n < last_full]
                held = []
            # Whether blank lines are in the middle or at the end shows only with what follows.
            held += sorted(n for n in blank if n > last_full)
            numbers = [n for n in full if n not in undecodable]
            lines = [lines[n - first] for n in numbers]
        elif held:
            bad = [BadRow(n, "blank line", "blank line") for n in held]
            held = []
        yield LineBatch(numbers, lines, bad)
        first += count
        tick()


def _whole_lines(read: Callable[[int], bytes]) -> Iterator[bytes]:
    parts: list[bytes] = []
    while data := read(_BLOCK):
        cut = data.rfind(b"\n") + 1
        if cut:
            yield b"".join([*parts, data[:cut]])
            parts = []
        parts.append(data[cut:])
    if rest := b"".join(parts):
        yield rest


def _decode(block: bytes, first: int) -> tuple[list[str], list[BadRow]]:
    ends = block.endswith(b"\n")
    try:
        text = block.decode()
    except UnicodeDecodeError:
        pass
    else:
        if "\r\n" in text:
            text = text.replace("\r\n", "\n")
        lines = text.split("\n")
        if ends:
            lines.pop()
        return lines, []
    lines, bad = [], []
    pieces = block.split(b"\n")
    if ends:
        pieces.pop()
    for number, piece in enumerate(pieces, first):
        try:
            lines.append(piece.removesuffix(b"\r").decode())
        except UnicodeDecodeError as error:
            detail = f"invalid UTF-8: byte 0x{piece[error.start]:02x} at position {error.start + 1} of the line"
            bad.append(BadRow(number, "invalid UTF-8", detail))
            lines.append("")
    return lines, bad


@contextlib.contextmanager
def _open(path: Path) -> Iterator[tuple[Callable[[int], bytes], Callable[[], int], int]]:
    with contextlib.ExitStack() as stack:
        try:
            raw = stack.enter_context(open(path, "rb"))
            size = os.fstat(raw.fileno()).st_size
            magic = raw.peek(2)[:2]
        except OSError as error:
            raise CorpusError(f"cannot read {path}: {error.strerror}; give a file that can be read") from error
        read = raw.read
        if magic == _GZIP_MAGIC or path.suffix == ".gz":
            if not size:
                raise CorpusError(f"{path}: empty, not even a gzip header; copy or compress it again")
            read = stack.enter_context(gzip.GzipFile(fileobj=raw)).read
        yield read, raw.tell, size


def _checked(read: Callable[[int], bytes], path: Path) -> Callable[[int], bytes]:
    def checked(size: int) -> bytes:
        try:
            return read(size)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise CorpusError(f"{path}: truncated or damaged gzip ({error}); copy or compress it again") from error
        except OSError as error:
            raise CorpusError(f"cannot read {path}: {error.strerror}; copy it again") from error

    return checked

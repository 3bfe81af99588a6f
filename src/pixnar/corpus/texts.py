"""Docid texts of a corpus folder or of plain files, whole or in shards; sentences of a text."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple, overload

from pixnar.base.errors import CorpusError
from pixnar.base.progress import Progress
from pixnar.corpus import parse
from pixnar.corpus.folder import parquet_docids, parse_docids, read_parts
from pixnar.corpus.lines import LineBatch, Meter, cut_points, lines_before, read_lines, read_span, split_lines
from pixnar.corpus.reader import Check, Corpus, NoCorpusError, open_corpus, sound_rows
from pixnar.corpus.records import BadRows, BadValueError, Batch, DocidRow, IdSet, Row, Skipped, shown

_SUFFIXES = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz", ".parquet")


def read_texts(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    skip_bad_rows: bool = False,
    progress: Progress | None = None,
    skipped: Skipped | None = None,
) -> Iterator[str]:
    r"""Stream the docids in .txt (one per line), .jsonl and .parquet files (key or column docid, else text).

    `-` is standard input, one per line. The texts come as they are in the file; blank lines of a .txt are no docids.
    A bad row stops with its file and line, or with `skip_bad_rows` is left out and counted in `skipped`.

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "names.txt")
    ...     _ = file.write_text("a hot drink\n\na plant\n")
    ...     list(read_texts(file))
    ['a hot drink', 'a plant']
    """
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    names = [os.fspath(path) for path in paths]
    for name in names:
        if name != "-":
            check_path(Path(name))
    judge = BadRows(skip_bad_rows, Skipped() if skipped is None else skipped)
    files = [Path(name) for name in names if name != "-"]
    meter = Meter.for_files("texts", files, progress)
    return chain.from_iterable(_texts(name, meter, judge) for name in names)


def docid_texts(
    sources: Sequence[str | os.PathLike[str]],
    *,
    skip_bad_rows: bool = False,
    progress: Progress | None = None,
) -> tuple[Iterator[str], Skipped]:
    """The docids of a corpus (folder or ``irds:ID``), of text files or a folder of them; and a count of skipped rows.

    ``texts, skipped = docid_texts(["my-corpus"])``
    """
    found = docid_source(sources, skip_bad_rows=skip_bad_rows)
    if isinstance(found, Corpus):
        return (row.docid for row in found.docids(progress=progress)), found.skipped
    skipped = Skipped()
    return read_texts(found, skip_bad_rows=skip_bad_rows, progress=progress, skipped=skipped), skipped


def docid_source(sources: Sequence[str | os.PathLike[str]], *, skip_bad_rows: bool = False) -> Corpus | list[str]:
    """What `docid_texts` reads: a corpus, or text files; a folder that holds no corpus is one of shards."""
    names = [os.fspath(source) for source in sources]
    if len(names) != 1:
        return names
    if names[0].startswith("irds:"):
        return open_corpus(names[0], skip_bad_rows=skip_bad_rows)
    folder = Path(names[0])
    if not folder.is_dir():
        return names
    try:
        return open_corpus(folder, skip_bad_rows=skip_bad_rows)
    except NoCorpusError:
        shards = sorted(str(file) for file in folder.iterdir() if file.name.endswith(_SUFFIXES) and file.is_file())
        if not shards:
            raise
        return shards


def _texts(name: str, meter: Meter, judge: BadRows) -> Iterator[str]:
    for batch in text_rows(name, meter):
        judge.settle(batch.file, batch.bad)
        for (text,) in batch.rows:
            yield text


def text_rows(name: str, meter: Meter, lines: Iterator[LineBatch] | None = None) -> Iterator[Batch[tuple[str]]]:
    """The docids of one file, or of some `lines` of it."""
    if name == "-":
        return _plain("<stdin>", split_lines(sys.stdin.buffer.read, lambda: None))
    path = Path(name)
    kind = name.removesuffix(".gz")
    if kind.endswith(".parquet"):
        return read_parts([path], [("docid", "text")], lambda _: lambda values: _one(values[0], "docid"), meter)
    lines = lines or read_lines(path, meter)
    return _plain(name, lines) if kind.endswith(".txt") else parse.read_rows(name, lines, _from_json)


def _plain(name: str, batches: Iterable[LineBatch]) -> Iterator[Batch[tuple[str]]]:
    for numbers, lines, bad in batches:
        rows = [(line,) for line in lines if parse.names_something(line)]
        yield Batch(name, numbers, rows, [row for row in bad if row.reason != "blank line"])


def _from_json(line: str) -> tuple[str]:
    row = parse.json_object(line)
    for key in ("docid", "text"):
        if key in row:
            return _one(row[key], key)
    raise BadValueError("missing key", 'no key "docid" or "text"')


def _one(value: object, key: str) -> tuple[str]:
    text = parse.a_text(value, key)
    if not parse.names_something(text):
        raise BadValueError("empty docid", f'"{key}" {shown(text)} is empty after normalisation')
    return (text,)


def check_path(path: Path) -> None:
    """Raise if a file of texts is not there, or of an unknown kind."""
    if path.is_dir():
        raise CorpusError(f"{path} is a folder; give files ({', '.join(_SUFFIXES)}) or - for standard input")
    if not path.is_file():
        raise CorpusError(f"no file or folder {path}; give a corpus folder, files ({', '.join(_SUFFIXES)}), or -")
    if not path.name.endswith(_SUFFIXES):
        raise CorpusError(f"{path}: unknown kind of file; give files ending in {', '.join(_SUFFIXES)}")


LEAST_BYTES = 1 << 20  # of a stretch; less is not worth a job of its own
MOST_BYTES = 256 << 20  # and more is too much to be read again when a worker dies


class Shard(NamedTuple):
    """A file, from one offset to another; all of it where it cannot be cut."""

    path: Path
    begin: int
    end: int
    whole: bool


def cut_files(paths: Sequence[Path], parts: int, least: int = LEAST_BYTES) -> list[Shard]:
    """Files as about `parts` shards of about equal size, or more if they are large, in order.

    Compressed files and Parquet stay whole.
    """
    try:
        sizes = [path.stat().st_size for path in paths]
    except OSError as error:
        raise CorpusError(f"cannot read {error.filename}: {error.strerror}; give files that can be read") from error
    share = min(max(sum(sizes) / max(parts, 1), least, 1), MOST_BYTES)
    shards = []
    for path, size in zip(paths, sizes, strict=True):
        pieces = 1 if path.name.endswith((".gz", ".parquet")) else max(round(size / share), 1)
        cuts = cut_points(path, pieces) if pieces > 1 else [0, size]
        shards += [Shard(path, begin, end, len(cuts) == 2) for begin, end in pairwise(cuts)]
    return shards


def shard_docids(
    shard: Shard, known: IdSet | None, *, skip_bad_rows: bool, skipped: Skipped
) -> Iterator[list[DocidRow]]:
    """The docids of a shard as `Corpus.docids` gives them; those of documents that are not `known` are bad rows."""
    if shard.path.name.endswith(".parquet"):
        batches = parquet_docids([shard.path], "docids", None)
    else:
        batches = parse_docids(shard.path, _lines(shard))
    checks: list[Check] = [] if known is None else [(0, known.contains, "unknown document id")]
    return sound_rows(map(_placed(shard), batches), checks, BadRows(skip_bad_rows, skipped))


def shard_texts(shard: Shard, *, skip_bad_rows: bool, skipped: Skipped) -> Iterator[str]:
    """The docids of a shard as `read_texts` gives them."""
    batches = text_rows(os.fspath(shard.path), Meter("texts", 0, None), None if shard.whole else _lines(shard))
    rows = sound_rows(map(_placed(shard), batches), (), BadRows(skip_bad_rows, skipped))
    return (text for (text,) in chain.from_iterable(rows))


def _lines(shard: Shard) -> Iterator[LineBatch]:
    if shard.whole:
        return read_lines(shard.path, Meter("docids", 0, None))
    return read_span(shard.path, shard.begin, shard.end)


def _placed(shard: Shard) -> Callable[[Batch[Row]], Batch[Row]]:
    """Batches with the numbers that their lines have in the file; the lines before are counted only if one is asked."""
    if shard.whole or shard.begin == 0:
        return lambda batch: batch
    before = functools.cache(lambda: lines_before(shard.path, shard.begin))

    def placed(batch: Batch[Row]) -> Batch[Row]:
        bad = [row._replace(number=row.number + before()) for row in batch.bad]
        return Batch(batch.file, _ShiftedNumbers(batch.numbers, before), batch.rows, bad)

    return placed


class _ShiftedNumbers(Sequence[int]):
    def __init__(self, numbers: Sequence[int], before: Callable[[], int]) -> None:
        self._numbers, self._before = numbers, before

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> int: ...

    @overload
    def __getitem__(self, at: slice) -> list[int]: ...

    def __getitem__(self, at: int | slice) -> int | list[int]:
        if isinstance(at, slice):
            return [number + self._before() for number in self._numbers[at]]
        return self._numbers[at] + self._before()


LONGEST = 12  # words of a sentence; longer ones are cut, where they can be, at commas

_QUOTES = "\"'”’»)\\]"
_END = re.compile(rf"(?<![.!?…])[.!?…]++[{_QUOTES}]*+(?=\s)|[。！？]+[{_QUOTES}」』]*|\n\s*\n")  # one try for a run
_LAST_WORD = re.compile(r"[^\W\d_]+$")
_CLAUSE = re.compile(r"(?<=[,;:])\s+|\s+(?=[(–—])|(?<=[、，；：])")
_ABBREVIATED = (
    "al approx capt cf co col corp dept dr ed eds eg fig gen gov hon ie inc jr lt ltd maj mr mrs ms mt no nos op pp "
    "prof rep rev sen sgt sr st vol vs"
)
_SHORT = frozenset(_ABBREVIATED.split())  # words that a full stop follows without an end


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, as they stand there, in any language that ends them with one of . ! ? … 。！？

    >>> split_sentences('Dr. A. Smith came at 5 p.m. on foot. "Why?" he was asked! He did not say...')
    ['Dr. A. Smith came at 5 p.m. on foot.', '"Why?" he was asked!', 'He did not say...']
    """
    found, start = [], 0
    for end in _END.finditer(text):
        if _ends(text, end):
            found.append(text[start : end.end()].strip())
            start = end.end()
    found.append(text[start:].strip())
    return [sentence for sentence in found if sentence]


def _ends(text: str, mark: re.Match[str]) -> bool:
    sign = mark.group()[0]
    if sign not in ".!?…":
        return True
    after = text[mark.end() : mark.end() + 64].lstrip(" \t\"'“‘«([")[:1]
    if after.islower():
        return False
    if not mark.group().startswith(".") or mark.group().startswith(".."):
        return True
    before = _LAST_WORD.search(text, max(0, mark.start() - 16), mark.start())
    word = before.group() if before else ""
    return not (word.lower() in _SHORT or (len(word) == 1 and word.isupper() and word != "I"))


def cut_sentence(sentence: str, longest: int = LONGEST) -> list[str]:
    """A sentence of at most so many words as it is; a longer one in parts, cut at commas and the like where it can be.

    >>> cut_sentence("It rained all day, which nobody minded, and all night.", 5)
    ['It rained all day,', 'which nobody minded,', 'and all night.']
    """
    if len(sentence.split()) <= longest:
        return [sentence]
    parts: list[list[str]] = [[]]
    for clause in filter(None, _CLAUSE.split(" ".join(sentence.split()))):
        row = clause.split()
        if len(parts[-1]) + len(row) > longest:
            parts += [row[i : i + longest] for i in range(0, len(row), longest)]
        else:
            parts[-1] += row
    return [" ".join(part) for part in parts if part]

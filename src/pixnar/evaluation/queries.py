"""Judged queries of a split, and TREC files of runs and judgements, read and written."""

from __future__ import annotations

import gzip
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pixnar.base.errors import PixnarError
from pixnar.base.storage import atomic_write
from pixnar.corpus import Corpus
from pixnar.corpus.lines import Meter, read_lines
from pixnar.corpus.records import is_text
from pixnar.vocab import normalize

MOST = 2000


@dataclass(frozen=True)
class Queries:
    """Queries of a split: ids, normalised texts, and the grades of the documents judged for each."""

    ids: list[str]
    texts: list[str]
    grades: list[dict[str, int]]

    @cached_property
    def relevant(self) -> list[set[str]]:
        """The documents that are relevant to each."""
        return [{doc_id for doc_id, grade in judged.items() if grade > 0} for judged in self.grades]

    def __len__(self) -> int:
        return len(self.ids)

    def first(self, most: int) -> Queries:
        """The first so many; a sample is in random order, so they are a sample, too."""
        return Queries(self.ids[:most], self.texts[:most], self.grades[:most])

    @property
    def qrels(self) -> dict[str, set[str]]:
        """The relevant documents of every query, as the metrics take them."""
        return dict(zip(self.ids, self.relevant, strict=True))

    @property
    def judgements(self) -> dict[str, dict[str, int]]:
        """The grades of every query, as the measures take them."""
        return dict(zip(self.ids, self.grades, strict=True))


def read_queries(corpus: Corpus, split: str, most: int = MOST) -> Queries:
    """The judged queries of a split; of more than `most` a sample, drawn with seed 0 from the sorted ids."""
    if split not in corpus.splits():
        return Queries([], [], [])
    judged: dict[str, dict[str, int]] = {}
    for row in corpus.qrels(split):
        judged.setdefault(row.query_id, {})[row.doc_id] = int(row.score)
    ids = sorted(query_id for query_id, grades in judged.items() if max(grades.values()) > 0)
    if most and len(ids) > most:
        ids = [ids[i] for i in np.random.default_rng(0).permutation(len(ids))[:most]]
    wanted = set(ids)
    texts = {query.query_id: normalize(query.text) for query in corpus.queries() if query.query_id in wanted}
    ids = [query_id for query_id in ids if query_id in texts]
    return Queries(ids, [texts[i] for i in ids], [judged[i] for i in ids])


Run = Mapping[str, Sequence[tuple[str, float]]]
"""For every query its documents and their scores, best first."""

Qrels = Mapping[str, Mapping[str, int]]
"""For every query the grade of each judged document; above 0 is relevant."""


def read_run(path: str | os.PathLike[str]) -> dict[str, list[tuple[str, float]]]:
    """Read lines of ``query Q0 document rank score name``; a name that ends in .gz is unpacked.

    As trec_eval does: ranks are not looked at, documents are sorted by score, in 32 bits, and equals by id, the last
    one first.
    """
    scores: dict[str, dict[str, float]] = {}
    for number, fields in _lines(path):
        if len(fields) != 6:
            raise PixnarError(f"{path}:{number}: {len(fields)} columns, a run has 6: query Q0 document rank score name")
        query, document = fields[0], fields[2]
        with np.errstate(over="ignore"):
            score = float(np.float32(_number(fields[4], path, number)))
        if not math.isfinite(score):
            raise PixnarError(f"{path}:{number}: the score {fields[4]} is too large for 32 bits: scale scores down")
        if document in scores.setdefault(query, {}):
            raise PixnarError(f"{path}:{number}: query {query} has document {document} twice: remove one of the lines")
        scores[query][document] = score
    if not scores:
        raise PixnarError(f"{path} is empty: give a run, lines of: query Q0 document rank score name")
    return {
        query: sorted(found.items(), key=lambda pair: (pair[1], pair[0].encode()), reverse=True)
        for query, found in scores.items()
    }


def write_run(path: str | os.PathLike[str], run: Run, name: str = "pixnar") -> None:
    """Write a run, atomically; the scores of equals are set apart, so that everyone reads the order we mean."""
    _write(path, [line for query, hits in run.items() for line in run_lines(query, hits, name)])


def run_lines(query: str, hits: Sequence[tuple[str, float]], name: str = "pixnar") -> Iterator[str]:
    """The lines of one query, whose documents are given best first."""
    last = np.float32(np.inf)
    for rank, (doc_id, score) in enumerate(hits, 1):
        last = min(np.float32(score), np.nextafter(last, np.float32(-np.inf)))  # whoever reads it has 32 bits
        yield f"{_word(query)} Q0 {_word(doc_id)} {rank} {last:.9g} {name}\n"


def read_qrels(path: str | os.PathLike[str]) -> dict[str, dict[str, int]]:
    """Read judgements: ``query 0 document grade`` as TREC has them, or ``query document grade`` as BEIR has them."""
    qrels: dict[str, dict[str, int]] = {}
    for number, fields in _lines(path):
        if number == 1 and fields[-1].lower() in ("score", "grade", "relevance", "rel"):
            continue
        if len(fields) not in (3, 4):
            raise PixnarError(f"{path}:{number}: {len(fields)} columns, judgements have: query 0 document grade")
        grade = _number(fields[-1], path, number)
        if grade != int(grade):
            raise PixnarError(f"{path}:{number}: the grade {fields[-1]} is no whole number")
        qrels.setdefault(fields[0], {})[fields[-2]] = int(grade)
    if not qrels:
        raise PixnarError(f"{path} has no judgements: give lines of: query 0 document grade")
    return qrels


def write_qrels(path: str | os.PathLike[str], qrels: Qrels) -> None:
    """Write judgements as TREC has them, atomically."""
    _write(
        path,
        [
            f"{_word(query)} 0 {_word(doc_id)} {grade}\n"
            for query, judged in qrels.items()
            for doc_id, grade in judged.items()
        ],
    )


def check_ids(ids: Iterable[str]) -> None:
    """Raise if one of the ids cannot stand in such a file."""
    for one in ids:
        _word(one)


def _lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, list[str]]]:
    """The numbers and columns of the lines; a blank line is skipped."""
    for batch in read_lines(Path(path), Meter("reading", 0, None)):
        for row in batch.bad:
            if row.reason != "blank line":
                raise PixnarError(f"{path}:{row.number}: {row.detail}; write the file again in UTF-8")
        for number, line in zip(batch.numbers, batch.lines, strict=True):
            yield number, [part.strip() for part in line.split("\t")] if "\t" in line.strip() else line.split()


def _number(text: str, path: str | os.PathLike[str], line: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise PixnarError(f"{path}:{line}: {text!r} is no number")
    return value


def _word(text: str) -> str:
    """A name that can stand in a column."""
    if not text or text.split() != [text]:
        raise PixnarError(f"the id {text!r} cannot be written to a TREC file: its columns are separated by blanks")
    if not is_text(text):
        raise PixnarError(f"the id {text!r} cannot be written to a TREC file: it is no Unicode text")
    return text


def _write(path: str | os.PathLike[str], lines: Sequence[str]) -> None:
    content = "".join(lines).encode()
    with atomic_write(path) as file:
        file.write(gzip.compress(content, mtime=0) if Path(path).suffix == ".gz" else content)

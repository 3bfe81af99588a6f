"""Held-out names: some docids of a corpus without a dev split become its dev queries."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import xxhash

from pixnar.base.normalize import normalize
from pixnar.base.progress import Progress
from pixnar.corpus.errors import BadRow
from pixnar.corpus.reader import Corpus, Source
from pixnar.corpus.records import Batch, DocidRow, Qrel, Query

DEV = "dev"
_LEAST_NAMES = 3  # of a document that gives one away
_FEWEST = 50  # queries below which nothing can be selected


def hold_out(corpus: Corpus, most: int, seed: int = 0, progress: Progress | None = None) -> Corpus:
    """The same corpus with up to `most` of its docids as a dev split; the corpus itself where that would be too few.

    Documents are drawn by a hash of their ids, one in ten at the most; one with three or more docids gives one away. A
    docid that names several documents stays. `held_out` of the new corpus lists what is missing from its docids.
    """
    documents = Counter(row.doc_id for row in corpus.docids(progress))
    rich = sorted((_hash(doc_id, seed), doc_id) for doc_id, names in documents.items() if names >= _LEAST_NAMES)
    drawn = {doc_id for _, doc_id in rich[: min(most, len(documents) // 10)]}
    if len(drawn) < _FEWEST:
        return corpus
    titles = {row.doc_id: normalize(row.title) for row in corpus.documents(progress) if row.doc_id in drawn}
    names: dict[str, list[str]] = defaultdict(list)
    for row in corpus.docids(progress):
        if row.doc_id in drawn and normalize(row.docid) != titles.get(row.doc_id):  # other sources read titles
            names[row.doc_id].append(row.docid)
    chosen = {doc_id: min(texts, key=lambda text: _hash(text, seed)) for doc_id, texts in names.items()}
    keys = {normalize(text): DocidRow(doc_id, text) for doc_id, text in chosen.items()}
    times = Counter(key for row in corpus.docids(progress) if (key := normalize(row.docid)) in keys)
    rows = {key: row for key, row in keys.items() if times[key] == 1}
    if len(rows) < _FEWEST:
        return corpus
    other = Corpus(
        corpus.name, _HeldOut(corpus._source, rows), skip_bad_rows=corpus.skip_bad_rows, check_ids=corpus._check
    )
    other.skipped, other._doc_ids, other.held_out = corpus.skipped, corpus._doc_ids, list(rows.values())
    return other


def _hash(text: str, seed: int) -> int:
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"), seed)


class _HeldOut:
    """Another source with some of its docids as queries."""

    def __init__(self, source: Source, rows: dict[str, DocidRow]) -> None:
        self._source, self._rows, self._held = source, rows, set(rows.values())
        self.documents, self.docid_files = source.documents, source.docid_files

    def docids(self, stage: str, progress: Progress | None) -> Iterator[Batch[DocidRow]]:
        for batch in self._source.docids(stage, progress):
            kept = [i for i, row in enumerate(batch.rows) if row not in self._held]
            yield Batch(batch.file, [batch.numbers[i] for i in kept], [batch.rows[i] for i in kept], batch.bad)

    def queries(self, stage: str, progress: Progress | None) -> Iterator[Batch[Query]]:
        rows = [Query(f"held-out-{number}", row.docid) for number, row in enumerate(self._rows.values())]
        yield from _one_batch(rows)
        if self._source.splits():
            yield from self._source.queries(stage, progress)

    def qrels(self, split: str, stage: str, progress: Progress | None) -> Iterator[Batch[Qrel]]:
        if split != DEV:
            yield from self._source.qrels(split, stage, progress)
            return
        yield from _one_batch([Qrel(f"held-out-{i}", row.doc_id, 1) for i, row in enumerate(self._rows.values())])

    def splits(self) -> list[str]:
        return [*self._source.splits(), DEV]


def _one_batch(rows: list) -> Iterator[Batch]:  # type: ignore[type-arg]
    bad: list[BadRow] = []
    yield Batch(str(Path("held-out names")), range(1, len(rows) + 1), rows, bad)

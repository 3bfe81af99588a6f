"""Queries made from others: held-out docids as dev queries, and typos, dropped and shuffled words."""

from __future__ import annotations

import hashlib
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
import xxhash

from pixnar.base.errors import PixnarError
from pixnar.base.normalize import normalize
from pixnar.base.progress import Progress
from pixnar.corpus.reader import Corpus, Source
from pixnar.corpus.records import Batch, DocidRow, Qrel, Query, batches

T = TypeVar("T")

DEV = "dev"
_LEAST_NAMES = 3  # of a document that gives one away
FEWEST = 50  # queries below which nothing can be selected


def hold_out(corpus: Corpus, most: int, seed: int = 0, progress: Progress | None = None) -> Corpus:
    """The same corpus with up to `most` of its docids as a dev split; the corpus itself where that would be too few.

    Documents are drawn by a hash of their ids, one in ten at the most; one with three or more docids gives one away. A
    docid that names several documents stays. `held_out` of the new corpus lists what is missing from its docids.
    """
    documents = Counter(row.doc_id for row in corpus.docids(progress))
    rich = sorted((_hash(doc_id, seed), doc_id) for doc_id, names in documents.items() if names >= _LEAST_NAMES)
    drawn = {doc_id for _, doc_id in rich[: min(most, len(documents) // 10)]}
    if len(drawn) < FEWEST:
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
    if len(rows) < FEWEST:
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
        rows = (Query(f"held-out-{number}", row.docid) for number, row in enumerate(self._rows.values()))
        yield from batches("held-out names", rows)
        if self._source.splits():
            yield from self._source.queries(stage, progress)

    def qrels(self, split: str, stage: str, progress: Progress | None) -> Iterator[Batch[Qrel]]:
        if split != DEV:
            yield from self._source.qrels(split, stage, progress)
            return
        rows = (Qrel(f"held-out-{number}", row.doc_id, 1) for number, row in enumerate(self._rows.values()))
        yield from batches("held-out names", rows)

    def splits(self) -> list[str]:
        return [*self._source.splits(), DEV]


MOST_EDITS = 1000
_KEYBOARD = ("1234567890", "qwertyuiop", "asdfghjkl", "zxcvbnm")  # each row lies half a key to the right of the last


@dataclass(frozen=True, kw_only=True)
class Perturbation:
    """What is done to a query: words are dropped, then shuffled, then characters are edited.

    >>> Perturbation(typos=1).apply("cheap flights to rome", "q1") == "cheap flights to rome"
    False
    """

    typos: int = 0
    drop_words: int = 0
    shuffle_words: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value, high in (
            ("typos", self.typos, MOST_EDITS),
            ("drop_words", self.drop_words, MOST_EDITS),
            ("seed", self.seed, 2**63 - 1),
        ):
            if not 0 <= value <= high:
                raise PixnarError(f"perturbation: {name} = {value}: give a whole number from 0 to {high:,}")

    def __bool__(self) -> bool:
        """Whether anything is done to queries."""
        return bool(self.typos or self.drop_words or self.shuffle_words)

    def __str__(self) -> str:
        parts = [_count(self.typos, "typo")] if self.typos else []
        parts += [f"{_count(self.drop_words, 'word')} dropped"] if self.drop_words else []
        parts += ["words shuffled"] if self.shuffle_words else []
        return ", ".join(parts) or "unchanged"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def apply(self, text: str, query_id: str) -> str:
        """The perturbed text of a query. It depends on the text, the settings and the id alone, not on the machine.

        A query keeps at least one word, a word at least one letter or digit, and edits leave white space as it is. A
        query of one word can be neither shortened nor shuffled, and one without letters and digits has no typos.
        """
        random = _random(self.seed, query_id)
        if self.drop_words or self.shuffle_words:
            words = text.split()
            kept = random.permutation(len(words))[: max(len(words) - self.drop_words, 1)]
            order = kept if self.shuffle_words else np.sort(kept)
            text = " ".join(words[i] for i in order.tolist())
        for _ in range(self.typos):
            text = _edited(text, random)
        return text


def _random(seed: int, query_id: str) -> np.random.Generator:
    """A generator of the query's own, so that no query depends on which others are asked."""
    key = f"{seed}\n{query_id}".encode("utf-8", "surrogatepass")
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(key, digest_size=16).digest(), "little"))


def _edited(text: str, random: np.random.Generator) -> str:
    """The text after one edit at a letter or digit: an insertion, a replacement, a deletion or a transposition."""
    places = [i for i, character in enumerate(text) if character.isalnum()]
    if not places:
        return text
    i = _one_of(places, random)
    before, character, after = text[:i], text[i], text[i + 1 :]
    other = _one_of(neighbours(character), random)
    edits = [_one_of([before + other + text[i:], before + character + other + after], random), before + other + after]
    if any(one.isalnum() for one in _word_around(before, after)):
        edits.append(before + after)
    if after[:1].isalnum() and after[0] != character:
        edits.append(before + after[0] + character + after[1:])
    return _one_of(edits, random)


def _word_around(before: str, after: str) -> str:
    """What is left of a word when the character between its two sides is deleted."""
    left, right = before.split(), after.split()
    head = left[-1] if left and not before[-1].isspace() else ""
    return head + (right[0] if right and not after[0].isspace() else "")


def neighbours(character: str) -> list[str]:
    """Characters that a finger may hit instead: the next keys, or elsewhere the next letters of the alphabet.

    >>> "".join(neighbours("g")), "".join(neighbours("É"))
    ('tyfhvb', 'ÇÈÊË')
    """
    for r, row in enumerate(_KEYBOARD):
        i = row.find(character.lower())
        if i >= 0:
            keys = [(r - 1, i), (r - 1, i + 1), (r, i - 1), (r, i + 1), (r + 1, i - 1), (r + 1, i)]
            near = [_KEYBOARD[a][b] for a, b in keys if 0 <= a < len(_KEYBOARD) and 0 <= b < len(_KEYBOARD[a])]
            return [key.upper() for key in near] if character.isupper() else near
    kind = unicodedata.category(character)
    near = [chr(ord(character) + step) for step in (-2, -1, 1, 2)]
    return [one for one in near if unicodedata.category(one) == kind] or ["e"]


def _one_of(choices: Sequence[T], random: np.random.Generator) -> T:
    return choices[int(random.integers(len(choices)))]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

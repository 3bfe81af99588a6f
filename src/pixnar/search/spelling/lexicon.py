"""The lexicon: the distinct words of a corpus with how often each occurs, in one file that is mapped.

It also has words that the query encoder knows and the corpus lacks, with the count 0: they are right as they are, and
nothing is corrected to them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pixnar import _native
from pixnar.base.errors import FileFormatError
from pixnar.base.normalize import normalize, normalize_lines
from pixnar.base.progress import Progress
from pixnar.base.storage import read_container, write_container
from pixnar.base.strings import SortedStrings
from pixnar.corpus import Corpus
from pixnar.fusion.atoms import words
from pixnar.fusion.postings import damaged

_KIND, _VERSION = "lexicon", 1
_BATCH = 20_000  # texts that are normalised together
LONGEST = 64  # characters of a word; longer ones are neither kept nor corrected
LEXICON = "lexicon.pixnar"  # words of the corpus, for the spelling of queries


class Neighbour(NamedTuple):
    """A word of the lexicon one edit away from another word, and how often it occurs."""

    word: str
    frequency: int


class Lexicon:
    """Words and their counts, over sorted arrays: nothing is unpacked when a file is opened.

    >>> lexicon = Lexicon.of({"pizza": 3, "rome": 7, "roma": 0})
    >>> "roma" in lexicon, "rmoe" in lexicon, lexicon.near("rome"), lexicon.near("rom")
    (True, False, [], [Neighbour(word='rome', frequency=7)])
    """

    def __init__(self, table: SortedStrings, counts: NDArray[np.uint32], *, where: str = "") -> None:
        """Use `of`, `build` or `load`; `where` names a file."""
        if len(counts) != len(table) or counts.dtype != np.uint32:
            raise ValueError(f"{len(counts)} counts of {counts.dtype} for {len(table)} words")
        self.table, self.counts, self._where = table, counts, where

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> Lexicon:
        """A lexicon of these words."""
        table = SortedStrings.of(sorted(counts))
        most = np.iinfo(np.uint32).max
        return cls(table, np.array([min(counts[word], most) for word in table], np.uint32))

    @classmethod
    def build(cls, texts: Iterable[str], known: Iterable[str] = ()) -> Lexicon:
        """The words of texts of any form, which are normalised first; `known` are words that count 0."""
        counted: Counter[str] = Counter(dict.fromkeys(known, 0))
        rest = iter(texts)
        while some := list(islice(rest, _BATCH)):
            for line in normalize_lines(some).decode().split("\n"):  # the words of one text at a time are in memory
                counted.update(words(line))
        return cls.of({word: count for word, count in counted.items() if len(word) <= LONGEST})

    @classmethod
    def of_corpus(cls, corpus: Corpus, known: Iterable[str] = (), progress: Progress | None = None) -> Lexicon:
        """The words of a corpus' docids, titles and texts, and some that are `known`; queries do not count."""

        def texts() -> Iterable[str]:
            if corpus.has_docids():
                for row in corpus.docids(progress):
                    yield row.docid
            for document in corpus.documents(progress):
                yield document.title
                yield document.text

        return cls.build(texts(), known)

    def __len__(self) -> int:
        return len(self.table)

    def __contains__(self, word: str) -> bool:
        return self.table.find(word) is not None

    def near(self, word: str) -> list[Neighbour]:
        """The words of the corpus at Damerau-Levenshtein distance 1, in the order of their UTF-8 bytes.

        Characters from U+2E80 on (CJK) are neither inserted nor do they replace others. `reference.near` is the same
        the slow way.
        """
        table = self.table
        found = _native.near_sorted(table.data, table.offsets, word.encode())
        counts = self.counts[found].tolist()
        try:
            return [Neighbour(table[i], count) for i, count in zip(found.tolist(), counts, strict=True) if count]
        except UnicodeDecodeError as error:
            raise damaged(self._where, "a word is not Unicode text") from error

    def lookup(self, words: Sequence[str]) -> list[list[Neighbour] | None]:
        """What `near` finds of each word; None of one that is in the lexicon itself."""
        return [None if word in self else self.near(word) for word in words]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file, atomically."""
        arrays: dict[str, NDArray[Any]] = {
            "bytes": self.table.data,
            "offsets": self.table.offsets,
            "counts": self.counts,
        }
        write_container(path, _KIND, _VERSION, {"words": len(self)}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = True) -> Lexicon:
        """Map a file that `save` wrote; `verify` reads all of it to find damage."""
        arrays = read_container(path, _KIND, _VERSION, verify=verify).arrays
        try:
            table = SortedStrings(arrays["bytes"], arrays["offsets"], verify=verify, where=os.fspath(path))
            return cls(table, arrays["counts"], where=os.fspath(path))
        except (KeyError, ValueError) as error:
            raise FileFormatError(f"{path} holds no usable lexicon ({error}): build the index again") from error


def words_of_tokenizers(folder: Path) -> list[str]:
    """The whole words that the tokenizers of a baseline or an index have, wherever in the folder they lie."""
    files = sorted(folder.rglob("tokenizer.json"))
    return sorted({word for file in files for word in whole_words(Tokenizer.from_file(str(file)).get_vocab())})


def whole_words(pieces: Iterable[str]) -> list[str]:
    """The entries of a tokenizer's vocabulary that may be whole words, normalised and sorted.

    Those are the pieces that begin a word: behind "▁" or "Ġ" where a tokenizer marks beginnings, without "##" where it
    marks continuations.

    >>> whole_words(["[CLS]", "tea", "##pot", "pot", "!"]), whole_words(["▁Tea", "pot", "▁", "<s>"])
    (['pot', 'tea'], ['tea'])
    """
    listed = [piece for piece in pieces if piece[:1] + piece[-1:] not in ("[]", "<>")]
    for mark in "▁Ġ":
        if any(len(piece) > 1 and piece.startswith(mark) for piece in listed):
            listed = [piece[1:] for piece in listed if piece.startswith(mark)]
    normal = {normalize(piece) for piece in listed if not piece.startswith("##")}
    return sorted(word for word in normal if words(word) == [word])

"""Spelling: the lexicon of a corpus' words, in one file that is mapped, and query words corrected by it.

The lexicon also has words that the query encoder knows and the corpus lacks, with the count 0: they are right as they
are, and nothing is corrected to them.
"""

from __future__ import annotations

import functools
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

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
from pixnar.corpus.queries import neighbours
from pixnar.fusion.postings import damaged
from pixnar.fusion.terms import word_pattern, words
from pixnar.search.types import Hit, Retriever

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

        Characters from U+2E80 on (CJK) are neither inserted nor do they replace others. `search.reference.near` is
        the same the slow way.
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


_SHORTEST = 3  # characters of a word that is corrected: shorter ones have too many neighbours
_MOST = 16  # unknown words of a text that are looked up: a long text in another language must not take long
_LIKELY = 2.0  # what a slip of the finger is worth, in units of log frequency


class AddedWords(Protocol):
    """Words beside a lexicon: a second lexicon, or words that are known elsewhere."""

    def lookup(self, words: Sequence[str]) -> list[list[Neighbour] | None]:
        """The words one edit away from each; None of one that is right as it is."""
        ...


class Speller:
    """Corrects the words of normalised texts by a lexicon.

    A word is left alone if the lexicon has it, or has it without a final s, if it is shorter than three characters, if
    it holds a digit, and if no word that occurs `least` times is one edit away. Among several the most frequent wins;
    one that a slip of the finger explains (see `is_slip`) counts as if it were seven times as frequent.

    >>> speller = Speller(Lexicon.of({"pizza": 3, "in": 9, "rome": 7}))
    >>> speller.correct("piza in rmoe, 1999"), Speller(speller.lexicon, least=4).correct("piza in rmoe, 1999")
    ('pizza in rome, 1999', 'piza in rome, 1999')
    """

    def __init__(self, lexicon: Lexicon, added: AddedWords | None = None, *, least: int = 1) -> None:
        """`added` has words that came later than those of the lexicon; they need not occur `least` times."""
        self.lexicon, self.added, self.least = lexicon, added, least

    def with_added(self, texts: Iterable[str]) -> Speller:
        """The same with the words of these normalised texts, each counted once, in place of any added before."""
        return self.with_words(Lexicon.of({word: 1 for text in texts for word in words(text)}))

    def with_words(self, added: AddedWords) -> Speller:
        """The same with these words in place of any added before."""
        return Speller(self.lexicon, added, least=self.least)

    def correct(self, text: str) -> str:
        """The text with its unknown words replaced; white space, punctuation and all other words stay."""
        pattern = word_pattern(text)
        unknown = self._unknown(pattern.findall(text))
        if not unknown:
            return text
        added = [[]] * len(unknown) if self.added is None else self.added.lookup(unknown)
        fixed = {
            word: best(word, [near for near in self.lexicon.near(word) if near.frequency >= self.least] + more)
            for word, more in zip(unknown, added, strict=True)
            if more is not None
        }
        if all(word == other for word, other in fixed.items()):
            return text
        return normalize(pattern.sub(lambda match: fixed.get(match[0], match[0]), text))

    def _unknown(self, words: Sequence[str]) -> list[str]:
        """The distinct words that may have to be corrected, the first few of them."""
        listed = [word for word in dict.fromkeys(words) if _SHORTEST <= len(word) <= LONGEST]
        singular = [word.removesuffix("s") for word in listed]  # a final s makes new words more often than typos do
        numbers = self.lexicon.table.numbers(listed + singular).reshape(2, -1).max(0).tolist()
        unknown = (word for word, number in zip(listed, numbers, strict=True) if number < 0)
        return list(islice((word for word in unknown if not any(map(str.isdigit, word))), _MOST))


def best(word: str, found: Sequence[Neighbour]) -> str:
    """The likeliest of some words to have been meant by another; of equally likely ones the first by its letters.

    >>> best("fsh", [Neighbour("fish", 2), Neighbour("ash", 9)])
    'fish'
    """
    if not found:
        return word
    return min(found, key=lambda one: (-math.log(one.frequency) - _LIKELY * is_slip(one.word, word), one.word)).word


def is_slip(meant: str, typed: str) -> bool:
    """Whether a word one edit away is what a slip of the finger makes of another.

    Letters left out and letters swapped are. A letter too many is if it lies beside its neighbour in the word, or
    repeats it; a wrong letter is if it lies beside the right one on the keyboard.

    >>> is_slip("rome", "rpme"), is_slip("rome", "rzme"), is_slip("rome", "rommme")
    (True, False, True)
    """
    first = next((i for i, (a, b) in enumerate(zip(meant, typed, strict=False)) if a != b), min(len(meant), len(typed)))
    if len(typed) < len(meant):
        return True
    if len(typed) > len(meant):
        beside = typed[max(first - 1, 0) : first] + typed[first + 1 : first + 2]
        return any(typed[first] == other or typed[first] in _beside(other) for other in beside)
    swapped = typed[first : first + 2] == meant[first : first + 2][::-1]
    return swapped or typed[first] in _beside(meant[first])


@functools.cache
def _beside(key: str) -> frozenset[str]:
    return frozenset(neighbours(key))


class Corrected:
    """A `Retriever` that asks another one for corrected texts."""

    def __init__(self, retriever: Retriever, speller: Speller) -> None:
        self.retriever, self.speller = retriever, speller

    def search(self, query: str, k: int = 10) -> list[Hit]:
        """The k best documents of the corrected query."""
        return self.retriever.search(self.speller.correct(normalize(query)), k)

    def search_batch(self, queries: Sequence[str], k: int = 10) -> list[list[Hit]]:
        """The same for many queries."""
        return self.retriever.search_batch([self.speller.correct(normalize(query)) for query in queries], k)

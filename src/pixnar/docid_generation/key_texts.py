"""Key texts: titles, headings, and the phrases and sentences that say most of what a text is about."""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError
from pixnar.base.normalize import normalize
from pixnar.base.storage import read_container, write_container
from pixnar.base.strings import SortedStrings
from pixnar.corpus import Document
from pixnar.corpus.texts import LONGEST, cut_sentence, split_sentences
from pixnar.fusion.terms import STOP_WORDS, words

_MARKDOWN = re.compile(r" {0,3}#{1,6}[ \t]")
_UNDERLINE = re.compile(r" {0,3}(?:={3,}|-{3,})[ \t]*")
_HTML = re.compile(r"<(/?)h[1-6]\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_SENTENCE_END = (".", "!", ",", ";", "。", "！")
_LONGEST = 12  # words of a line that may be a heading because it stands alone
_WIDEST = 80  # its characters
_MOST = 400  # characters of any heading: what is longer is text whose mark was left open


def titles(document: Document, most: int) -> list[str]:
    r"""The title of a document, and up to `most` headings: those of its text, or of the key `headings` of its row.

    Headings are known by their marks (Markdown, wiki, HTML) or by standing alone between empty lines. A heading
    says little by itself ("History"), so the title goes before it.

    >>> titles(Document("d1", "Tea", "# Plant\nIt is a shrub.\n\n# Drink\nIt is hot.", {}), 5)
    ['Tea', 'Tea: Plant', 'Tea: Drink']
    """
    title = " ".join(document.title.split())
    found = dict.fromkeys(heading for heading in _headings(document) if heading.lower() != title.lower())
    headings = [f"{title}: {heading}" if title else heading for heading in list(found)[:most]]
    return [title, *headings] if title else headings


def _headings(document: Document) -> Iterator[str]:
    told: Any = document.metadata.get("headings")
    rows = told.splitlines() if isinstance(told, str) else told if isinstance(told, list) else []
    yield from filter(None, (" ".join(row.split()) for row in rows if isinstance(row, str)))
    text = document.text.replace("\r\n", "\n")
    for _, heading in sorted([*_marked_lines(text), *_marked_html(text)]):
        told = " ".join(_TAG.sub(" ", heading[:_MOST]).split()) if len(heading) <= _MOST else ""
        if told:
            yield told


def _marked_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that are headings by their own marks, by the line below, or by standing alone; and where they begin."""
    lines = text.split("\n")
    blank = [not line.strip() for line in lines]
    last = max((i for i, empty in enumerate(blank) if not empty), default=0)
    place = 0
    for i, line in enumerate(lines):
        heading = _by_marks(line)
        if not heading and i + 1 < len(lines) and _UNDERLINE.fullmatch(lines[i + 1]):
            heading = line.strip()
        alone = (i == 0 or blank[i - 1]) and i < last and blank[i + 1] and len(line) <= _WIDEST
        if not heading and alone and not line.lstrip().startswith(("#", "=")):
            said = line.strip()
            heading = "" if said.endswith(_SENTENCE_END) or len(said.split()) > _LONGEST else said
        if heading:
            yield place, heading
        place += len(line) + 1


def _by_marks(line: str) -> str:
    """What a Markdown or wiki heading says; of other lines nothing."""
    if mark := _MARKDOWN.match(line):
        return line[mark.end() :].strip(" \t").rstrip("#").rstrip(" \t")
    bare = line.rstrip(" \t")
    inner = bare.strip("=")
    before, after = len(bare) - len(bare.lstrip("=")), len(bare) - len(bare.rstrip("="))
    return inner.strip() if 2 <= before <= 6 and 2 <= after <= 6 and "=" not in inner else ""


def _marked_html(text: str) -> Iterator[tuple[int, str]]:
    """What stands between <h1> and </h1>, and where."""
    opened: re.Match[str] | None = None
    for tag in _HTML.finditer(text):
        if tag.group(1):
            if opened:
                yield opened.start(), text[opened.end() : tag.start()]
            opened = None
        else:
            opened = opened or tag


_FILE_KIND, _FILE_VERSION = "words", 1
_MOST_KEPT = 4_000_000  # words that are kept at a time: less than a gigabyte
_COMMON = 0.15  # a word that stands in more of the documents than this says nothing of any of them
_ENOUGH = 100  # documents from which such a share means something


class WordStatistics:
    """Document frequencies of words, counted in one pass within bounded memory.

    Up to four million distinct words are counted exactly. Beyond, those found in the fewest documents are forgotten
    now and then, and count as found in as many documents as the last that were.

    >>> counted = WordStatistics.count(["a red bus", "a blue bus", "a red door and a red roof"])
    >>> counted.found_in("red"), counted.found_in("bicycle"), counted.idf("roof") > counted.idf("red")
    (2, 0, True)
    """

    def __init__(self, documents: int, counts: dict[str, int], forgotten: int = 0) -> None:
        self.documents, self._counts, self._forgotten = documents, counts, forgotten

    @classmethod
    def count(cls, texts: Iterable[str], *, most: int = _MOST_KEPT) -> WordStatistics:
        """Read normalised texts, one per document."""
        counts: dict[str, int] = {}
        documents = forgotten = 0
        for text in texts:
            documents += 1
            for word in set(words(text)):
                counts[word] = counts.get(word, 0) + 1
            while len(counts) > most:
                forgotten += 1
                counts = {word: count for word, count in counts.items() if count > forgotten}
        return cls(documents, counts, forgotten)

    def found_in(self, word: str) -> int:
        """In how many documents a word stands."""
        return self._counts.get(word, self._forgotten)

    def idf(self, word: str) -> float:
        """How telling a word is: BM25's inverse document frequency."""
        found = min(self.found_in(word), self.documents)
        return math.log1p((self.documents - found + 0.5) / (found + 0.5))

    def is_common(self, word: str) -> bool:
        """Whether a word says nothing of what a text is about: in English by a list, in any language by its frequency.

        >>> WordStatistics.count(["die rose", "die lilie"] * 60).is_common("die")
        True
        """
        return word in STOP_WORDS or (self.documents >= _ENOUGH and self.found_in(word) > _COMMON * self.documents)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file, atomically."""
        table = SortedStrings.of(sorted(self._counts))
        found = np.fromiter((self._counts[word] for word in table), np.int64, len(table))
        meta = {"documents": self.documents, "forgotten": self._forgotten}
        arrays: dict[str, NDArray[Any]] = {"words": table.data, "word_offsets": table.offsets, "found_in": found}
        write_container(path, _FILE_KIND, _FILE_VERSION, meta, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> WordStatistics:
        """Read what `save` wrote."""
        container = read_container(path, _FILE_KIND, _FILE_VERSION)
        try:
            table = SortedStrings(container.arrays["words"], container.arrays["word_offsets"])
            counts = dict(zip(table, container.arrays["found_in"].tolist(), strict=True))
            return cls(int(container.meta["documents"]), counts, int(container.meta["forgotten"]))
        except (KeyError, ValueError) as error:
            raise FileFormatError(f"{path} holds no usable word counts ({error}): remove it") from error


def most_telling(candidates: Sequence[AbstractSet[str]], worth: Mapping[str, float], most: int) -> list[int]:
    """The places of up to `most` candidates, given as the words of each; the best first.

    A candidate is as good as the worth of its words that none before it had, over the root of how many it has that
    are worth anything: so the long do not always win, and no two say the same. What adds nothing is not taken; among
    equals the first is.

    >>> worth = {"tea": 2.0, "green": 1.5, "cup": 1.0, "hot": 0.5}
    >>> most_telling([{"hot", "cup"}, {"green", "tea"}, {"tea"}, {"hot"}], worth, 3)
    [1, 0]
    """
    # Sorted, because the order of a set changes from run to run, and with it the last bits of a sum.
    left = [(place, sorted(words & worth.keys())) for place, words in enumerate(candidates)]
    sizes = [max(len(words), 1) ** 0.5 for _, words in left]
    chosen: list[int] = []
    while left and len(chosen) < most:
        gains = [sum(map(worth.__getitem__, words)) / sizes[place] for place, words in left]
        best = max(range(len(left)), key=gains.__getitem__)
        if gains[best] <= 0:
            break
        place, row = left.pop(best)
        taken = set(row)
        chosen.append(place)
        left = [(other, [word for word in words if word not in taken]) for other, words in left]
    return chosen


LONGEST_PHRASE = 6  # words of a phrase

_BREAK = re.compile(r"[^\w\s'’&/-]+|\s['’/-]|['’/-]\s|_+")
_LINKS = frozenset(["of"])  # what may join two runs of telling words


def key_phrases(text: str, statistics: WordStatistics, most: int, longest: int = LONGEST_PHRASE) -> list[str]:
    """Up to `most` phrases, the most telling first; as they are after normalisation.

    >>> counted = WordStatistics.count(["the house of usher fell", "the house is old", "it fell"])
    >>> key_phrases("The House of Usher was old. It is the house of Usher!", counted, 2)
    ['house of usher', 'old']
    """
    found: Counter[tuple[str, ...]] = Counter()
    for run in _BREAK.split(normalize(text)):
        for phrase in _runs(words(run), statistics):
            found.update(phrase[i : i + longest] for i in range(0, len(phrase), longest))
    phrases = list(found)
    counts = Counter(word for phrase, times in found.items() for word in phrase * times)
    worth = {
        word: count**0.5 * statistics.idf(word) for word, count in counts.items() if not statistics.is_common(word)
    }
    return [" ".join(phrases[place]) for place in most_telling([set(phrase) for phrase in phrases], worth, most)]


def _runs(row: list[str], statistics: WordStatistics) -> list[tuple[str, ...]]:
    """Runs of words that say something, a linking word between two of them included."""
    says = [not statistics.is_common(word) for word in row]
    inside = [
        telling or (word in _LINKS and 0 < i < len(row) - 1 and says[i - 1] and says[i + 1])
        for i, (word, telling) in enumerate(zip(row, says, strict=True))
    ]
    runs = []
    for kept, members in groupby(zip(row, inside, strict=True), key=lambda pair: pair[1]):
        if kept:
            runs.append(tuple(word for word, _ in members))
    return runs


def key_sentences(text: str, statistics: WordStatistics, most: int, longest: int = LONGEST) -> list[str]:
    """Up to `most` sentences of a text, or parts of them, that together say most of it; the most telling first."""
    candidates = list(islice(_candidates(text, longest), 10_000))
    rows = [words(normalize(candidate)) for candidate in candidates]
    counts = Counter(word for row in rows for word in row)
    worth = {
        word: count**0.5 * statistics.idf(word) for word, count in counts.items() if not statistics.is_common(word)
    }
    return [candidates[place] for place in most_telling([set(row) for row in rows], worth, most)]


def _candidates(text: str, longest: int) -> Iterator[str]:
    for sentence in split_sentences(text):
        yield from cut_sentence(sentence, longest)

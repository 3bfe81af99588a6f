"""Key phrases: runs of telling words, scored by how often they stand in a text and how rare they are elsewhere."""

from __future__ import annotations

import re
from collections import Counter
from itertools import groupby

from pixnar.base.normalize import normalize
from pixnar.docid_generation.coverage import most_telling
from pixnar.docid_generation.statistics import WordStatistics
from pixnar.fusion.atoms import words

LONGEST = 6  # words of a phrase

_BREAK = re.compile(r"[^\w\s'’&/-]+|\s['’/-]|['’/-]\s|_+")
_LINKS = frozenset(["of"])  # what may join two runs of telling words


def key_phrases(text: str, statistics: WordStatistics, most: int, longest: int = LONGEST) -> list[str]:
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

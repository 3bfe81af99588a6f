"""Key texts: the phrases and sentences of a text that say most of what it is about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import groupby, islice

from pixnar.base.normalize import normalize
from pixnar.corpus.texts import LONGEST, cut_sentence, split_sentences
from pixnar.docid_generation.statistics import WordStatistics
from pixnar.fusion.atoms import words


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

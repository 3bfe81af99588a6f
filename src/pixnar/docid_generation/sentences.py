"""Key sentences: which sentences of a text say most of what it is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from pixnar.base.normalize import normalize
from pixnar.corpus.sentences import LONGEST, cut_sentence, split_sentences
from pixnar.docid_generation.coverage import most_telling
from pixnar.docid_generation.statistics import WordStatistics
from pixnar.fusion.atoms import words


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

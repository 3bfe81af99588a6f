"""Spelling correction of queries: an unknown word becomes the likeliest known word one edit away."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Protocol

from pixnar.base.normalize import normalize
from pixnar.corpus.queries import neighbours
from pixnar.fusion.atoms import word_pattern, words
from pixnar.search.spelling.lexicon import LONGEST, Lexicon, Neighbour

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

    A word is left alone if the lexicon has it, if it is shorter than three characters, if it holds a digit, and if no
    word of the corpus is one edit away. Among several the most frequent wins; one that a slip of the finger explains
    (see `is_slip`) counts as if it were seven times as frequent.

    >>> speller = Speller(Lexicon.of({"pizza": 3, "in": 9, "rome": 7}))
    >>> speller.correct("piza in rmoe, 1999")
    'pizza in rome, 1999'
    """

    def __init__(self, lexicon: Lexicon, added: AddedWords | None = None) -> None:
        """`added` has words that came later than those of the lexicon."""
        self.lexicon, self.added = lexicon, added

    def with_added(self, texts: Iterable[str]) -> Speller:
        """The same with the words of these normalised texts, each counted once, in place of any added before."""
        return Speller(self.lexicon, Lexicon.of({word: 1 for text in texts for word in words(text)}))

    def correct(self, text: str) -> str:
        """The text with its unknown words replaced; white space, punctuation and all other words stay."""
        pattern = word_pattern(text)
        unknown = self._unknown(pattern.findall(text))
        if not unknown:
            return text
        added = [[]] * len(unknown) if self.added is None else self.added.lookup(unknown)
        fixed = {
            word: best(word, self.lexicon.near(word) + more)
            for word, more in zip(unknown, added, strict=True)
            if more is not None
        }
        if all(word == other for word, other in fixed.items()):
            return text
        return normalize(pattern.sub(lambda match: fixed.get(match[0], match[0]), text))

    def _unknown(self, words: Sequence[str]) -> list[str]:
        """The distinct words that may have to be corrected, the first few of them."""
        may_be_wrong = (
            word
            for word in dict.fromkeys(words)
            if _SHORTEST <= len(word) <= LONGEST and word not in self.lexicon and not any(map(str.isdigit, word))
        )
        return list(islice(may_be_wrong, _MOST))


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

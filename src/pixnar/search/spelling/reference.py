"""The neighbours of a word the slow way: every word of the lexicon is compared. For tests."""

from __future__ import annotations

from collections.abc import Iterable

_FIRST_UNTRIED = "\u2e80"  # as in native/common/near_texts.hpp


def distance(one: str, other: str) -> int:
    """Damerau-Levenshtein distance (optimal string alignment): inserted, deleted, replaced and swapped characters.

    >>> distance("rome", "rmoe"), distance("rome", "home"), distance("rome", "romeo"), distance("", "tea")
    (1, 1, 1, 3)
    """
    rows = [[i + j if not i * j else 0 for j in range(len(other) + 1)] for i in range(len(one) + 1)]
    for i, a in enumerate(one, 1):
        for j, b in enumerate(other, 1):
            rows[i][j] = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and b == one[i - 2]:
                rows[i][j] = min(rows[i][j], rows[i - 2][j - 2] + 1)
    return rows[len(one)][len(other)]


def near(words: Iterable[str], word: str) -> list[str]:
    """The words at distance 1 by an edit that `Lexicon.near` tries, in the order of their UTF-8 bytes."""
    found = {other for other in words if distance(word, other) == 1 and _is_tried(word, other)}
    return sorted(found, key=str.encode)


def _is_tried(word: str, other: str) -> bool:
    """Whether the edit puts no character from U+2E80 on into the word; deletions and swaps put in none."""
    if len(other) < len(word) or sorted(other) == sorted(word):
        return True
    i = next((i for i, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), len(word))
    return other[i] < _FIRST_UNTRIED

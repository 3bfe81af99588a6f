"""Atoms and words of normalised text, as the vocabulary's native core cuts them, by regular expressions."""

from __future__ import annotations

import functools
import re
import sys
from array import array
from collections.abc import Iterable
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from pixnar import _native

_WORD, _LONE = 1, 2  # kinds of characters, as in native/vocab/text.hpp
_ASCII_ATOMS = re.compile(r"[a-z0-9]+|[^ ]")
_ASCII_WORDS = re.compile(r"[a-z0-9]+")


def atom_pattern(text: str) -> re.Pattern[str]:
    """What matches the atoms of a normalised text one after the other.

    >>> atom_pattern("").findall("all-star game, 1999")
    ['all', '-', 'star', 'game', ',', '1999']
    """
    return _ASCII_ATOMS if text.isascii() else _unicode_patterns()[0]


def word_pattern(text: str) -> re.Pattern[str]:
    """What matches the words of a normalised text, which `words` lists."""
    return _ASCII_WORDS if text.isascii() else _unicode_patterns()[1]


def words(text: str) -> list[str]:
    """The words of a normalised text: its atoms without punctuation and other signs.

    >>> words("all-star game, 1999")
    ['all', 'star', 'game', '1999']
    """
    return word_pattern(text).findall(text)


class WordNumbers(dict[str, int]):
    """Words by number, in the order they came: a word that has none yet gets the next.

    >>> [row.tolist() for row in WordNumbers().of(["to be or", "not to be"])]
    [[0, 1, 2, 3, 0, 1], [3, 3]]
    """

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number

    def of(self, lines: Iterable[str]) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        """The words of normalised texts by number, one text after the other, and how many each text has."""
        found, lengths = array("I"), array("I")
        for line in lines:
            row = words(line)
            found.extend(map(self.__getitem__, row))
            lengths.append(len(row))
        return np.array(found, np.uint32), np.array(lengths, np.uint32)


@functools.cache
def _unicode_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    kinds = [_native.char_kind(c) for c in range(sys.maxunicode + 1)]
    runs = f"[{_ranges(kinds, _WORD)}]+"
    return re.compile(f"{runs}|[^ ]"), re.compile(f"{runs}|[{_ranges(kinds, _LONE)}]")


def _ranges(kinds: list[int], wanted: int) -> str:
    """The characters of one kind, for use within brackets."""
    parts, begin = [], 0
    for kind, run in groupby(kinds):
        end = begin + sum(1 for _ in run)
        if kind == wanted:
            parts.append(f"\\U{begin:08x}-\\U{end - 1:08x}")
        begin = end
    return "".join(parts)

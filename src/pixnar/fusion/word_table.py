"""A sorted list of words in two flat arrays, searched where it lies: nothing to unpack when a file is opened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from pixnar import _native


class WordTable:
    """Distinct words with the ids 0, 1, 2 … in the order of their UTF-8 bytes.

    >>> table = WordTable.from_words(["pizza", "hotel", "rome"])
    >>> table.find("pizza"), table.find("paris"), list(table)
    (1, None, ['hotel', 'pizza', 'rome'])
    """

    def __init__(self, data: NDArray[np.uint8], offsets: NDArray[np.int64], *, verify: bool = True) -> None:
        """Over arrays that are not copied; without `verify` only their ends are looked at."""
        if data.dtype != np.uint8 or offsets.dtype != np.int64:
            raise ValueError(f"words and their offsets are {data.dtype} and {offsets.dtype}")
        sound = len(offsets) and offsets[0] == 0 and offsets[-1] == len(data)
        if not sound or (verify and np.any(offsets[1:] < offsets[:-1])):
            raise ValueError("words and their offsets do not fit together")
        self.data, self.offsets = data, offsets

    @classmethod
    def from_words(cls, words: Iterable[str]) -> WordTable:
        """A table of some distinct words."""
        sorted_words = sorted(word.encode() for word in words)
        offsets = np.zeros(len(sorted_words) + 1, np.int64)
        np.cumsum([len(word) for word in sorted_words], out=offsets[1:])
        return cls(np.frombuffer(b"".join(sorted_words), np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, i: int) -> str:
        return self._bytes(i).decode()

    def find(self, word: str) -> int | None:
        """The id of a word, or None."""
        found = int(_native.find_sorted(self.data, self.offsets, [word.encode()])[0])
        return None if found < 0 else found

    def _bytes(self, i: int) -> bytes:
        return self.data[self.offsets[i] : self.offsets[i + 1]].tobytes()

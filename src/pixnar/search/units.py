"""Documents in the order that evidence, vectors and BM25 count them: sorted ids, looked up where they lie."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pixnar import _native
from pixnar.base.errors import FileFormatError


class Units:
    """Distinct document ids with the numbers 0, 1, 2 … in the order of their UTF-8 bytes; nothing is unpacked.

    >>> units = Units.of(["d1", "d2", "d5"])
    >>> units[2], units.numbers(["d2", "new"]).tolist(), len(units)
    ('d5', [1, -1], 3)
    """

    def __init__(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], *, verify: bool = True, where: str = "a list of ids"
    ) -> None:
        """Over arrays that are not copied; without `verify` only their ends are looked at. `where` names a file."""
        if data.dtype != np.uint8 or offsets.dtype != np.int64:
            raise ValueError(f"ids and their offsets are {data.dtype} and {offsets.dtype}")
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(data):
            raise ValueError("ids and their offsets do not fit together")
        self.data, self.offsets, self._where = data, offsets, where
        if verify:
            _check_order(map(self._bytes, range(len(self))))

    @classmethod
    def of(cls, doc_ids: Iterable[str]) -> Units:
        """From ids that are sorted; each may be there once."""
        encoded = [_encoded(doc_id) for doc_id in doc_ids]
        _check_order(encoded)
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(one) for one in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets, verify=False)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[str]:
        return (self[unit] for unit in range(len(self)))

    def __getitem__(self, unit: int) -> str:
        if not 0 <= unit < len(self):
            raise IndexError(f"unit {unit} is not in 0 … {len(self) - 1}")
        try:
            return self._bytes(unit).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise FileFormatError(
                f"{self._where} is damaged (an id is no text): copy or build the index again"
            ) from error

    def numbers(self, doc_ids: Sequence[str]) -> NDArray[np.int64]:
        """The unit of each id, -1 where there is none: documents that were added later."""
        return _native.find_sorted(self.data, self.offsets, [_encoded(doc_id) for doc_id in doc_ids])

    def _bytes(self, unit: int) -> bytes:
        return self.data[self.offsets[unit] : self.offsets[unit + 1]].tobytes()


class ChangedUnits:
    """The documents of a fit, and behind them those added later; the latter in the order of their ids, too."""

    def __init__(self, built: Units, new: Units) -> None:
        self.built, self.new = built, new

    def __getitem__(self, unit: int) -> str:
        return self.built[unit] if unit < len(self.built) else self.new[unit - len(self.built)]

    def numbers(self, doc_ids: Sequence[str]) -> NDArray[np.int64]:
        """The unit of each id, -1 where there is none."""
        found, later = self.built.numbers(doc_ids), self.new.numbers(doc_ids)
        return np.where((found < 0) & (later >= 0), len(self.built) + later, found)


def _check_order(ids: Iterable[bytes]) -> None:
    if any(one >= other for one, other in pairwise(ids)):
        raise ValueError("ids are not sorted, or there twice")


def _encoded(doc_id: str) -> bytes:
    return doc_id.encode("utf-8", "surrogatepass")

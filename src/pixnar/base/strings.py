"""Packed texts: a compressed store of byte strings read by number, and sorted texts that are searched where they lie.

In the store, consecutive records share a block: their lengths as 32-bit numbers, then their bytes, packed with zlib.
zlib's own checksum is what tells damage apart from content, since huge files are mapped without a pass over them.
"""

from __future__ import annotations

import mmap
import operator
import os
import struct
import tempfile
import threading
import zlib
from array import array
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate, pairwise
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar import _native
from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.progress import Progress

_RECORDS = 64
_BYTES = 16 * 1024
_LONGEST = 0xFFFFFFFF
_BATCH_BLOCKS = 64  # for one task: enough that handing it over costs nothing beside the work
_BATCH_BYTES = 256 * 1024
_KEPT_BYTES = 4 * 1024 * 1024
_MOST_THREADS = 8


class _Block(NamedTuple):
    raw: bytes
    edges: list[int]  # record k is raw[edges[k]:edges[k + 1]]


class TextBlocks:
    """Byte strings by number, read from the arrays that `pack` made; safe to share between threads.

    >>> store = TextBlocks(TextBlocks.pack([b"tea", b"", b"coffee"]))
    >>> len(store), store[2], store.many([2, 0])
    (3, b'coffee', [b'coffee', b'tea'])
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], where: str = "a store of texts") -> None:
        """`where` names the store in errors; only the ends of the arrays are looked at here."""
        self._where = where
        try:
            self._blocks, self._starts, self._firsts = arrays["blocks"], arrays["starts"], arrays["firsts"]
        except KeyError as error:
            raise damaged(where, f"array {error.args[0]} is not there") from error
        blocks = self._starts.size - 1
        sound = (
            [each.dtype.str for each in (self._blocks, self._starts, self._firsts)] == ["|u1", "<u8", "<u8"]
            and blocks >= 0
            and self._firsts.size == self._starts.size
            and self._starts[blocks] == self._blocks.size
            and self._firsts[0] == 0
            and blocks <= self._firsts[blocks] <= _RECORDS * blocks
        )
        if not sound:
            raise damaged(where, "its list of blocks does not fit its blocks")
        self._size = int(self._firsts[blocks])
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, _Block] = OrderedDict()
        self._kept_bytes = 0

    @staticmethod
    def pack(
        records: Iterable[bytes],
        *,
        threads: int = 0,
        folder: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Pack records, in order, into arrays for a container; the same records give the same bytes.

        The packed bytes wait in memory or, if a `folder` is given, in a nameless file there. 0 `threads` means one per
        core.
        """
        starts, firsts = array("Q", [0]), array("Q", [0])
        with _Spool(folder) as spool:
            for batch in _compressed(_batches(records), threads):
                for count, packed in batch:
                    spool.write(packed)
                    starts.append(starts[-1] + len(packed))
                    firsts.append(firsts[-1] + count)
                if progress:
                    progress("packing", firsts[-1], 0)
            blocks = spool.content()
        return {"blocks": blocks, "starts": np.array(starts, np.uint64), "firsts": np.array(firsts, np.uint64)}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> bytes:
        index = operator.index(index)
        if not 0 <= index < self._size:
            raise self._outside(index)
        # A plain int would turn all of the unsigned array into floats.
        block = int(self._firsts.searchsorted(np.uint64(index), "right")) - 1
        return self._record(block, self._unpacked(block), index)

    def many(self, indices: Sequence[int] | NDArray[Any]) -> list[bytes]:
        """The records of some numbers, in the order asked for; each block is unpacked once."""
        try:
            wanted = np.asarray(indices, np.int64)
        except OverflowError as error:
            raise self._outside(max(indices, key=abs)) from error
        strange = (wanted < 0) | (wanted >= self._size)
        if strange.any():
            raise self._outside(int(wanted[strange][0]))
        blocks = self._firsts.searchsorted(wanted.astype(np.uint64), "right") - 1
        found = [b""] * wanted.size
        last, block = -1, _Block(b"", [])
        for at in np.argsort(blocks, kind="stable").tolist():
            number = int(blocks[at])
            if number != last:
                last, block = number, self._unpacked(number)
            found[at] = self._record(number, block, int(wanted[at]))
        return found

    def __iter__(self) -> Iterator[bytes]:
        for number in range(self._starts.size - 1):
            raw, edges = self._unpack(number)  # past the kept blocks: a pass over everything would only flush them
            for begin, end in pairwise(edges):
                yield raw[begin:end]

    def _record(self, number: int, block: _Block, index: int) -> bytes:
        at = index - int(self._firsts[number])
        if not 0 <= at < len(block.edges) - 1:
            raise damaged(self._where, "its list of blocks is out of order")
        return block.raw[block.edges[at] : block.edges[at + 1]]

    def _unpacked(self, number: int) -> _Block:
        with self._lock:
            if number in self._kept:
                self._kept.move_to_end(number)
                return self._kept[number]
        block = self._unpack(number)
        with self._lock:
            if number not in self._kept:
                self._kept[number] = block
                self._kept_bytes += len(block.raw)
            while self._kept_bytes > _KEPT_BYTES:
                self._kept_bytes -= len(self._kept.popitem(last=False)[1].raw)
        return block

    def _unpack(self, number: int) -> _Block:
        if not 0 <= number < self._starts.size - 1:
            raise damaged(self._where, "its list of blocks is out of order")
        begin, end = int(self._starts[number]), int(self._starts[number + 1])
        count = int(self._firsts[number + 1]) - int(self._firsts[number])
        if not (0 <= begin < end <= self._blocks.size and 0 < count <= _RECORDS):
            raise damaged(self._where, f"block {number} has impossible borders")
        stream = zlib.decompressobj()
        try:
            raw = stream.decompress(self._blocks[begin:end].data)
            edges = list(accumulate(struct.unpack_from(f"<{count}I", raw), initial=4 * count))
        except (zlib.error, struct.error) as error:
            raise damaged(self._where, f"block {number} cannot be unpacked") from error
        if edges[-1] != len(raw) or not stream.eof or stream.unused_data:
            raise damaged(self._where, f"block {number} does not hold the records it should")
        return _Block(raw, edges)

    def _outside(self, index: int) -> IndexError:
        if self._size:
            self._unpack(self._starts.size - 2)  # if not even the number of records is right, it is the file's fault
        return IndexError(f"there is no record {index} in {self._where}: it has {self._size}, counted from 0")


class SortedStrings:
    """Distinct texts with the numbers 0, 1, 2 … in the order of their UTF-8 bytes, in two flat arrays.

    >>> texts = SortedStrings.of(["d1", "d2", "d5"])
    >>> texts[2], texts.find("d2"), texts.numbers(["d5", "new"]).tolist(), len(texts)
    ('d5', 1, [2, -1], 3)
    """

    def __init__(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        *,
        verify: bool = True,
        where: str = "sorted texts",
    ) -> None:
        """Over arrays that are not copied; without `verify` only their ends are looked at. `where` names a file."""
        if data.dtype != np.uint8 or offsets.dtype != np.int64:
            raise ValueError(f"texts and their offsets are {data.dtype} and {offsets.dtype}")
        sound = len(offsets) and offsets[0] == 0 and offsets[-1] == len(data)
        if not sound or (verify and np.any(offsets[1:] < offsets[:-1])):
            raise ValueError("texts and their offsets do not fit together")
        self.data, self.offsets, self._where = data, offsets, where
        if verify:
            _check_order(map(self._bytes, range(len(self))))

    @classmethod
    def of(cls, texts: Iterable[str]) -> SortedStrings:
        """From texts that are sorted; each may be there once."""
        encoded = [_encoded(text) for text in texts]
        _check_order(encoded)
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(text) for text in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets, verify=False)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[str]:
        return (self[number] for number in range(len(self)))

    def __getitem__(self, number: int) -> str:
        if not 0 <= number < len(self):
            raise IndexError(f"text {number} is not in 0 … {len(self) - 1}")
        try:
            return self._bytes(number).decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise damaged(self._where, "a text is not UTF-8") from error

    def find(self, text: str) -> int | None:
        """The number of a text, or None."""
        number = int(self.numbers([text])[0])
        return None if number < 0 else number

    def numbers(self, texts: Iterable[str]) -> NDArray[np.int64]:
        """The number of each text, -1 where it is not there."""
        return _native.find_sorted(self.data, self.offsets, [_encoded(text) for text in texts])

    def _bytes(self, number: int) -> bytes:
        return self.data[self.offsets[number] : self.offsets[number + 1]].tobytes()


def _check_order(texts: Iterable[bytes]) -> None:
    if any(one >= other for one, other in pairwise(texts)):
        raise ValueError("texts are not sorted, or there twice")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def damaged(where: str, why: str) -> FileFormatError:
    """The error for content that cannot have been written as it is."""
    return FileFormatError(f"{where} is damaged or incomplete ({why}): copy or build it again")


class _Spool:
    """Bytes that wait to be written into a container."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._folder = folder
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        if folder is not None:
            try:
                self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - __exit__ closes it
            except OSError as error:
                raise self._unwritable(error) from error

    def __enter__(self) -> _Spool:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def write(self, data: bytes) -> None:
        if self._file is None:
            self._memory += data
            return
        try:
            self._file.write(data)
        except OSError as error:
            raise self._unwritable(error) from error

    def content(self) -> NDArray[np.uint8]:
        if self._file is None:
            return np.frombuffer(self._memory, np.uint8)
        try:
            self._file.flush()
            if not self._file.tell():
                return np.zeros(0, np.uint8)
            return np.frombuffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> PixnarError:
        return PixnarError(f"cannot write to {self._folder}: {error.strerror or error}; make room there")


def _batches(records: Iterable[bytes]) -> Iterator[list[list[bytes]]]:
    """Records gathered into blocks, and blocks into what one task packs."""
    batch: list[list[bytes]] = []
    block: list[bytes] = []
    size = batch_size = 0
    for record in records:
        length = len(record) + 4
        if block and (size + length > _BYTES or len(block) == _RECORDS):
            batch.append(block)
            batch_size += size
            block, size = [], 0
            if len(batch) == _BATCH_BLOCKS or batch_size > _BATCH_BYTES:
                yield batch
                batch, batch_size = [], 0
        if length > _LONGEST:
            raise PixnarError(f"a record of {len(record):,} bytes is too long: shorten it to less than 4 GB")
        block.append(record)
        size += length
    if block:
        yield [*batch, block]


def _compressed(batches: Iterable[list[list[bytes]]], threads: int) -> Iterator[list[tuple[int, bytes]]]:
    """What `_compress` makes of each batch, in order; a few batches are under way at a time."""
    workers = threads or min(_MOST_THREADS, os.cpu_count() or 1)
    if workers == 1:
        yield from map(_compress, batches)
        return
    with ThreadPoolExecutor(workers) as pool:
        waiting: deque[Future[list[tuple[int, bytes]]]] = deque()
        for batch in batches:
            waiting.append(pool.submit(_compress, batch))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _compress(batch: list[list[bytes]]) -> list[tuple[int, bytes]]:
    """Each block's number of records and packed bytes."""
    packed = []
    for block in batch:
        lengths = struct.pack(f"<{len(block)}I", *map(len, block))
        packed.append((len(block), zlib.compress(lengths + b"".join(block))))
    return packed

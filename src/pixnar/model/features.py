"""Feature cache: vectors of texts, computed once and shared by training, dense fusion and phrase heads."""

from __future__ import annotations

import math
import os
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.progress import Progress
from pixnar.base.storage import read_container, reserve, write_container
from pixnar.model.encoder import Encoder
from pixnar.model.export import exported
from pixnar.model.process_group import ProcessGroup
from pixnar.runtime.encoder_folder import FP32
from pixnar.runtime.query_encoder import QueryEncoder

Ints = NDArray[np.int64]

_KIND, _VERSION = "features", 1
_CHUNK = 8192  # texts in a file: what an interruption can cost
_FEW = 512  # texts in a chunk below which exporting the encoder (4 s for MiniLM) costs more than it saves
_MOST_COMPARED = 1 << 25  # texts among which equal ones are looked for: 40 bytes of memory each


class KnownVectors(NamedTuple):
    """Texts, sorted and distinct, that have vectors already."""

    texts: Sequence[str]
    vectors: NDArray[np.float16]

    def find(self, text: str) -> int:
        """The place of a text; -1 if it is not there."""
        place = bisect_left(self.texts, text)
        return place if place < len(self.texts) and self.texts[place] == text else -1


class FeatureCache:
    """A folder of vectors, filed by encoder, precision and texts; without a folder, everything is computed again.

    Vectors are kept as 16-bit floats: 768 bytes for a text at 384 wide. On a CPU they are computed by onnxruntime, from
    a graph with weights in `precision` (fp32 or int8); on other devices, and where the encoder cannot be exported, by
    torch. `threads` 0: as many as torch uses.
    """

    def __init__(
        self,
        encoder: Encoder,
        folder: str | os.PathLike[str] | None,
        *,
        precision: str = FP32,
        threads: int = 0,
    ) -> None:
        self.encoder, self.precision, self.threads = encoder, precision, threads
        self._folder = Path(folder) if folder is not None else None
        self._key = encoder.fingerprint()
        self._graph: QueryEncoder | None = None
        self._by_torch = False  # the encoder cannot be exported
        if self._folder:
            self._folder.mkdir(parents=True, exist_ok=True)

    def reading(self, max_pieces: int) -> FeatureCache:
        """The same for texts that are cut after so many word pieces."""
        if max_pieces == self.encoder.max_pieces:
            return self
        given = self.encoder
        most = getattr(given.body.config, "max_position_embeddings", max_pieces)
        encoder = Encoder(given.body, given.tokenizer, name=given.name, max_pieces=min(max_pieces, most))
        return FeatureCache(encoder, self._folder, precision=self.precision, threads=self.threads)

    def vectors(
        self,
        texts: Sequence[str],
        progress: Progress | None = None,
        stage: str = "encoding texts",
        known: KnownVectors | None = None,
    ) -> NDArray[np.float16]:
        """One vector of length one per text; give texts in an order that stays, since files are found by their run.

        Equal texts are encoded once, and those that are `known` not at all.
        """
        out = np.zeros((len(texts), self.encoder.width), np.float16)
        for places, found in self.some(texts, 0, len(texts), progress, stage, known):
            out[places] = found
        return out

    def some(
        self,
        texts: Sequence[str],
        first: int,
        last: int,
        progress: Progress | None = None,
        stage: str = "",
        known: KnownVectors | None = None,
    ) -> Iterator[tuple[Ints, NDArray[np.float16]]]:
        """The vectors of texts `first` to, not including, `last`, in pieces, each with the numbers of its texts.

        They are filed with all texts, so that whoever wants others of them finds these.
        """
        fresh, sources = _distinct(texts, known)
        wanted = np.arange(first, last) if sources is None else sources[first:last]
        order = np.argsort(wanted, kind="stable")
        numbers = wanted[order]
        begin = int(np.searchsorted(numbers, 0))
        if known and begin:
            yield first + order[:begin], known.vectors[-1 - numbers[:begin]]
        while begin < len(numbers):
            start = int(numbers[begin]) // _CHUNK * _CHUNK
            end = int(np.searchsorted(numbers, start + _CHUNK))
            found = self._piece(fresh, start, progress, stage)
            yield first + order[begin:end], found[numbers[begin:end] - start]
            begin = end

    def mapped(
        self,
        kinds: Sequence[Sequence[str]],
        path: Path,
        group: ProcessGroup,
        progress: Progress | None = None,
        stage: str = "encoding texts",
    ) -> NDArray[np.float16]:
        """The vectors of several kinds of texts, one behind the other, in a file that all processes of a group map.

        Each encodes its share of every kind. Processes on one machine keep the file in memory once, and only as much
        of it as they touch.
        """
        shape = (sum(map(len, kinds)), self.encoder.width)
        if group.first:
            reserve(path, 2 * math.prod(shape))
        group.wait()
        out = np.memmap(path, np.float16, "r+", shape=shape)
        before = 0
        for texts in kinds:
            fresh, sources = _distinct(texts)
            pieces = -(-len(fresh) // _CHUNK)
            for piece in range(pieces * group.rank // group.size, pieces * (group.rank + 1) // group.size):
                start = piece * _CHUNK
                found = self._piece(fresh, start, progress, stage)
                if sources is None:
                    out[before + start : before + start + len(found)] = found
                else:
                    places = np.flatnonzero((sources >= start) & (sources < start + _CHUNK))
                    out[before + places] = found[sources[places] - start]
            before += len(texts)
        out.flush()
        group.wait()
        return np.memmap(path, np.float16, "r", shape=shape)

    def _piece(self, texts: Sequence[str], start: int, progress: Progress | None, stage: str) -> NDArray[np.float16]:
        report = None
        if progress:
            report = lambda done: progress(stage, start + done, len(texts))  # noqa: E731
        return self._chunk(texts[start : start + _CHUNK], report)

    def _chunk(self, texts: Sequence[str], report: Callable[[int], None] | None) -> NDArray[np.float16]:
        path = self._path(texts)
        if path and path.exists():
            try:
                found = read_container(path, _KIND, _VERSION)
                return found.arrays["vectors"].view(np.float16).reshape(len(texts), self.encoder.width)
            except (FileFormatError, ValueError):
                pass  # damaged: made again and replaced
        vectors = self._encoded(texts, report).astype(np.float16)
        if path:
            meta = {"encoder": self.encoder.name, "texts": len(texts), "width": self.encoder.width}
            write_container(path, _KIND, _VERSION, meta, {"vectors": vectors.view(np.uint16).ravel()})
        return vectors

    def _encoded(self, texts: Sequence[str], report: Callable[[int], None] | None) -> NDArray[np.float32]:
        graph = self._opened(len(texts))
        if graph is None:
            return self.encoder.embed(texts, report)
        return graph.bulk(texts, threads=self.threads or torch.get_num_threads(), progress=report)

    def _opened(self, texts: int) -> QueryEncoder | None:
        """The graph for a chunk of so many texts; None where torch is to encode it.

        Which it is does not depend on what is in the folder: the same texts have the same vectors in every run.
        """
        few = texts < _FEW and self.precision == FP32
        if few or self._by_torch or self.encoder.device.type != "cpu":
            return None
        if self._graph is None:
            try:
                if self._folder:
                    self._graph = exported(self.encoder, self._folder, self.precision)
                else:
                    with tempfile.TemporaryDirectory() as folder:  # an open graph needs its files no more
                        self._graph = exported(self.encoder, Path(folder), self.precision)
            except PixnarError:
                if self.precision != FP32:
                    raise
                self._by_torch = True
        return self._graph

    def _path(self, texts: Sequence[str]) -> Path | None:
        if not self._folder:
            return None
        kind = self.encoder.device.type  # another kind of device rounds otherwise
        if kind == "cpu":
            kind = self.precision
        digest = xxhash.xxh3_128((self._key if kind == FP32 else f"{self._key} {kind}").encode())
        digest.update("\0".join(texts).encode("utf-8", "surrogatepass"))
        return self._folder / f"{digest.hexdigest()}.features"


def _distinct(texts: Sequence[str], known: KnownVectors | None = None) -> tuple[Sequence[str], Ints | None]:
    """The texts that need encoding, and for every text its place among them; a known text has -1 - its place there.

    No places: every text needs encoding. Of very many texts only those that are known are looked for.
    """
    own = np.ones(len(texts), bool)
    first = np.arange(len(texts))
    if 1 < len(texts) <= _MOST_COMPARED:
        first = _first_equal(texts)
        own = first == np.arange(len(texts))
    places = np.zeros(len(texts), np.int64)
    if known:
        for i in np.flatnonzero(own):
            if (place := known.find(texts[int(i)])) >= 0:
                places[i] = -1 - place
    fresh = own & (places == 0)
    if fresh.all():
        return texts, None
    places[fresh] = np.arange(np.count_nonzero(fresh))
    return [texts[int(i)] for i in np.flatnonzero(fresh)], places[first]


def _first_equal(texts: Sequence[str]) -> Ints:
    """For every text the number of the first one that is equal, by 128-bit hashes."""
    digests = np.empty((2, len(texts)), np.uint64)
    for start in range(0, len(texts), _CHUNK):
        part = texts[start : start + _CHUNK]
        joined = b"".join([xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass")) for text in part])
        digests[:, start : start + len(part)] = np.frombuffer(joined, np.uint64).reshape(-1, 2).T
    order = np.lexsort(digests)
    begins = np.ones(len(texts), bool)
    begins[1:] = False
    for half in digests:
        begins[1:] |= half[order[1:]] != half[order[:-1]]
    first = np.empty(len(texts), np.int64)
    first[order] = order[np.flatnonzero(begins)][np.cumsum(begins) - 1]  # lexsort is stable: the first is the lowest
    return first

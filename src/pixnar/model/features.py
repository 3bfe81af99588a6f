"""Vectors of texts, computed once and kept: training, dense fusion and phrase heads share them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import xxhash
from numpy.typing import NDArray

from pixnar.errors import FileFormatError
from pixnar.model.encoder import Encoder
from pixnar.model.world import World
from pixnar.progress import Progress
from pixnar.storage import read_container, reserve, write_container

_KIND, _VERSION = "features", 1
_CHUNK = 8192  # texts in a file: what an interruption can cost


class FeatureCache:
    """A folder of vectors, filed by encoder and texts; without a folder, everything is computed again.

    Vectors are kept as 16-bit floats: 768 bytes for a text at 384 wide.
    """

    def __init__(self, encoder: Encoder, folder: str | os.PathLike[str] | None) -> None:
        self.encoder = encoder
        self._folder = Path(folder) if folder is not None else None
        self._key = encoder.fingerprint()
        if self._folder:
            self._folder.mkdir(parents=True, exist_ok=True)

    def vectors(
        self, texts: Sequence[str], progress: Progress | None = None, stage: str = "encoding texts"
    ) -> NDArray[np.float16]:
        """One vector of length one per text; give texts in an order that stays, since files are found by their run."""
        out = np.zeros((len(texts), self.encoder.width), np.float16)
        for at, found in self.some(texts, 0, len(texts), progress, stage):
            out[at : at + len(found)] = found
        return out

    def some(
        self, texts: Sequence[str], first: int, last: int, progress: Progress | None = None, stage: str = ""
    ) -> Iterator[tuple[int, NDArray[np.float16]]]:
        """The vectors of texts `first` to, not including, `last`, in pieces, each with the number of its first text.

        They are filed with all texts, so that whoever wants others of them finds these.
        """
        for start in range(first - first % _CHUNK, last, _CHUNK):
            part = texts[start : start + _CHUNK]
            report = None
            if progress:
                report = lambda done, start=start: progress(stage, start + done, len(texts))  # noqa: E731
            inside = slice(max(first - start, 0), max(last - start, 0))
            yield max(first, start), self._chunk(part, report)[inside]

    def mapped(
        self,
        kinds: Sequence[Sequence[str]],
        path: Path,
        world: World,
        progress: Progress | None = None,
        stage: str = "encoding texts",
    ) -> NDArray[np.float16]:
        """The vectors of several kinds of texts, one behind the other, in a file that all processes of a world map.

        Each encodes its share of every kind. Processes on one machine keep the file in memory once, and only as much
        of it as they touch.
        """
        shape = (sum(map(len, kinds)), self.encoder.width)
        if world.first:
            reserve(path, 2 * math.prod(shape))
        world.wait()
        out = np.memmap(path, np.float16, "r+", shape=shape)
        before = 0
        for texts in kinds:
            pieces = -(-len(texts) // _CHUNK)
            begin, end = (_CHUNK * (pieces * rank // world.size) for rank in (world.rank, world.rank + 1))
            for at, found in self.some(texts, begin, min(end, len(texts)), progress, stage):
                out[before + at : before + at + len(found)] = found
            before += len(texts)
        out.flush()
        world.wait()
        return np.memmap(path, np.float16, "r", shape=shape)

    def _chunk(self, texts: Sequence[str], report: object) -> NDArray[np.float16]:
        path = self._path(texts)
        if path and path.exists():
            try:
                found = read_container(path, _KIND, _VERSION)
                return found.arrays["vectors"].view(np.float16).reshape(len(texts), self.encoder.width)
            except (FileFormatError, ValueError):
                pass  # damaged: made again and replaced
        vectors = self.encoder.embed(texts, report).astype(np.float16)  # type: ignore[arg-type]
        if path:
            meta = {"encoder": self.encoder.name, "texts": len(texts), "width": self.encoder.width}
            write_container(path, _KIND, _VERSION, meta, {"vectors": vectors.view(np.uint16).ravel()})
        return vectors

    def _path(self, texts: Sequence[str]) -> Path | None:
        if not self._folder:
            return None
        kind = self.encoder.device.type  # another kind of device rounds otherwise
        digest = xxhash.xxh3_128((self._key if kind == "cpu" else f"{self._key} {kind}").encode())
        digest.update("\0".join(texts).encode("utf-8", "surrogatepass"))
        return self._folder / f"{digest.hexdigest()}.features"

"""The query encoder, which needs neither torch nor transformers, and a cache of the vectors it gave."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.runtime.encoder_folder import INPUTS, INT8, OUTPUTS, TOKENIZER, Note, check_files, read_note

Floats = NDArray[np.float32]


class TextEncoder(Protocol):
    """`QueryEncoder` (onnxruntime) and `Nar` (torch) are such."""

    def query_vectors(self, texts: Sequence[str], batch: int = 64) -> tuple[Floats, Floats]:
        """X [Q, s + 1, d] and the pooled vectors [Q, d] of normalised texts."""


_BULK_TEXTS, _BULK_PIECES = 32, 2048  # of a batch in `bulk`, padding included


class Timings(NamedTuple):
    """Where the time of one call went, in microseconds."""

    tokenise: float
    encode: float


class QueryEncoder:
    """Texts to vectors by onnxruntime. Many threads may ask one encoder at the same time.

    A text's vectors do not depend on what else is asked with it.
    """

    def __init__(self, note: Note, tokenizer: Tokenizer, session: Any, precision: str) -> None:
        self.note, self.precision = note, precision
        self._tokenizer, self._session = tokenizer, session

    @classmethod
    def load(
        cls, folder: str | os.PathLike[str], *, threads: int = 1, precision: str | None = None, verify: bool = True
    ) -> QueryEncoder:
        """Open what `export_onnx` wrote, in the precision that was chosen for it or in another that is there.

        `threads` work on one batch together; none of them spins while it waits. `verify` compares checksums.
        """
        where = Path(folder)
        if threads < 1:
            raise PixnarError(f"threads {threads}: an encoder needs at least one")
        note = read_note(where)
        wanted = precision or note.precision
        if wanted not in note.graphs:
            raise PixnarError(f"{where} has no graph in {wanted}: it has {', '.join(sorted(note.graphs))}")
        if verify:
            check_files(where, note, [TOKENIZER, *note.files_of(wanted)])
        return cls(note, _tokenizer(where / TOKENIZER, note), _session(where / note.graphs[wanted], threads), wanted)

    @property
    def slots(self) -> int:
        """Slots of a docid; `query_vectors` gives one vector more."""
        return self.note.slots

    @property
    def width(self) -> int:
        """The length of a slot's vector."""
        return self.note.width

    def query_vectors(self, texts: Sequence[str], batch: int = 64) -> tuple[Floats, Floats]:
        """X [Q, s + 1, d] and the pooled vectors [Q, d] of normalised texts."""
        return self._encoded(self._pieces(texts), batch)

    def timed(self, texts: Sequence[str], batch: int = 64) -> tuple[Floats, Floats, Timings]:
        """`query_vectors`, and how long its two steps took."""
        begin = perf_counter()
        pieces = self._pieces(texts)
        between = perf_counter()
        x, pooled = self._encoded(pieces, batch)
        return x, pooled, Timings((between - begin) * 1e6, (perf_counter() - between) * 1e6)

    def bulk(self, texts: Sequence[str], *, threads: int = 1, progress: Callable[[int], None] | None = None) -> Floats:
        """The pooled vectors [N, d] of many texts at the highest rate: texts of like length share a batch.

        Every batch is computed by one thread, so the number of threads does not change the vectors. With int8 a vector
        depends slightly on the texts in its batch: the same texts, in any order, give the same vectors.
        """
        pieces = self._pieces(texts) if len(texts) else []
        out = np.empty((len(pieces), self.note.pooled_width), np.float32)
        batches = _by_length(pieces)

        def encode(rows: list[int]) -> int:
            ids, mask = self._padded([pieces[i] for i in rows])
            (out[rows],) = self._session.run(OUTPUTS[1:], dict(zip(INPUTS, (ids, mask), strict=True)))
            return len(rows)

        done = 0
        with ThreadPoolExecutor(max(1, threads)) as pool:
            for count in pool.map(encode, batches) if threads > 1 else map(encode, batches):
                done += count
                if progress:
                    progress(done)
        return out

    def _pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """Word pieces with begin and end, cut to `max_pieces`; one text is not worth waking threads for."""
        if len(texts) == 1:
            return [self._tokenizer.encode(texts[0]).ids]
        return [row.ids for row in self._tokenizer.encode_batch_fast(list(texts))]

    def _encoded(self, pieces: list[list[int]], batch: int) -> tuple[Floats, Floats]:
        x = np.empty((len(pieces), self.note.slots + 1, self.note.width), np.float32)
        pooled = np.empty((len(pieces), self.note.pooled_width), np.float32)
        for rows in self._batches([len(row) for row in pieces], batch):
            ids, mask = self._padded([pieces[i] for i in rows])
            x[rows], pooled[rows] = self._session.run(OUTPUTS, dict(zip(INPUTS, (ids, mask), strict=True)))
        return x, pooled

    def _batches(self, lengths: list[int], batch: int) -> Iterator[list[int]]:
        """Texts of like length together, so little is padded.

        int8 takes one range of numbers for a whole batch: there every text goes alone, or it would depend on the rest.
        """
        size = 1 if self.precision == INT8 else max(1, batch)
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        for start in range(0, len(order), size):
            yield order[start : start + size]

    def _padded(self, pieces: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        shape = len(pieces), max(1, *map(len, pieces))
        ids, mask = np.full(shape, self.note.pad_id, np.int64), np.zeros(shape, np.int64)
        for i, row in enumerate(pieces):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        return ids, mask


def _by_length(pieces: list[list[int]]) -> list[list[int]]:
    """Batches of texts, longest first, equally long ones by their pieces: the order of the texts does not matter."""
    order = sorted(range(len(pieces)), key=lambda i: (-len(pieces[i]), pieces[i]))
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        size = max(1, min(_BULK_TEXTS, _BULK_PIECES // max(1, len(pieces[order[start]]))))
        batches.append(order[start : start + size])
        start += size
    return batches


def _tokenizer(path: Path, note: Note) -> Tokenizer:
    try:
        made = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing narrower
        raise FileFormatError(f"{path} is missing or damaged: copy or export the encoder again") from error
    made.no_padding()
    side = (made.truncation or {}).get("direction", "right")
    made.enable_truncation(note.max_pieces, direction=side)
    return made


def _session(path: Path, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3  # errors, which are raised as well
    options.enable_mem_pattern = False  # it would keep a plan for every shape that was ever asked
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base
        raise FileFormatError(
            f"{path} cannot be opened by onnxruntime {onnxruntime.__version__}: copy or export the encoder again"
        ) from error
    names = {one.name for one in session.get_inputs()}, {one.name for one in session.get_outputs()}
    if names != (set(INPUTS), set(OUTPUTS)):
        raise FileFormatError(f"{path} is the graph of something else: copy or export the encoder again")
    return session


class CachedEncoder:
    """An encoder that remembers the vectors of the `size` texts asked for last. Safe for many threads."""

    def __init__(self, encoder: TextEncoder, size: int) -> None:
        self.encoder, self.size = encoder, size
        self._known: OrderedDict[str, tuple[Floats, Floats]] = OrderedDict()
        self._lock = threading.Lock()

    def query_vectors(self, texts: Sequence[str], batch: int = 64) -> tuple[Floats, Floats]:
        """X [Q, s + 1, d] and the pooled vectors [Q, d] of normalised texts."""
        x, pooled, _ = self.timed(texts, batch)
        return x, pooled

    def timed(self, texts: Sequence[str], batch: int = 64) -> tuple[Floats, Floats, Timings]:
        """`query_vectors`, and how long its two steps took for the texts that were not known."""
        spent = Timings(0.0, 0.0)
        with self._lock:
            found = {text: self._known[text] for text in texts if text in self._known}
            for text in texts:
                if text in found:
                    self._known.move_to_end(text)
        new = [text for text in dict.fromkeys(texts) if text not in found]
        if new or not texts:
            if isinstance(self.encoder, QueryEncoder):
                x, pooled, spent = self.encoder.timed(new, batch)
            else:
                x, pooled = self.encoder.query_vectors(new, batch)
            if not texts:
                return x, pooled, spent
            found |= {text: (x[i].copy(), pooled[i].copy()) for i, text in enumerate(new)}
            with self._lock:
                for text in new:
                    self._known[text] = found[text]
                while len(self._known) > self.size:
                    self._known.popitem(last=False)
        x, pooled = (np.stack([found[text][part] for text in texts]) for part in (0, 1))
        return x, pooled, spent

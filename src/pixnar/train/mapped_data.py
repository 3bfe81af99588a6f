"""Memory-mapped training data: one process reads the corpus into a file that every process maps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from pixnar.base.progress import Progress
from pixnar.base.storage import read_container, write_container
from pixnar.corpus import Corpus
from pixnar.model.process_group import ProcessGroup
from pixnar.train.data import TrainingData
from pixnar.vocab import TargetVocabulary
from pixnar.vocab.protocol import EncodedBatch

_KIND, _VERSION = "inputs", 2
_TEXTS = ("doc_ids", "docids", "queries")
_ARRAYS = ("pair_docid", "pair_document", "query_index", "query_document", "query_docid")


class MappedTexts(Sequence[str]):
    """Texts in one array of bytes; each is made when it is asked for.

    >>> texts = MappedTexts(*packed(["one", "", "zwölf"]))
    >>> texts[2], texts[:2], len(texts)
    ('zwölf', ['one', ''], 3)
    """

    def __init__(self, content: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
        self._content, self._offsets = content, offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        if not 0 <= place < len(self):
            raise IndexError(place)
        return self._content[self._offsets[place] : self._offsets[place + 1]].tobytes().decode("utf-8", "surrogatepass")


def packed(texts: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All bytes of some texts, and where each begins; at the end, where the last one ends."""
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    return np.frombuffer(b"".join(encoded), np.uint8), offsets


def read_together(
    corpus: Corpus,
    vocabulary: TargetVocabulary,
    path: Path,
    group: ProcessGroup,
    progress: Progress | None = None,
    *,
    passages: int = 0,
    typos: float = 0.0,
) -> TrainingData:
    """`TrainingData.read` in the first process, which leaves a file that the others map.

    On one machine the file is in memory once, whatever the number of processes, and only what they touch of it.
    """
    if group.size == 1:
        return TrainingData.read(corpus, vocabulary, progress, passages=passages, typos=typos)
    if group.first:
        data = TrainingData.read(corpus, vocabulary, progress, passages=passages, typos=typos)
        write_inputs(data, path)
        group.wait()
    else:
        group.wait()
        data = _mapped(path, vocabulary)
    data.keep_ngrams = False
    return data


def write_inputs(data: TrainingData, path: Path) -> None:
    """The file that the other processes map."""
    arrays: dict[str, NDArray[Any]] = {name: getattr(data, name) for name in _ARRAYS}
    arrays |= {"tokens": data.tokens.ids, "token_offsets": data.tokens.offsets}
    for name in _TEXTS:
        arrays[name], arrays[f"{name}_offsets"] = packed(getattr(data, name))
    write_container(path, _KIND, _VERSION, {}, arrays)


def _mapped(path: Path, vocabulary: TargetVocabulary) -> TrainingData:
    found = read_container(path, _KIND, _VERSION, verify=False).arrays
    parts: dict[str, Any] = {name: MappedTexts(found[name], found[f"{name}_offsets"]) for name in _TEXTS}
    parts |= {name: found[name] for name in _ARRAYS}
    parts["tokens"] = EncodedBatch(found["tokens"], found["token_offsets"])
    return TrainingData(vocabulary=vocabulary, **parts)

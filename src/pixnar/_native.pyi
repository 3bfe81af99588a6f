"""The native core of pixnar; native/bindings.cpp is the other side."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIXED_TOKENS: int

def default_min_count(docids: int) -> int: ...
def normalize_lines(texts: Sequence[str], normalize: Callable[[str], str]) -> bytes: ...
def char_kind(code_point: int) -> int: ...
def score_of(count: int) -> int: ...
def build_lookup(
    kinds: NDArray[np.uint8],
    offsets: NDArray[np.uint64],
    bytes: NDArray[np.uint8],
    scores: NDArray[np.uint16],
    spacing_chars: NDArray[np.uint32],
    spacing_rule: NDArray[np.uint8],
) -> dict[str, NDArray[Any]]: ...

class Coder:
    def __init__(self, arrays: dict[str, NDArray[Any]]) -> None: ...
    def encode_lines(self, lines: bytes, count: int, threads: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]: ...
    def decode(self, ids: NDArray[np.uint32]) -> bytes: ...

class Builder:
    def __init__(
        self,
        size: int,
        min_count: int,
        max_words: int,
        weighted: bool,
        punctuation: int,
        threads: int,
        max_memory: int,
        scratch_folder: str,
    ) -> None: ...
    def add_lines(self, lines: bytes) -> None: ...
    def build(self, progress: Callable[[str, int, int], None] | None) -> dict[str, Any]: ...

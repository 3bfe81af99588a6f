"""The native core of pixnar; native/bindings/ is the other side."""

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
def find_sorted(bytes: NDArray[np.uint8], offsets: NDArray[np.int64], wanted: Sequence[bytes]) -> NDArray[np.int64]: ...
def near_sorted(bytes: NDArray[np.uint8], offsets: NDArray[np.int64], text: bytes) -> NDArray[np.int64]: ...

class Coder:
    def __init__(self, arrays: dict[str, NDArray[Any]], verify: bool) -> None: ...
    def encode_lines(self, lines: bytes, count: int, threads: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]: ...
    def ngrams(
        self, lines: bytes, count: int, pieces: bool, count_them: bool, threads: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.uint32]]: ...
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

def deal_lines(lines: bytes, shards: int) -> list[bytes]: ...
def add_pairs(
    keys: Sequence[NDArray[np.uint64]], counts: Sequence[NDArray[np.uint64]], floor: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]: ...

class ShardReader:
    def __init__(self, weighted: bool, max_memory: int, scratch_folder: str) -> None: ...
    def add_lines(self, lines: bytes) -> None: ...
    def finish(self) -> dict[str, Any]: ...

class Shard:
    def __init__(self, values: NDArray[np.uint32]) -> None: ...
    def number_words(
        self,
        words: NDArray[np.uint8],
        offsets: NDArray[np.uint64],
        numbers: NDArray[np.uint32],
        spacing_chars: NDArray[np.uint32],
        spacing_rule: NDArray[np.uint8],
    ) -> None: ...
    def extend(self, lo: int, hi: int, keys: NDArray[np.uint64], first: int) -> None: ...
    def count(
        self, lo: int, hi: int, buckets: int, max_memory: int
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]: ...
    def segment(
        self,
        units: int,
        prefixes: NDArray[np.uint32],
        lengths: NDArray[np.uint16],
        scores: NDArray[np.uint16],
        alive: NDArray[np.uint8],
        unit_costs: NDArray[np.uint64],
        weights: NDArray[np.uint64] | None,
        costs: bool,
        count_lengths: bool,
    ) -> tuple[NDArray[np.uint32], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]: ...
    def values(self) -> NDArray[np.uint32]: ...

class ShardedBuilder:
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
    def add_shard(self, rows: int, docids: int, text_bytes: int, spacing_votes: NDArray[np.uint64]) -> None: ...
    def number_words(
        self,
        bytes: Sequence[NDArray[np.uint8]],
        offsets: Sequence[NDArray[np.uint64]],
        counts: Sequence[NDArray[np.uint64]],
    ) -> list[NDArray[np.uint32]]: ...
    def rule(self) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]: ...
    def min_count(self) -> int: ...
    def word_blocks(self) -> int: ...
    def first_word(self, block: int) -> int: ...
    def words(self, first: int, last: int) -> NDArray[np.uint32]: ...
    def level(self, layer: int) -> tuple[int, int, int] | None: ...
    def take(
        self, layer: int, keys: Sequence[NDArray[np.uint64]], counts: Sequence[NDArray[np.uint64]]
    ) -> tuple[NDArray[np.uint64], int]: ...
    def start(self) -> None: ...
    def candidates(self, layer: int) -> tuple[int, NDArray[np.uint32], NDArray[np.uint16], NDArray[np.uint16]]: ...
    def left(self) -> int: ...
    def refresh(self) -> None: ...
    def alive(self, layer: int) -> NDArray[np.uint8]: ...
    def unit_costs(self, layer: int) -> NDArray[np.uint64]: ...
    def set_word_costs(self, first: int, costs: NDArray[np.uint64]) -> None: ...
    def add_uses(self, layer: int, ids: NDArray[np.uint32], counts: NDArray[np.uint64]) -> None: ...
    def add_lengths(self, lengths: NDArray[np.uint64]) -> None: ...
    def word_weights(self) -> NDArray[np.uint64]: ...
    def advance(self, threads: int) -> bool: ...
    def finish(self) -> dict[str, Any]: ...

MOST_SLOTS: int
NO_TWIN: int

class DocidBuilder:
    def __init__(self, vocabulary: int) -> None: ...
    def add(
        self,
        ids: NDArray[np.uint32],
        offsets: NDArray[np.int64],
        documents: NDArray[np.uint32],
        texts: bytes,
        text_offsets: NDArray[np.int64],
    ) -> None: ...
    def finish(
        self, documents: int, index: bool, threads: int, progress: Callable[[str, int, int], None] | None
    ) -> dict[str, NDArray[Any]]: ...
    def spellings(self, first: int, last: int) -> tuple[bytes, NDArray[np.int64]]: ...

def merge_tables(
    parts: Sequence[DocidTable], index: bool, threads: int, progress: Callable[[str, int, int], None] | None
) -> dict[str, NDArray[Any]]: ...

class DocidTable:
    def __init__(self, arrays: dict[str, NDArray[Any]]) -> None: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def documents(self) -> int: ...
    @property
    def pairs(self) -> int: ...
    @property
    def packed_tokens(self) -> NDArray[np.uint8]: ...
    @property
    def indexed(self) -> bool: ...
    @property
    def most_docids(self) -> int: ...
    @property
    def lengths(self) -> NDArray[np.uint64]: ...
    def tokens(self, row: int) -> NDArray[np.uint32]: ...
    def find(self, tokens: NDArray[np.uint32]) -> int: ...
    def records(
        self, first: int, last: int, dead: NDArray[np.uint64] | None
    ) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32]]: ...
    def pairs_of(self, row: int) -> tuple[int, NDArray[np.uint32]]: ...
    def rows_of(self, document: int) -> NDArray[np.uint32]: ...

class Floor:
    def __init__(self, values: NDArray[np.float32] | None) -> None: ...

class Levels:
    def __init__(self, table: DocidTable, floor: Floor, slots: int, threads: int) -> None: ...

class Factors:
    def __init__(self, table: DocidTable, classes: NDArray[np.uint8], values: NDArray[np.float32]) -> None: ...

class SearchSpace:
    def __init__(
        self,
        table: DocidTable,
        levels: Levels,
        dead: NDArray[np.uint64] | None,
        rank: NDArray[np.uint32] | None,
        factors: Factors | None = None,
    ) -> None: ...
    def add(
        self,
        table: DocidTable,
        levels: Levels,
        documents: NDArray[np.uint32],
        twins: NDArray[np.uint32],
        keys: NDArray[np.uint64],
        factors: Factors | None = None,
    ) -> None: ...
    def decode(
        self,
        floor: Floor,
        tokens: NDArray[np.uint32],
        scores: NDArray[np.float32],
        offsets: NDArray[np.int64],
        ends: NDArray[np.float32],
        dense: bool,
        k: int,
        order: int,
        length_norm: float,
        engine: int,
        work_limit: int,
        documents: bool,
        top: int,
        beam_width: int,
        allowed: NDArray[np.uint64] | None,
    ) -> tuple[
        NDArray[np.uint32],
        NDArray[np.uint32],
        NDArray[np.uint32],
        NDArray[np.float64],
        bool,
        float,
        float,
        str,
        int,
    ]: ...
    def named(self, segment: int, row: int, allowed: NDArray[np.uint64] | None) -> NDArray[np.uint32]: ...

def bag_sums(
    ids: NDArray[np.uint32],
    offsets: NDArray[np.int64],
    rows: NDArray[np.float32],
    out: NDArray[np.float32],
    threads: int,
) -> None: ...
def bag_scatter(
    ids: NDArray[np.uint32],
    offsets: NDArray[np.int64],
    values: NDArray[np.float32],
    out: NDArray[np.float32],
    threads: int,
) -> None: ...
def bag_gram(
    ids: NDArray[np.uint32],
    offsets: NDArray[np.int64],
    rows: NDArray[np.float32],
    out: NDArray[np.float32],
    threads: int,
) -> None: ...
def head_paths() -> list[str]: ...
def use_head_path(name: str) -> str: ...
def head_stride(format: str, dim: int) -> int: ...
def union_of_lists(
    lists: NDArray[np.uint32],
    offsets: NDArray[np.int64],
    chosen: NDArray[np.int64],
    extra: NDArray[np.uint32],
    vocabulary: int,
) -> NDArray[np.uint32]: ...

class HeadRows:
    def __init__(
        self,
        data: NDArray[np.uint8],
        format: str,
        count: int,
        dim: int,
        stride: int,
        scales: NDArray[np.float32] | None,
        bias: NDArray[np.float32] | None,
        places: NDArray[np.uint32] | None,
    ) -> None: ...
    def logits(
        self, x: NDArray[np.float32], slots: int, ids: NDArray[np.uint32] | None, threads: int
    ) -> NDArray[np.float32]: ...
    def top(
        self, x: NDArray[np.float32], slots: int, ids: NDArray[np.uint32] | None, n: int, threads: int
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32], NDArray[np.int64]]: ...
    def top_each(
        self,
        x: NDArray[np.float32],
        slots: int,
        ids: NDArray[np.uint32],
        offsets: NDArray[np.int64],
        n: int,
        threads: int,
    ) -> tuple[NDArray[np.uint32], NDArray[np.float32], NDArray[np.int64]]: ...
    def score(
        self,
        x: NDArray[np.float32],
        ids: NDArray[np.uint32] | None,
        own: NDArray[np.uint32],
        order: int,
        normalize: bool,
        copy: float,
        prior_weight: float,
        scale: float,
        ends: bool,
        floors: NDArray[np.float32] | None,
        token_priors: NDArray[np.float32],
        end_priors: NDArray[np.float32],
        log_z: NDArray[np.float32],
        bonus: NDArray[np.float32] | None,
        expansion: int,
        threads: int,
    ) -> tuple[
        NDArray[np.uint32],
        NDArray[np.float32],
        NDArray[np.int64],
        NDArray[np.float32],
        bool,
        NDArray[np.uint32],
        NDArray[np.float32],
    ]: ...

def docid_norms(table: DocidTable, rows: HeadRows, slots: int, threads: int) -> NDArray[np.float32]: ...

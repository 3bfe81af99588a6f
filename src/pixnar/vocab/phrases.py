"""The phrase vocabulary: built from docids, encodes any text into the fewest tokens, decodes it back exactly."""

from __future__ import annotations

import contextlib
import os
import tempfile
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from pixnar import _native
from pixnar.base.errors import FileFormatError, VocabularyError
from pixnar.base.normalize import normalize, normalize_lines
from pixnar.base.progress import Progress
from pixnar.base.storage import read_container, write_container
from pixnar.vocab.protocol import Counts, EncodedBatch, Ids

GLUE, BLANK = 0, 1
"""Marker tokens: no blank follows here / a blank follows here, where the learned spacing rule says otherwise."""
FIXED_TOKENS = _native.FIXED_TOKENS
"""Tokens that every vocabulary has: two markers, and each byte as the start and as the continuation of a word."""
DEFAULT_SIZE = 131_072
Punctuation = Literal["inside", "leading", "anywhere"]
PUNCTUATION: tuple[Punctuation, ...] = get_args(Punctuation)
LARGEST_SIZE = 2**30
LEAST_MEMORY = 64 << 20

_FILE_KIND, _FILE_VERSION = "vocab", 1
_START, _CONTINUATION, _MARKER = 0, 1, 2
_INGEST_ROWS = 20_000
_TOKEN_ARRAYS = ("kinds", "offsets", "bytes", "scores", "spacing_chars", "spacing_rule")


@dataclass(frozen=True)
class Token:
    """A token as it is given to `Vocabulary.from_tokens`.

    `continuation` marks a piece inside a word. `count` decides between segmentations with equally many tokens: the
    higher the sum of log counts, the better.
    """

    text: str
    continuation: bool = False
    count: int = 0


@dataclass(frozen=True)
class BuildOptions:
    """What `Vocabulary.build` is asked for; a value out of range is an error at once."""

    size: int = DEFAULT_SIZE
    min_count: int | None = None
    max_words: int = 8
    weighted: bool = False
    punctuation: Punctuation = "leading"
    threads: int = 0
    max_memory: int | None = None
    scratch: Path | None = None

    def __post_init__(self) -> None:
        _check_range("size", self.size, FIXED_TOKENS, LARGEST_SIZE)
        if self.punctuation not in PUNCTUATION:
            raise VocabularyError(f"punctuation is {self.punctuation!r}; it must be one of {', '.join(PUNCTUATION)}")
        _check_range("max_words", self.max_words, 1, 16)
        if self.max_memory is not None:
            _check_range("max_memory", self.max_memory, LEAST_MEMORY, 2**60)
        _check_range("min_count", 1 if self.min_count is None else self.min_count, 1, 2**40)
        if not os.path.isdir(self.scratch_folder):
            raise VocabularyError(
                f"there is no folder {self.scratch_folder} for temporary files: create it or name another"
            )

    @property
    def scratch_folder(self) -> str:
        """Where temporary files go."""
        return os.fspath(self.scratch or tempfile.gettempdir())

    @property
    def memory(self) -> int:
        """Bytes that may be used."""
        return self.max_memory or max(int(0.6 * _free_memory()), LEAST_MEMORY)

    def native(self) -> dict[str, Any]:
        """As the native builders take it."""
        return {
            "size": self.size,
            "min_count": self.min_count or 0,
            "max_words": self.max_words,
            "weighted": self.weighted,
            "punctuation": PUNCTUATION.index(self.punctuation),
            "threads": self.threads,
            "max_memory": self.memory,
            "scratch_folder": self.scratch_folder,
        }


class Vocabulary:
    """Phrases, words, pieces and bytes with one id each, wherever they stand.

    >>> vocabulary = Vocabulary.build(["new york hotels", "new york pizza", "cheap hotels", "new york"], min_count=2)
    >>> vocabulary.tokens("hotels in New York")
    ['hotels', 'i', '##n', 'new york']
    >>> vocabulary.decode(vocabulary.encode("Hotels in  New York!"))
    'hotels in new york!'
    """

    kind = "phrase"
    lossless = True

    def __init__(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], *, verify: bool = True) -> None:
        """Use `build`, `from_tokens` or `load`; without `verify` only the sizes of the arrays are looked at."""
        self.arrays = dict(arrays)
        self.meta = dict(meta)
        self._coder = _native.Coder(self.arrays, verify)
        for name, size in (("uses", len(self)), ("lengths", None)):
            if name not in self.arrays:
                raise ValueError(f"array {name} is missing")
            if self.arrays[name].dtype != np.uint64 or len(self.arrays[name]) != (size or len(self.arrays[name])):
                raise ValueError(f"array {name} has the wrong type or size")

    @classmethod
    def build(
        cls,
        texts: Iterable[str],
        size: int = DEFAULT_SIZE,
        *,
        min_count: int | None = None,
        max_words: int = 8,
        weighted: bool = False,
        punctuation: Punctuation = "leading",
        threads: int = 0,
        max_memory: int | None = None,
        scratch: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> Vocabulary:
        """Learn a vocabulary of at most `size` tokens from docids.

        Every token beyond the fixed ones is used at least `min_count` times when the docids are encoded (default: by
        the number of docids, 2 for thousands, 5 for 400 thousand, 20 for 20 million). A phrase has at most
        `max_words` words; `punctuation` may stand "inside" it only, may be "leading" it, or stand "anywhere", at its
        end too. Equal docids count once, or as
        often as they occur if `weighted`. Memory beyond `max_memory` bytes (default: 60 % of what is free) spills to
        the folder `scratch`. The same docids give the same vocabulary whatever their order and the number of threads.
        """
        if isinstance(texts, str):
            raise TypeError("build takes many texts, not one")
        options = BuildOptions(
            size,
            min_count,
            max_words,
            weighted,
            punctuation,
            threads,
            max_memory,
            None if scratch is None else Path(scratch),
        )
        builder = _native.Builder(**options.native())
        for lines in normal_lines(texts):
            with as_vocabulary_errors(options.scratch_folder):
                builder.add_lines(lines)
        with as_vocabulary_errors(options.scratch_folder):
            built = builder.build(progress)
        return cls.from_built(built, options)

    @classmethod
    def from_built(cls, built: dict[str, Any], options: BuildOptions) -> Vocabulary:
        """What a native builder made, as a vocabulary."""
        facts = dict(built["facts"])
        if facts["docids"] == 0:
            raise VocabularyError("there are no docids to build a vocabulary from: the input is empty")
        arrays = {name: built[name] for name in _TOKEN_ARRAYS}
        arrays |= _native.build_lookup(**arrays)
        arrays |= {"uses": built["uses"], "lengths": built["lengths"]}
        meta = {
            "size": len(built["kinds"]),
            "wanted_size": options.size,
            "max_words": options.max_words,
            "weighted": options.weighted,
            "punctuation": options.punctuation,
            "unicode": unicodedata.unidata_version,  # the normaliser's
        }
        # How much went to disk depends on the memory allowed; it must not change the file.
        facts.pop("spilled_bytes")
        return cls(arrays, meta | facts)

    @classmethod
    def from_tokens(cls, tokens: Iterable[Token]) -> Vocabulary:
        """A vocabulary of given tokens; markers and bytes are added, and blanks follow the plain rule of prose.

        >>> Vocabulary.from_tokens([Token("free night"), Token("points")]).tokens("points free night")
        ['points', 'free night']
        """
        rows: dict[tuple[bytes, int], int] = {(b"", _MARKER): 0}
        rows |= {(bytes([b]), kind): 0 for kind in (_START, _CONTINUATION) for b in range(256)}
        for token in tokens:
            rows[normalize(token.text).encode(), int(token.continuation)] = token.count
        texts = [text for text, _ in rows]
        kinds = [kind for _, kind in rows]
        arrays: dict[str, NDArray[Any]] = {
            "kinds": np.array([_MARKER, *kinds], np.uint8),
            "offsets": np.cumsum([0, 0, *map(len, texts)], dtype=np.uint64),
            "bytes": np.frombuffer(b"".join(texts), np.uint8),
            "scores": np.array([0, *(_native.score_of(count) for count in rows.values())], np.uint16),
            "spacing_chars": np.zeros(0, np.uint32),
            "spacing_rule": np.tile(np.array([1, 1, 0, 0], np.uint8), 16),
        }
        try:
            arrays |= _native.build_lookup(**arrays)
        except ValueError as error:
            raise VocabularyError(f"these tokens make no vocabulary: {error}") from error
        arrays |= {"uses": np.zeros(len(kinds) + 1, np.uint64), "lengths": np.zeros(1, np.uint64)}
        return cls(arrays, {"size": len(kinds) + 1})

    def __reduce__(self) -> tuple[Any, ...]:
        return Vocabulary, ({name: np.array(array) for name, array in self.arrays.items()}, self.meta)

    def __len__(self) -> int:
        return len(self.arrays["kinds"])

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} tokens)"

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for (none for markers)."""
        if not 0 <= token_id < len(self):
            raise VocabularyError(f"token id {token_id} is not in 0 … {len(self) - 1}")
        begin, end = self.arrays["offsets"][token_id : token_id + 2]
        return self.arrays["bytes"][begin:end].tobytes()

    def token(self, token_id: int) -> str:
        """The token as a person would read it; pieces that continue a word start with ``##``."""
        raw = self.token_bytes(token_id)
        kind = self.arrays["kinds"][token_id]
        if kind == _MARKER:
            return "<glue>" if token_id == GLUE else "<blank>"
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            text = f"<0x{raw[0]:02X}>"
        return f"##{text}" if kind == _CONTINUATION else text

    @property
    def token_counts(self) -> Counts:
        """How often each token is used when the docids of the build are encoded."""
        counts: Counts = self.arrays["uses"]
        return counts

    @property
    def docid_lengths(self) -> Counts:
        """How many docids of the build have 0, 1, 2 … tokens."""
        lengths: Counts = self.arrays["lengths"]
        return lengths

    def encode(self, text: str) -> Ids:
        """Normalise, then split into the fewest tokens; ties go to the more frequent ones."""
        return self.encode_batch([text], threads=1).ids

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text in readable form."""
        return [self.token(int(v)) for v in self.encode(text)]

    def encode_batch(self, texts: Sequence[str], *, threads: int = 0) -> EncodedBatch:
        """`encode` for many texts on all cores (or on `threads`)."""
        if isinstance(texts, str):
            raise TypeError("encode_batch takes a sequence of texts; for one text use encode")
        lines = normalize_lines(texts)
        with as_vocabulary_errors():
            return EncodedBatch(*self._coder.encode_lines(lines, len(texts), threads))

    def ngrams(self, text: str, *, pieces: bool = True) -> Ids:
        """Every word and phrase that stands in a text as whole atoms, as often as it does, overlaps included.

        They come by where they begin, then by length; with `pieces`, what `encode` needs for the rest follows.
        """
        with as_vocabulary_errors():
            return self._coder.ngrams(normalize_lines([text]), 1, pieces, False, 1)[0]

    def count_ngrams(
        self, texts: Sequence[str], *, pieces: bool = True, threads: int = 0
    ) -> tuple[Ids, NDArray[np.int64], NDArray[np.uint32]]:
        """`ngrams` of many texts on all cores (or on `threads`): distinct ids of each text by id, offsets, counts."""
        lines = normalize_lines(texts)
        with as_vocabulary_errors():
            return self._coder.ngrams(lines, len(texts), pieces, True, threads)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """The text of any token sequence; for encoded text, its normal form."""
        array = np.asarray(ids)
        if array.size and not (array.min() >= 0 and array.max() < len(self)):
            wrong = next(int(v) for v in array if not 0 <= v < len(self))
            raise VocabularyError(f"token id {wrong} is not in 0 … {len(self) - 1}")
        return self._coder.decode(np.ascontiguousarray(array, np.uint32)).decode(errors="replace")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file, atomically; equal vocabularies give equal bytes."""
        write_container(path, _FILE_KIND, _FILE_VERSION, self.meta, self.arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = True) -> Vocabulary:
        """Map a vocabulary file; `verify` reads all of it to check its checksums and all internal references.

        Without it a file of any size opens at once. Damage inside then gives odd tokens, and never anything worse.
        """
        container = read_container(path, _FILE_KIND, _FILE_VERSION, verify=verify)
        try:
            vocabulary = cls(container.arrays, container.meta, verify=verify)
        except (ValueError, TypeError, RuntimeError) as error:
            raise FileFormatError(f"{path} is not a usable vocabulary ({error}): build it again") from error
        return vocabulary

    from_file = load


def normal_lines(texts: Iterable[str]) -> Iterator[bytes]:
    """Texts in their normal form, some thousand at a time, with a line feed after each."""
    rows = iter(texts)
    while chunk := list(islice(rows, _INGEST_ROWS)):
        yield normalize_lines(chunk) + b"\n"  # a line feed after every text, the empty ones too


@contextlib.contextmanager
def as_vocabulary_errors(scratch: str = "") -> Iterator[None]:
    """Turn what the native builder says about limits and files into errors for users."""
    try:
        yield
    except ValueError as error:  # std::length_error: a limit
        raise VocabularyError(str(error)) from error
    except OSError as error:  # std::system_error: a temporary file
        raise VocabularyError(f"{error} in {scratch}: make room, name another folder, or allow more memory") from error


def _check_range(name: str, value: int, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        raise VocabularyError(f"{name} is {value:,}; it must be between {lowest:,} and {highest:,}")


def _free_memory() -> int:
    """Bytes that can be had now, within the limit of the container if there is one."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    with contextlib.suppress(OSError), open("/proc/meminfo") as file:
        free = next((int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable:")), free)
    with contextlib.suppress(OSError, ValueError):  # "max" means no limit
        limit, used = (int(Path("/sys/fs/cgroup", name).read_text()) for name in ("memory.max", "memory.current"))
        free = min(free, max(limit - used, 0))
    return free

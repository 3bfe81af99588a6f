"""BPE, Unigram and word-piece behind the same protocol as our own vocabulary, through `tokenizers`.

What is trained here works on UTF-8 bytes, so that no text is unknown, and every word carries its blank in front of it,
the first one too, so that a word has one id wherever it stands. Texts are split at blanks and at punctuation.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from pixnar.base.errors import FileFormatError, VocabularyError
from pixnar.base.normalize import normalize
from pixnar.base.progress import Progress
from pixnar.base.storage import read_container, write_container
from pixnar.vocab.protocol import Counts, EncodedBatch, Ids

_KIND = "vocab-tk"
_VERSION = 1
_BATCH = 16_384
_BYTES = 256
_WORDS = r" ?[\p{L}\p{M}\p{N}]+| ?[^ \p{L}\p{M}\p{N}]+"  # a word or a run of other signs, each with its blank


def bpe_tokenizer(texts: Iterable[str], size: int, *, whitespace: bool = True, min_count: int = 2) -> Tokenizer:
    """Train byte-level BPE on texts that are already normalised; every text counts as often as it is given.

    With `whitespace`, merges stay inside a word or a run of punctuation; without it ("super"), they may cross both.
    `min_count` is the smallest number of occurrences for which a pair is still merged. The same texts in the same order
    give the same tokenizer.

    >>> bpe_tokenizer(["free night", "free flight"], 300).encode("free").tokens
    ['Ġfree']
    """
    _check_size(size)
    tokenizer = _byte_level(models.BPE(), whitespace)
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=min_count, show_progress=False, initial_alphabet=byte_alphabet()
    )
    tokenizer.train_from_iterator(iter(texts), trainer)
    return tokenizer


def unigram_tokenizer(
    texts: Iterable[str], size: int, *, whitespace: bool = True, max_piece_bytes: int = 16
) -> Tokenizer:
    """Train a byte-level Unigram model on texts that are already normalised.

    `max_piece_bytes` is the longest token in bytes. **Not deterministic**: `tokenizers` visits the texts in hash order,
    so two runs differ in the last digits of the scores, in the ids of tokens with equal scores, and now and then in a
    token. Small corpora give fewer tokens than asked for.
    """
    _check_size(size)
    tokenizer = _byte_level(models.Unigram(), whitespace)
    trainer = trainers.UnigramTrainer(
        vocab_size=size, show_progress=False, initial_alphabet=byte_alphabet(), max_piece_length=max_piece_bytes
    )
    try:
        tokenizer.train_from_iterator(iter(texts), trainer)
    except Exception as error:  # tokenizers has no narrower class
        raise VocabularyError(f"Unigram training failed ({first_line(error)}): give it more docids") from error
    return tokenizer


class TokenizerVocabulary:
    """A `tokenizers.Tokenizer` as target vocabulary.

    >>> vocabulary = TokenizerVocabulary.train_bpe(["Free night", "free flight"], 300)
    >>> vocabulary.decode(vocabulary.encode("FREE  nights"))
    'free nights'
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        method: str,
        token_counts: Counts | None = None,
        docid_lengths: Counts | None = None,
    ) -> None:
        tokenizer.no_padding()
        tokenizer.no_truncation()
        # "<s>" in a docid is text, not a command to the model.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self._method = method
        self._spec: dict[str, Any] = describe(tokenizer)
        self._size = 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
        self._counts = np.zeros(self._size, np.uint64) if token_counts is None else token_counts
        self._lengths = np.zeros(1, np.uint64) if docid_lengths is None else docid_lengths
        if len(self._counts) != self._size:
            raise VocabularyError(f"{len(self._counts)} token counts for {self._size} tokens: give one count per token")

    @classmethod
    def train_bpe(
        cls,
        texts: Iterable[str],
        size: int,
        *,
        whitespace: bool = True,
        min_count: int = 2,
        weighted: bool = False,
        progress: Progress | None = None,
    ) -> TokenizerVocabulary:
        """Train BPE on raw docids; see `bpe_tokenizer`. Equal docids count once unless `weighted`."""
        kept = _gather(texts, weighted, progress)
        tokenizer = bpe_tokenizer(_reported(kept, "train", progress), size, whitespace=whitespace, min_count=min_count)
        vocabulary = cls(tokenizer, method="bpe" if whitespace else "bpe-super")
        return vocabulary._counted(kept, progress)

    @classmethod
    def train_unigram(
        cls,
        texts: Iterable[str],
        size: int,
        *,
        whitespace: bool = True,
        max_piece_bytes: int = 16,
        weighted: bool = False,
        progress: Progress | None = None,
    ) -> TokenizerVocabulary:
        """Train Unigram on raw docids; see `unigram_tokenizer`: two runs may differ.

        Equal docids count once unless `weighted`.
        """
        kept = _gather(texts, weighted, progress)
        tokenizer = unigram_tokenizer(
            _reported(kept, "train", progress), size, whitespace=whitespace, max_piece_bytes=max_piece_bytes
        )
        vocabulary = cls(tokenizer, method="unigram" if whitespace else "unigram-super")
        return vocabulary._counted(kept, progress)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | os.PathLike[str],
        texts: Iterable[str] | None = None,
        *,
        revision: str = "main",
        weighted: bool = False,
        progress: Progress | None = None,
    ) -> TokenizerVocabulary:
        """The tokenizer of a Hugging Face model: a hub name, a folder with tokenizer.json, or such a file.

        Its special tokens ([CLS] …) are never added. `texts` are raw docids to count tokens on, equal ones once unless
        `weighted`; without them all counts are zero.
        """
        tokenizer = find_tokenizer(name_or_path, revision)
        vocabulary = cls(tokenizer, method=f"pretrained:{Path(name_or_path).name}")
        return vocabulary if texts is None else vocabulary._counted(_gather(texts, weighted, progress), progress)

    @property
    def kind(self) -> str:
        """The model's name: "bpe", "unigram", "wordpiece" or "wordlevel"."""
        return str(self._spec["model"]["type"]).lower()

    @property
    def method(self) -> str:
        """How it came about: "bpe", "bpe-super", "unigram", "unigram-super", or "pretrained:" and a name."""
        return self._method

    @functools.cached_property
    def lossless(self) -> bool:
        """Whether decoding always gives back the normalised text; False where that is not certain."""
        return is_lossless(self._spec)

    @property
    def token_counts(self) -> Counts:
        """How often each token is used in the training docids; zeros where those are unknown."""
        return self._counts

    @property
    def docid_lengths(self) -> Counts:
        """How many of the docids counted on have 0, 1, 2 … tokens."""
        return self._lengths

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer behind it."""
        return self._tokenizer

    def __len__(self) -> int:
        return self._size

    def token(self, token_id: int) -> str:
        """The token as a person would read it; pieces that continue a word start with ``##``."""
        self._check_ids([token_id])
        token = self._tokenizer.id_to_token(int(token_id))
        if token is None or token in self._added:
            return token or ""
        if self._byte_level:
            text = bytes(map(byte_values().__getitem__, token)).decode("utf-8", "backslashreplace")
            blank = " "
        elif self._meta_blank:
            text, blank = token, META_BLANK
        else:
            return token
        shown = text.removeprefix(blank).replace(blank, " ")
        return (shown or " ") if text.startswith(blank) else f"##{shown}"

    def encode(self, text: str) -> Ids:
        """Normalise, then split into token ids."""
        return np.array(self._tokenizer.encode(normalize(text), add_special_tokens=False).ids, np.uint32)

    def encode_batch(self, texts: Sequence[str], *, threads: int = 0) -> EncodedBatch:
        """`encode` for many texts: on one core with ``threads=1``, else on the pool of `tokenizers` (all cores)."""
        ids: list[list[int]] = []
        for batch in _batched(texts):
            clean = [normalize(text) for text in batch]
            if threads == 1:
                found = [self._tokenizer.encode(text, add_special_tokens=False) for text in clean]
            else:
                found = self._tokenizer.encode_batch_fast(clean, add_special_tokens=False)
            ids.extend(encoding.ids for encoding in found)
        return EncodedBatch.from_lists(ids)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """The text of a token sequence."""
        wanted = [int(i) for i in ids]
        self._check_ids(wanted)
        return self._tokenizer.decode(wanted, skip_special_tokens=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one file, atomically."""
        meta = {"method": self._method, "kind": self.kind, "size": self._size, "lossless": self.lossless}
        source = np.frombuffer(self._tokenizer.to_str().encode(), np.uint8)
        arrays: dict[str, NDArray[Any]] = {"tokenizer": source, "counts": self._counts, "lengths": self._lengths}
        write_container(path, _KIND, _VERSION, meta, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = True) -> TokenizerVocabulary:
        """Read what `save` wrote; `verify` compares it with its checksums."""
        container = read_container(path, _KIND, _VERSION, verify=verify)
        try:
            tokenizer = Tokenizer.from_buffer(container.arrays["tokenizer"].tobytes())
            return cls(
                tokenizer,
                method=container.meta["method"],
                token_counts=container.arrays["counts"],
                docid_lengths=container.arrays["lengths"],
            )
        except Exception as error:  # tokenizers has no narrower class
            reason = f"a tokenizer this release cannot read ({first_line(error)})"
            raise FileFormatError(f"{path} holds {reason}: build the vocabulary again") from error

    def _counted(self, texts: Sequence[str], progress: Progress | None) -> TokenizerVocabulary:
        counts = np.zeros(self._size, np.int64)
        lengths: list[int] = []
        for batch in _batched(_reported(texts, "count", progress, len(texts))):
            encoded = self.encode_batch(batch)
            counts += np.bincount(encoded.ids, minlength=self._size)
            lengths += encoded.lengths.tolist()
        self._counts = counts.astype(np.uint64)
        self._lengths = np.bincount(lengths, minlength=1).astype(np.uint64)
        return self

    def _check_ids(self, ids: Sequence[int]) -> None:
        for i in ids:
            if not 0 <= i < self._size:
                raise VocabularyError(f"token id {i} is outside the vocabulary: ids go from 0 to {self._size - 1}")

    @functools.cached_property
    def _added(self) -> frozenset[str]:
        return frozenset(token["content"] for token in self._spec["added_tokens"])

    @functools.cached_property
    def _byte_level(self) -> bool:
        return any(part["type"] == "ByteLevel" for part in parts(self._spec["decoder"], "decoders"))

    @functools.cached_property
    def _meta_blank(self) -> bool:
        return META_BLANK in json.dumps([self._spec["decoder"], self._spec["pre_tokenizer"]], ensure_ascii=False)


def _byte_level(model: models.Model, whitespace: bool) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Prepend(" ")
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = pre_tokenizers.Split(Regex(_WORDS), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, as_bytes]) if whitespace else as_bytes
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def _check_size(size: int) -> None:
    if size < _BYTES:
        raise VocabularyError(f"a vocabulary of {size} tokens cannot hold the {_BYTES} bytes: ask for {_BYTES} or more")


def _gather(texts: Iterable[str], weighted: bool, progress: Progress | None) -> list[str]:
    clean = (normalize(text) for text in _reported(texts, "read", progress))
    kept = list(clean) if weighted else list(dict.fromkeys(clean))
    if not any(kept):
        raise VocabularyError("no docid has any text: a vocabulary needs at least one docid to be trained on")
    return kept


def _reported(texts: Iterable[str], stage: str, progress: Progress | None, total: int = 0) -> Iterator[str]:
    if progress is None:
        yield from texts
        return
    total = len(texts) if isinstance(texts, Sequence) else total
    done = 0
    for done, text in enumerate(texts, 1):
        yield text
        if done % _BATCH == 0:
            progress(stage, done, total)
    progress(stage, done, total)


def _batched(texts: Iterable[str]) -> Iterator[list[str]]:
    source = iter(texts)
    while batch := list(itertools.islice(source, _BATCH)):
        yield batch


META_BLANK = "▁"


def byte_alphabet() -> list[str]:
    """The 256 characters that stand for the bytes in a byte-level tokenizer."""
    return sorted(pre_tokenizers.ByteLevel.alphabet())


@functools.cache
def byte_values() -> dict[str, int]:
    """The byte that each character of the byte-level alphabet stands for: printable ones themselves, then the rest."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in plain}
    others = [byte for byte in range(256) if chr(byte) not in table]
    return table | {chr(256 + i): byte for i, byte in enumerate(others)}


def describe(tokenizer: Tokenizer) -> dict[str, Any]:
    """The tokenizer's own description without its vocabulary, of which only the missing bytes are kept."""
    spec: dict[str, Any] = json.loads(tokenizer.to_str())
    spec["model"] = {key: value for key, value in spec["model"].items() if key not in ("vocab", "merges")}
    spec["missing_bytes"] = [char for char in byte_alphabet() if tokenizer.token_to_id(char) is None]
    return spec


def parts(component: dict[str, Any] | None, key: str) -> list[dict[str, Any]]:
    """The members of a `Sequence` component, or the component alone."""
    if component is None:
        return []
    if component["type"] == "Sequence":
        return [part for member in component[key] for part in parts(member, key)]
    return [component]


def is_lossless(spec: dict[str, Any]) -> bool:
    """Whether nothing can be lost: all bytes are tokens, and no step drops, rewrites or adds a character for good."""
    model = spec["model"]
    normal = parts(spec["normalizer"], "normalizers")
    split = parts(spec["pre_tokenizer"], "pretokenizers")
    back = parts(spec["decoder"], "decoders")
    prepends = [part.get("prepend") for part in normal]
    strips = [part for part in back if part["type"] == "Strip"]
    exact_strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    return (
        model["type"] in ("BPE", "Unigram")
        and not spec["missing_bytes"]
        and not model.get("dropout")
        and not model.get("continuing_subword_prefix")
        and not model.get("end_of_word_suffix")
        and ((not normal and not strips) or (prepends == [" "] and strips == exact_strip))
        and [part["type"] for part in split if part["type"] != "Split"] == ["ByteLevel"]
        and not any(part.get("add_prefix_space") or part.get("behavior") == "Removed" for part in split)
        and {part["type"] for part in back} <= {"ByteLevel", "Strip"}
        and any(part["type"] == "ByteLevel" for part in back)
        and not any(token["lstrip"] or token["rstrip"] for token in spec["added_tokens"] if not token["special"])
    )


def find_tokenizer(name_or_path: str | os.PathLike[str], revision: str) -> Tokenizer:
    """Read a tokenizer.json, that of a folder, or that of a name on the Hugging Face hub."""
    path = Path(name_or_path)
    if path.is_dir():
        path /= "tokenizer.json"
        if not path.is_file():
            raise VocabularyError(f"{path} does not exist: give a folder that a fast tokenizer was saved to")
    if path.is_file():
        try:
            return Tokenizer.from_buffer(path.read_bytes())
        except Exception as error:  # tokenizers has no narrower class
            reason = first_line(error)
            raise VocabularyError(f"{path} is not a tokenizer file ({reason}): give a tokenizer.json") from error
    try:
        with _quiet():
            return Tokenizer.from_pretrained(os.fspath(name_or_path), revision=revision)
    except Exception as error:  # tokenizers and the hub client have many classes for "not there"
        reason = first_line(error)
        raise VocabularyError(
            f"cannot get the tokenizer {os.fspath(name_or_path)!r} from the Hugging Face hub ({reason}): "
            "check the name and the network, or give a folder that holds its tokenizer.json"
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep retry messages off the terminal: the error that follows says it in one line."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def first_line(error: BaseException) -> str:
    """An error's message cut to one line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].strip().rstrip(".")

"""What a tokenizer.json says: where to find one, whether it loses anything, how its tokens read."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers

from pixnar.base.errors import VocabularyError

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

"""API keys: compared in constant time, never logged, never on a command line."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from pixnar.base.errors import PixnarError

VARIABLE = "PIXNAR_API_KEY"
_SHORTEST = 16


class ApiKeys:
    """A set of API keys, any of which opens.

    >>> keys = ApiKeys(["a key of sixteen"])
    >>> bool(keys), keys.opens("a key of sixteen"), keys.opens("another")
    (True, True, False)
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def opens(self, given: str) -> bool:
        """Whether a key is one of ours; the time this takes reveals nothing about them."""
        given_digest = _digest(given)
        match = False
        for digest in self._digests:
            match |= hmac.compare_digest(digest, given_digest)
        return match


def read_keys(path: Path | None) -> ApiKeys:
    """API keys from a file with one on each line, and from the environment."""
    keys = [os.environ.get(VARIABLE, "").strip()]
    if path is not None:
        try:
            lines = [line.strip() for line in path.read_text().splitlines()]
            keys += [line for line in lines if not line.startswith("#")]
        except (OSError, UnicodeDecodeError) as error:
            raise PixnarError(f"cannot read keys from {path}: {error}; give a text file, a key on each line") from error
    keys = [key for key in keys if key]
    short = [i for i, key in enumerate(keys, 1) if len(key) < _SHORTEST]
    if short:
        raise PixnarError(f"API key {short[0]} has less than {_SHORTEST} characters: make a longer one")
    strange = [i for i, key in enumerate(keys, 1) if not key.isascii()]
    if strange:
        raise PixnarError(f"API key {strange[0]} is not ASCII, so no header can carry it: make another")
    return ApiKeys(keys)


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogatepass")).digest()

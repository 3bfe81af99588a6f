"""Which instructions the kernels use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pixnar import _native


def head_paths() -> list[str]:
    """The paths this machine can run, best first; the first one is used."""
    return _native.head_paths()


@contextlib.contextmanager
def head_path(name: str) -> Iterator[None]:
    """Use another path for a while, in the whole process: for tests and comparisons."""
    _native.use_head_path(name)
    try:
        yield
    finally:
        _native.use_head_path("")

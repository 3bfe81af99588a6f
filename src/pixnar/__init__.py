"""PIXNAR: generative retrieval in one transformer pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pixnar.base.errors import PixnarError
from pixnar.corpus import open_corpus
from pixnar.vocab import Vocabulary, load_vocabulary, normalize

if TYPE_CHECKING:
    from pixnar.index import Hit, Index

__all__ = ["Hit", "Index", "PixnarError", "Vocabulary", "load_vocabulary", "normalize", "open_corpus"]
__version__ = "0.1.0"

_LATER = {"Hit", "Index"}  # slow to import


def __getattr__(name: str) -> Any:
    """Import what is slow to import when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module 'pixnar' has no attribute {name!r}")
    from pixnar import index

    return getattr(index, name)

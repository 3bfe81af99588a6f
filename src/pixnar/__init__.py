"""PIXNAR: generative retrieval in one transformer pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pixnar.base.errors import PixnarError
from pixnar.base.normalize import normalize
from pixnar.corpus import open_corpus
from pixnar.vocab import Vocabulary, load_vocabulary

if TYPE_CHECKING:
    from pixnar.evaluation import evaluate
    from pixnar.index import Hit, Index
    from pixnar.pipeline.api import fit

__all__ = [
    "Hit",
    "Index",
    "PixnarError",
    "Vocabulary",
    "evaluate",
    "fit",
    "load_vocabulary",
    "normalize",
    "open_corpus",
]
__version__ = "0.1.0"

# Slow to import, or only with an extra: imported when first asked for.
_LATER = {
    "Hit": "pixnar.index",
    "Index": "pixnar.index",
    "evaluate": "pixnar.evaluation",
    "fit": "pixnar.pipeline.api",
}


def __getattr__(name: str) -> Any:
    """Import what is slow to import when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module 'pixnar' has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(_LATER[name]), name)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] in ("torch", "transformers"):
            raise PixnarError(f"pixnar.{name} needs {error.name}: pip install 'pixnar[train]'") from error
        raise

"""PIXNAR: generative retrieval in one transformer pass."""

from pixnar.corpus import open_corpus
from pixnar.errors import PixnarError
from pixnar.vocab import Vocabulary, load_vocabulary, normalize

__all__ = ["PixnarError", "Vocabulary", "load_vocabulary", "normalize", "open_corpus"]
__version__ = "0.1.0"

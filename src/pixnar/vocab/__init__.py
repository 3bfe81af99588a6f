"""vocab: docid texts come in; a vocabulary of phrases that encodes and decodes any text goes out."""

from __future__ import annotations

import os

from pixnar.base.errors import FileFormatError
from pixnar.base.normalize import normalize
from pixnar.base.storage import container_kind
from pixnar.vocab.baselines import TokenizerVocabulary
from pixnar.vocab.phrases import Token, Vocabulary
from pixnar.vocab.protocol import TargetVocabulary, mean_length

__all__ = [
    "TargetVocabulary",
    "Token",
    "TokenizerVocabulary",
    "Vocabulary",
    "load_vocabulary",
    "mean_length",
    "normalize",
]


def load_vocabulary(path: str | os.PathLike[str], *, verify: bool = True) -> Vocabulary | TokenizerVocabulary:
    """Load a vocabulary file of any kind; `verify` reads all of it to find damage."""
    kind = container_kind(path, "vocabulary")
    if kind not in _CLASSES:
        raise FileFormatError(f"{path} holds a {kind}, not a vocabulary: give the path of a vocabulary file")
    return _CLASSES[kind].load(path, verify=verify)


_CLASSES: dict[str, type[Vocabulary] | type[TokenizerVocabulary]] = {
    "vocab": Vocabulary,
    "vocab-tk": TokenizerVocabulary,
}

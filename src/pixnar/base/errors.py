"""Errors a user can cause. Each message says what is wrong, where, and what to do about it, in one line."""

from __future__ import annotations


class PixnarError(Exception):
    """Base of every error that is the input's fault, not ours; the command line shows it as one line and exits 2."""


class CorpusError(PixnarError):
    """A corpus, or one row of it, cannot be read."""


class MissingPartError(CorpusError):
    """A part that a corpus may lack (docids, queries, text, pairs to train on) is not there."""


class VocabularyError(PixnarError):
    """A vocabulary cannot be built, or was asked for something it does not have."""


class FileFormatError(PixnarError):
    """A file of ours is truncated, damaged, foreign, or from a newer release."""


class MissingExtraError(PixnarError):
    """An optional dependency is not installed; the message names the extra to install."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'pixnar[{extra}]'")

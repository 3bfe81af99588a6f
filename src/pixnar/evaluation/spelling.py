"""Retrievers with spelling correction switched on or off, for fair comparisons."""

from __future__ import annotations

from pathlib import Path

from pixnar.base.progress import Progress
from pixnar.corpus import Corpus
from pixnar.index import BeamSearch, Index
from pixnar.search import Retriever
from pixnar.search.spelling import Corrected, Lexicon, Speller, words_of_tokenizers


def with_spelling(
    retriever: Retriever, spelling: bool, folder: Path, corpus: Corpus, progress: Progress | None = None
) -> Retriever:
    """The index or baseline of a folder, its queries corrected or left as they are.

    An index corrects by its own lexicon. Others get one of the corpus' words and of those that their tokenizers know.
    """
    index = retriever.index if isinstance(retriever, BeamSearch) else retriever
    if isinstance(index, Index):
        index.searcher.corrects = spelling and index.ranker.speller is not None
    if not spelling or (isinstance(index, Index) and index.searcher.corrects):
        return retriever
    return Corrected(retriever, Speller(Lexicon.of_corpus(corpus, words_of_tokenizers(folder), progress)))

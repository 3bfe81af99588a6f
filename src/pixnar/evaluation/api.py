"""`pixnar.evaluate`: an index, a baseline or any retriever against the judged queries of a corpus."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pixnar.base.progress import Progress
from pixnar.corpus import Corpus, open_corpus
from pixnar.evaluation.baselines import open_retriever
from pixnar.evaluation.run import Evaluation
from pixnar.evaluation.run import evaluate as run
from pixnar.index import BeamSearch, Index
from pixnar.search import Retriever
from pixnar.search.spelling import Corrected, Lexicon, Speller, words_of_tokenizers


def evaluate(
    retriever: Retriever | str | os.PathLike[str],
    corpus: Corpus | str | os.PathLike[str],
    split: str = "test",
    **options: Any,
) -> Evaluation:
    """Ask a retriever, or the index or baseline in a folder, the judged queries of a split.

    ``pixnar.evaluate(index, "corpus/", split="test").figures`` has MRR@10 and recalls; `options` are those of
    `pixnar.evaluation.evaluate`: measures, most, k, timed, perturbation, progress.
    """
    opened = open_retriever(retriever) if isinstance(retriever, str | os.PathLike) else retriever
    source = corpus if isinstance(corpus, Corpus) else open_corpus(corpus)
    return run(opened, source, split, **options)


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

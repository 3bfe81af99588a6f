"""`pixnar.evaluate`: an index, a baseline or any retriever against the judged queries of a corpus."""

from __future__ import annotations

import os
from typing import Any

from pixnar.corpus import Corpus, open_corpus
from pixnar.evaluation.baselines import open_retriever
from pixnar.evaluation.run import Evaluation
from pixnar.evaluation.run import evaluate as run
from pixnar.search import Retriever


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

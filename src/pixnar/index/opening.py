"""Opening what an index needs beside its model: everything is mapped, nothing is read through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pixnar.base.errors import FileFormatError
from pixnar.fusion.fuse import DENSE, LEXICAL, TEXT, Fusion, needed_by
from pixnar.fusion.lexical import LexicalIndex
from pixnar.fusion.terms import Ngrams
from pixnar.fusion.vectors import DocidVectors
from pixnar.index.files import (
    FACTORS,
    LEXICAL_FILE,
    LEXICON,
    PRIORS,
    SHORTLIST,
    TEXT_FILE,
    VECTORS,
    read_priors,
)
from pixnar.runtime import HeadRows
from pixnar.runtime.factors import DocidFactors
from pixnar.runtime.shortlist import Shortlist
from pixnar.scoring import Priors
from pixnar.search.live import Encode
from pixnar.search.query import QueryScorer
from pixnar.search.ranker import Ranker
from pixnar.search.spelling import Lexicon, Speller
from pixnar.table import DocidTable


def open_ranker(
    where: Path,
    content: dict[str, Any],
    table: DocidTable,
    scorer: Callable[[Priors, NDArray[np.float32]], QueryScorer],
    rows: HeadRows,
    encode: Encode | None = None,
    *,
    threads: int = 2,
    shortlist: bool = True,
    warm_up: bool = False,
) -> Ranker:
    """The ranker of an index folder with this manifest and these phrase rows; `scorer` takes priors and log Z.

    `encode` is asked for the vectors of docids that were added after the fit. From now on a change of the table returns
    when the sources of the ranker count it.
    """
    priors, log_z = read_priors(where / PRIORS, verify=False)
    if len(priors.tokens) != table.vocab_size:
        raise FileFormatError(f"{where}: {len(priors.tokens)} priors, the docid table has {table.vocab_size} tokens")
    made = scorer(priors, log_z)
    factors = None
    if made.rule.score == "composed":
        factors = DocidFactors.load(where / FACTORS, rows, made.slots)
    ranker = Ranker(
        table,
        made,
        Ngrams(table.vocabulary),
        Shortlist.load(where / SHORTLIST, verify=False) if shortlist and (where / SHORTLIST).exists() else None,
        fusion=Fusion.from_dict(content["fusion"]) if content["fusion"] else None,
        depth=content["depth"],
        expansion=content["expansion"],
        nearest=content.get("nearest", True),
        threads=threads,
        origin=content["origin"],
        factors=factors,
        encode=encode,
        speller=_speller(where, content),
    )
    needed = needed_by(ranker.fusion)
    counted = {}
    if LEXICAL in needed:
        ranker.lexical = LexicalIndex.load(where / LEXICAL_FILE, table.vocabulary, verify=False)
        counted[LEXICAL_FILE] = ranker.lexical.n_units
    if DENSE in needed:
        ranker.vectors = DocidVectors.load(where / VECTORS, verify=False)
        counted[VECTORS] = ranker.vectors.n_documents
    if TEXT in needed:
        ranker.text = DocidVectors.load(where / TEXT_FILE, verify=False)
        counted[TEXT_FILE] = ranker.text.n_documents
    snapshot = table.snapshot()
    ranker.check_origin(snapshot)
    for name, documents in counted.items():
        if documents != snapshot.documents.origin.size:
            raise FileFormatError(
                f"{where / name} is about {documents} documents, the docid table was built of "
                f"{snapshot.documents.origin.size}: copy or build the index again"
            )
    if ranker.fusion is not None or ranker.speller is not None:
        table.prepare = ranker.live  # whoever changes docids makes the sources, not the next search
    if warm_up:
        ranker.warm_up()
    return ranker


def _speller(where: Path, content: Mapping[str, Any]) -> Speller | None:
    """What corrects queries, if the index has a lexicon."""
    path = where / LEXICON
    if not path.exists():
        return None
    return Speller(Lexicon.load(path, verify=False), least=content.get("spelling_least", 1))

"""The sources of an index after changes to its docids: what each says of the documents as they are now.

Nothing of this is written: it follows from the files of the fit and from what changed in the docid table since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pixnar.documents.columns import word_bytes
from pixnar.fusion.fuse import Sources
from pixnar.fusion.lexical import LexicalIndex
from pixnar.fusion.postings import Changed
from pixnar.fusion.vectors import ChangedVectors, DocidVectors, name_of
from pixnar.search.spelling import Speller
from pixnar.table.journal import Docids
from pixnar.table.snapshot import Snapshot
from pixnar.vocab import TargetVocabulary, normalize

Floats = NDArray[np.float32]
Encode = Callable[[Sequence[str]], Floats]
"""Normalised texts to the encoder's pooled vectors; each is encoded alone, so that no other moves its bits."""

_AT_ONCE = 64  # texts handed to the encoder


class Live(NamedTuple):
    """The sources of one state of a table, and what corrects queries, which knows the words of added docids."""

    sources: Sources
    speller: Speller | None = None


class LiveSources:
    """The sources of a fit, and the same after changes; made again whenever the docid table has changed."""

    def __init__(
        self,
        lexical: LexicalIndex | None,
        vectors: DocidVectors | None,
        text: DocidVectors | None,
        vocabulary: TargetVocabulary,
        encode: Encode | None,
        speller: Speller | None = None,
    ) -> None:
        self._lexical, self._vectors, self._text = lexical, vectors, text
        self._vocabulary, self._encode, self._speller = vocabulary, encode, speller
        self._encoded: dict[str, Floats] = {}  # the vectors of added docids
        self._before: dict[str, Floats] = {}  # those of the state made before, which may be asked for again

    def after(self, snapshot: Snapshot) -> Live:
        """As they are after the changes that led to this state of the table."""
        changed = self._changed(snapshot)
        only_removed = changed._replace(gained=[], lost=[], lost_names=[])  # docids are no text
        sources = Sources(
            self._lexical and self._lexical.changed(changed),
            self._vectors and ChangedVectors(self._vectors, changed, self._gained(changed)),
            self._text and ChangedVectors(self._text, only_removed, self._text.matrix[:0].astype(np.float32)),
        )
        return Live(sources, self._speller and self._speller.with_added(text for _, text in changed.gained))

    def _changed(self, snapshot: Snapshot) -> Changed:
        difference, numbering = snapshot.difference, snapshot.numbering
        listed = sorted({*difference.added, *difference.removed}, key=word_bytes)
        units = numbering.units(snapshot.numbers_of(listed))
        built = np.union1d(units[(units >= 0) & (units < numbering.built)], numbering.gone)
        places = np.where(units < numbering.built, np.searchsorted(built, units), len(built) + units - numbering.built)
        place = dict(zip(listed, places.tolist(), strict=True))
        lost = self._rows(difference.removed, place)
        return Changed(
            units=built,
            cleared=np.isin(built, numbering.gone),
            new=len(numbering.later),
            gained=[(number, text) for number, text, _ in self._rows(difference.added, place)],
            lost=[(number, text) for number, text, _ in lost],
            lost_names=[name for _, _, name in lost],
        )

    def _rows(self, docids: Mapping[str, Docids], place: Mapping[str, int]) -> list[tuple[int, str, int]]:
        """Documents by their place, the normal form of each docid and its name, in an order of their own."""
        return [
            (place[doc_id], normalize(text) or self._vocabulary.decode(tokens), name_of(tokens))
            for doc_id in sorted(docids, key=place.__getitem__)
            for tokens, text in sorted(docids[doc_id].items())
        ]

    def _gained(self, changed: Changed) -> Floats:
        """The vectors of added docids; those of the state made before are not encoded again."""
        assert self._vectors is not None
        if changed.gained and self._encode is None:
            raise ValueError("docids were added, and there is no encoder for their vectors")
        known = self._before | self._encoded
        texts = dict.fromkeys(text for _, text in changed.gained)
        missing = [text for text in texts if text not in known]
        for start in range(0, len(missing), _AT_ONCE):
            some = missing[start : start + _AT_ONCE]
            assert self._encode is not None
            known |= zip(some, self._encode(some), strict=True)
        self._before, self._encoded = self._encoded, {text: known[text] for text in texts}
        rows = [known[text] for _, text in changed.gained]
        return np.array(rows, np.float32).reshape(-1, self._vectors.matrix.shape[1])

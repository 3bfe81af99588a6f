"""fusion: documents or docids come in; lexical and dense scores of them, and weighted sums of these, go out.

`LexicalIndex` and `DocidVectors` score documents, `Fusion` adds their scores; `Bm25` scores plain texts by words.
"""

from pixnar.fusion.bm25 import Bm25
from pixnar.fusion.postings import Postings, best
from pixnar.fusion.terms import STOP_WORDS, Ngrams, TokenCounts

__all__ = ["STOP_WORDS", "Bm25", "Ngrams", "Postings", "TokenCounts", "best"]

"""fusion: documents or docids come in; lexical and dense scores of them, and weighted sums of these, go out.

`LexicalIndex` and `DocidVectors` score documents, `Fusion` adds their scores; `Bm25` scores plain texts by words.
"""

from pixnar.fusion.bm25 import Bm25
from pixnar.fusion.postings import Postings, best
from pixnar.fusion.terms import Ngrams

__all__ = ["Bm25", "Ngrams", "Postings", "best"]

"""fusion: documents or docids come in; lexical and dense scores of them, and weighted sums of these, go out.

`LexicalIndex` and `DocidVectors` score documents, `Fusion` adds their scores; `Bm25` scores plain texts by words.
"""

from pixnar.fusion.bm25 import Bm25
from pixnar.fusion.ngrams import Ngrams, TokenCounts
from pixnar.fusion.postings import Postings
from pixnar.fusion.ranking import best, best_of_groups
from pixnar.fusion.stop_words import STOP_WORDS

__all__ = ["STOP_WORDS", "Bm25", "Ngrams", "Postings", "TokenCounts", "best", "best_of_groups"]

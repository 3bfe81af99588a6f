"""spelling: a lexicon of the corpus' words, and query words corrected by it."""

from pixnar.search.spelling.correct import Speller
from pixnar.search.spelling.lexicon import LEXICON, Lexicon, Neighbour, whole_words, words_of_tokenizers
from pixnar.search.spelling.retriever import Corrected

__all__ = ["LEXICON", "Corrected", "Lexicon", "Neighbour", "Speller", "whole_words", "words_of_tokenizers"]

"""English words that say little about what a text is about."""

from __future__ import annotations

_LISTS = (
    "a an the this that these those",
    "and or but nor if then than as so",
    "of in on at by for from to with into onto about",
    "i you he she it we they me him her us them my your his its our their",
    "is are was were be been being am do does did has have had",
    "will would can could shall should may might must",
    "not no there here s t",  # the last two are the ends of "it's" and "don't"
)

STOP_WORDS = frozenset(word for words in _LISTS for word in words.split())
"""Articles, pronouns, prepositions, auxiliaries: for `Bm25.build`."""

"""CLOVERv2 recipe: word pieces instead of phrases, trained and scored like our own model."""

from __future__ import annotations

from pixnar.recipe.sections import Fuse, Lexical, Model, Recipe, Scoring, Serve, ShortlistSettings, Vocab

CLOVER = Recipe(
    vocab=Vocab(kind="wordpiece"),
    model=Model(pieces=False),  # they are the vocabulary itself
    scoring=Scoring(copy=0.0),
    lexical=Lexical(docids=False, text=False),
    fuse=Fuse(dense=False, text_vectors=0),
    shortlist=ShortlistSettings(learn=False),  # every word piece is scored
    serve=Serve(spelling="off"),
)
"""The encoder's own word pieces as tokens, and nothing beside the model. Everything else is our default: the composed
score, solved rows, training by ranking documents, and settings of the score that are selected on dev. Phrases in place
of word pieces (`vocab.kind`) are then the only change."""

TOKEN_LOSSES = (
    "scoring.score=probability",
    "model.head=encoder",
    "train.head_learning_rate=0.001",
    "train.optimizer=rows",
    "train.ranking=0.0",
    "train.negatives=0",
)
"""For `override`: the paper's three losses over tokens and log probabilities, in place of ranking documents."""

SLOT_BY_SLOT = (*TOKEN_LOSSES, "model.head=solved", "scoring.order=slots")
"""For `override`: the paper's losses and its way of scoring, token i of a docid by slot i; rows start solved."""

PROBABILITY = (*TOKEN_LOSSES[:4], "scoring.copy=0.3")
"""For `override`: our recipe with the score that the composed one replaced, and what training for it wants."""

L1_ONLY = (*TOKEN_LOSSES, "train.l2=0.0", "train.l3=0.0", "scoring.order=any")
"""For `override`: position by position alone; slot 0, which only l2 trains, is then not asked."""

"""CLOVERv2 as a recipe: the model that the paper's phrases are compared with, on equal footing with ours."""

from __future__ import annotations

from pixnar.recipe.sections import Evidence, Fuse, Model, Recipe, Scoring, Shortlist, Train, Vocab

CLOVER = Recipe(
    vocab=Vocab(kind="wordpiece"),
    model=Model(head="encoder"),
    train=Train(ranking=0.0, negatives=0, head_learning_rate=1e-3, optimizer="rows"),
    scoring=Scoring(score="probability", copy=0.0),
    evidence=Evidence(docids=False, text=False),
    fuse=Fuse(dense=False, text_vectors=0, bm25=False),
    shortlist=Shortlist(learn=False),  # the full softmax, over all word pieces
)
"""The encoder's own word pieces as targets, and nothing beside the model; everything else is our default: encoder,
slots, phrase vectors from the encoder, bias, prior correction, and dials of the score that dev chooses."""

PROBABILITY = (
    "scoring.score=probability",
    "scoring.copy=0.3",
    "model.head=encoder",
    "train.head_learning_rate=0.001",
    "train.optimizer=rows",
)
"""For `override`: our recipe with the score that the composed one replaced, and what training for it wants."""

L1_ONLY = ("train.l2=0.0", "train.l3=0.0", "scoring.order=any")
"""For `override`: position by position alone; slot 0, which only l2 trains, is then not asked."""

"""Preset recipes: the paper without ranking, lexical matching and fusion; and CLOVERv2 with word pieces."""

from __future__ import annotations

from pixnar.recipe.sections import Fuse, Lexical, Model, Recipe, Scoring, Serve, ShortlistSettings, Train, Vocab

PAPER = Recipe(
    model=Model(encoder="microsoft/deberta-v3-base", slot_design="mask", head="random", bias=False),
    train=Train(
        batch=100,
        accumulate=64,  # 6,400 pairs a step
        learning_rate=5e-5,
        head_learning_rate=5e-5,
        encoder_learning_rate=5e-5,
        warmup=1000,
        schedule="linear",
        l1=1.0,
        l2=0.25,
        l3=1.0,
        ranking=0.0,
        negatives=0,
        softmax="full",
        optimizer="adam",
        fine_tune=1.0,
        contrast=0,
        passages=0,
        per_document=20,
        self_share=0.0,  # "map to other pseudo queries asked of the same passage"
    ),
    scoring=Scoring(
        score="probability",
        prior_weight=0.0,
        copy=0.0,
        floor="strict",
        order="slots",
        length_norm=0.0,
        aggregate="max",
        scale=1.0,
        ends=True,
        normalize=False,  # raw logits: l3 makes them log-probabilities
        tune=False,
    ),
    lexical=Lexical(docids=False, text=False),
    fuse=Fuse(dense=False, text_vectors=0),
    shortlist=ShortlistSettings(m=4096, r=20000, k=5),
    serve=Serve(spelling="off"),
)
"""What the paper says of training, scoring and shortlist; the vocabulary and the length of the run are the data's.

docs/model.md lists where a fit by this recipe still differs from the paper."""


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

"""The paper's recipe, without this project's ranking, lexical matching and fusion."""

from __future__ import annotations

from pixnar.recipe.sections import Fuse, Lexical, Model, Recipe, Scoring, Serve, ShortlistSettings, Train

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

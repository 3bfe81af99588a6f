"""scoring: logits and settings come in; scores of tokens, docids and documents go out, in training and search alike."""

from __future__ import annotations

from pixnar.scoring.rule import (
    COMPOSED_RULE,
    PAPER_RULE,
    Priors,
    ScoreRule,
    composed_scores,
    end_scores,
    floors,
    own_bonus,
    token_scores,
)

__all__ = [
    "COMPOSED_RULE",
    "PAPER_RULE",
    "Priors",
    "ScoreRule",
    "composed_scores",
    "end_scores",
    "floors",
    "own_bonus",
    "token_scores",
]

"""scoring: what the score of a token, a docid and a document is; training and search both import it."""

from __future__ import annotations

from pixnar.scoring.priors import Priors
from pixnar.scoring.rule import COMPOSED_RULE, PAPER_RULE, ScoreRule
from pixnar.scoring.tokens import composed_scores, end_scores, floors, own_bonus, token_scores

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

"""scoring: what the score of a token, a docid and a document is; training and search both import it."""

from __future__ import annotations

from pixnar.scoring.priors import Priors
from pixnar.scoring.rule import PAPER_RULE, ScoreRule
from pixnar.scoring.tokens import end_scores, floors, token_scores

__all__ = ["PAPER_RULE", "Priors", "ScoreRule", "end_scores", "floors", "token_scores"]

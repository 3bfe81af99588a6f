"""Batch scores: docid and document scores as decoding computes them, for a batch of candidates, with gradients."""

from __future__ import annotations

import torch
from torch import Tensor

from pixnar.scoring.rule import ScoreRule


def docid_scores(
    token_scores: Tensor, places: Tensor, docids: Tensor, n_docids: int, rule: ScoreRule, slots: int
) -> Tensor:
    """Scores [B, n_docids] of order-free matching.

    `token_scores` [B, U] are the scores of U tokens, already cut at their floors; occurrence i of the docids has token
    `places[i]` (an index into U) and belongs to docid `docids[i]`. A docid has its first `slots` tokens here; one with
    as many has no place for its end, so its length counts without it.
    """
    batch = token_scores.shape[0]
    sums = token_scores.new_zeros(batch, n_docids).index_add(1, docids, token_scores[:, places])
    lengths = torch.bincount(docids, minlength=n_docids).to(token_scores.dtype)
    return sums / (lengths + 1).clamp(max=slots).pow(rule.length_norm)


def document_scores(scores: Tensor, documents: Tensor, n_documents: int, rule: ScoreRule) -> Tensor:
    """Scores [B, n_documents] from those of docids [B, D]; docid i names document `documents[i]`.

    Of `aggregate` only max and log-sum-exp over all are known here: a number of docids is taken as log-sum-exp.
    """
    batch = scores.shape[0]
    index = documents.expand(batch, -1)
    empty = scores.new_full((batch, n_documents), -torch.inf)
    best = empty.scatter_reduce(1, index, scores, "amax")
    if rule.aggregate == "max":
        return best
    top = best.detach().clamp(min=torch.finfo(scores.dtype).min)
    shifted = (scores - top.gather(1, index)).exp()
    sums = torch.zeros_like(top).index_add(1, documents, shifted)
    return top + sums.log()

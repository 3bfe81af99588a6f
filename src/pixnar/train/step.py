"""Training step: a batch of pairs becomes a loss and its parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pixnar.model.head import PhraseHead
from pixnar.model.losses import Sampler, TokenSample, Weights, losses
from pixnar.model.nar import Nar
from pixnar.scoring import Priors, ScoreRule, floors, token_scores
from pixnar.train.data import TrainingData
from pixnar.train.pairs import Epoch, Pairs

_NOT_COPIED = -1e4  # log of no probability, finite so that gradients stay so
_RECALL_EVERY, _RECALL_OF = 20, 32  # steps, and examples of a batch
_RECALL_SHARE = 0.1  # of the vocabulary
_CANDIDATES = 6  # docids of a document that the ranking loss looks at

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Objective:
    """What is minimised: the paper's three losses, and the ranking loss on documents."""

    weights: Weights
    ranking: float = 1.0
    negatives: int = 0  # mined neighbours of each document in the batch, beside the batch's own documents


class Step:
    """Computes the loss of a step; everything random in it comes from the seed and the number of the step."""

    def __init__(
        self,
        model: Nar,
        data: TrainingData,
        pairs: Pairs,
        objective: Objective,
        rule: ScoreRule,
        priors: Priors,
        sampler: Sampler | None,
    ) -> None:
        self.model, self.data, self.pairs, self.objective, self.rule = model, data, pairs, objective, rule
        self.sampler = sampler
        device = model.device
        self.ranking_scale = nn.Parameter(torch.zeros((), device=device))
        self._log_prior = torch.from_numpy(priors.tokens).to(device)
        floor = floors(priors, rule)
        self._floor = None if floor is None else torch.from_numpy(floor).to(device)
        self._names = data.names()
        self._recall = float("nan")
        self._neighbours = mined(data, objective.negatives) if objective.ranking and objective.negatives else None

    def __call__(self, step: int, size: int, *, live: bool) -> tuple[Tensor, dict[str, float]]:
        """The loss of a step with a batch of some size, and its parts; `live` runs the encoder."""
        batch = self.pairs.batch(step, size)
        device = self.model.device
        targets = self.data.targets(batch.targets, self.model.slots.slots)
        group = self.model.head.group
        x = group.gather(self.vectors(group.share(batch.inputs), live), len(batch.inputs))
        candidates = self._candidates(batch, step) if self.objective.ranking else None
        sample = None
        if self.sampler:
            self.sampler.step = step
            wanted = targets.flatten()
            if candidates:
                wanted = torch.cat([wanted, torch.from_numpy(candidates.tokens)])
            sample = self.sampler.draw(wanted).to(device)
        parts = losses(x, targets.to(device), self.model.head, self.objective.weights, sample)
        loss = parts.total(self.objective.weights)
        shown = {name: float(getattr(parts, name).detach()) for name in ("l1", "l2", "l3")}
        shown["log_z"] = float(parts.log_z_abs)
        if step % _RECALL_EVERY == 0:
            self._recall = shortlist_recall(x[:_RECALL_OF, 0].detach(), targets[:_RECALL_OF], self.model)
        shown["recall"] = self._recall
        if candidates:
            ranking, right = self._ranking(x, batch, candidates, sample)
            loss = loss + self.objective.ranking * ranking
            shown |= {"ranking": float(ranking.detach()), "right": right}
        return loss, {"loss": float(loss.detach())} | shown

    def vectors(self, inputs: Ints, live: bool) -> Tensor:
        """X [B, s + 1, d] of inputs: through the encoder, or from kept vectors."""
        if live:
            return self.model.from_texts([self.data.text(int(i)) for i in inputs])
        if self.data.vectors is None:
            raise ValueError("a frozen encoder needs the inputs' vectors")
        return self.model.from_vectors(
            torch.from_numpy(self.data.vectors[inputs].astype(np.float32)).to(self.model.device)
        )

    def _candidates(self, batch: Epoch, step: int) -> _StepCandidates:
        documents, first = np.unique(batch.documents, return_index=True)
        exclude = self.data.own_docids(batch.inputs)[first]
        if self._neighbours is not None:
            near = np.setdiff1d(self._neighbours[documents].ravel(), documents)
            near = near[near >= 0]
            documents, exclude = np.concatenate([documents, near]), np.concatenate([exclude, np.full(len(near), -1)])
        docids, offsets = self.pairs.siblings(documents, _CANDIDATES, step, exclude=exclude)
        tokens, owner = self.data.rows(docids, self.model.slots.slots)
        return _StepCandidates(documents, docids, np.repeat(np.arange(len(documents)), np.diff(offsets)), tokens, owner)

    def _ranking(
        self, x: Tensor, batch: Epoch, candidates: _StepCandidates, sample: TokenSample | None
    ) -> tuple[Tensor, float]:
        """Cross-entropy of the right document among the candidates, and the share of inputs that get it first."""
        head, rule, device = self.model.head, self.rule, x.device
        tokens = torch.from_numpy(candidates.tokens).to(device)
        ids, places = torch.unique(tokens, return_inverse=True)
        used = x[:, :1] if rule.order == "bag" else x[:, 1:]
        logits = head.logits_of(used.flatten(0, 1), ids)
        log_z = (
            head.log_z(used.flatten(0, 1))
            if sample is None
            else head.log_z_sampled(used.flatten(0, 1), sample.ids, sample.log_weights)
        )
        log_p = (logits - log_z[:, None]).view(len(x), -1, len(ids)).amax(1)
        scores = token_scores(torch, log_p, self._copied(batch.inputs, ids), self._log_prior[ids], rule)
        if self._floor is not None:
            scores = torch.maximum(scores, self._floor[ids])
        owner, named = torch.from_numpy(candidates.owner).to(device), torch.from_numpy(candidates.named).to(device)
        docids = docid_scores(scores, places, owner, len(candidates.docids), rule, self.model.slots.slots)
        docids = docids.masked_fill(_itself(self.data.own_docids(batch.inputs), candidates).to(device), -torch.inf)
        documents = document_scores(docids, named, len(candidates.documents), rule) * self.ranking_scale.exp()
        documents = documents.masked_fill(self._also_right(batch, candidates), -torch.inf)
        order = np.argsort(candidates.documents)
        right = torch.from_numpy(order[np.searchsorted(candidates.documents, batch.documents, sorter=order)]).to(device)
        loss = nn.functional.cross_entropy(documents, right)
        return loss, float((documents.argmax(1) == right).float().mean())

    def _copied(self, inputs: Ints, ids: Tensor) -> Tensor | None:
        """Log probability of the copy distribution at `ids`, for each input."""
        if not self.rule.copy:
            return None
        own, owner = self.data.ngrams_of(inputs)
        return torch.from_numpy(copied(own, owner, len(inputs), ids.cpu().numpy())).to(ids.device)

    def _also_right(self, batch: Epoch, candidates: _StepCandidates) -> Tensor:
        """Candidates that the input names, too, beside the one it is paired with: neither right nor wrong."""
        inputs, documents = self._names
        begin, end = np.searchsorted(inputs, batch.inputs), np.searchsorted(inputs, batch.inputs, side="right")
        out = np.zeros((len(batch.inputs), len(candidates.documents)), bool)
        for i in np.flatnonzero(end - begin > 1):
            out[i] = np.isin(candidates.documents, documents[begin[i] : end[i]])
            out[i] &= candidates.documents != batch.documents[i]
        return torch.from_numpy(out).to(self.model.device)


def copied(own: Ints, owner: Ints, inputs: int, known: Ints) -> NDArray[np.float32]:
    """Log probability of each `known` token (sorted) for each of some inputs: even over the tokens an input holds.

    >>> np.exp(copied(np.array([3, 5]), np.array([1, 1]), 2, np.array([3, 4]))).tolist()
    [[0.0, 0.0], [0.5, 0.0]]
    """
    counts = np.bincount(owner, minlength=inputs)
    places = np.minimum(np.searchsorted(known, own), len(known) - 1)
    hit = known[places] == own
    out = np.full((inputs, len(known)), _NOT_COPIED, np.float32)
    out[owner[hit], places[hit]] = -np.log(counts[owner[hit]])
    return out


@dataclass(frozen=True)
class _StepCandidates:
    """Documents to be ranked, some docids of each, and the docids' tokens."""

    documents: Ints
    docids: Ints
    named: Ints  # position in `documents` of each docid
    tokens: Ints
    owner: Ints  # position in `docids` of each token


@torch.no_grad()
def shortlist_recall(x0: Tensor, targets: Tensor, model: Nar) -> float:
    """The share of target tokens among the tenth of the vocabulary that x_0 likes best: what a shortlist could hold."""
    if model.head.group.size > 1:
        return _shared_recall(x0, targets, model.head)
    logits = model.head.logits(x0)[:, :-1]
    least = logits.topk(max(1, int(logits.shape[1] * _RECALL_SHARE)), dim=1).values[:, -1:]
    real = (targets >= 0) & (targets < logits.shape[1])
    found = logits.gather(1, targets.clamp(0, logits.shape[1] - 1).to(x0.device)) >= least
    return float(found[real.to(x0.device)].float().mean())


def _shared_recall(x0: Tensor, targets: Tensor, head: PhraseHead) -> float:
    """The same for a head in shards: a token is found if fewer others than there is room for are liked better."""
    real = ((targets >= 0) & (targets < head.eos)).to(x0.device)
    logits = head.logits(x0)
    local = targets.to(x0.device) - head.first
    inside = real & (local >= 0) & (local < logits.shape[1])
    own = head.add_shards(logits.gather(1, local.clamp(0, logits.shape[1] - 1)).masked_fill(~inside, 0.0))
    others = logits[:, : head.eos - head.first]  # the end is no token
    better = torch.stack([(others > own[:, t : t + 1]).sum(1) for t in range(own.shape[1])], 1)
    found = head.add_shards(better.float()) < max(1, int(head.eos * _RECALL_SHARE))
    return float(found[real].float().mean())


def _itself(own: Ints, candidates: _StepCandidates) -> Tensor:
    """Where a candidate docid is the input's own; it does not count, unless its document has no other candidate."""
    alone = np.bincount(candidates.named, minlength=len(candidates.documents))[candidates.named] == 1
    return torch.from_numpy((own[:, None] == candidates.docids) & ~alone)


def mined(data: TrainingData, most: int) -> Ints:
    """The documents nearest to each document, by the mean vector of their docids; -1 where there are fewer."""
    if data.vectors is None:
        raise ValueError("mined negatives need the inputs' vectors")
    n = len(data.doc_ids)
    means = np.zeros((n, data.vectors.shape[1]), np.float32)
    np.add.at(means, data.pair_document, data.vectors[data.pair_docid].astype(np.float32))
    unit = nn.functional.normalize(torch.from_numpy(means), dim=1)
    out = np.full((n, most), -1, np.int64)
    take = min(most, n - 1)
    for start in range(0, n, 1024) if take > 0 else ():
        similar = unit[start : start + 1024] @ unit.t()
        similar[torch.arange(len(similar)), torch.arange(start, start + len(similar))] = -2.0
        out[start : start + len(similar), :take] = similar.topk(take, dim=1).indices.numpy()
    return out


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

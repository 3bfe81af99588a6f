"""Training by ranking documents with the score that search uses: docids as normalised sums of phrase rows.

A batch of inputs (docids and train queries) is ranked against candidate documents: those of the batch, and for every
input some documents of its nearest docids. A document's score is the log of the sum of exp over its docids, never
counting the input itself; the loss is the cross-entropy of the right document. A document with many docids is drawn
more often than one with few; its score is corrected for that, or training would teach that it is rarely right. The
slots x_1 … x_s also learn to predict the tokens of a sibling docid place by place (l1, l3), with the phrase rows held
fixed: rows compose documents, and the places must not pull them apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from pixnar import _native
from pixnar.model.head import PhraseHead
from pixnar.model.logsumexp import chunked_logsumexp
from pixnar.model.losses import Sampler, Weights, losses
from pixnar.model.nar import MlpSlots, Nar
from pixnar.train.data import TrainingData, gathered
from pixnar.train.neighbours import Teacher, nearest, pool_of
from pixnar.train.pairs import Epoch, Pairs

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Floats64 = NDArray[np.float64]

_NEAR = 16  # nearest docids of an input from which negatives are drawn
_NONE = -1e4  # score of what does not count, finite so that gradients stay so
_NEGATIVES, _SLOTS = 2, 3  # streams of random numbers; pairs have 0 and 1


@dataclass(frozen=True, kw_only=True)
class RankingOptions:
    """What is ranked against what."""

    negatives: int = 3  # documents of near docids for each input of a batch
    docids: int = 8  # docids of a document that a step looks at; the sum over all is estimated from them
    all_documents: bool = False  # rank against every document instead: exact, and dear beyond some ten thousand docids
    mine_every: int = 300  # steps after which negatives are mined again by the model
    correct_sampling: bool = True  # a candidate that was drawn by chance stands for those that were not
    slot_examples: int = 32  # inputs of a batch that also train the slots
    sample: int = 1024  # tokens over which the slots' softmax is estimated
    weights: Weights = field(default_factory=Weights)
    teacher: float = 0.0  # weight of the divergence from a teacher's ranking
    taught_by: str = "hybrid"  # dense: the encoder's own vectors of the docids; hybrid: these and BM25


class _RankingCandidates(NamedTuple):
    """Documents to be ranked and the docids that speak for them."""

    documents: Ints  # sorted
    docids: Ints  # distinct, sorted
    member: Ints  # for each (docid, document) that counts: position in `docids`
    owner: Ints  # … and in `documents`
    log_weight: Floats  # … and the log of how many docids of the document it stands for


class RankingStep:
    """Computes the loss of a step; everything random in it comes from the seed and the number of the step."""

    def __init__(self, model: Nar, data: TrainingData, pairs: Pairs, options: RankingOptions, seed: int) -> None:
        self.model, self.data, self.pairs, self.options, self.seed = model, data, pairs, options, seed
        self.ranking_scale = nn.Parameter(torch.zeros((), device=model.device), requires_grad=False)
        self.mined: tuple[Ints, Ints] | None = None  # inputs, sorted, and their nearest docids [N, k]
        self._round = -1
        taught = options.teacher > 0 and data.vectors is not None
        self._teacher = Teacher.of(data, options.taught_by) if taught else None
        self._names = data.names()
        order = np.argsort(data.pair_docid, kind="stable")
        self._named = data.pair_document[order]
        self._first = np.searchsorted(data.pair_docid[order], np.arange(len(data.docids) + 1))
        self._sampler = Sampler(data.token_counts(), min(options.sample, model.head.total), seed)
        self._drawn = _shares(pairs, len(data.doc_ids), self._first, self._named)

    def __call__(self, step: int, size: int, *, live: bool) -> tuple[Tensor, dict[str, float]]:
        """The loss of a step with a batch of some size, and its parts; `live` runs the encoder."""
        batch = self.pairs.batch(step, size)
        self._mine(step, size)
        candidates = self._candidates(batch, step)
        group = self.model.head.group
        pooled = self.pooled(group.share(batch.inputs), live)
        x0 = group.gather(self._first_vectors(pooled, group.share(batch.inputs)), len(batch.inputs))
        ranking, right = self._ranking(x0, batch, candidates)
        shown = {"ranking": float(ranking.detach()), "right": right}
        loss = ranking
        weights = self.options.weights
        if weights.l1 or weights.l2 or weights.l3:
            slots, parts = self._slots(batch, step, pooled if group.size == 1 else None, live)
            loss, shown = loss + slots, shown | parts
        return loss, {"loss": float(loss.detach())} | shown

    def pooled(self, inputs: Ints, live: bool) -> Tensor:
        """Vectors [B, d] of inputs: through the encoder, or those that were kept."""
        model, data = self.model, self.data
        if live or data.vectors is None:
            return model.encoder.vectors([data.text(int(i)) for i in inputs])
        return torch.from_numpy(data.vectors[inputs].astype(np.float32)).to(model.device)

    def vectors(self, inputs: Ints, live: bool) -> Tensor:
        """X [B, s + 1, d] of inputs."""
        if isinstance(self.model.slots, MlpSlots):
            return self.model.from_vectors(self.pooled(inputs, live))
        return self.model.from_texts([self.data.text(int(i)) for i in inputs])

    def _first_vectors(self, pooled: Tensor, inputs: Ints) -> Tensor:
        slots = self.model.slots
        return slots.first(pooled) if isinstance(slots, MlpSlots) else self.vectors(inputs, True)[:, 0]

    # Candidates

    def _candidates(self, batch: Epoch, step: int) -> _RankingCandidates:
        """The documents of the batch and of the inputs' neighbours, or all of them.

        A document is scored by its docids that are near to an input of the batch, each counted as it is, and by a
        random sample of the others, weighted to stand for all of them. Near docids decide the sum: without them, a
        document with hundreds of docids would be judged by a few that have nothing to do with the input.
        """
        if self.options.all_documents:
            documents = np.arange(len(self.data.doc_ids))
            near, most = np.zeros(0, np.int64), len(self.data.pair_docid)
        else:
            near = self._near(batch.inputs)
            negatives = self._negatives(near, step)
            documents = np.unique(np.concatenate([batch.documents, negatives]))
            most = self.options.docids
        sure = self._named_by(np.unique(near), documents)
        drawn, offsets = self.pairs.siblings(documents, most, step)
        keys = np.repeat(np.arange(len(documents)), np.diff(offsets)) * len(self.data.docids) + drawn
        keys, place = np.unique(np.concatenate([sure, keys]), return_index=True)
        owner, docid = np.divmod(keys, len(self.data.docids))
        docids, member = np.unique(docid, return_inverse=True)
        sampled = place >= len(sure)
        counts = [np.bincount(owner[kept], minlength=len(documents)) for kept in (~sampled, sampled)]
        rest = self.pairs.docids_of(documents) - counts[0]
        weight = np.log(np.maximum(rest, 1) / np.maximum(counts[1], 1))
        return _RankingCandidates(
            documents, docids, member, owner, np.where(sampled, weight[owner], 0.0).astype(np.float32)
        )

    def _named_by(self, docids: Ints, documents: Ints) -> Ints:
        """Which of some documents (sorted) are named by which docids: sorted keys, document place · docids + docid."""
        first, last = self._first[docids], self._first[docids + 1]
        places, owner = gathered(first, last - first)
        named = self._named[places]
        at = np.minimum(np.searchsorted(documents, named), max(len(documents) - 1, 0))
        known = documents[at] == named
        keys: Ints = np.sort(at[known] * len(self.data.docids) + docids[owner[known]])
        return keys

    def _near(self, inputs: Ints) -> Ints:
        """The mined docids [n, k] of those inputs that have any."""
        if self.mined is None or not self.options.negatives:
            return np.zeros((0, 0), np.int64)
        known, near = self.mined
        places = np.minimum(np.searchsorted(known, inputs), len(known) - 1)
        found: Ints = near[places[known[places] == inputs]]
        return found

    def _negatives(self, near: Ints, step: int) -> Ints:
        """Documents of some of the mined docids [n, k], drawn anew for each step."""
        if not near.size:
            return np.zeros(0, np.int64)
        random = np.random.default_rng([self.seed, _NEGATIVES, step])
        columns = random.integers(0, near.shape[1], (len(near), self.options.negatives))
        docids = np.take_along_axis(near, columns, 1).ravel()
        first, last = self._first[docids], self._first[docids + 1]
        chosen: Ints = self._named[first + random.integers(0, np.maximum(last - first, 1))]
        return chosen

    def _stands_for(self, batch: Epoch, candidates: _RankingCandidates) -> Floats:
        """The log of how many documents each candidate stands for [B, candidates].

        A document that is drawn with probability q stands for 1/q of its kind. The right document of an input and the
        documents of the docids near to it stand for themselves: they are there because of this input.
        """
        inputs, negatives = len(batch.inputs), self.options.negatives * len(batch.inputs)
        in_batch, near = (shares[candidates.documents] for shares in self._drawn)
        missed = inputs * np.log1p(-in_batch) + negatives * np.log1p(-near)
        weights = np.tile(-np.log(-np.expm1(missed)).astype(np.float32), (inputs, 1))
        if self.mined is not None:
            known, docids = self.mined
            places = np.minimum(np.searchsorted(known, batch.inputs), len(known) - 1)
            rows = np.flatnonzero(known[places] == batch.inputs)
            found = docids[places[rows]].ravel()
            named, owner = gathered(self._first[found], self._first[found + 1] - self._first[found])
            at = np.minimum(np.searchsorted(candidates.documents, self._named[named]), len(candidates.documents) - 1)
            hit = candidates.documents[at] == self._named[named]
            weights[np.repeat(rows, docids.shape[1])[owner[hit]], at[hit]] = 0.0
        weights[np.arange(inputs), np.searchsorted(candidates.documents, batch.documents)] = 0.0
        return weights

    def _mine(self, step: int, size: int) -> None:
        """At the start of a round: the nearest docids of all inputs that the round has."""
        every = self.options.mine_every
        if not self.options.negatives or self.options.all_documents or step // every == self._round:
            return
        fresh = self._round >= 0 or step % every == 0
        self._round = step // every
        if not fresh and self.mined is not None:
            return  # resumed in the middle of a round: the checkpoint has what was mined
        inputs = self._inputs_of_round(step, (self._round + 1) * every, size)
        pool = pool_of(len(self.data.docids), self.seed)
        if self._round == 0 and self.data.vectors is not None:
            x, d = self.data.vectors[inputs].astype(np.float32), self.data.vectors[pool].astype(np.float32)
        else:
            x, d = self._x0(inputs), self.docid_vectors(pool)
        near = np.sort(pool[nearest(x, d, _NEAR, seed=self.seed)], axis=1)  # equals come in any order: not here
        self.mined = inputs, self.model.head.group.tell_array(near)

    def _inputs_of_round(self, step: int, end: int, size: int) -> Ints:
        """The inputs of steps up to `end`: all of the corpus, where these are a whole epoch."""
        if end - step >= self.pairs.steps_per_epoch(size):
            return np.unique(self._names[0])
        return np.unique(np.concatenate([self.pairs.batch(s, size).inputs for s in range(step, end)]))

    @torch.no_grad()
    def _x0(self, inputs: Ints, at_once: int = 4096) -> Floats:
        """x_0 of inputs, by their kept vectors, which fine-tuning of the encoder leaves a little behind."""
        was_training = self.model.training
        self.model.eval()
        parts = []
        for i in range(0, len(inputs), at_once):
            some = inputs[i : i + at_once]
            parts.append(self._first_vectors(self.pooled(some, False), some).float().cpu().numpy())
        self.model.train(was_training)
        return np.concatenate(parts)

    def docid_vectors(self, docids: Ints, at_once: int = 65_536) -> Floats:
        """The unit vectors [N, d] of docids as search composes them."""
        head = self.model.head
        rows = head.arrays()[0]
        out = np.empty((len(docids), head.width), np.float32)
        for i in range(0, len(docids), at_once):
            tokens, owner = self.data.rows(docids[i : i + at_once], self.model.slots.slots)
            own = (tokens >= head.first) & (tokens < head.first + len(rows))  # each process adds up its own rows
            offsets = np.searchsorted(owner[own], np.arange(len(docids[i : i + at_once]) + 1))
            part = out[i : i + at_once]
            _native.bag_sums((tokens[own] - head.first).astype(np.uint32), offsets, rows, part, 0)
            if head.group.size > 1:
                summed = torch.from_numpy(part).to(self.model.device)
                head.group.add_up([summed])
                part[:] = summed.cpu().numpy()
            part /= np.maximum(np.linalg.norm(part, axis=1, keepdims=True), 1e-9)
        return out

    # Losses

    def _ranking(self, x0: Tensor, batch: Epoch, candidates: _RankingCandidates) -> tuple[Tensor, float]:
        """Cross-entropy of the right document among the candidates, and the share of inputs that get it first."""
        device = x0.device
        x0 = _shared_gradient(x0, self.model.head.group.size)
        composed = compose(self.model.head, self.data, candidates.docids, self.model.slots.slots)
        member = torch.from_numpy(candidates.member).to(device)
        docids = (x0 @ composed.t())[:, member] + torch.from_numpy(candidates.log_weight).to(device)
        docids = docids.masked_fill(self._itself(batch, candidates).to(device), _NONE)
        documents = self._documents(docids, candidates)
        stands_for = torch.zeros(1, device=device)
        if self.options.correct_sampling and not self.options.all_documents:
            stands_for = torch.from_numpy(self._stands_for(batch, candidates)).to(device)
        documents = (documents + stands_for).masked_fill(self._also_right(batch, candidates).to(device), _NONE)
        right = torch.from_numpy(np.searchsorted(candidates.documents, batch.documents)).to(device)
        known = documents.detach().gather(1, right[:, None])[:, 0] > _NONE / 2
        documents, right = documents[known], right[known]
        if not len(right):
            return documents.sum() * 0.0, float("nan")
        loss = F.cross_entropy(documents, right)
        if self._teacher is not None:
            loss = loss + self.options.teacher * self._divergence(documents, batch, candidates, known, stands_for)
        return loss, float((documents.argmax(1) == right).float().mean())

    @staticmethod
    def _documents(docids: Tensor, candidates: _RankingCandidates) -> Tensor:
        """Log-sum-exp over the docids of each document."""
        top = docids.detach().amax(1, keepdim=True)
        sums = docids.new_zeros(len(docids), len(candidates.documents))
        owner = torch.from_numpy(candidates.owner).to(docids.device)
        return (sums.index_add(1, owner, (docids - top).exp()) + 1e-30).log() + top

    def _divergence(
        self, documents: Tensor, batch: Epoch, candidates: _RankingCandidates, known: Tensor, stands_for: Tensor
    ) -> Tensor:
        """How far the ranking is from the teacher's (Kullback-Leibler)."""
        assert self._teacher is not None
        device = documents.device
        scores = self._teacher.scores(batch.inputs, candidates.docids)[:, candidates.member] + candidates.log_weight
        taught = torch.from_numpy(scores).to(device).masked_fill(self._itself(batch, candidates).to(device), _NONE)
        teacher = self._documents(taught, candidates) + stands_for
        teacher = teacher.masked_fill(self._also_right(batch, candidates).to(device), _NONE)[known]
        return F.kl_div(documents.log_softmax(1), teacher.log_softmax(1), log_target=True, reduction="batchmean")

    def _itself(self, batch: Epoch, candidates: _RankingCandidates) -> Tensor:
        """Where a docid is the input itself, or what the input misspells: it does not count.

        Unless its document has no other candidate.
        """
        alone = np.bincount(candidates.owner, minlength=len(candidates.documents))[candidates.owner] == 1
        own = self.data.own_docids(batch.inputs)
        return torch.from_numpy((own[:, None] == candidates.docids[candidates.member]) & ~alone)

    def _also_right(self, batch: Epoch, candidates: _RankingCandidates) -> Tensor:
        """Documents that the input names, too, beside the one it is paired with: neither right nor wrong."""
        inputs, documents = self._names
        begin, end = np.searchsorted(inputs, batch.inputs), np.searchsorted(inputs, batch.inputs, side="right")
        places, owner = gathered(begin, end - begin)
        named = documents[places]
        at = np.minimum(np.searchsorted(candidates.documents, named), len(candidates.documents) - 1)
        hit = (candidates.documents[at] == named) & (named != batch.documents[owner])
        out = np.zeros((len(batch.inputs), len(candidates.documents)), bool)
        out[owner[hit], at[hit]] = True
        return torch.from_numpy(out)

    def _slots(self, batch: Epoch, step: int, pooled: Tensor | None, live: bool) -> tuple[Tensor, dict[str, float]]:
        """l1, l2 and l3 of some of the batch, each a mean over places; rows are held fixed, the bias is trained."""
        model, weights = self.model, self.options.weights
        some = np.random.default_rng([self.seed, _SLOTS, step]).permutation(len(batch.inputs))
        some = np.sort(some[: self.options.slot_examples])
        given = self.pooled(batch.inputs[some], live) if pooled is None else pooled[torch.from_numpy(some)]
        if isinstance(model.slots, MlpSlots):
            x = model.from_vectors(given.detach())
        else:
            x = self.vectors(batch.inputs[some], live)
        x = _shared_gradient(x, model.head.group.size)
        targets = self.data.targets(batch.targets[some], model.slots.slots)
        self._sampler.step = step
        sample = self._sampler.draw(targets.flatten()).to(x.device)
        with torch.no_grad():
            rows = model.head.rows_of(sample.ids)
        fixed = _FixedRows(rows, model.head, sample.ids)
        parts = losses(x, targets.to(x.device), fixed, weights, sample)  # type: ignore[arg-type]
        shown = {name: float(getattr(parts, name).detach()) for name in ("l1", "l2", "l3")}
        places = targets.shape[1]
        return parts.total(weights) / places, shown | {"log_z": float(parts.log_z_abs)}


class _FixedRows:
    """A head over a sample of tokens whose rows take no gradient; its bias does."""

    def __init__(self, rows: Tensor, head: PhraseHead, ids: Tensor) -> None:
        self._rows, self._bias = rows, head.bias_of(ids)

    def score_sampled(
        self, x: Tensor, positions: Tensor, ids: Tensor, log_weights: Tensor, chunk: int = 0
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """See `PhraseHead`."""
        offset = log_weights if self._bias is None else log_weights + self._bias
        log_z = chunked_logsumexp(x, self._rows, offset, chunk=chunk)
        return log_z, F.embedding(positions, self._rows), None if self._bias is None else self._bias[positions]

    @staticmethod
    def add_shards(part: Tensor) -> Tensor:
        """Every process has all rows of the sample."""
        return part


def _shares(pairs: Pairs, documents: int, first: Ints, named: Ints) -> tuple[Floats64, Floats64]:
    """The chance of each document to be that of a pair, and that of a docid which is drawn as a negative."""
    in_batch = pairs.per_epoch(documents).astype(np.float64)
    names = np.diff(first)  # documents that each docid names
    near = np.bincount(named, np.repeat(1.0 / np.maximum(names, 1), names), minlength=documents)
    most = 1.0 - 1e-9  # a document that is in every batch
    return np.minimum(in_batch / max(in_batch.sum(), 1.0), most), np.minimum(near / max(near.sum(), 1.0), most)


def compose(head: PhraseHead, data: TrainingData, docids: Ints, slots: int) -> Tensor:
    """The unit vectors [N, d] of docids: the sums of the rows of their first `slots` tokens, with gradients."""
    device = head.rows.device
    tokens, owner = data.rows(docids, slots)
    ids, places = np.unique(tokens, return_inverse=True)
    offsets = np.searchsorted(owner, np.arange(len(docids)))
    rows = head.rows_of(torch.from_numpy(ids).to(device))
    sums = F.embedding_bag(torch.from_numpy(places).to(device), rows, torch.from_numpy(offsets).to(device), mode="sum")
    return F.normalize(sums, dim=1)


def _shared_gradient(x: Tensor, processes: int) -> Tensor:
    """The same x with its gradient divided by the processes: each computes all of it, and the sum is taken."""
    return x if processes == 1 else x.detach() + (x - x.detach()) / processes

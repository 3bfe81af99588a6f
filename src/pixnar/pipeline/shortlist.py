"""The shortlist of a trained model: cells of its docids, or vectors c_i that are learned as in the paper."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from pixnar.base.progress import Progress
from pixnar.model.head import PhraseHead
from pixnar.model.kmeans import assign
from pixnar.model.losses import PADDING
from pixnar.model.nar import Nar
from pixnar.model.sharded import ShardedHead
from pixnar.recipe import ShortlistSettings
from pixnar.runtime.shortlist import Shortlist, defaults, token_lists
from pixnar.scoring import ScoreRule
from pixnar.train.data import TrainingData
from pixnar.train.neighbours import pool_of
from pixnar.train.ranking import compose
from pixnar.train.shortlist_cells import SHARE, cell_count, cluster, count_tokens, lists_for
from pixnar.train.shortlist_learning import Options, learn

_EXAMPLES = 100_000  # inputs that are looked at, at most
_PER_DOCUMENT = 20  # of these inputs belong to a document, at most
_SIBLINGS = 4  # docids whose tokens an input should find in its shortlist
_TOKENS = 64
_AT_ONCE = 65_536  # rows that are scaled, or docids that are added up, at a time
_SIZED = 256  # docids that say how many lists come to 5 % of the vocabulary


def examples(model: Nar, data: TrainingData, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """x_0 [N, d] of inputs, and the tokens of their documents' docids [N, 64], padded: what a shortlist should hold."""
    pairs = data.pairs(per_document=_PER_DOCUMENT, seed=seed)
    epoch = pairs.epoch(0)
    inputs, documents = epoch.inputs[:_EXAMPLES], epoch.documents[:_EXAMPLES]
    docids, offsets = pairs.siblings(documents, _SIBLINGS, 0, exclude=data.own_docids(inputs))
    targets = np.full((len(inputs), _TOKENS), PADDING, np.int64)
    tokens, owner = data.rows(docids, _TOKENS)
    example = np.repeat(np.arange(len(inputs)), np.diff(offsets))[owner]
    keys = np.unique(example * np.int64(len(data.vocabulary)) + tokens)  # each token of an example once
    example, tokens = np.divmod(keys, len(data.vocabulary))
    place = np.arange(len(keys)) - np.searchsorted(example, example)
    kept = place < _TOKENS
    targets[example[kept], place[kept]] = tokens[kept]
    group = model.head.group
    part = torch.from_numpy(x0_of(model, data, group.share(inputs)))
    return group.gather(part, len(inputs)).numpy(), targets


@torch.inference_mode()
def x0_of(model: Nar, data: TrainingData, inputs: NDArray[np.int64], batch: int = 4096) -> NDArray[np.float32]:
    """x_0 of inputs, from their kept vectors where the model can use them."""
    out = np.zeros((len(inputs), model.head.width), np.float32)
    for start in range(0, len(inputs), batch):
        part = inputs[start : start + batch]
        if model.design == "mlp" and data.vectors is not None:
            pooled = torch.from_numpy(data.vectors[part].astype(np.float32)).to(model.device)
            out[start : start + len(part)] = model.from_vectors(pooled)[:, 0].cpu().numpy()
        else:
            out[start : start + len(part)] = model.slot_vectors([data.text(int(i)) for i in part])[:, 0]
    return out


def standardised(head: PhraseHead, x0: NDArray[np.float32]) -> PhraseHead:
    """A head under which a token's logit is how unusual its score x_0·w_v is: in standard deviations over inputs.

    Lists are made of the tokens that are unusually good for a query, not of those that score high for every query.
    """
    centred = x0 - x0.mean(0)
    covariance = centred.T.astype(np.float64) @ centred / max(1, len(x0) - 1)
    covariance[np.diag_indices(len(covariance))] += 1e-6 * max(float(np.trace(covariance)), 1e-12) / len(covariance)
    root = torch.from_numpy(np.linalg.cholesky(covariance).astype(np.float32)).to(head.rows.device)
    rows = head.rows.detach().clone()
    for begin in range(0, len(rows), _AT_ONCE):
        part = rows[begin : begin + _AT_ONCE]
        part /= (part @ root).norm(dim=1, keepdim=True).clamp(min=1e-6)
    if head.group.size > 1:
        return ShardedHead(rows, None, total=head.total, group=head.group)
    return PhraseHead(rows)


def make_shortlist(
    model: Nar,
    data: TrainingData,
    settings: ShortlistSettings,
    rule: ScoreRule,
    seed: int = 0,
    progress: Progress | None = None,
) -> Shortlist:
    """The lists of a score: cells of docids for the composed score, learned vectors c_i for the other one."""
    if rule.score == "composed":
        return cells_of_docids(model, data, settings, seed, progress)
    x0, targets = examples(model, data, seed)
    return list_tokens(learn_vectors(model.head, x0, targets, settings, seed, progress), model.head, settings, len(x0))


@torch.inference_mode()
def cells_of_docids(
    model: Nar, data: TrainingData, settings: ShortlistSettings, seed: int = 0, progress: Progress | None = None
) -> Shortlist:
    """The lists of the composed score: the tokens of similar docids. The head must have all rows.

    Of more than a million docids a million are drawn. A token that none of them has joins the cell nearest to its row,
    so a docid that is added later can be found by any token.
    """
    head, vocabulary, slots = model.head, len(data.vocabulary), model.slots.slots
    pool = pool_of(len(data.docids), seed)
    vectors = np.zeros((len(pool), head.width), np.float32)
    for begin in range(0, len(pool), _AT_ONCE):
        if progress:
            progress("shortlist: vectors of docids", begin, len(pool))
        vectors[begin : begin + _AT_ONCE] = compose(head, data, pool[begin : begin + _AT_ONCE], slots).cpu().numpy()
    c, cell_of = cluster(vectors, settings.m or cell_count(len(pool), vocabulary), seed=seed, progress=progress)
    tokens, owner = data.rows(pool, slots)
    missing = np.ones(vocabulary, bool)
    missing[tokens] = False
    rest = np.flatnonzero(missing)
    nearest = assign(head.arrays()[0][rest], torch.from_numpy(c)).numpy() if len(rest) else rest
    pairs = np.concatenate([cell_of[owner], nearest]), np.concatenate([tokens, rest])
    lists, offsets = count_tokens(*pairs, len(c), vocabulary)
    made = Shortlist(c, lists, min(settings.k or 1, len(c)), offsets)
    made = made.cut(settings.r, made.k) if settings.r else made
    if settings.k:
        return made
    inputs = np.random.default_rng(seed).permutation(len(data.docids))[:_SIZED]
    return made.take(lists_for(made, x0_of(model, data, inputs), SHARE * vocabulary))


def learn_vectors(
    head: PhraseHead,
    x0: NDArray[np.float32],
    targets: NDArray[np.int64],
    settings: ShortlistSettings,
    seed: int = 0,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """The vectors c_i; all processes of a head in shards learn them together."""
    m = min(settings.m or defaults(head.eos, len(x0))[0], len(x0))
    return learn(x0, targets, head, Options(m=m, minutes=settings.minutes, seed=seed), progress)


def list_tokens(c: NDArray[np.float32], head: PhraseHead, settings: ShortlistSettings, count: int) -> Shortlist:
    """The best tokens of each c_i, learned from so many examples, among all rows of a head."""
    _, r, k = defaults(head.eos, count)
    r, k = min(settings.r or r, head.eos), settings.k or k
    return Shortlist(c, token_lists(c, *head.arrays(), r), min(k, len(c)))

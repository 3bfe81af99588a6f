"""Word-piece rows against plain loops, and what is left of them when they are written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from pixnar.model.head import PhraseHead, PieceRows, pieces_of_tokens
from pixnar.model.nar import MlpSlots
from pixnar.vocab.protocol import EncodedBatch
from tests.helpers import tiny_model as tiny

WIDTH = 5
PIECES = [[0, 1], [], [3], [2, 2, 0], [1, 3, 0, 2], []]  # of six tokens; the seventh is the end
END = len(PIECES)


def piece_rows(kind: torch.dtype = torch.float32) -> PieceRows:
    rows = torch.randn(4, WIDTH, dtype=kind, generator=torch.Generator().manual_seed(0))
    return PieceRows(rows, EncodedBatch.from_lists(PIECES))


def head(*, bias: bool = True, pieces: bool = True) -> PhraseHead:
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(END + 1, WIDTH, generator=generator)
    made = PhraseHead(rows, torch.randn(END + 1, generator=generator) if bias else None)
    if pieces:
        made.pieces = piece_rows()
    return made


def slow(rows: Tensor, tokens: list[int]) -> Tensor:
    out = torch.zeros(len(tokens), WIDTH, dtype=rows.dtype)
    for i, token in enumerate(tokens):
        for piece in PIECES[token] if token < END else []:
            out[i] += rows[piece].detach()
    return out


@pytest.mark.parametrize("tokens", [[0], [6], [1, 5, 6], [3, 3, 0, 6, 4], list(range(7)), []])
def test_sums_equal_a_loop(tokens: list[int]) -> None:
    pieces = piece_rows()
    found = pieces(torch.tensor(tokens, dtype=torch.int64))
    assert found.shape == (len(tokens), WIDTH)
    torch.testing.assert_close(found, slow(pieces.rows, tokens))


@pytest.mark.parametrize(("first", "count"), [(0, 7), (0, 3), (2, 5), (4, 3), (6, 1), (3, 0)])
def test_adding_to_rows_equals_a_loop(first: int, count: int) -> None:
    """Of a shard, too: its rows begin somewhere, and may hold the end."""
    pieces = piece_rows()
    start = np.random.default_rng(2).normal(size=(count, WIDTH)).astype(np.float32)
    rows = start.copy()
    pieces.add_to(rows, first)
    np.testing.assert_allclose(rows, start + slow(pieces.rows, list(range(first, first + count))).numpy(), atol=1e-6)


def test_the_end_has_no_pieces() -> None:
    pieces = piece_rows()
    assert not pieces(torch.tensor([END])).any()
    with pytest.raises(IndexError):
        pieces(torch.tensor([END + 1]))
    whole = head()
    assert torch.equal(whole.rows_of(torch.tensor([END]))[0], whole.rows[END])


def test_the_gradient_is_sparse_and_right() -> None:
    pieces, tokens = piece_rows(torch.float64), [3, 0, 3, 6, 1]
    weights = torch.randn(len(tokens), WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    (pieces(torch.tensor(tokens)) * weights).sum().backward()
    grad = pieces.rows.grad
    assert grad is not None
    assert grad.is_sparse
    assert sorted(grad.coalesce().indices()[0].tolist()) == [0, 1, 2]  # piece 3 has no part in it
    wanted = torch.zeros(4, WIDTH, dtype=torch.float64)
    for token, weight in zip(tokens, weights, strict=True):
        for piece in PIECES[token] if token < END else []:
            wanted[piece] += weight
    torch.testing.assert_close(grad.to_dense(), wanted)


def test_gradients_of_whole_rows() -> None:
    """Of the row itself and of its pieces alike."""
    made, tokens = head(), torch.tensor([2, 4, 6])
    made.rows_of(tokens).sum().backward()  # type: ignore[no-untyped-call]
    assert made.pieces is not None
    own, shared = made.rows.grad, made.pieces.rows.grad
    assert own is not None
    assert shared is not None
    assert own.is_sparse
    assert own.to_dense()[:, 0].tolist() == [0, 0, 1, 0, 1, 0, 1]
    assert shared.to_dense()[:, 0].tolist() == [1, 1, 1, 2]


def scores(made: PhraseHead, x: Tensor) -> dict[str, NDArray[Any]]:
    """What search sees of a head, and what a plain head computes."""
    rows, bias = made.arrays()
    whole = made.written()
    return {
        "rows": rows,
        "bias": np.zeros(0) if bias is None else bias,
        "rows_of": made.rows_of(torch.arange(END + 1)).detach().numpy(),
        "logits": whole.logits(x).detach().numpy(),
        "log_z": whole.log_z(x).detach().numpy(),
    }


@pytest.mark.parametrize("bias", [True, False])
def test_folding_and_writing_leave_scores_as_they_are(bias: bool) -> None:
    made, x = head(bias=bias), torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(4))
    own = made.rows.detach().clone()
    before = scores(made, x)
    assert np.abs(before["rows"][:-1] - own.numpy()[:-1]).max() > 0.5  # the pieces count
    by_hand = x @ (own + slow(piece_rows().rows, list(range(END + 1)))).t()
    by_hand = by_hand if made.bias is None else by_hand + made.bias.detach()
    np.testing.assert_allclose(before["logits"], by_hand.numpy(), atol=1e-5)
    written = made.written()
    assert written.pieces is None
    assert not any(parameter.requires_grad for parameter in written.parameters())
    assert torch.equal(made.rows, own)  # `written` is another head
    made.fold()
    assert made.pieces is None
    assert made.rows.requires_grad
    assert made.written() is made
    for name, value in scores(made, x).items():
        np.testing.assert_allclose(value, before[name], atol=1e-6, err_msg=name)
    folded = made.rows.detach().clone()
    made.fold()
    assert torch.equal(made.rows, folded)  # only once


def test_pieces_of_texts() -> None:
    tokenizer = tiny.tokenizer(["rome tea"])
    texts = ["rome", "", "tea rome tea", "rome?tea"]
    found = pieces_of_tokens(tokenizer, texts)
    assert found.lengths.tolist()[:3] == [1, 0, 3]
    assert found.ids.dtype == np.uint32
    assert set(found.ids.tolist()) == set(range(int(found.ids.max()) + 1))  # without gaps
    rome, tea = int(found.row(0)[0]), int(found.row(2)[0])
    assert found.row(2).tolist() == [tea, rome, tea]
    assert rome != tea
    some = pieces_of_tokens(tokenizer, texts, at_once=1)
    assert [row.tolist() for row in some.rows()] == [row.tolist() for row in found.rows()]
    assert len(pieces_of_tokens(tokenizer, []).ids) == 0


# The slots' own network of x_0 and what is taken off their vectors


def shaken(slots: int = 3) -> MlpSlots:
    torch.manual_seed(5)
    made = MlpSlots(WIDTH, slots, hidden=6)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def test_slots_are_centred_unit_vectors() -> None:
    made, pooled = shaken(), torch.randn(20, WIDTH, generator=torch.Generator().manual_seed(6))
    plain = made(pooled)
    lengths = plain.norm(dim=2)
    torch.testing.assert_close(lengths, made.log_scale.exp().expand_as(lengths))  # unit vectors times scales
    torch.testing.assert_close(made.first(pooled), plain[:, 0])
    made.center_on(pooled)
    centred = made(pooled)
    torch.testing.assert_close(centred, plain - plain.mean(0), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(made.first(pooled), centred[:, 0])
    again = MlpSlots(WIDTH, 3, hidden=6)
    again.load_state_dict(made.state_dict())
    torch.testing.assert_close(again(pooled), centred)


def test_x_0_and_the_places_have_networks_of_their_own() -> None:
    made, pooled = shaken(), torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(7))
    first = {"first_inner.weight", "first_inner.bias", "first_outer.weight", "first_outer.bias"}
    for part, own in ((0, first), (slice(1, None), {name for name, _ in made.named_parameters()} - first)):
        made.zero_grad(set_to_none=True)
        made(pooled)[:, part].square().sum().backward()
        moved = {name for name, p in made.named_parameters() if p.grad is not None and p.grad.any()}
        assert moved - {"log_scale"} == own - {"log_scale"}

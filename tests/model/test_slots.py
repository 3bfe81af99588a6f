from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from pixnar.model.encoder import Encoder
from pixnar.model.nar import START_SCALE, MaskSlots, MlpSlots
from tests.helpers.tiny_model import KINDS, TEXTS, WIDTH, save_encoder

SLOTS = 3


@pytest.fixture(scope="module", params=KINDS)
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.load(save_encoder(tmp_path_factory.mktemp(request.param), request.param)).eval()


def test_untrained_mlp_slots_give_the_query_itself() -> None:
    pooled = torch.nn.functional.normalize(torch.randn(4, WIDTH), dim=1)
    x = MlpSlots(WIDTH, SLOTS, hidden=16)(pooled)
    assert x.shape == (4, SLOTS + 1, WIDTH)
    assert torch.allclose(x, START_SCALE * pooled[:, None].expand(-1, SLOTS + 1, -1), atol=1e-5)
    assert torch.allclose(MlpSlots(WIDTH, SLOTS, 16, start_scale=3.0)(pooled)[:, 0], 3 * pooled, atol=1e-6)


def test_mlp_slots_by_hand() -> None:
    torch.manual_seed(0)
    slots = MlpSlots(WIDTH, SLOTS, hidden=16)
    with torch.no_grad():
        for parameter in slots.parameters():
            parameter.normal_(0, 0.3)
    h = torch.randn(2, WIDTH)
    x = slots(h)
    with torch.no_grad():
        slots.center.normal_(0, 0.1)
    centred = slots(h)
    for t in range(SLOTS + 1):
        inner, outer = (slots.inner, slots.outer) if t else (slots.first_inner, slots.first_outer)
        place = slots.places[t - 1] if t else 0.0
        hidden = torch.nn.functional.gelu(h @ inner.weight.T + inner.bias + place)
        whole = h + hidden @ outer.weight.T + outer.bias
        unit = whole / whole.norm(dim=1, keepdim=True)
        scale = math.exp(float(slots.log_scale[t].detach()))
        assert torch.allclose(x[:, t], scale * unit, atol=1e-5)
        assert torch.allclose(centred[:, t], scale * (unit - slots.center[t]), atol=1e-5)
    assert torch.allclose(slots.first(h), centred[:, 0], atol=1e-6)
    assert not torch.allclose(x[:, 1], x[:, 2])


def test_centred_slots_have_mean_zero() -> None:
    torch.manual_seed(0)
    slots = MlpSlots(WIDTH, SLOTS, hidden=16)
    h = torch.randn(50, WIDTH) + 1
    assert slots(h).mean(0).norm(dim=1).min() > 1
    slots.center_on(h)
    assert torch.allclose(slots(h).mean(0), torch.zeros(SLOTS + 1, WIDTH), atol=1e-5)
    assert "center" in slots.state_dict()


def mask_x(slots: MaskSlots, encoder: Encoder, texts: list[str]) -> torch.Tensor:
    with torch.inference_mode():
        x: torch.Tensor = slots(encoder, *encoder.padded(encoder.pieces(texts)))
    return x


def test_mask_slots_attend_to_the_query(encoder: Encoder) -> None:
    torch.manual_seed(0)
    slots = MaskSlots(WIDTH, SLOTS)
    x = mask_x(slots, encoder, ["green tea leaves", "green hotels leaves"])
    assert x.shape == (2, SLOTS + 1, WIDTH)
    assert torch.isfinite(x).all()
    for t in range(SLOTS + 1):
        assert not torch.allclose(x[0, t], x[1, t], atol=1e-4)
    assert not torch.allclose(x[0, 1], x[0, 2], atol=1e-6)  # a slot knows its place


def test_mask_slots_do_not_see_padding(encoder: Encoder) -> None:
    """The vectors of a query are the same whatever shares its batch: masks stand right behind it."""
    torch.manual_seed(0)
    slots = MaskSlots(WIDTH, SLOTS)
    texts = [*TEXTS, "tea " * 20, "x"]
    together = mask_x(slots, encoder, texts)
    for i, text in enumerate(texts):
        assert torch.allclose(mask_x(slots, encoder, [text])[0], together[i], atol=1e-5), text


def test_mask_slots_are_mask_tokens(encoder: Encoder) -> None:
    """By hand: the states of a query with masks written behind it."""
    torch.manual_seed(0)
    slots = MaskSlots(WIDTH, SLOTS)
    ids = torch.tensor([encoder.pieces(["green tea"])[0] + [encoder.tokenizer.mask_token_id] * SLOTS])
    with torch.inference_mode():
        states = encoder.body(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[0]
        states = torch.cat([states[:1], states[-SLOTS:]])
        wanted = slots.norm(torch.nn.functional.gelu(slots.dense(states)))
    assert torch.allclose(mask_x(slots, encoder, ["green tea"])[0], wanted, atol=1e-5)


def test_gradients_reach_everything(tmp_path: Path) -> None:
    encoder = Encoder.load(save_encoder(tmp_path))
    slots = MaskSlots(WIDTH, SLOTS)
    slots(encoder, *encoder.padded(encoder.pieces(["green tea", "x"]))).square().sum().backward()
    assert all(parameter.grad is not None for parameter in slots.parameters())
    reached = {name for name, parameter in encoder.body.named_parameters() if parameter.grad is not None}
    assert "embeddings.word_embeddings.weight" in reached

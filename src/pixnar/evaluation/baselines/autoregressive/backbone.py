"""Backbone of the autoregressive baselines: any encoder, and a small decoder made of its layers (torch)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.base.storage import atomic_write
from pixnar.evaluation.baselines.autoregressive.ids import END, PAD, PieceTokens
from pixnar.evaluation.baselines.autoregressive.layers import (
    Attended,
    DecoderLayer,
    Pointer,
    encoder_layers,
    spread,
)
from pixnar.model.encoder import Encoder

Ints = NDArray[np.int64]

LAYERS = 3
MOST = 64
"""Tokens of a sequence that the decoder can generate."""

_DROPOUT = 0.1
_SMOOTHING = 0.1
_START = 0.02  # standard deviation of rows that no encoder gives
_FORMAT, _VERSION = "pixnar-seq2seq", 1
_SETTINGS, _WEIGHTS, _ENCODER = "model.json", "model.safetensors", "encoder"
_NAMES = ("tokens", "markers", "layers", "most", "views", "encoder", "max_pieces")


class EncodedSource(NamedTuple):
    """Encoded texts: what each layer attends, where that is allowed, and what the pointer reads."""

    layers: list[Attended]
    mask: Tensor  # [B, 1, 1, n]
    pointed: Tensor | None  # [B, n, D]
    tokens: Tensor  # [B, n], -1 where nothing is to be copied


class Cache(NamedTuple):
    """Keys and values of all tokens that were read, one per layer, and the source."""

    layers: list[Attended]
    source: EncodedSource

    @property
    def length(self) -> int:
        """The number of tokens that were read."""
        return self.layers[0].keys.shape[2]


class Seq2Seq(nn.Module):
    """A language model of sequences of tokens, given a text.

    The decoder's layers begin as copies of the encoder's first, middle and last layer; `copied` is whether that was
    possible. Token embeddings, which are also the output, begin as those of the encoder for word pieces, and a pointer
    can copy them from the text. Ids that are no word pieces begin at random, without a pointer. A *view* says which
    kind of sequence is wanted: one learned vector each, added to the encoder's states.
    """

    def __init__(
        self,
        encoder: Encoder,
        tokens: PieceTokens | int,
        *,
        layers: int = LAYERS,
        most: int = MOST,
        views: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise PixnarError(f"layers {layers} is not possible: give 1 or more")
        config: Any = encoder.body.config
        width, self.most, self.tokens = encoder.width, most, tokens
        shape = (width, config.num_attention_heads, config.intermediate_size)
        eps = getattr(config, "layer_norm_eps", 1e-5)
        size, pieces = (tokens, None) if isinstance(tokens, int) else (tokens.size, tokens)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.encoder = encoder
            self.layers = nn.ModuleList([DecoderLayer(*shape, _DROPOUT, eps) for _ in range(layers)])
            self.embeddings = nn.Parameter(torch.empty(size, width).normal_(0.0, _START))
            self.places = nn.Parameter(torch.empty(most, width).normal_(0.0, _START))
            self.norm, self.dropout = nn.LayerNorm(width, eps), nn.Dropout(_DROPOUT)
            self.bias = nn.Parameter(torch.zeros(size))
            self.views = nn.Parameter(torch.empty(views, width).normal_(0.0, _START))
            self.pointer = Pointer(width) if pieces is not None else None
        self.register_buffer("token_of_piece", _token_of_piece(encoder, pieces), persistent=False)
        self.token_of_piece: Tensor
        self.copied = self._copy_layers()
        self._copy_embeddings(pieces)

    def source(self, texts: Sequence[str], views: Sequence[int] = ()) -> EncodedSource:
        """Encode some texts, each for its view; the keys and values of cross-attention are computed here, once."""
        ids, mask = self.encoder.padded(self.encoder.pieces(texts))
        return self.encoded(ids, mask, views)

    def encoded(self, ids: Tensor, mask: Tensor, views: Sequence[int] = ()) -> EncodedSource:
        """The same from word pieces [B, n], padded at their right."""
        return self._viewed(self.encoder.states(ids, mask).float(), ids, mask, views)

    def _viewed(self, states: Tensor, ids: Tensor, mask: Tensor, views: Sequence[int]) -> EncodedSource:
        if len(views):
            states = states + self.views[torch.tensor(views, device=states.device)][:, None]
        attended = [layer.cross.attended(states) for layer in self._decoder]
        tokens = self.token_of_piece[ids].masked_fill(mask == 0, -1)
        pointed = None if self.pointer is None else self.pointer.key(states)
        return EncodedSource(attended, mask[:, None, None].bool(), pointed, tokens)

    def start(self, source: EncodedSource) -> Cache:
        """The cache of decoders that have read nothing."""
        nothing = [Attended(*(part[:, :, :0] for part in attended)) for attended in source.layers]
        return Cache(nothing, source)

    def read(self, tokens: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """Log-probabilities [B, t, V] of what follows each of some tokens [B, t], and the cache after them.

        A source of one text serves all rows.
        """
        batch, count = tokens.shape
        before, source = cache.length, cache.source
        if before + count > self.most:
            raise PixnarError(f"{before + count} tokens are too many for a decoder of {self.most}: make it with more")
        h = self.dropout(self.norm(self.embeddings[tokens] + self.places[before : before + count]))
        mask = torch.ones(count, before + count, dtype=torch.bool, device=h.device).tril(before) if count > 1 else None
        after = []
        for layer, past, attended in zip(self._decoder, cache.layers, source.layers, strict=True):
            h, now = layer(h, past.expand(batch), mask, attended.expand(batch), source.mask)
            after.append(now)
        log_p = (h @ self.embeddings.T + self.bias).log_softmax(-1)
        if self.pointer is not None and source.pointed is not None:
            log_p = self.pointer(log_p, h, source.pointed, source.tokens)
        return log_p, Cache(after, source)

    def forced(self, source: EncodedSource, targets: Tensor) -> Tensor:
        """Log-probabilities [B, t, V] at every place of targets [B, t], given the tokens before it."""
        begin = torch.full_like(targets[:, :1], PAD)
        return self.read(torch.cat([begin, targets[:, :-1]], 1), self.start(source))[0]

    def sequence_log_p(self, source: EncodedSource, targets: Tensor) -> Tensor:
        """Σ log p [B] of targets [B, t] that are padded at their right."""
        log_p = self.forced(source, targets).gather(-1, targets[..., None])[..., 0]
        return log_p.masked_fill(targets == PAD, 0.0).sum(1)

    def loss(self, source: EncodedSource, targets: Tensor, smoothing: float = _SMOOTHING) -> Tensor:
        """The mean cross entropy of the tokens of targets, with label smoothing."""
        log_p, kept = self.forced(source, targets), targets != PAD
        right = log_p.gather(-1, targets[..., None])[..., 0][kept].mean()
        return -(1 - smoothing) * right - smoothing * log_p[kept].mean()

    def decoder(self, text: str) -> QueryDecoder:
        """The language model of one query, for a beam search; from here on without dropout."""
        self.eval()
        with torch.inference_mode():
            return QueryDecoder(self, self.source([text]))

    @torch.inference_mode()
    def decoders(self, text: str, views: Sequence[int]) -> list[QueryDecoder]:
        """The same for several views of a query, which is encoded once."""
        self.eval()
        ids, mask = self.encoder.padded(self.encoder.pieces([text]))
        states = self.encoder.states(ids, mask).float()
        return [QueryDecoder(self, self._viewed(states, ids, mask, [view])) for view in views]

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write the settings (JSON), the decoder (safetensors), and the encoder in its own Hugging Face folder."""
        where = Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        self.encoder.save(where / _ENCODER)
        weights = {name: value for name, value in self.state_dict().items() if not name.startswith("encoder.")}
        pieces = self.tokens if isinstance(self.tokens, PieceTokens) else None
        if pieces is not None:
            weights["pieces"] = torch.from_numpy(pieces.pieces)
        save_file({name: value.detach().cpu().contiguous() for name, value in weights.items()}, where / _WEIGHTS)
        (where / _WEIGHTS).chmod(0o644)  # the library lets nobody but its owner read it
        values = (len(self.embeddings), None if pieces is None else pieces.markers, len(self.layers), self.most)
        named = dict(zip(_NAMES, (*values, len(self.views), self.encoder.name, self.encoder.max_pieces), strict=True))
        with atomic_write(where / _SETTINGS) as file:
            file.write(json.dumps({"format": _FORMAT, "version": _VERSION, **named}, indent=2).encode())

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str]) -> Seq2Seq:
        """Read what `save_pretrained` wrote."""
        where = Path(folder)
        settings = _settings(where / _SETTINGS)
        encoder = Encoder.load(where / _ENCODER, max_pieces=settings["max_pieces"])
        encoder.name = settings["encoder"]
        try:
            weights, tokens = load_file(where / _WEIGHTS), settings["tokens"]
            if settings["markers"] is not None:
                tokens = PieceTokens(weights.pop("pieces").numpy(), markers=settings["markers"])
            model = cls(encoder, tokens, layers=settings["layers"], most=settings["most"], views=settings["views"])
            own = {name for name in model.state_dict() if not name.startswith("encoder.")}
            if own != weights.keys():
                raise FileFormatError(f"{where} has other weights")
            model.load_state_dict(weights, strict=False)
        except Exception as error:
            raise FileFormatError(
                f"{where / _WEIGHTS} is missing, damaged or of another model: copy or build the baseline again"
            ) from error
        return model.eval()

    @property
    def _decoder(self) -> list[DecoderLayer]:
        return list(self.layers)  # type: ignore[arg-type]

    def _copy_layers(self) -> bool:
        own = encoder_layers(self.encoder.body)
        if not own:
            return False
        chosen = [own[number] for number in spread(len(self.layers), len(own))]
        return all(layer.copy_from(other) for layer, other in zip(self._decoder, chosen, strict=True))

    @torch.no_grad()
    def _copy_embeddings(self, pieces: PieceTokens | None) -> None:
        """Take the rows of word pieces, the encoder's own begin and end, its places, and the norm behind them."""
        body: Any = self.encoder.body
        words = body.get_input_embeddings().weight
        if pieces is not None and words.shape[1] == self.embeddings.shape[1]:
            self.embeddings[pieces.first :] = words[torch.from_numpy(pieces.pieces)]
            tokenizer = self.encoder.tokenizer
            for token, piece in ((PAD, tokenizer.cls_token_id), (END, tokenizer.sep_token_id)):
                if piece is not None:
                    self.embeddings[token] = words[piece]
        embedded = getattr(body, "embeddings", None)
        known = getattr(embedded, "position_embeddings", None)
        if known is not None and known.weight.shape[1] == self.places.shape[1]:
            rows = known.weight[: self.most]
            self.places[: len(rows)] = rows
        kinds = getattr(embedded, "token_type_embeddings", None)
        if kinds is not None and kinds.weight.shape[1] == self.places.shape[1]:
            self.places.add_(kinds.weight[0])  # which the encoder adds everywhere
        norm = getattr(embedded, "LayerNorm", None)
        if self.copied and norm is not None and norm.weight.shape == self.norm.weight.shape:
            self.norm.load_state_dict(norm.state_dict())


class QueryDecoder:
    """A `LanguageModel` over the backbone for one encoded text; hypotheses are the rows of a cache."""

    begin = PAD

    def __init__(self, model: Seq2Seq, source: EncodedSource) -> None:
        self.model, self._start = model, model.start(source)

    def start(self) -> Cache:
        """The cache of one hypothesis."""
        return self._start

    @torch.inference_mode()
    def step(self, states: Cache, last: Ints) -> tuple[NDArray[np.floating], Cache]:
        """The log-probabilities of what follows, in one batch."""
        tokens = torch.from_numpy(last).to(self.model.embeddings.device)
        log_p, after = self.model.read(tokens[:, None], states)
        return log_p[:, 0].float().cpu().numpy(), after

    @torch.inference_mode()
    def select(self, states: Cache, rows: Ints) -> Cache:
        """The caches of some hypotheses."""
        chosen = torch.from_numpy(rows).to(self.model.embeddings.device)
        return Cache([layer.select(chosen) for layer in states.layers], states.source)


def padded(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Sequences [B, t], padded at their right."""
    longest = max(map(len, sequences), default=0)
    return torch.tensor([[*sequence, *[PAD] * (longest - len(sequence))] for sequence in sequences], dtype=torch.long)


def _token_of_piece(encoder: Encoder, pieces: PieceTokens | None) -> Tensor:
    """The token of every word piece of the encoder, -1 for none."""
    body: Any = encoder.body
    tokens = torch.full((body.get_input_embeddings().weight.shape[0],), -1)
    if pieces is not None:
        tokens[torch.from_numpy(pieces.pieces)] = torch.arange(pieces.first, pieces.size)
    return tokens


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FileFormatError(f"cannot read {path}: {error}; copy or build the baseline again") from error
    if not isinstance(settings, dict) or settings.get("format") != _FORMAT:
        raise FileFormatError(f"{path} does not describe an autoregressive model: copy or build the baseline again")
    if settings["version"] > _VERSION:
        raise FileFormatError(f"{path} has format {settings['version']}, this release reads up to {_VERSION}: upgrade")
    missing = sorted(set(_NAMES) - settings.keys())
    if missing:
        raise FileFormatError(f"{path} does not say {missing[0]!r}: copy or build the baseline again")
    return settings

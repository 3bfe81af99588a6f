"""Tiny encoders with random weights, in the layout of Hugging Face, made without any network."""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
from tokenizers.models import WordPiece

_hf: Any = transformers  # whose classes are not typed

KINDS = ("bert", "deberta", "modernbert")
WIDTH = 32
TEXTS = (
    "cheap flights to rome",
    "flights to paris",
    "hotels in rome near the station",
    "night train from paris to rome with a bed",
    "how to brew tea",
    "green tea leaves",
)
_SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
_SPECIAL |= {"mask_token": "[MASK]"}


def tokenizer(texts: Sequence[str] = TEXTS) -> Any:
    """The words of some texts; every other word falls into letters. (A trained one is not always the same.)"""
    letters = string.ascii_lowercase + string.digits
    words = {word for text in texts for word in text.split() if len(word) > 1}
    pieces = [*_SPECIAL.values(), *letters, *(f"##{letter}" for letter in letters), *sorted(words)]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    made = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return _hf.PreTrainedTokenizerFast(tokenizer_object=made, **_SPECIAL)


def body(kind: str, size: int, seed: int = 0) -> Any:
    """A random encoder of one of the `KINDS` for `size` word pieces."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {
        "vocab_size": size,
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 2 * WIDTH,
        "max_position_embeddings": 128,
        "pad_token_id": 0,
    }
    if kind == "bert":
        made = _hf.BertModel(_hf.BertConfig(**shape), add_pooling_layer=False)
        made.embeddings.word_embeddings.weight.data.mul_(5.0)  # or places would outweigh words
        return made
    if kind == "deberta":
        more = {"relative_attention": True, "position_biased_input": False, "pos_att_type": ["p2c", "c2p"]}
        more |= {"position_buckets": 16, "share_att_key": True, "norm_rel_ebd": "layer_norm", "type_vocab_size": 0}
        return _hf.DebertaV2Model(_hf.DebertaV2Config(**shape, **more))
    ids = {"bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}
    return _hf.ModernBertModel(_hf.ModernBertConfig(**shape, **ids, local_attention=8, global_attn_every_n_layers=2))


def save_encoder(folder: Path, kind: str = "bert", *, seed: int = 0, texts: Sequence[str] = TEXTS) -> Path:
    """Write an encoder that `Encoder.load` reads."""
    pieces = tokenizer(texts)
    body(kind, len(pieces), seed).save_pretrained(folder)
    pieces.save_pretrained(folder)
    return folder

"""The baselines keep the protocol: lossless where they say so, the same file twice, one-line errors."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from pixnar.base.errors import FileFormatError, VocabularyError
from pixnar.base.normalize import normalize
from pixnar.vocab.baselines import TokenizerVocabulary, bpe_tokenizer, byte_values
from pixnar.vocab.protocol import TargetVocabulary

DOCIDS = [
    f"{opening} {count} {what}"
    for opening in ("How many points for", "how many miles for", "what is the price of", "cheapest way to get")
    for count in ("one", "two", "3", "a free", "don't-miss", "naïve")
    for what in ("nights in Paris?", "flights, one way", "Hotel Nights", "days of rain")
]
KINDS = ("bpe", "bpe-super", "unigram", "unigram-super")


@functools.cache
def trained(method: str) -> TokenizerVocabulary:
    whitespace = not method.endswith("-super")
    if method.startswith("bpe"):
        return TokenizerVocabulary.train_bpe(DOCIDS, 400, whitespace=whitespace)
    return TokenizerVocabulary.train_unigram(DOCIDS, 400, whitespace=whitespace)


def bert(folder: Path) -> Path:
    """A small tokenizer.json with the parts of BERT's."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "free", "night", "##s", "##ly", "hotel", "?"]
    tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=12)
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("method", KINDS)
def test_keeps_the_protocol(method: str) -> None:
    vocabulary = trained(method)
    assert isinstance(vocabulary, TargetVocabulary)
    assert vocabulary.method == method
    assert vocabulary.kind == method.removesuffix("-super")
    assert vocabulary.lossless
    assert 256 <= len(vocabulary) <= 400
    batch = vocabulary.encode_batch(DOCIDS)
    assert len(vocabulary.token_counts) == len(vocabulary)
    assert vocabulary.token_counts.sum() == len(batch.ids)
    assert np.array_equal(batch.ids, vocabulary.encode_batch(DOCIDS, threads=1).ids)
    for text, ids in zip(DOCIDS, batch.rows(), strict=True):
        assert np.array_equal(vocabulary.encode(text), ids)


@pytest.mark.parametrize("method", ["bpe", "unigram"])
def test_punctuation_is_split_from_words(method: str) -> None:
    """However often signs stand beside a word, they are tokens of their own; a blank goes with what follows it."""
    texts = ["tar -xf file.tar.gz", "don't file_name?!", "über-groß, naïve (2)"] * 20
    train = TokenizerVocabulary.train_bpe if method == "bpe" else TokenizerVocabulary.train_unigram
    vocabulary = train(texts, 600, weighted=True)
    for token in range(len(vocabulary)):
        raw = vocabulary.tokenizer.id_to_token(token)
        assert raw is not None
        text = bytes(map(byte_values().__getitem__, raw)).decode("utf-8", "ignore").removeprefix(" ")
        assert len({character.isalnum() for character in text}) < 2, text
    assert vocabulary.decode(vocabulary.encode(texts[0])) == texts[0]
    whole = train(texts, 600, whitespace=False, weighted=True)
    assert len(whole.encode(texts[0])) < len(vocabulary.encode(texts[0]))


@pytest.mark.parametrize("method", KINDS)
def test_every_text_comes_back(method: str) -> None:
    vocabulary = trained(method)

    @settings(max_examples=300, deadline=None)
    @given(st.text(st.characters(codec=None), max_size=40))  # lone surrogates too
    def holds(text: str) -> None:
        assert vocabulary.decode(vocabulary.encode(text)) == normalize(text)

    holds()
    for text in ("", " ", "\0", "a\0 \0b", "  how  many\n", "ß ẞ İ ﷺ", "\ud83d\ude00 \ud83d", "</s> [CLS]", "Ġfree Ċ"):
        assert vocabulary.decode(vocabulary.encode(text)) == normalize(text)


def test_only_super_crosses_blanks() -> None:
    def crossing(method: str) -> list[str]:
        vocabulary = trained(method)
        return [token for token in map(vocabulary.token, range(len(vocabulary))) if " " in token.strip()]

    assert crossing("bpe") == []
    assert crossing("unigram") == []
    assert any(token.startswith("how many") for token in crossing("bpe-super"))
    assert crossing("unigram-super")


def test_tokens_read_well() -> None:
    vocabulary = trained("bpe")
    assert [vocabulary.token(i) for i in vocabulary.encode("points zé")] == ["points", " ", "##z", "##\\xc3", "##\\xa9"]
    with pytest.raises(VocabularyError, match="token id 400 is outside"):
        vocabulary.token(400)
    with pytest.raises(VocabularyError, match="outside"):
        vocabulary.decode([0, -1])


def test_equal_docids_count_once_unless_weighted() -> None:
    once = TokenizerVocabulary.train_bpe(["free night", "FREE  night", "free night"], 300, min_count=1)
    weighted = TokenizerVocabulary.train_bpe(["free night"] * 3, 300, min_count=1, weighted=True)
    assert list(once.token_counts * np.uint64(3)) == list(weighted.token_counts)
    assert once.token_counts.sum() == 2


def test_bpe_training_is_deterministic(tmp_path: Path) -> None:
    files = []
    for i in range(3):
        files.append(tmp_path / f"{i}.vocab")
        TokenizerVocabulary.train_bpe(DOCIDS, 380, whitespace=False).save(files[-1])
    assert len({file.read_bytes() for file in files}) == 1


def test_save_and_load(tmp_path: Path) -> None:
    file = tmp_path / "v"
    for method in KINDS:
        before = trained(method)
        before.save(file)
        after = TokenizerVocabulary.load(file)
        assert (after.method, after.kind, len(after), after.lossless) == (method, before.kind, len(before), True)
        assert np.array_equal(after.token_counts, before.token_counts)
        assert np.array_equal(after.encode_batch(DOCIDS).ids, before.encode_batch(DOCIDS).ids)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    file = tmp_path / "v"
    trained("bpe").save(file)
    whole = file.read_bytes()
    for damaged in (b"", whole[:40], whole[:-9], whole[:3000] + bytes([whole[3000] ^ 1]) + whole[3001:], b"x" * 500):
        file.write_bytes(damaged)
        with pytest.raises(FileFormatError) as caught:
            TokenizerVocabulary.load(file)
        assert str(file) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_word_piece_from_a_folder(tmp_path: Path) -> None:
    folder = bert(tmp_path / "bert")
    for source in (folder, folder / "tokenizer.json", str(folder)):
        vocabulary = TokenizerVocabulary.from_pretrained(source)
        assert vocabulary.kind == "wordpiece"
        assert not vocabulary.lossless
        assert len(vocabulary) == 10
        ids = vocabulary.encode("FREE  nightly Hotel? xyzzy")  # neither specials nor truncation nor padding
        assert [vocabulary.token(i) for i in ids] == ["free", "night", "##ly", "hotel", "?", "[UNK]"]
        assert not vocabulary.token_counts.any()
    assert vocabulary.decode(vocabulary.encode("free nights")) == "free nights"
    counted = TokenizerVocabulary.from_pretrained(folder, texts=["free nights", "free hotel"])
    assert counted.token_counts[4] == 2
    assert counted.docid_lengths.tolist() == [0, 0, 1, 1]  # "nights" takes two
    counted.save(tmp_path / "v")
    again = TokenizerVocabulary.load(tmp_path / "v")
    assert not again.lossless
    assert np.array_equal(again.encode("free [SEP] nights"), counted.encode("free [SEP] nights"))


def test_special_tokens_in_a_docid_are_text(tmp_path: Path) -> None:
    tokenizer = bpe_tokenizer(["a <s> b"], 300)
    tokenizer.add_special_tokens(["<s>", "<mask>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    vocabulary = TokenizerVocabulary.from_pretrained(tmp_path)
    assert vocabulary.lossless
    assert vocabulary.decode(vocabulary.encode("a <mask> <s>x")) == "a <mask> <s>x"
    assert vocabulary.token(len(vocabulary) - 1) == "<mask>"


@pytest.mark.parametrize("lossy", ["normalizer", "prefix", "no-strip", "removed", "dropout", "lstrip"])
def test_lossless_is_not_claimed_when_a_step_loses(lossy: str, tmp_path: Path) -> None:
    tokenizer = bpe_tokenizer(DOCIDS, 300)
    if lossy == "normalizer":
        tokenizer.normalizer = normalizers.Sequence([normalizers.StripAccents(), normalizers.Prepend(" ")])
    elif lossy == "prefix":
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    elif lossy == "no-strip":
        tokenizer.decoder = decoders.ByteLevel()
    elif lossy == "removed":
        split = pre_tokenizers.Split(" ", "removed")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    elif lossy == "dropout":
        tokenizer.model.dropout = 0.5
    else:
        tokenizer.add_tokens([AddedToken("free", lstrip=True)])
    assert not TokenizerVocabulary(tokenizer, method="bpe").lossless


def test_errors_name_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(name: str, revision: str = "main") -> Tokenizer:
        raise OSError("no such host\nsecond line")

    monkeypatch.setattr("pixnar.vocab.baselines.Tokenizer.from_pretrained", unreachable, raising=True)
    with pytest.raises(VocabularyError, match=r"'some/model'.*\(no such host\).*give a folder") as caught:
        TokenizerVocabulary.from_pretrained("some/model")
    assert "\n" not in str(caught.value)
    with pytest.raises(VocabularyError, match=r"tokenizer\.json does not exist"):
        TokenizerVocabulary.from_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(VocabularyError, match="is not a tokenizer file"):
        TokenizerVocabulary.from_pretrained(tmp_path)
    with pytest.raises(VocabularyError, match="255 tokens cannot hold the 256 bytes"):
        TokenizerVocabulary.train_bpe(DOCIDS, 255)
    for empty in ([], ["", "  "]):
        with pytest.raises(VocabularyError, match="no docid has any text"):
            TokenizerVocabulary.train_unigram(empty, 300)


def test_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    TokenizerVocabulary.train_bpe(iter(DOCIDS), 300, progress=lambda *step: told.append(step))
    assert told == [("read", 96, 0), ("train", 96, 96), ("count", 96, 96)]

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

from pixnar.base.errors import FileFormatError, PixnarError
from pixnar.corpus import Document
from pixnar.fusion.fuse import DENSE, DOCIDS, EXPANSION, LEXICAL, Fusion
from pixnar.fusion.lexical import LexicalIndex
from pixnar.index import Hit, Index
from pixnar.pipeline import fit
from pixnar.recipe import Recipe, override
from pixnar.runtime.shortlist import Shortlist
from pixnar.search.types import SearchOptions
from pixnar.table import DocidTable
from pixnar.vocab import normalize
from tests.helpers.fit_corpora import COUNTRIES, WORDS, settings, write_small
from tests.helpers.tiny_model import save_encoder
from tests.test_cli import fails, pixnar

SOURCES = (DOCIDS, LEXICAL, EXPANSION, DENSE)

DOCUMENTS = 20
QUERIES = ["balin demor", "Rovek!", "nothing of this is known", "fista"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index whose model knows nothing: random phrase vectors, one step of training."""
    folder = tmp_path_factory.mktemp("home")
    names = write_small(folder / "corpus", DOCUMENTS, 3)
    (folder / "names.json").write_text(json.dumps({text: sorted(named) for text, named in names.items()}))
    encoder = save_encoder(folder / "encoder", texts=WORDS)
    wish = settings(encoder, model__head="random", train__steps=1, scoring__tune=False, scoring__copy=0.0)
    fit(folder / "corpus", folder / "index", override(Recipe(), wish), cache=folder / "cache", threads=1)
    return folder


@pytest.fixture(scope="module")
def names(home: Path) -> dict[str, set[str]]:
    read = json.loads((home / "names.json").read_text())
    return {text: set(named) for text, named in read.items()}


def with_fusion(folder: Path, weights: dict[str, float] | None) -> Path:
    """The same index with other weights."""
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    content["fusion"] = None if weights is None else Fusion(weights, dict.fromkeys(weights, 1.0)).to_dict()
    path.write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module", params=["docids alone", "everything", "without shortlist"])
def index(home: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Index:
    copy = tmp_path_factory.mktemp("copy") / "index"
    shutil.copytree(home / "index", copy)
    weights = dict.fromkeys(SOURCES, 1.0) if request.param == "everything" else None
    return Index.load(with_fusion(copy, weights), shortlist=request.param != "without shortlist")


@pytest.fixture
def copy(home: Path, tmp_path: Path) -> Path:
    shutil.copytree(home / "index", tmp_path / "index")
    return tmp_path / "index"


def test_search(index: Index, names: dict[str, set[str]]) -> None:
    many = index.search_batch(QUERIES, k=7)
    assert [len(hits) for hits in many] == [7] * len(QUERIES)
    spelled = {normalize(text): named for text, named in names.items()}
    for query, hits in zip(QUERIES, many, strict=True):
        assert len({hit.id for hit in hits}) == 7
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert all(isinstance(hit, Hit) and hit.id in spelled[normalize(hit.docid)] for hit in hits)
        alone = index.search(query, k=7)
        assert [hit.id for hit in alone] == [hit.id for hit in hits]
        assert [hit.score for hit in alone] == pytest.approx([hit.score for hit in hits], abs=1e-4)
        assert index.search(query, k=3) == alone[:3]
    assert index.search_batch([]) == []
    assert index.search("balin", k=0) == []
    assert len(index.search("balin", k=1000)) == DOCUMENTS
    assert len(index.search("balin")) == 10
    with pytest.raises(TypeError, match="for one query use search"):
        index.search_batch("balin")


def test_generate(index: Index, names: dict[str, set[str]]) -> None:
    made = index.generate(QUERIES[0], 5)
    assert len(made) == 5
    assert [one.score for one in made] == sorted((one.score for one in made), reverse=True)
    for one in made:
        assert set(one.documents) == names[normalize(one.docid)]
        tokens = index.table.vocabulary.encode(one.docid)
        assert one.tokens == [index.table.vocabulary.token(int(v)) for v in tokens]


def test_sources(copy: Path) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    with_fusion(copy, dict.fromkeys(SOURCES, 1.0))
    content = json.loads((copy / "manifest.json").read_text())
    lexical = Fusion(dict.fromkeys((DOCIDS, LEXICAL, EXPANSION), 1.0), dict.fromkeys(SOURCES[:3], 1.0)).to_dict()
    content["fusions"] = {"docids": None, "lexical": lexical, "all": content["fusion"]}
    (copy / "manifest.json").write_text(json.dumps(content))
    ranked = {}
    for sources in ("docids", "lexical", "all"):
        opened = Index.load(copy, sources=sources)
        there = [name for name in ("lexical", "vectors") if getattr(opened.ranker, name) is not None]
        assert there == {"docids": [], "lexical": ["lexical"], "all": ["lexical", "vectors"]}[sources]
        ranked[sources] = [(hit.id, hit.score) for hit in opened.search("rovek demor", 10)]
    assert ranked["docids"] != ranked["lexical"] != ranked["all"]
    with pytest.raises(PixnarError, match="choose one of docids, lexical, all"):
        Index.load(copy, sources="bm25")
    del manifest["fusions"]  # as earlier releases wrote it
    (copy / "manifest.json").write_text(json.dumps(manifest))
    Index.load(copy, sources="docids")
    with pytest.raises(FileFormatError, match="no weights for 'lexical'"):
        Index.load(copy, sources="lexical")


def test_a_threshold(index: Index) -> None:
    hits = index.search("balin demor", k=8)
    least = hits[3].score
    assert index.search("balin demor", k=8, threshold=least) == [hit for hit in hits if hit.score >= least]
    assert index.search("balin demor", k=8, threshold=1e9) == []


@pytest.mark.parametrize("query", ["", "   ", "?!", "\x00", "😀", "a" * 3000])
def test_strange_queries(index: Index, query: str) -> None:
    hits = index.search(query, k=4)
    assert len(hits) == 4
    assert all(np.isfinite(hit.score) for hit in hits)


def test_filters(index: Index) -> None:
    country = {f"d{i:02}": COUNTRIES[i % 3] for i in range(DOCUMENTS)}
    german = {doc_id for doc_id, name in country.items() if name == "de"}
    for query in QUERIES:
        found = {hit.id for hit in index.search(query, k=100, where='country = "de"')}
        assert found == german
        assert {hit.id for hit in index.search(query, k=3, where='country = "de" and price < 7')} == {
            "d00",
            "d03",
            "d06",
        }
        some = ["d05", "d07", "d11", "nobody"]
        assert {hit.id for hit in index.search(query, k=10, allow=some)} == {"d05", "d07", "d11"}
        assert {hit.id for hit in index.search(query, k=100, forbid=some)} == country.keys() - set(some)
        assert {hit.id for hit in index.search(query, k=5, allow=some, forbid=["d07"], where="price > 5")} == {"d11"}
        assert len(index.search(query, k=5, where="price >= 10")) == 5  # k results where k exist
        assert index.search(query, k=5, allow=[]) == []
        assert {hit.id for hit in index.search(query, k=2, allow=iter(some))} <= {"d05", "d07", "d11"}
    batch = index.search_batch(QUERIES, k=100, allow=iter(["d05", "d07"]))
    assert [{hit.id for hit in hits} for hits in batch] == [{"d05", "d07"}] * len(QUERIES)
    with pytest.raises(PixnarError) as caught:
        index.search("balin", where="price <")
    assert "\n" not in str(caught.value)


def test_what_equals_a_docid_is_found_first(index: Index, names: dict[str, set[str]]) -> None:
    """Whatever the model thinks; this one thinks nothing."""
    texts = list(names)
    for text, hits in zip(texts, index.search_batch(texts, k=4), strict=True):
        wanted = names[text]
        assert {hit.id for hit in hits[: len(wanted)]} == wanted
        assert all(normalize(hit.docid) == normalize(text) for hit in hits[: len(wanted)])
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert len(hits) == 4
    for text in texts[:6]:
        shouted = f"  {text.upper().replace(' ', '   ')} "
        assert index.search(shouted, k=1)[0].id in names[text]


def test_what_equals_a_docid_and_a_filter(index: Index, names: dict[str, set[str]]) -> None:
    for text, wanted in names.items():
        hits = index.search(text, k=20, forbid=wanted)
        assert not {hit.id for hit in hits} & wanted
        assert len(hits) == DOCUMENTS - len(wanted)
        other = "d15" if "d15" not in wanted else "d16"
        assert index.search(text, k=1, forbid=[other])[0].id in wanted
        assert index.search(text, k=1, where="price >= 0")[0].id in wanted
        for doc_id in wanted:
            first = index.search(text, k=1, allow=[other, doc_id])[0]
            assert (first.id, normalize(first.docid)) == (doc_id, normalize(text))
            assert index.search(text, k=1, where=f"price != {int(doc_id[1:])}")[0].id != doc_id


def test_explain(index: Index, names: dict[str, set[str]]) -> None:
    text = next(iter(names))
    for query in (text, "balin demor", ""):
        told = index.explain(query, k=3)
        assert json.loads(json.dumps(told)) == told
        assert told["query"] == normalize(query)
        assert [hit["doc_id"] for hit in told["hits"]] == [hit.id for hit in index.search(query, k=3)]
        assert all(set(hit["sources"]) <= set(SOURCES) for hit in told["hits"])
        gains = [gain for _, gain in told["expected"]]
        assert gains == sorted(gains, reverse=True)


def test_a_shortlist_of_all_tokens_changes_nothing(home: Path) -> None:
    whole, listed = Index.load(home / "index", shortlist=False), Index.load(home / "index")
    size = whole.table.vocab_size
    assert listed.ranker.shortlist is not None
    width = listed.ranker.shortlist.c.shape[1]
    listed.ranker.shortlist = Shortlist(np.ones((1, width), np.float32), np.arange(size, dtype=np.uint32)[None], 1)
    for one, other in zip(whole.search_batch(QUERIES), listed.search_batch(QUERIES), strict=True):
        assert [hit.id for hit in one] == [hit.id for hit in other]
        assert [hit.score for hit in one] == pytest.approx([hit.score for hit in other], abs=1e-4)


@pytest.mark.parametrize("fused", [False, True])
def test_new_documents_are_found(copy: Path, fused: bool) -> None:
    index = Index.load(with_fusion(copy, dict.fromkeys(SOURCES, 1.0) if fused else None))
    document = Document("new", "New", "", {"country": "de", "price": 99})
    index.table.add("new", ["balin stapol unheard of"], document)
    assert index.search("Balin stapol unheard of", k=1)[0].id == "new"
    assert [hit.id for hit in index.search("anything", where="price = 99")] == ["new"]
    index.table.remove("d03")
    assert "d03" not in {hit.id for hit in index.search("anything", k=100)}
    again = Index.load(copy)  # a changed table is still a whole index
    again.verify()
    assert again.search("balin stapol unheard of", k=1)[0].id == "new"


def test_one_text_is_no_list_of_ids(index: Index) -> None:
    for name in ("allow", "forbid"):
        with pytest.raises(TypeError, match="give a list of document ids"):
            index.search("balin", **{name: "d05"})  # type: ignore[call-overload]


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.stat().st_size)


def test_verify_finds_a_flipped_byte(copy: Path) -> None:
    index = Index.load(copy)
    assert index.verify() > 8
    listed = set(index.manifest["files"])
    for name in files_of(copy):
        if name == "manifest.json" or name.endswith("lock"):
            continue
        assert name in listed
        path = copy / name
        whole = path.read_bytes()
        size = len(whole.rstrip(b"\0"))  # zeros may be padding, which means nothing
        for place in {len(whole[: size // 2].rstrip(b"\0")) - 1, size - 1}:
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
            with pytest.raises(FileFormatError) as caught:
                index.verify()
            assert "\n" not in str(caught.value)
            assert name in str(caught.value)
        path.write_bytes(whole)
    index.verify()


def test_opening_reads_nothing_through(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No checksum of an array, no pass over it, no table of bounds; the first query makes what it needs."""
    with_fusion(copy, dict.fromkeys(SOURCES, 1.0))
    expected = Index.load(copy, warm_up=True)
    assert expected.ranker.decoder._ready is not None
    sizes: list[int] = []
    whole_digest = xxhash.xxh3_64_intdigest

    def digest(data: bytes) -> int:
        sizes.append(len(data))
        return whole_digest(data)

    monkeypatch.setattr("pixnar.base.storage.xxhash.xxh3_64_intdigest", digest)
    index = Index.load(copy)
    lexical = index.ranker.lexical
    assert lexical is not None
    assert max(sizes) < 4096 < (copy / "lexical.pixnar").stat().st_size  # headers and directories
    assert index.ranker.decoder._ready is None
    assert index.search_batch(QUERIES) == expected.search_batch(QUERIES)
    assert "unit_of" not in vars(index.ranker)
    assert "idf" not in vars(lexical)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_damage_inside_arrays_is_an_answer_or_one_line(copy: Path) -> None:
    """Opening looks at headers and sizes only: what a damaged array says must do no harm."""
    with_fusion(copy, dict.fromkeys(SOURCES, 1.0))
    sound = Index.load(copy)
    texts = [normalize(query) for query in (*QUERIES, "stapol balin")]
    vectors = sound.encoder.query_vectors(texts)
    rng = np.random.default_rng(0)
    told: list[str] = []
    for name in files_of(copy):
        path = copy / name
        if path.suffix != ".pixnar" or name.endswith("table.pixnar"):
            continue
        whole = path.read_bytes()
        begin = 64 + int.from_bytes(whole[24:32], "little")
        for _ in range(25):
            spoiled = bytearray(whole)
            for place in rng.integers(begin, len(whole), rng.integers(1, 9)):
                spoiled[place] = rng.integers(256)
            path.write_bytes(spoiled)
            try:
                ranker = Index.load(copy).ranker
                made = ranker.queries(texts, *vectors)
                ranker.search(made, SearchOptions(k=50))
                ranker.search(made[:1], SearchOptions(k=5, where="price > 5"))
            except PixnarError as error:
                told.append(str(error))
        path.write_bytes(whole)
    assert len(told) > 20
    assert not any("\n" in line for line in told)
    assert Index.load(copy).verify() > 8


def test_parts_about_other_documents(copy: Path) -> None:
    with_fusion(copy, dict.fromkeys(SOURCES, 1.0))
    vocabulary = DocidTable.open(copy / "docids").vocabulary
    lexical = LexicalIndex.load(copy / "lexical.pixnar", vocabulary).part(np.arange(3))
    lexical.save(copy / "lexical.pixnar")
    rewritten(copy, lambda content: content["files"].pop("lexical.pixnar") and None)
    assert "is about 3 documents, the docid table was built of 20" in refused(copy)
    rewritten(copy, lambda content: content | {"origin": "of others"})
    assert "docids was built again with documents that the other files lack: fit again" in refused(copy)


def rewritten(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "manifest.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(change(content) or content))


def refused(folder: Path) -> str:
    with pytest.raises(FileFormatError) as caught:
        Index.load(folder)
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def test_a_missing_or_cut_file(copy: Path) -> None:
    for name in files_of(copy):
        if name == "manifest.json" or name.endswith("lock"):
            continue
        path = copy / name
        whole = path.read_bytes()
        path.unlink()
        message = refused(copy)
        if not name.startswith("docids/"):  # the table has words of its own
            assert f"{path} is missing" in message
            path.write_bytes(whole[:-1])
            assert f"{len(whole) - 1} bytes" in refused(copy)
        path.write_bytes(whole)
    Index.load(copy).verify()


def test_what_is_no_index(copy: Path, tmp_path: Path) -> None:
    assert "is no index" in refused(tmp_path / "nothing")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "is no index" in refused(empty)
    (empty / "work").mkdir()
    assert "not finished" in refused(empty)
    assert "is no index" in refused(tmp_path / "index" / "priors.pixnar")

    rewritten(copy, lambda content: content | {"version": 99})
    message = refused(copy)
    assert "99" in message
    assert "upgrade" in message
    rewritten(copy, lambda content: content | {"version": 1, "format": "other"})
    assert "not the manifest of an index" in refused(copy)
    for text in ('{"format": "pixnar-index", "version": "2"}', '{"format": "pixnar-index", "version": 2, "files": []}'):
        (copy / "manifest.json").write_text(text)
        assert "damaged" in refused(copy)
    (copy / "manifest.json").write_text('{"format": "pixnar-index", "version": 1, "files": {}}')
    assert "earlier release" in refused(copy)
    for text in ("[]", "{}", "{", '{"format": "pixnar-index"}', '{"format": "pixnar-index", "version": 1}'):
        (copy / "manifest.json").write_text(text)
        refused(copy)


def test_an_index_of_the_release_before(copy: Path, home: Path, tmp_path: Path) -> None:
    """Version 4 had two indexes of words: one line says how to build it again. Factors are asked for."""
    wish = settings(home / "encoder", train__steps=1, shortlist__learn=False, scoring__score="probability")
    fit(home / "corpus", tmp_path / "old", override(Recipe(), wish), cache=home / "cache", threads=1)
    old = Index.load(tmp_path / "old")
    assert not (tmp_path / "old" / "factors.pixnar").exists()
    assert old.ranker.factors is None
    assert all(old.search_batch(["balin demor", "rovek"]))
    assert old.manifest["version"] == 5

    def earlier(content: dict[str, Any]) -> dict[str, Any]:
        return content | {"version": 4}

    rewritten(tmp_path / "old", earlier)
    assert "has format 4 of an earlier release: run pixnar fit again with --overwrite" in refused(tmp_path / "old")
    rewritten(
        copy, lambda content: content | {"files": {k: v for k, v in content["files"].items() if "factors" not in k}}
    )
    (copy / "factors.pixnar").unlink()
    assert "factors.pixnar" in refused(copy)


def test_parts_that_do_not_fit(copy: Path, home: Path, tmp_path: Path) -> None:
    """A model of another vocabulary."""
    wish = settings(home / "encoder", vocab__size=560, train__steps=1, shortlist__learn=False)
    fit(home / "corpus", tmp_path / "other", override(Recipe(), wish), cache=home / "cache", threads=1)
    shutil.rmtree(copy / "docids")
    shutil.copytree(tmp_path / "other" / "docids", copy / "docids")
    assert "tokens" in refused(copy)


def test_an_encoder_that_does_not_fit(copy: Path, home: Path, tmp_path: Path) -> None:
    wish = settings(home / "encoder", model__slots=2, train__steps=1, shortlist__learn=False)
    fit(home / "corpus", tmp_path / "other", override(Recipe(), wish), cache=home / "cache", threads=1)
    rewritten(copy, lambda content: content | {"files": {}})
    shutil.rmtree(copy / "encoder")
    shutil.copytree(tmp_path / "other" / "encoder", copy / "encoder")
    assert "2 slots" in refused(copy)


def test_a_damaged_shortlist_is_one_line(copy: Path) -> None:
    """Whatever token it names, and numbers that are none."""
    path = copy / "shortlist.pixnar"
    sound = Shortlist.load(path)
    assert sound.offsets is not None
    c, lists = sound.c.copy(), sound.lists.copy()
    for token in (10**6, 0xFFFFFF00, 0xFFFFFFFF):
        lists[sound.offsets[:-1]] = token  # the first of every list
        replace(sound, c=c, lists=lists).save(path)
        with pytest.raises(FileFormatError, match="shortlist is damaged") as caught:
            Index.load(with_sizes(copy)).search("balin")
        assert "\n" not in str(caught.value)
    c[:, 1] = np.nan
    replace(sound, c=c, lists=sound.lists.copy()).save(path)
    with pytest.raises(FileFormatError, match="shortlist is damaged"):
        Index.load(with_sizes(copy)).search("balin")


def with_sizes(folder: Path) -> Path:
    """The same folder, its manifest without a list of files."""
    rewritten(folder, lambda content: content | {"files": {}})
    return folder


def test_docids_of_an_index_change_by_its_folder(copy: Path) -> None:
    pixnar("add", copy, "new", "a quite new docid")
    assert Index.load(copy).search("a quite new docid", k=1)[0].id == "new"
    pixnar("remove", copy, "new")
    assert "new" not in {hit.id for hit in Index.load(copy).search("a quite new docid", k=DOCUMENTS)}
    fails("is no docid table", "add", copy.parent, "new", "a docid")

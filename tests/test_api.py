"""The Python API that people try first: fit, search, add, remove, save, evaluate."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pixnar
from pixnar.base.errors import PixnarError
from pixnar.corpus import open_corpus
from pixnar.corpus.queries import hold_out
from pixnar.corpus.tabular import convert_table, guess_columns, is_table
from tests.helpers.fit_corpora import WORDS
from tests.helpers.tiny_model import save_encoder
from tests.test_cli import fails
from tests.test_cli import pixnar as run

SMALL: dict[str, Any] = {
    "train.steps": 20,
    "train.batch": 16,
    "vocab.size": 600,
    "model.hidden": 32,
    "scoring.tune": False,
    "serve.encoder": "fp32",
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    save_encoder(folder / "encoder", texts=[" ".join(WORDS)])
    return folder


def rows(count: int = 12) -> list[dict[str, Any]]:
    """Documents of two words each, named by them in several ways."""
    found = []
    for i in range(count):
        a, b = WORDS[i % len(WORDS)], WORDS[(7 * i + 3 + i // len(WORDS)) % len(WORDS)]
        names = [f"{a} {b}", f"{b} {a} {i}", f"the {a} of {b} {i}", f"{a} {i}"]
        found.append({"sku": f"s{i}", "name": f"{a} and {b}", "also called": names, "price": i})
    return found


def quick(home: Path, **more: Any) -> dict[str, Any]:
    return {"settings": SMALL | {"model.encoder": str(home / "encoder")} | more, "cache": home / "cache", "quiet": True}


@pytest.fixture(scope="module")
def index(home: Path) -> pixnar.Index:
    return pixnar.fit(rows(), home / "index", names="also called", **quick(home))


def test_fit_and_search(index: pixnar.Index, home: Path) -> None:
    assert len(index) == 12
    assert repr(index) == f"Index('{home / 'index'}': 12 documents, {index.table.pairs} names)"
    name = rows()[4]["also called"][1]
    hits = index.search(name, k=3)
    assert hits[0].id == "s4"
    assert hits[0].title == rows()[4]["name"]
    assert index.search([name, name], k=3) == [hits, hits]
    assert {hit.id for hit in index.search(name, k=20, where="price < 3")} == {"s0", "s1", "s2"}


def test_changes_are_there_at_once_and_can_be_saved(index: pixnar.Index, tmp_path: Path) -> None:
    index.add("s3", "wholly other words")
    index.add("new", ["a newcomer"], title="New", metadata={"price": 99})
    assert index.search("wholly other words")[0].id == "s3"
    assert index.search("a newcomer")[0].id == "new"
    index.save(tmp_path / "copy")
    with pytest.raises(PixnarError, match="exists: give a new folder"):
        index.save(tmp_path / "copy")
    index.remove("s3", ["wholly other words"])
    index.remove("new")
    assert "new" not in {hit.id for hit in index.search("a newcomer", k=50)}
    copy = pixnar.Index.load(tmp_path / "copy")
    assert copy.search("a newcomer")[0].id == "new"
    assert copy.search("wholly other words")[0].id == "s3"
    assert copy.verify() > 0


def test_evaluate(index: pixnar.Index, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    convert_table(rows(), folder, names="also called")
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": rows()[2]["also called"][2]}) + "\n")
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ts2\t1\n")
    assert pixnar.evaluate(index, folder).figures["MRR@10"] == 1.0
    assert pixnar.evaluate(home / "index", open_corpus(folder), split="test").figures["MRR@10"] == 1.0


def as_csv(folder: Path) -> Path:
    lines = ["sku,name,also called,price"]
    lines += [f'{r["sku"]},{r["name"]},"{"; ".join(r["also called"])}",{r["price"]}' for r in rows()]
    (folder / "products.csv").write_text("\n".join(lines) + "\n")
    return folder / "products.csv"


def test_all_tables_give_the_same_corpus(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.Table.from_pylist(rows())
    pyarrow.parquet.write_table(table, tmp_path / "products.parquet")
    (tmp_path / "products.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
    data: dict[str, Any] = {
        "dicts": rows(),
        "csv": as_csv(tmp_path),
        "jsonl": tmp_path / "products.jsonl",
        "parquet": tmp_path / "products.parquet",
        "pandas": table.to_pandas(),
    }
    seen = set()
    for name, given in data.items():
        corpus, columns = convert_table(given, tmp_path / name, names="also called")
        assert columns == ("sku", "name", "", ("also called",))
        documents = [(row.doc_id, row.title, str(row.metadata)) for row in corpus.documents()]
        seen.add((str(documents).replace("'", "") if name != "csv" else "", str(list(corpus.docids()))))
    assert len({docids for _, docids in seen}) == 1
    assert len({documents for documents, _ in seen if documents}) == 1
    corpus, _ = convert_table({"d1": ["tea", "a hot drink"], "d2": "coffee"}, tmp_path / "mapping")
    assert [tuple(row) for row in corpus.docids()] == [("d1", "tea"), ("d1", "a hot drink"), ("d2", "coffee")]


def test_a_polars_frame(tmp_path: Path) -> None:
    import polars

    corpus, _ = convert_table(polars.DataFrame({"id": ["a"], "title": ["tea"]}), tmp_path / "corpus")
    assert [tuple(row) for row in corpus.docids()] == [("a", "tea")]


def test_a_table_is_written_once(tmp_path: Path) -> None:
    convert_table(rows(), tmp_path / "corpus")
    before = (tmp_path / "corpus" / "corpus.jsonl").stat().st_mtime_ns
    convert_table(rows(), tmp_path / "corpus")
    assert (tmp_path / "corpus" / "corpus.jsonl").stat().st_mtime_ns == before  # a fit of it resumes
    convert_table(rows(3), tmp_path / "corpus")
    assert len(list(open_corpus(tmp_path / "corpus").documents())) == 3


def test_a_folder_that_is_not_ours_is_left_alone(home: Path, tmp_path: Path) -> None:
    convert_table(rows(), tmp_path / "corpus")
    (tmp_path / "corpus" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n")
    convert_table(rows(), tmp_path / "corpus")  # the same table: nothing is written
    with pytest.raises(PixnarError, match="not a converted table"):
        convert_table(rows(3), tmp_path / "corpus")
    assert (tmp_path / "corpus" / "qrels" / "test.tsv").exists()
    pixnar.fit(rows(), tmp_path / "index", names="also called", **quick(home))
    with pytest.raises(PixnarError, match=r"made of another table.*use the same table, another output, or overwrite"):
        pixnar.fit(rows(5), tmp_path / "index", names="also called", **quick(home))
    assert len(list(open_corpus(tmp_path / "index.corpus").documents())) == 12


def test_odd_values(tmp_path: Path) -> None:
    import datetime
    from decimal import Decimal

    import numpy as np
    import pandas

    frame = pandas.DataFrame({"id": [0, 1], "name": ["tea", None], "on": [pandas.NaT, datetime.datetime(2026, 1, 2)]})
    corpus, _ = convert_table(frame, tmp_path / "frame")
    documents = {row.doc_id: row for row in corpus.documents()}
    assert set(documents) == {"0", "1"}
    assert documents["1"].title == ""
    assert "on" not in documents["0"].metadata
    data = {"a": {"x", "y", "z"}, "b": None, 0: "zero"}
    corpus, _ = convert_table(data, tmp_path / "sets")
    assert [tuple(row) for row in corpus.docids()] == [("a", "x"), ("a", "y"), ("a", "z"), ("0", "zero")]
    row = {"id": "a", "title": "t", "price": Decimal("1.5"), "size": np.int64(3), "none": np.float32("nan")}
    corpus, _ = convert_table([row], tmp_path / "numbers")
    assert next(iter(corpus.documents())).metadata == {"price": 1.5, "size": 3}
    with pytest.raises(PixnarError, match="is bytes: decode it"):
        convert_table({"a": b"x"}, tmp_path / "bytes")


def test_text_without_names_leaves_docids_to_the_fit(tmp_path: Path) -> None:
    corpus, _ = convert_table([{"id": 1, "title": "Tea", "text": "Tea is a hot drink."}], tmp_path / "corpus")
    assert not corpus.has_docids()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "the table has no rows"),
        ([{"id": "a", "title": "x"}, {"id": "a", "title": "y"}], "row 2: the id .* is there twice"),
        ([{"id": "a", "title": "x"}, {"title": "y"}], "row 2 has no 'id'"),
        (["a"], "row 1 is a str: give dictionaries"),
        (7, "a int is not a corpus"),
        ([{"price": 3}], "no column with titles, texts or names among price"),
    ],
)
def test_bad_tables(data: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(PixnarError, match=words):
        convert_table(data, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_columns_are_guessed_or_named() -> None:
    assert guess_columns(["url", "Heading", "body"]) == ("url", "Heading", "body", ())
    assert guess_columns(["a", "b"], id="a", names=["b"]) == ("a", "", "", ("b",))
    with pytest.raises(PixnarError, match="no column 'c': the columns are a, b"):
        guess_columns(["a", "b"], id="c")
    assert not is_table("folder")


def test_a_file_from_the_command_line(home: Path, tmp_path: Path) -> None:
    settings = [part for name, value in SMALL.items() for part in ("--set", f"{name}={json.dumps(value)}")]
    encoder = ["--encoder", str(home / "encoder"), "--cache", str(home / "cache")]
    done = run("fit", as_csv(tmp_path), "-o", tmp_path / "index", "--names", "also called", *settings, *encoder)
    assert "id from 'sku', title from 'name', names from 'also called'" in done.stdout
    assert "s4" in run("search", tmp_path / "index", rows()[4]["also called"][1], "-k", "1").stdout
    fails("no column 'nosuch'", "fit", as_csv(tmp_path), "-o", tmp_path / "x", "--id", "nosuch")


def test_names_are_held_out_and_given_back(home: Path, tmp_path: Path) -> None:
    """A corpus without a dev split selects on names of its own, which are searchable all the same."""
    corpus, _ = convert_table(rows(600), tmp_path / "corpus", names="also called")
    held = hold_out(corpus, 500)
    assert held.splits() == ["dev"]
    assert 50 <= len(held.held_out) <= 60
    assert list(map(tuple, hold_out(corpus, 500).held_out)) == list(map(tuple, held.held_out))
    kept = {tuple(row) for row in held.docids()}
    assert kept | {tuple(row) for row in held.held_out} == {tuple(row) for row in corpus.docids()}
    assert not kept & {tuple(row) for row in held.held_out}
    judged = {row.query_id: row.doc_id for row in held.qrels("dev")}
    assert {(judged[query.query_id], query.text) for query in held.queries()} == {tuple(r) for r in held.held_out}
    few, _ = convert_table(rows(20), tmp_path / "few", names="also called")
    assert hold_out(few, 500) is few
    index = pixnar.fit(tmp_path / "corpus", tmp_path / "index", **quick(home))
    assert index.manifest["facts"]["held_out"] == len(held.held_out)
    assert index.manifest["dev"]["docids"]["MRR@10"] > 0
    for row in held.held_out[:5]:
        assert index.search(row.docid, k=1)[0].id == row.doc_id
    titles = {document.doc_id: document.title for document in corpus.documents()}
    assert all(row.docid != titles[row.doc_id] for row in held.held_out)
    plain = pixnar.fit(tmp_path / "corpus", tmp_path / "plain", hold_out=False, **quick(home))
    assert "held_out" not in plain.manifest["facts"]
    assert index.table.pairs == plain.table.pairs


def test_a_fit_killed_after_it_gave_back_what_was_held_out(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names given back must not be docids when they are dev queries again."""
    convert_table(rows(600), tmp_path / "corpus", names="also called")
    with monkeypatch.context() as patch:
        patch.setattr("pixnar.pipeline.run.write_manifest", _stop)
        with pytest.raises(KeyboardInterrupt):
            pixnar.fit(tmp_path / "corpus", tmp_path / "index", **quick(home))
    resumed = pixnar.fit(tmp_path / "corpus", tmp_path / "index", **quick(home))
    whole = pixnar.fit(tmp_path / "corpus", tmp_path / "whole", **quick(home))
    assert resumed.manifest["dev"] == whole.manifest["dev"]
    assert resumed.table.pairs == whole.table.pairs


def _stop(*_: Any) -> None:
    raise KeyboardInterrupt


def test_import_needs_no_torch() -> None:
    code = "import pixnar, sys; pixnar.Index; pixnar.open_corpus; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

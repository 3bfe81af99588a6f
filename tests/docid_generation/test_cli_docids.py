"""pixnar docids as a user meets it."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

from tests.helpers.text_corpora import passages, write_text_only
from tests.test_cli import fails, pixnar


def test_docids_on_the_command_line(tmp_path: Path) -> None:
    corpus = write_text_only(tmp_path / "corpus", passages(20))
    done = pixnar("docids", corpus, "--sentences", "2", "--phrases", "1", "--json", tmp_path / "told.json")
    assert done.returncode == 0, done.stderr
    assert sorted(os.listdir(corpus)) == ["corpus.jsonl", "docids.jsonl"]
    rows = [json.loads(line) for line in (corpus / "docids.jsonl").read_text().splitlines()]
    assert f"{len(rows):,} docids for 20 of 20 documents (titles 10, sentences 40, phrases 20)" in done.stdout
    told = json.loads((tmp_path / "told.json").read_text())
    assert told["docids"] == len(rows) == sum(told["sources"].values())
    assert "20" in pixnar("corpus", "check", corpus).stdout
    (tmp_path / "pid2query.pkl").write_bytes(pickle.dumps({"d0003": ["what is tea"], "d0004": ["tea?", "Tea?"]}))
    done = pixnar("docids", corpus, "--from", f"titles,{tmp_path / 'pid2query.pkl'}", "--overwrite")
    assert "12 docids for 11 of 20 documents (titles 10, pid2query.pkl 2)" in done.stdout, done


def test_what_a_user_does_wrong(tmp_path: Path) -> None:
    corpus = write_text_only(tmp_path / "corpus", passages(3))
    (corpus / "docids.jsonl").write_text('{"_id": "d0000", "docid": "mine"}\n')
    fails("is there already: choose another output with -o, or give --overwrite", "docids", corpus)
    assert "mine" in (corpus / "docids.jsonl").read_text()
    fails("unknown source of docids 'tittles'", "docids", corpus, "--from", "tittles")
    fails("--from model and --model NAME go together", "docids", corpus, "--from", "model")
    fails("no corpus folder", "docids", tmp_path / "none")
    fails("a file that ends in .jsonl or .tsv", "docids", corpus, "-o", tmp_path / "docids.csv")
    here = ("docids", corpus, "-o", tmp_path / "a.jsonl")
    fails("cannot load the model", *here, "--from", "model", "--model", tmp_path / "t5")
    (tmp_path / "bad.pkl").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    fails("asks for os.system", *here, "--overwrite", "--from", tmp_path / "bad.pkl")
    assert not (tmp_path / "a.jsonl").exists()

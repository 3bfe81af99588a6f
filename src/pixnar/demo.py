"""The first five minutes: everything there is so far, run on the demo corpus."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from pixnar.corpus import open_corpus, write_demo
from pixnar.fit import fit
from pixnar.index import Index
from pixnar.index.manifest import NAME, OlderIndexError
from pixnar.progress import Progress
from pixnar.recipe import Recipe, override
from pixnar.vocab import Vocabulary, inspect

DEMO_VOCABULARY_SIZE = 16_384
_QUICK = ("train.dev_queries=200", "shortlist.minutes=0.3", "fuse.depth=100", "fuse.dev_queries=400")


def run_demo(folder: Path, *, minutes: float = 1.0, threads: int = 0, progress: Progress | None = None) -> None:
    """Write the demo corpus, learn its phrases, train an index on it, and show all of it.

    Steps done by an earlier run are not done again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    console = Console(highlight=False)
    corpus_folder, vocabulary_file = folder / "corpus", folder / "phrases.vocab"
    if corpus_folder.exists():
        console.print(f"{corpus_folder} is there already and is reused")
    else:
        stats = write_demo(corpus_folder)
        console.print(
            f"{corpus_folder}: ICD-10-CM, {stats.documents:,} codes, {stats.docids:,} terms that name them, "
            f"{stats.test_queries:,} held-out test queries. {stats.notice}"
        )
    corpus = open_corpus(corpus_folder)
    if vocabulary_file.exists():
        vocabulary = Vocabulary.load(vocabulary_file)
        console.print(f"{vocabulary_file} is there already and is reused")
    else:
        docids = (row.docid for row in corpus.docids(progress=progress))
        vocabulary = Vocabulary.build(docids, DEMO_VOCABULARY_SIZE, threads=threads, progress=progress)
        vocabulary.save(vocabulary_file)
        console.print(f"{vocabulary_file}: {len(vocabulary):,} tokens")

    found = inspect.inspect(vocabulary, top=12)
    inspect.plot(found, folder / "phrases.png")
    queries = [query.text for query, _ in zip(corpus.queries(), range(4), strict=False)]
    console.print(inspect.render(found, vocabulary, queries))
    console.print("\nThe last lines are held-out queries the vocabulary has never seen, cut at its tokens.\n")

    index = _index(console, corpus_folder, folder / "index", minutes, threads, progress)
    _show_search(console, index, queries)
    console.print(
        f"\nThe vocabulary as a picture: {folder / 'phrases.png'}\n"
        f"The training as a picture:   {folder / 'index' / 'training' / 'loss.png'}\n"
        f'Try your own text:    pixnar search {folder / "index"} "sugar disease with kidney trouble"\n'
        f'See why:              pixnar search {folder / "index"} "sugar disease with kidney trouble" --explain\n'
        f"Measure it:           pixnar evaluate {folder / 'index'} {corpus_folder} --split dev\n"
        f"Try your own corpus:  pixnar fit CORPUS -o INDEX   (docs/corpus.md says how a corpus looks)"
    )


def _index(
    console: Console, corpus: Path, folder: Path, minutes: float, threads: int, progress: Progress | None
) -> Index:
    """The index of the demo corpus, built or reused, and what it reaches on held-out dev queries."""
    index = _found(console, folder)
    if index is None:
        recipe = override(Recipe(), [f"vocab.size={DEMO_VOCABULARY_SIZE}", f"train.minutes={minutes}", *_QUICK])
        old = (folder / NAME).exists()
        fit(
            corpus,
            folder,
            recipe,
            threads=threads,
            progress=progress,
            say=lambda line: console.print(escape(line)),
            overwrite=old,
        )
        index = Index.load(folder)
    for name, figures in index.manifest["dev"].items():
        shown = ", ".join(f"{key} {value:.3f}" for key, value in figures.items())
        console.print(f"on held-out dev queries, {name}: {shown}")
    return index


def _found(console: Console, folder: Path) -> Index | None:
    if not (folder / NAME).exists():
        return None
    try:
        index = Index.load(folder)
    except OlderIndexError:
        console.print(f"{folder} was built by an earlier release and is built again")
        return None
    console.print(f"{folder} is there already and is reused")
    return index


def _show_search(console: Console, index: Index, queries: list[str]) -> None:
    """The best documents of held-out queries, and the docids that found them."""
    console.print("\nHeld-out queries and the best two codes for each, with the term that speaks for it:")
    index.search(queries[0], 1)  # the first query warms the encoder up
    for query in queries:
        started = time.perf_counter()
        hits = index.search(query, 2)
        milliseconds = (time.perf_counter() - started) * 1e3
        console.print(f"  [bold]{escape(query)}[/bold]  ({milliseconds:.0f} ms)")
        for hit in hits:
            console.print(f"    {hit.score:6.1f}  {escape(hit.doc_id)}  {escape(hit.docid)}")

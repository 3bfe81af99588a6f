"""The first five minutes: everything there is so far, run on the demo corpus."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from pixnar.corpus import open_corpus, write_demo
from pixnar.progress import Progress
from pixnar.vocab import Vocabulary, inspect

DEMO_VOCABULARY_SIZE = 16_384


def run_demo(folder: Path, *, threads: int = 0, progress: Progress | None = None) -> None:
    """Write the demo corpus, learn its phrases and show them; steps done by an earlier run are not done again."""
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
    console.print(
        f"\nThe last lines are held-out queries the vocabulary has never seen, cut at its tokens.\n"
        f"The same as a picture: {folder / 'phrases.png'}\n"
        f'Try your own text:    pixnar vocab encode {vocabulary_file} "sugar disease with kidney trouble"\n'
        f"Try your own corpus:  pixnar vocab CORPUS -o my.vocab   (docs/corpus.md says how a corpus looks)"
    )

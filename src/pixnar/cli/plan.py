"""pixnar plan: resources that a fit needs, estimated before it runs."""

from __future__ import annotations

import math
import os
from typing import Annotated

import typer

from pixnar.cli.common import JsonFile, app, write_json


@app.command("plan")
def plan(
    docids: Annotated[float, typer.Option(help="Docids of the corpus, e.g. 170e6.")],
    vocab: Annotated[float, typer.Option(help="Tokens of the vocabulary, e.g. 5e6.")],
    width: Annotated[int, typer.Option(help="Numbers per row: the width of the encoder.", min=1)] = 384,
    documents: Annotated[float, typer.Option(help="Documents; 0: a fifth of the docids.", min=0)] = 0,
    slots: Annotated[int, typer.Option(help="Output positions.", min=1)] = 8,
    tokens_per_docid: Annotated[float, typer.Option(help="Tokens of a docid, on average.", min=0.1)] = 4.0,
    text_bytes: Annotated[float, typer.Option(help="Bytes of a docid's text, on average.", min=1)] = 35.0,
    document_bytes: Annotated[
        float, typer.Option(help="Bytes of a document's own text, which evidence and BM25 count too; 0: none.", min=0)
    ] = 0.0,
    batch: Annotated[int, typer.Option(help="Pairs of a step, those of all processes together.", min=1)] = 1024,
    steps: Annotated[float, typer.Option(help="Steps of training; 0: by --epochs.", min=0)] = 0,
    epochs: Annotated[float, typer.Option(help="Times through all pairs.", min=0)] = 1.0,
    softmax: Annotated[str, typer.Option(help="full or sampled.")] = "full",
    sample: Annotated[int, typer.Option(help="Tokens of the sampled softmax.", min=1)] = 65_536,
    optimizer: Annotated[str, typer.Option(help="Of the rows: rows or adam.")] = "rows",
    ranking: Annotated[bool, typer.Option(help="With the ranking loss on documents (train.ranking).")] = True,
    fine_tune: Annotated[float, typer.Option(help="Share of the run that trains the encoder.", min=0, max=1)] = 0.0,
    gpus: Annotated[int, typer.Option(help="GPUs, a process each; 0: none.", min=0)] = 0,
    processes: Annotated[int, typer.Option(help="Processes, where there are no GPUs.", min=1)] = 1,
    cores: Annotated[int, typer.Option(help="Cores of the machine; 0: those of this one.", min=0)] = 0,
    memory: Annotated[float, typer.Option(help="Gigabytes of memory of the machine; 0: not compared.", min=0)] = 0,
    gpu_memory: Annotated[float, typer.Option(help="Gigabytes of a GPU (assumed).", min=1)] = 80,
    gpu_tflops: Annotated[float, typer.Option(help="Nominal speed of a GPU in bf16 (assumed).", min=0.1)] = 300,
    json_file: JsonFile = None,
) -> None:
    """Estimate memory, GPU memory, disk and hours of every stage of a fit, without running anything.

    Batch, sample and softmax default to what runs of millions of docids want, not to a recipe's own values; the
    command that fits so is printed below the table. Making docids of text (pixnar docids) is not part of it.

    [bold]pixnar plan --docids 170e6 --vocab 5e6 --width 768 --gpus 8[/bold]
    """
    from pixnar.research.plan import Scale
    from pixnar.research.plan import plan as reckon
    from pixnar.research.plan.show import show

    numbers = {
        "--docids": docids, "--vocab": vocab, "--documents": documents, "--steps": steps, "--epochs": epochs,
        "--tokens-per-docid": tokens_per_docid, "--text-bytes": text_bytes, "--document-bytes": document_bytes,
        "--memory": memory, "--gpu-memory": gpu_memory, "--gpu-tflops": gpu_tflops, "--fine-tune": fine_tune,
    }  # fmt: skip
    for option, value in numbers.items():
        if not math.isfinite(value):
            raise typer.BadParameter(f"{option} {value} is no number of things: write e.g. 170e6")
    made = reckon(
        Scale(
            docids=int(docids),
            vocab=int(vocab),
            width=width,
            documents=int(documents),
            slots=slots,
            tokens_per_docid=tokens_per_docid,
            text_bytes=text_bytes,
            document_bytes=document_bytes,
            batch=batch,
            steps=int(steps),
            epochs=epochs,
            softmax=softmax,
            sample=sample,
            optimizer=optimizer,
            ranking=ranking,
            fine_tune=fine_tune,
            gpus=gpus,
            processes=processes,
            cores=cores or os.cpu_count() or 1,
            gpu_memory=gpu_memory * 1e9,
            gpu_flops=gpu_tflops * 1e12,
            memory=memory * 1e9,
        )
    )
    show(made)
    write_json(json_file, made.to_dict())

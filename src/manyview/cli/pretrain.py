"""`manyview pretrain`: train an encoder."""

import time

from manyview.cli.shared import console, listed, ranks
from manyview.methods import described, find


def run(words: list[str]) -> None:
    began = time.perf_counter()
    if not words or words[0] in ("-h", "--help"):
        listed("method", described(), "manyview pretrain METHOD --data DATA --out DIR")
        console.print("`manyview pretrain METHOD --help` explains its flags.")
        return
    method = find(words[0])
    from manyview.run.flags import parse_run

    with ranks():
        config, source, weights, reasons = parse_run(method, words[1:])
        from manyview.run.pretrain import pretrain

        directory = pretrain(method, config, source, console, weights=weights, reasons=reasons, began=began)
        if directory is not None:
            console.print(f"report: {directory / 'report.html'}", soft_wrap=True)

"""`manyview pretrain`: train an encoder."""

import time

from manyview.arguments import asked_for_help
from manyview.cli.shared import conclude, console, first_word, listed, ranks, use_threads
from manyview.errors import complaints
from manyview.methods import described, find


def run(words: list[str]) -> None:
    began = time.perf_counter()
    if asked_for_help(words[:1]):
        listed("method", described(), "manyview pretrain METHOD --data DATA --out DIR")
        console.print("`manyview pretrain METHOD --help` explains its flags.")
        return
    method = find(first_word("pretrain", "method", words))
    from manyview.run.flags import parse_run
    from manyview.run.place import place_for

    with ranks():
        config, source, weights, reasons = parse_run(
            method, words[1:], checks=lambda config: complaints(lambda: place_for(config.run.out))
        )
        use_threads(config.run.threads)
        from manyview.run.pretrain import pretrain

        directory = pretrain(method, config, source, console, weights=weights, reasons=reasons, began=began)
        if directory is not None:
            conclude(directory)

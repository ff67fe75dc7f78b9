"""`manyview pretrain`: train an encoder."""

from manyview.cli.shared import console, listed, ranks
from manyview.methods import described, find


def run(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help"):
        listed("method", described(), "manyview pretrain METHOD --data DATA --out DIR")
        console.print("`manyview pretrain METHOD --help` explains its flags.")
        return
    method = find(words[0])
    from manyview.run.flags import parse_run

    with ranks():
        config, source = parse_run(method, words[1:])
        from manyview.run.pretrain import pretrain

        console.print(f"report: {pretrain(method, config, source, console) / 'report.html'}", soft_wrap=True)

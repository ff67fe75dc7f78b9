"""`python -m bench`: the races against peers, the curves, and the page that shows them."""

import argparse
import importlib
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from bench import curves, profiles, report
from bench.lines import GROUPS, group_of
from bench.race import Race, run

ROOT = Path(__file__).parent.parent
LINES = [line.name for lines in GROUPS.values() for line in lines]


def races(group: str, quick: bool) -> Iterator[Race]:
    # Imported only now: whoever reads or draws results need not have the peers installed.
    yield from importlib.import_module(f"bench.{group}").races(quick)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "command",
        nargs="?",
        default="all",
        choices=["all", *GROUPS, "curves", "report", "profile"],
        help="one group of races, the curves, the page, or where the time of one line goes; all but `profile` if none",
    )
    parser.add_argument("line", nargs="?", choices=LINES, metavar="LINE", help=f"for `profile`: {', '.join(LINES)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, few repeats, results under runs/: a try-out")
    args = parser.parse_args()
    if (args.command == "profile") != (args.line is not None):
        parser.error("`profile` takes the name of a line, and nothing else does")
    results = ROOT / "runs" / "bench" if args.quick else ROOT / "bench" / "results"
    console = Console()
    for group in GROUPS:
        if args.command in ("all", group):
            for race in races(group, args.quick):
                run(race, results, console)
    if args.command in ("all", "curves"):
        curves.measure(results, console, args.quick)
    if args.command == "profile":
        profiles.measure(args.line, races(group_of(args.line), args.quick), results, console)
    pages = results if args.quick else ROOT / "docs"
    report.write(results, template=ROOT / "docs" / report.PAGE, pages=pages, quick=args.quick)
    console.print(f"written: {(pages / report.PAGE).relative_to(ROOT)}", highlight=False)


if __name__ == "__main__":
    main()

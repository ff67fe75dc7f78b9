"""The command line. What a command needs is imported when the command is called."""

import io
import os
import signal
import sys
from importlib import import_module

from manyview.allocator import keep_freed_memory
from manyview.errors import Stopped, UserError, meant, printable

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "pretrain": "Train an encoder without labels: `pretrain METHOD --data … --out …`.",
    "resume": "Continue an interrupted run: `resume RUN`.",
    "evaluate": "Evaluate a frozen encoder: `evaluate PROTOCOL RUN --data …`.",
    "embed": "Write the features of images to a file: `embed RUN --data … --out features.npz`.",
    "export": "Write the encoder for other programs: `export RUN --format torchvision --out resnet50.safetensors`.",
    "report": "Write the report of a run, report.html: `report RUN [--against OTHER]`.",
    "diagnose": "Find problems of a run: `diagnose RUN`.",
    "views": "Draw the views that a method trains on: `views --data … --method jcl`, with the flags of `pretrain`.",
    "pack": "Pack images into one memory-mapped file: `pack --data … --out images.safetensors`.",
    "reproduce": "Run a table or figure of a paper: `reproduce RECIPE --data …`; `reproduce --list` names them.",
}


def main(argv: list[str] | None = None) -> int:
    """Runs one command. Each of a user's mistakes is one line on stderr, and the exit code 2."""
    keep_freed_memory()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr is: names of files may hold what is no text
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        if not words or words[0] in ("-h", "--help"):
            overview()
        elif words[0] == "--version":
            from manyview import __version__

            print(__version__)
        elif words[0] in COMMANDS:
            import_module(f"{__name__}.{words[0]}").run(words[1:])
        else:
            close, known = meant(words[0], COMMANDS), ", ".join(COMMANDS)
            raise UserError(f"no command {words[0]!r}: choose one of {known}{close}")
    except UserError as error:
        complain(str(error).splitlines())
        return 2
    except Stopped as stop:
        if os.environ.get("RANK", "0") == "0":
            print(stop)
        return 128 + stop.number
    except BrokenPipeError:  # the reader of our output, such as head, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        # A path that may not be looked at, a disk that is full: any file may meet it, so it is told here for all.
        if error.strerror is None:  # of a library, which means something else
            raise
        where = "a file" if error.filename is None else os.fsdecode(error.filename)
        complain([f"{where} is refused ({error.strerror}): check the path, who may use it, and the room on its disk"])
        return 2
    except KeyboardInterrupt:
        print("manyview: interrupted", file=sys.stderr)
        return 130
    return 0


def complain(lines: list[str]) -> None:
    rank = os.environ.get("RANK", "0")
    for line in lines:
        print(f"manyview{'' if rank == '0' else f' (rank {rank})'}: {printable(line)}", file=sys.stderr)


def overview() -> None:
    from rich.table import Table
    from rich.text import Text

    from manyview.cli.shared import console

    about = ": image representations from many views and many positives, without labels\n"
    console.print(Text.assemble(("manyview", "bold"), about))
    grid = Table(show_header=False, box=None, padding=(0, 2))
    for name, description in COMMANDS.items():
        grid.add_row(f"manyview {name}", description)
    console.print(grid)
    console.print(
        "\nEach command explains its flags with --help. Start with "
        "`manyview pretrain jcl --data scenes --out runs/jcl`."
    )

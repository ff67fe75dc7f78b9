"""`python -m experiments.cacr_table2`: the rows of CACR's Table 2 that a laptop can try, at equal cost.

Every run encodes the same number of views in the same number of steps with `tiny`; the probe is fitted on the regular
training set. First `trials` gives every method the same few learning rates, judged on training images held out by hash;
then `final` runs the best of each on fresh seeds, with and without imbalance; `table` shows what is there so far.
Several processes may share the work.

    python -m experiments.cacr_table2 trials --data CIFAR
    python -m experiments.cacr_table2 final --data CIFAR --seeds 1 2 3
    python -m experiments.cacr_table2 table

CIFAR holds train.tar and test.tar with images as CLASS/NAME.
"""

import argparse
import csv
import fcntl
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import torch

from manyview.cli import main as manyview
from manyview.evaluate import Knn, Linear, evaluate

ROOT = Path(__file__).parent.parent
RUNS = ROOT / "runs" / "cacr-table2"
TRIALS, FINAL = (ROOT / "results" / f"cacr-table2{name}.csv" for name in ("-trials", ""))
FIELDS = ("method", "imbalance", "seed", "lr", "steps", "views_per_step", "knn", "linear", "seconds")

VIEWS_PER_STEP, TRIAL_STEPS, FINAL_STEPS = 320, 400, 600
RATES = (0.03, 0.06, 0.12)
TRIAL_SEED = 0

# The objectives' own hyper-parameters are the paper's for CIFAR-10 (C.1), and so are the views.
METHODS = {
    "CL": ["cl", "--temperature", "0.19"],
    "HN-CL": ["hn-cl", "--temperature", "0.5", "--beta", "1.0"],
    "CACR (K = 1)": ["cacr", "--views", "2", "--t-neg", "2.0"],
    "CMC (K = 4)": ["cmc-aug", "--views", "5"],
    "CACR (K = 4)": ["cacr", "--views", "5", "--t-neg", "0.9"],
}
PAPER = {  # Table 2, CIFAR-10, linear accuracy of an AlexNet after 200 epochs: regular and exponential
    "CL": (83.47, 71.74),
    "HN-CL": (83.67, 72.74),
    "CACR (K = 1)": (83.73, 73.02),
    "CMC (K = 4)": (85.54, 74.77),
    "CACR (K = 4)": (86.54, 75.89),
}
IMBALANCES = ("none", "exponential")


@dataclass(frozen=True)
class Job:
    method: str
    imbalance: str
    seed: int
    lr: float
    steps: int

    @property
    def name(self) -> str:
        words = (self.method, self.imbalance, f"seed{self.seed}", f"lr{self.lr:g}", f"steps{self.steps}")
        return "-".join(words).replace(" ", "").replace("(", "-").replace(")", "").replace("=", "").lower()

    def row(self) -> dict[str, str]:
        values = (self.method, self.imbalance, self.seed, self.lr, self.steps, VIEWS_PER_STEP)
        return dict(zip(FIELDS, map(str, values), strict=False))


def run(job: Job, data: Path, results: Path, test_data: str | None) -> None:
    """One pre-training and its two evaluations, unless they are done or another process is at it."""
    with alone(RUNS / f"{job.name}.lock") as mine:
        if not mine or any(row.items() >= job.row().items() for row in read(results)):
            return
        out, start = RUNS / job.name, time.perf_counter()
        train = str(data / "train.tar")
        if out.exists():
            words = ["resume", str(out)]
        else:
            words = ["pretrain", *METHODS[job.method], "--data", train, "--preset", "small", "--augment", "cifar"]
            words += ["--min-crop", "0.2", "--encoded-views", str(VIEWS_PER_STEP), "--max-steps", str(job.steps)]
            words += ["--lr", str(job.lr), "--seed", str(job.seed), "--imbalance", job.imbalance]
            words += ["--checkpoint-every", "100", "--keep", "1", "--out", str(out)]
        if manyview(words) != 0:
            raise SystemExit(f"{job.name} failed")
        scores = {}
        for name, protocol in (("knn", Knn()), ("linear", Linear())):
            record = evaluate(out, protocol, train, test_data, random=False, progress=False)[0]
            scores[name] = f"{100 * record['top1']:.2f}"
        append(results, {**job.row(), **scores, "seconds": f"{time.perf_counter() - start:.0f}"})


@contextmanager
def alone(path: Path) -> Iterator[bool]:
    """Whether nobody else works on it; a process that dies lets go."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def append(path: Path, row: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", newline="", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        if file.tell() == 0:
            writer.writeheader()
        writer.writerow(row)


def best_rate(method: str) -> float | None:
    """The learning rate of the best linear accuracy on held-out images, once all have been tried."""
    scores = {float(row["lr"]): float(row["linear"]) for row in read(TRIALS) if row["method"] == method}
    return max(RATES, key=lambda rate: scores[rate]) if scores.keys() >= set(RATES) else None


def table() -> None:
    """Markdown: the trials, then mean and standard deviation over seeds beside the paper's figures."""
    print(f"| held-out linear accuracy (kNN), seed {TRIAL_SEED} | {' | '.join(f'lr {rate:g}' for rate in RATES)} |")
    print(f"|---|{'---|' * len(RATES)}")
    trials = {(row["method"], float(row["lr"])): f"{row['linear']} ({row['knn']})" for row in read(TRIALS)}
    for method in METHODS:
        print(f"| {method} | {' | '.join(trials.get((method, rate), 'not run') for rate in RATES)} |")
    print("\n| | imbalance | linear | kNN | seeds | the paper's linear |\n|---|---|---|---|---|---|")
    for imbalance in IMBALANCES:
        for method in METHODS:
            rows = [row for row in read(FINAL) if (row["method"], row["imbalance"]) == (method, imbalance)]
            paper = PAPER[method][IMBALANCES.index(imbalance)]
            shown = [spread([float(row[name]) for row in rows]) for name in ("linear", "knn")]
            seeds = ", ".join(sorted(row["seed"] for row in rows)) or "none"
            print(f"| {method} | {imbalance} | {' | '.join(shown)} | {seeds} | {paper} |")


def spread(values: Sequence[float]) -> str:
    if not values:
        return "not run"
    mean = f"{statistics.mean(values):.1f}"
    return f"{mean} ± {statistics.stdev(values):.1f}" if len(values) > 1 else mean


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["trials", "final", "table"])
    parser.add_argument("--data", type=Path, help="directory of train.tar and test.tar")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="for `final`")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.command == "table":
        table()
        return
    if args.data is None:
        parser.error("name the images: --data DIR")
    torch.set_num_threads(args.threads)
    if args.command == "trials":
        for rate in RATES:
            for method in METHODS:
                run(Job(method, "none", TRIAL_SEED, rate, TRIAL_STEPS), args.data, TRIALS, None)
        return
    for seed, imbalance, method in product(args.seeds, IMBALANCES, METHODS):
        best = best_rate(method)
        if best is None:
            print(f"{method} has not had all its trials yet: run `trials`, and then this again")
        else:
            run(Job(method, imbalance, seed, best, FINAL_STEPS), args.data, FINAL, str(args.data / "test.tar"))


if __name__ == "__main__":
    main()

"""How good a frozen encoder is: features once, then one protocol per file."""

from manyview.evaluate.features import Features, extract
from manyview.evaluate.files import Record, append_record, embed, read_records
from manyview.evaluate.knn import Knn, knn
from manyview.evaluate.linear import Linear, linear
from manyview.evaluate.linear_sgd import LinearAdam, LinearSgd, train_linear
from manyview.evaluate.run import PROTOCOLS, Protocol, evaluate, table
from manyview.evaluate.score import Score, accuracy
from manyview.evaluate.split import Split, open_test, splits
from manyview.evaluate.watch import knn_accuracy

__all__ = [
    "PROTOCOLS",
    "Features",
    "Knn",
    "Linear",
    "LinearAdam",
    "LinearSgd",
    "Protocol",
    "Record",
    "Score",
    "Split",
    "accuracy",
    "append_record",
    "embed",
    "evaluate",
    "extract",
    "knn",
    "knn_accuracy",
    "linear",
    "open_test",
    "read_records",
    "splits",
    "table",
    "train_linear",
]

"""How good a frozen encoder is: features once, then one protocol per file."""

from manyview.evaluate.features import Features, extract, extract_layers, left_out_before
from manyview.evaluate.files import Record, append_record, embed, read_records
from manyview.evaluate.knn import Knn, knn
from manyview.evaluate.linear import Linear, linear
from manyview.evaluate.linear_sgd import LinearAdam, LinearSgd, train_linear
from manyview.evaluate.mlp import Mlp, mlp
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
    "Mlp",
    "Protocol",
    "Record",
    "Score",
    "Split",
    "accuracy",
    "append_record",
    "embed",
    "evaluate",
    "extract",
    "extract_layers",
    "knn",
    "knn_accuracy",
    "left_out_before",
    "linear",
    "mlp",
    "open_test",
    "read_records",
    "splits",
    "table",
    "train_linear",
]

"""Protocols are found by name, without importing torch, and share the pass over the images."""

import subprocess
import sys
from dataclasses import fields

import pytest
import torch
from test_evaluate_features import Memory, pixels

from manyview.errors import UserError
from manyview.evaluate import described, find
from manyview.evaluate.knn import Knn
from manyview.evaluate.protocol import Reading
from manyview.evaluate.result import Metric, Result
from manyview.evaluate.split import Split


def test_every_protocol_is_found_with_its_description_and_settings() -> None:
    assert list(described()) == ["knn", "linear", "linear-adam", "linear-sgd", "mlp", "recognise"]
    for name, line in described().items():
        kind = find(name)
        assert (kind.name, " ".join(line.split())) == (name, " ".join((kind.__doc__ or "").split()))
        assert kind.title
        assert kind().settings.keys() == {field.name for field in fields(kind)}
    assert {name for name in described() if find(name).takes_layers} == {"knn", "linear", "mlp"}


def test_an_unknown_protocol_is_said_with_those_that_there_are() -> None:
    with pytest.raises(UserError, match="no protocol 'nn': choose one of knn, linear"):
        find("nn")


def test_names_and_records_need_no_torch() -> None:
    code = "import sys; from manyview.evaluate import described, records; described(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_reading_keeps_encoders_and_sources_apart() -> None:
    one, other = Memory(20, classes=2, seed=1), Memory(10, classes=2, seed=2)
    encoder, reading = pixels(8), Reading(batch_size=7)
    train, test = reading.features(encoder, Split(one, other, ""))
    torch.testing.assert_close(train.embeddings, one.images.flatten(1) / 255)
    assert reading.features(encoder, Split(one, other, ""))[0].embeddings is train.embeddings
    assert reading.features(encoder, Split(other, one, ""))[0].embeddings is test.embeddings
    assert reading.features(pixels(8), Split(one, other, ""))[0].embeddings is not train.embeddings
    assert Knn(3).run(encoder, Split(one, other, ""), reading) == Knn(3).score(train, test)


def test_a_headline_that_was_not_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="'mIoU' is none of the metrics top-1"):
        Result({"top-1": Metric(0.5)}, "mIoU")


def test_metrics_say_how_they_are_printed() -> None:
    share, number = Metric(0.5, (0.4, 0.61)), Metric(12.5, (12, 13), "")
    assert (str(share), share.written(0.25), share.difference(0.4)) == ("50.0 % [40.0, 61.0]", "25.0 %", "+10.0 points")
    assert (str(number), number.difference(13)) == ("12.500 [12.000, 13.000]", "-0.500")
    assert str(Metric(0.5)) == "50.0 %"

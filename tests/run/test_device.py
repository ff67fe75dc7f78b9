"""The device of a run: the one that is named, or a mistake in one line."""

import pytest
import torch

from manyview.errors import UserError
from manyview.run.device import pick_device


def test_auto_is_a_device_that_works() -> None:
    device = pick_device("auto")
    assert device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert pick_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("name", ["cuda:7", "gpu", ""])
def test_a_device_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(UserError, match=f"^--device {name} cannot be used here .*: use cpu or auto$"):
        pick_device(name)

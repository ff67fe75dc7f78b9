"""A mistake names the flag that it is about, once."""

import pytest

from manyview.data.source import NoTestSplit
from manyview.errors import UserError, naming


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UserError("'a' does not exist"), "--data: 'a' does not exist"),
        (UserError("--views x: choose others"), "--views x: choose others"),
        (NoTestSplit("'a' has none"), "--data: 'a' has none"),
    ],
)
def test_the_flag_stands_in_front_and_the_kind_of_error_stays(error: UserError, message: str) -> None:
    with pytest.raises(type(error)) as caught, naming("--data"):
        raise error
    assert str(caught.value) == message


def test_what_is_no_mistake_of_the_user_passes_as_it_is() -> None:
    with pytest.raises(ValueError, match=r"^a bug$"), naming("--data"):
        raise ValueError("a bug")

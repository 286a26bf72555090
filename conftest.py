"""What holds for the tests of all folders."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _no_state_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Runs of tests are not remembered as the user's, also not by processes that tests start."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    yield
    del os.environ["XDG_STATE_HOME"]
    if before is not None:
        os.environ["XDG_STATE_HOME"] = before

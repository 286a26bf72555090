"""What holds for the tests of all folders."""

import os
from tempfile import TemporaryDirectory

import pytest

_state = TemporaryDirectory(prefix="nat-tests-")


def pytest_configure() -> None:
    """Runs of tests, and of processes that tests start, are not remembered as the user's.

    Before any test is imported, since some copy the environment then.
    """
    os.environ["XDG_STATE_HOME"] = _state.name


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Leave nothing behind."""
    _state.cleanup()

"""What holds for the tests of all folders."""

import os
from tempfile import TemporaryDirectory

import pytest

_state = TemporaryDirectory(prefix="nat-tests-")
_LONGEST = {"test_doc_shell.py", "test_training.py"}
"""Files with tests of a minute, which begin first, so that no process ends alone with one."""


def pytest_configure() -> None:
    """Runs of tests, and of processes that tests start, are not remembered as the user's.

    Before any test is imported, since some copy the environment then.
    """
    os.environ["XDG_STATE_HOME"] = _state.name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest."""
    items.sort(key=lambda item: item.path.name not in _LONGEST)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    """Leave nothing behind."""
    _state.cleanup()

"""What holds for the tests of all folders."""

import os
from collections.abc import Generator
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


SLOW_SECONDS = 2.0
"""Processor time of a test and its children from which on it belongs among those that are marked `slow`."""
_busy: dict[str, float] = {}


def _processor_seconds() -> float:
    return sum(os.times()[:4])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note how much processor time this process and its children have taken."""
    _busy[item.nodeid] = _processor_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, object, object]:
    """Keep the test's processor time, whatever else the machine does; `--junitxml` has it, too."""
    if call.when == "teardown" and item.get_closest_marker("slow") is None:
        item.user_properties.append(("processor_seconds", round(_processor_seconds() - _busy.pop(item.nodeid), 2)))
    return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that would better be quicker, or marked `slow`, so that `make test` stays below five minutes."""
    taken = [
        (dict(report.user_properties)["processor_seconds"], report.nodeid)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "teardown" and "processor_seconds" in dict(report.user_properties)
    ]
    for seconds, name in sorted(found for found in taken if found[0] > SLOW_SECONDS)[::-1]:
        terminalreporter.write_line(f"{seconds:.1f} s of processor time, not marked slow: {name}")

"""Settings of all tests: property tests have no deadline, since machines may be busy; in CI they are derandomized."""

import os
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from fakes.forked_processes import forked_processes, forked_processes_of_this_run, shared_folder
from fakes.process_state import process_state_kept
from nat.secrets import known_secrets

__all__ = ["forked_processes", "forked_processes_of_this_run", "shared_folder"]

# A shell starts background programs with these signals ignored, and the children of tests would inherit that.
# A handler that does nothing goes on ignoring them here, and is not inherited.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


settings.register_profile("patient", settings(), deadline=None)
settings.load_profile("patient")


def pytest_xdist_auto_num_workers() -> int:
    """Run one process more than there are cores, since a test often waits for a server or a program."""
    return min(os.cpu_count() or 1, 8) + 1


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests() -> Iterator[None]:
    """Each test starts without known secrets; a process otherwise keeps them until it exits."""
    known_secrets.forget()
    yield
    known_secrets.forget()


@pytest.fixture(autouse=True)
def _process_of_other_tests() -> Iterator[None]:
    """Restore the state of the whole process, which commands change and tests share."""
    with process_state_kept():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, object, object]:
    """Replace lone surrogates in a test's output, because reports travel between processes as UTF-8."""
    return _encodable((yield))


def _encodable(report: object) -> object:
    """The same report, whose tuples stay tuples: pytest asks for one in the report of a skipped test."""
    match report:
        case str():
            return report.encode("utf-8", errors="replace").decode()
        case dict():
            return {_encodable(key): _encodable(value) for key, value in report.items()}
        case list():
            return [_encodable(value) for value in report]
        case tuple():
            return tuple(_encodable(value) for value in report)
        case _:
            return report

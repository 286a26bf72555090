"""For all tests: a busy machine is no failure, so property tests have no deadline; in CI they stay derandomized."""

from collections.abc import Iterator

import pytest
from hypothesis import settings

from fakes.process_state import process_state_kept
from nat.secrets import known_secrets

settings.register_profile("patient", settings(), deadline=None)
settings.load_profile("patient")


@pytest.fixture(autouse=True)
def _no_secrets_of_other_tests() -> Iterator[None]:
    """A process knows its secrets until it ends; a test begins with none."""
    known_secrets.forget()
    yield
    known_secrets.forget()


@pytest.fixture(autouse=True)
def _process_of_other_tests() -> Iterator[None]:
    """A command sets up its whole process, which is right where it has one of its own; tests share one."""
    with process_state_kept():
        yield

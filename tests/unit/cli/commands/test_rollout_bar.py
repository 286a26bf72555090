import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from nat.cli.commands.rollout_bar import rollout_bar
from nat.data_models.rollout_failure import RolloutFailure
from nat.rollout.rollout import Rollout


class Session:
    """Lets the test play the listeners' part of a session."""

    def on_rollout(self, callback, on_pass=None):
        self.callback, self.on_pass = callback, on_pass
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.callback = self.on_pass = None


def rollout(error=None) -> Rollout:
    return Rollout(
        item_id="a",
        generation=0,
        output=None,
        steps=[],
        error=error,
        seed=None,
        started_at=datetime.now(UTC),
        seconds=0,
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_the_bar_counts_rollouts_on_a_terminal_only(terminal):
    """A pipe gets no control characters; a terminal sees how many are done and failed."""
    out, session = io.StringIO(), Session()
    with rollout_bar(session, Console(file=out, force_terminal=terminal, width=100)):
        session.on_pass(3)
        session.callback(rollout())
        session.callback(rollout(RolloutFailure(item_id="a", kind="raised", type="E", message="")))
    assert ("2/3" in out.getvalue()) is terminal
    assert ("(1 failed)" in out.getvalue()) is terminal
    assert session.callback is None

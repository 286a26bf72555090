"""A bar on stderr that fills with rollouts; nothing where stderr is no terminal."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from nat.rollout.rollout import Rollout
from nat.rollout.session import WorkflowSession


@contextmanager
def rollout_bar(session: WorkflowSession, console: Console | None = None) -> Iterator[None]:
    """Show the session's rollouts until the block ends: how many are done, and how many failed."""
    console = console or Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("rollouts", total=0)
        expected = failed = 0

        def begun(rollouts: int) -> None:
            nonlocal expected
            expected += rollouts
            progress.update(task, total=expected)

        def done(rollout: Rollout) -> None:
            nonlocal failed
            failed += rollout.failed
            progress.update(task, advance=1, description=f"rollouts ({failed} failed)" if failed else "rollouts")

        with session.on_rollout(done, begun):
            yield

"""StepDisplay of a command: lines in a pipe, a bar on a terminal."""

from io import StringIO

from rich.console import Console

from nat.cli.steps import StepDisplay, StepProgress, shown_steps
from nat.finetuning.run_log import RolloutDone, RolloutsBegun, StepBegun
from nat.runs.records import Phase


class Pipe:
    """Lines with a clock of the test."""

    def __init__(self) -> None:
        self.now = 0.0
        self.console = Console(file=StringIO(), width=40)
        self.steps = StepDisplay(self.console, clock=lambda: self.now)

    def until(self, seconds: float) -> None:
        while self.now < seconds:
            self.now += 1.0
            self.steps.check()

    @property
    def lines(self) -> list[str]:
        return self.console.file.getvalue().splitlines()


def test_a_step_is_named_before_it_begins_and_again_while_it_lasts():
    """After 10 s, 30 s and 60 s, then each 30 s: what it does, how far it is, how long it takes."""
    pipe = Pipe()
    pipe.steps.begin("playing rollouts", 100)
    pipe.steps.advance()
    pipe.steps.advance(failed=True)
    pipe.until(95)
    assert pipe.lines == [
        "playing rollouts 0/100 …",
        "playing rollouts 2/100 (1 failed), about 8 min 10 s more",
        "playing rollouts 2/100 (1 failed), about 24 min 30 s more",
        "playing rollouts 2/100 (1 failed), about 49 min 0 s more",
        "playing rollouts 2/100 (1 failed), about 1 h 13 min more",
    ]


def test_a_step_that_is_usually_short_is_named_only_if_it_lasts():
    """A quick command prints its result alone."""
    pipe = Pipe()
    pipe.steps.begin("reading the run", after=2.0)
    pipe.until(1)
    assert pipe.lines == []
    pipe.until(2)
    assert pipe.lines == ["reading the run, 2 s so far"]


def test_a_child_process_says_at_which_place_it_is():
    """Its start does not count, and lines that a library prints are not taken for a place."""
    pipe = Pipe()
    pipe.steps.begin("making a tiny model")
    pipe.until(5)
    for line in ("1/1000", "a warning", "250/1000"):
        pipe.steps.at(line)
    pipe.until(15)
    assert pipe.lines[1:] == ["making a tiny model 250/1000, about 15 s more"]


def test_lines_come_by_themselves():
    """A thread prints them, while the command computes or waits."""
    pipe = Pipe()
    with pipe.steps.checked() as steps:
        steps.begin("waiting", after=2.0)
        pipe.now = 2.0
        while not pipe.lines:
            pass
    assert pipe.lines == ["waiting, 2 s so far"]


def test_a_terminal_gets_a_bar_with_counts_and_failures():
    """The same words, in one place that is gone at the end."""
    out = StringIO()
    with shown_steps(Console(file=out, force_terminal=True, width=100)) as steps:
        progress = StepProgress(steps)
        for event in (
            StepBegun("loading"),
            RolloutsBegun(Phase.TRAIN, 3),
            RolloutDone(None),
            RolloutDone("E: no"),
        ):
            progress(event)
    assert "playing rollouts (1 failed)" in out.getvalue()
    assert "2/3" in out.getvalue()

"""Two displays of a run: lines for logs and pipes, a live view for a terminal."""

from io import StringIO
from pathlib import Path
from weakref import ref

import pytest
from rich.console import Console

from fakes.run_records import epoch_record, validation_record
from nat.cli import console_log
from nat.cli.progress import LineProgress, LiveProgress, console_progress
from nat.data_models.rollout_failure import FailureCount
from nat.finetuning.run_log import RunBegun
from nat.runs.records import Phase

FAILURES = [FailureCount(cause="the workflow raised an error", count=64, error="KeyError: 'city'")]


def console(*, terminal: bool) -> Console:
    return Console(file=StringIO(), force_terminal=terminal, width=120)


def text_of(output: Console) -> str:
    assert isinstance(output.file, StringIO)
    return output.file.getvalue()


def shown(view: LineProgress | LiveProgress, output: Console) -> str:
    with view:
        view.step_started("loading the model")
        view.run_started("20260314-092653-5a1f", Path("runs/x"), 3)
        view.validation_finished(validation_record(epoch=0))
        view.epoch_started(0, 3)
        view.rollouts_started(Phase.TRAIN, 8)
        view.rollout_done("KeyError: 'city'")
        view.training_started(2, 8)
        view.epoch_finished(epoch_record(epoch=0, failures=FAILURES))
        view.validation_finished(validation_record(epoch=1))
        view.message("The model stops exploring.")
        view.warning("This stands in the log.")
    return text_of(output)


def test_a_terminal_gets_the_live_view_and_everything_else_gets_lines():
    """A log file gets no control sequences, and lines of the log of modules would break the view."""
    assert isinstance(console_progress(console(terminal=False)), LineProgress)
    console_log.configure("info")
    assert isinstance(console_progress(console(terminal=True)), LineProgress)
    console_log.configure("warning")
    assert isinstance(console_progress(console(terminal=True)), LiveProgress)


def test_lines_show_epochs_and_validations():
    """Each epoch and validation is a line without control sequences."""
    output = console(terminal=False)
    lines = shown(LineProgress(output), output).splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "loading the model …",
        "run 20260314-092653-5a1f: 3 epochs, output in runs/x",
        "held-out before training: 0.500 on 2 examples",
        "epoch 1/3",
        "held-out after epoch 1: 0.500 on 2 examples",
        "The model stops exploring.",
    ]
    assert "\x1b" not in "".join(lines)


def test_an_epochs_line_says_how_long_the_others_take():
    """The time per epoch includes validations; the last line has no rest."""
    output, now = console(terminal=False), [0.0]
    view = LineProgress(output, clock=lambda: now[0])
    view.run_started("r", Path("runs/x"), 3)
    for epoch in range(3):
        view.epoch_started(epoch, 3)
        now[0] += 60.0
        view.epoch_finished(epoch_record(epoch=epoch))
    ends = [line.rpartition("  ")[2] for line in text_of(output).splitlines()[1:]]
    assert ends == ["about 2 min 0 s left", "about 1 min 0 s left", "0.0 s"]


def test_the_rest_of_a_run_that_goes_on_is_told_by_whole_epochs():
    """The first epoch of a process may have been almost done by an earlier one."""
    output, now = console(terminal=False), [0.0]
    view = LineProgress(output, clock=lambda: now[0])
    view(RunBegun("r", Path("runs/x"), 4, goes_on=True))
    for epoch, seconds in ((1, 0.1), (2, 60.0), (3, 60.0)):
        view.epoch_started(epoch, 4)
        now[0] += seconds
        view.epoch_finished(epoch_record(epoch=epoch))
    ends = [line.rpartition("  ")[2] for line in text_of(output).splitlines()[1:]]
    assert ends == ["0.0 s", "about 1 min 0 s left", "0.0 s"]


def test_a_long_epoch_says_every_half_minute_how_far_it_is():
    """A pipe gets a line while rollouts are played and while the model trains, and none before."""
    output, now = console(terminal=False), [0.0]
    view = LineProgress(output, clock=lambda: now[0])
    view.run_started("r", Path("runs/x"), 12)
    view.epoch_started(2, 12)
    view.rollouts_started(Phase.TRAIN, 128)
    for _ in range(32):
        view.rollout_done(None)
    for now[0] in (29.0, 30.0, 59.0):
        view._lines.check()
    view.training_started(16, 128)
    for now[0] in (60.0, 89.0, 90.0):
        view._lines.check()
    assert text_of(output).splitlines()[1:] == [
        "epoch 3/12  rollouts 32/128, about 1 min 30 s more",
        "epoch 3/12  training on 128 rollouts in 16 groups, 1 s so far",
        "epoch 3/12  training on 128 rollouts in 16 groups, 31 s so far",
    ]


def test_the_live_view_shows_failures_rewards_and_messages():
    """The view shows failed rollouts, the last epochs and warnings."""
    output = console(terminal=True)
    text = shown(LiveProgress(output), output)
    assert "1 failed: KeyError: 'city'" in text
    assert "64 x the workflow raised an error: KeyError: 'city'" in text
    assert "runs/x/failures.txt" in text
    assert "training on 8 rollouts in 2 groups" in text
    assert "The model stops exploring." in text


def test_a_run_that_fails_at_its_start_shows_no_table():
    """Only the error is shown."""
    output = console(terminal=True)
    with LiveProgress(output):
        pass
    file = output.file
    assert isinstance(file, StringIO)
    lines = file.getvalue().count("\n")
    assert file.getvalue().count("\x1b[1A\x1b[2K") >= lines / 2  # as many lines are erased as were drawn


def test_the_live_view_counts_all_epochs_and_keeps_the_last_ones():
    """A long run is summarised; its first records are freed."""
    output = console(terminal=True)
    with LiveProgress(output) as view:
        first = epoch_record(epoch=0, failures=FAILURES)
        freed = ref(first)
        view.epoch_finished(first)
        del first
        for epoch in range(1, 20):
            view.epoch_finished(epoch_record(epoch=epoch, failures=FAILURES))
    assert freed() is None
    file = output.file
    assert isinstance(file, StringIO)
    assert str(20 * FAILURES[0].count) in file.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_an_epoch_of_imitation_shows_its_loss(terminal):
    """The rewards of a file's rows are 1 and say nothing of the model."""
    output = console(terminal=terminal)
    with console_progress(output) if terminal else LineProgress(output) as view:
        view.run_started("r", Path("runs/x"), 1)
        view.epoch_finished(epoch_record(avg_reward=1.0, played=False, metrics={"train/loss": 0.25}))
    text = output.file.getvalue()
    assert "loss 0.250" in text
    assert "1.000" not in text


@pytest.mark.parametrize("terminal", [False, True])
def test_stale_rows_are_shown_where_epochs_overlap(terminal):
    """A run with `max_staleness` shows the share of rows from earlier weights; other runs have no such column."""
    for metrics, words in (({"drift/stale_rows": 0.25}, ["stale rows", "25%"]), ({}, [])):
        output = console(terminal=terminal)
        view = console_progress(output) if terminal else LineProgress(output)
        with view:
            view.run_started("r", Path("runs/x"), 1)
            view.epoch_finished(epoch_record(epoch=0, metrics=metrics))
        text = output.file.getvalue()
        assert [word for word in ("stale rows", "25%") if word in text] == words

"""What a run knows of its preemption."""

from asyncio import CancelledError

from nat.cli.main import EXIT_GOES_ON
from nat.runs.preemption import EXIT_CODE, Preempted, Preemption, resume_command


def test_the_grace_runs_from_the_first_signal():
    """A repeated signal does not begin it again, and it never falls below 0."""
    now = [100.0]
    preemption = Preemption(30, clock=lambda: now[0])
    assert (preemption.begun, preemption.seconds_left) == (False, 30)
    preemption.begin()
    now[0] += 10
    preemption.begin()
    assert (preemption.begun, preemption.seconds_left) == (True, 20)
    now[0] += 100
    assert preemption.seconds_left == 0


def test_what_fails_after_the_signal_fails_because_of_it():
    """A backend gets SIGTERM as well, and may be gone before its run is cancelled."""
    preemption, error = Preemption(), ConnectionError("the backend is dead")
    assert preemption.cause(error) is error
    preemption.begin()
    found = preemption.cause(error)
    assert isinstance(found, Preempted)
    assert isinstance(found, CancelledError)
    assert str(found) == "interrupted by SIGTERM"
    assert preemption.cause(found) is found


def test_a_completed_run_is_not_begun_again():
    """`--resume=auto` would begin a new one, so a restart policy must see success."""
    preemption = Preemption()
    assert preemption.exit_code == EXIT_CODE == EXIT_GOES_ON
    preemption.completed = True
    assert preemption.exit_code == 0


def test_the_command_survives_a_shell(tmp_path):
    """A folder's name may have a space."""
    assert resume_command(tmp_path / "my runs").endswith("/my runs'")

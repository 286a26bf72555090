"""Threads are as many as find a free core, and wait briefly where other programs compute."""

import pytest

from nat.backend.cores import FreeCores, busy_cores, share_cores


@pytest.mark.parametrize(("others", "expected"), [(0.1, {}), (1.5, {"GOMP_SPINCOUNT": "3000"})])
def test_threads_wait_briefly_only_beside_other_programs(others, expected):
    """On idle cores the default of torch stays."""
    environment: dict[str, str] = {}
    share_cores(environment, busy=lambda: others)
    assert environment == expected


@pytest.mark.parametrize("chosen", [{"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "9"}])
def test_what_the_user_has_chosen_stays(chosen):
    """Either variable keeps its meaning."""
    environment = dict(chosen)
    share_cores(environment, busy=lambda: 2.0)
    assert environment == chosen


def test_cores_in_use_are_counted(tmp_path, monkeypatch):
    """Time that is neither idle nor spent on waiting for a disk, as a share of all cores."""
    stat = tmp_path / "stat"
    stat.write_text("cpu 100 0 50 800 50 0 0 0 0 0\ncpu0 1 1 1 1\n")
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr("time.sleep", lambda _: stat.write_text("cpu 140 0 60 840 60 0 0 0 0 0\n"))
    assert busy_cores(stat=stat) == pytest.approx(4 * 50 / 100)


def test_a_system_that_does_not_tell_counts_as_idle(tmp_path):
    """There is no /proc outside of Linux."""
    assert busy_cores(stat=tmp_path / "none") == 0.0


class Machine:
    """A clock, the time that this process has computed, and /proc/stat of four cores."""

    def __init__(self, folder):
        self.stat = folder / "stat"
        self.now = self.own = self.busy = 0.0
        self.tell()

    def tell(self):
        self.stat.write_text(
            f"cpu {round(100 * self.busy)} 0 0 {round(100 * (4 * self.now - self.busy))} 0 0 0 0 0 0\n"
        )

    def compute(self, *, own, others, seconds=2.0):
        self.now += seconds
        self.own += own * seconds
        self.busy += (own + others) * seconds
        self.tell()

    def cores(self, most, **options):
        return FreeCores(most, stat=self.stat, clock=lambda: self.now, own_time=lambda: self.own, **options)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("most", "own", "others", "expected"),
    [(4, 3.9, 0.1, 4), (4, 2.5, 1.0, 3), (4, 1.0, 2.6, 1), (4, 0.0, 4.0, 1), (2, 1.0, 1.5, 2), (2, 0.5, 3.0, 1)],
)
def test_threads_are_as_many_as_find_a_free_core(machine, most, own, others, expected):
    """What this process itself computes is free for its threads; at least one computes."""
    cores = machine.cores(most)
    assert cores.threads() == most
    machine.compute(own=own, others=others)
    assert cores.threads() == expected


def test_threads_come_back_when_the_others_have_ended(machine):
    """It is measured again and again, at most once in a second."""
    cores = machine.cores(4)
    machine.compute(own=1, others=3)
    assert cores.threads() == 1
    machine.compute(own=1, others=0, seconds=0.5)
    assert cores.threads() == 1
    machine.compute(own=1, others=0)
    assert cores.threads() == 4


def test_what_the_agent_computes_between_requests_takes_no_thread(machine):
    """While this process waits, others compute in turn with it; if they leave no core idle, they count."""
    cores = machine.cores(4)
    machine.compute(own=0.3, others=1.5)
    assert cores.threads() == 4
    machine.compute(own=0.3, others=3.5)
    assert cores.threads() == 1


def test_the_users_number_of_threads_stays(machine):
    """A number that the user has set is kept, whatever others compute."""
    cores = machine.cores(3, fixed=True)
    machine.compute(own=1, others=3)
    assert cores.threads() == 3


def test_without_proc_all_threads_compute(tmp_path):
    """Where the system does not tell what others compute, the number stays."""
    assert FreeCores(3, stat=tmp_path / "none").threads() == 3

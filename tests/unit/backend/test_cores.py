"""Threads wait briefly where other programs compute."""

import pytest

from nat.backend.cores import busy_cores, share_cores


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

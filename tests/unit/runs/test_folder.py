import logging
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.errors import JournalError
from nat.runs.folder import GUIDE_NAMES, checked_name, create_run_folder, link_guide_names, new_run_id

MOMENTS = st.datetimes(min_value=datetime(2000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds it


@given(MOMENTS, MOMENTS)
def test_run_ids_sort_by_time(one, other):
    """A plain listing of the folder is in the order of the runs, to the second."""
    one, other = one.replace(microsecond=0), other.replace(microsecond=0)
    assert (new_run_id(one, "a") < new_run_id(other, "a")) == (one < other)


@pytest.mark.parametrize("name", ["", ".", "..", "../up", "a/b", "/etc", "a b", ".hidden", "latest", "a\n", "x" * 101])
def test_a_name_that_could_lead_elsewhere_is_refused(name):
    """Names become paths, so they are checked."""
    with pytest.raises(JournalError, match="cannot name a run's folder"):
        checked_name(name)


def test_latest_points_at_the_newest_run(tmp_path):
    """`latest` is a relative link, so that the folder can be moved as a whole."""
    create_run_folder(tmp_path, "run-1")
    create_run_folder(tmp_path, "run-2")
    assert str((tmp_path / "latest").readlink()) == "run-2"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "run-1", "run-2"]


def test_a_run_folder_is_never_used_twice(tmp_path):
    """A second run with the same id would overwrite the first."""
    create_run_folder(tmp_path, "run-1")
    with pytest.raises(JournalError, match="exists already"):
        create_run_folder(tmp_path, "run-1")


def test_guide_names_lead_to_the_latest_run(tmp_path):
    """The files that the guide promises in output_dir are there, and follow `latest`."""
    for run_id in ("run-1", "run-2"):
        run_dir = create_run_folder(tmp_path, run_id)
        (run_dir / "reward_history.json").write_text(run_id)
        link_guide_names(tmp_path)
    assert (tmp_path / "reward_history.json").read_text() == "run-2"


def test_a_link_to_a_file_that_the_latest_run_lacks_goes_away(tmp_path):
    """Nothing dangles in output_dir after a run without a curriculum follows one with it."""
    first = create_run_folder(tmp_path, "run-1")
    (first / "curriculum_state.json").write_text("{}")
    link_guide_names(tmp_path)
    assert (tmp_path / "curriculum_state.json").is_symlink()
    create_run_folder(tmp_path, "run-2")
    link_guide_names(tmp_path)
    assert not (tmp_path / "curriculum_state.json").is_symlink()


def test_a_file_of_the_users_is_never_replaced(tmp_path, caplog):
    """A regular file or folder in the way stays as it is, with a warning that names this run's file."""
    (tmp_path / "latest").mkdir()
    run_dir = create_run_folder(tmp_path, "run-1")
    assert (tmp_path / "latest").is_dir()
    (tmp_path / "latest").rmdir()
    (tmp_path / "latest").symlink_to("run-1")
    for name in GUIDE_NAMES:
        (tmp_path / name).write_text("mine")
        (run_dir / name).write_text("the run's")
    with caplog.at_level(logging.WARNING):
        link_guide_names(tmp_path)
    assert {(tmp_path / name).read_text() for name in GUIDE_NAMES} == {"mine"}
    assert f"this run's file is {tmp_path / 'latest/summary.json'}" in caplog.text

import pytest

from nat.runs.atomic import replace_link, replacing, write_text


def test_a_file_that_fails_halfway_leaves_the_old_one(tmp_path):
    """A reader never sees a half file, and no temporary file stays behind."""
    path = tmp_path / "a.json"
    write_text(path, "old")

    def fail_halfway() -> None:
        with replacing(path) as file:
            file.write(b"ne")
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail_halfway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_old_file_stays_readable_until_the_new_one_is_whole(tmp_path):
    """Readers that have the old file open keep it; the others get the new one, and never none."""
    path = tmp_path / "deep" / "a.json"
    write_text(path, "old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_a_link_is_switched_by_a_rename(tmp_path):
    """A link that exists already is replaced, even if it points nowhere."""
    link = tmp_path / "latest"
    for target in ("gone", "here"):
        replace_link(link, target)
        assert str(link.readlink()) == target
    assert list(tmp_path.iterdir()) == [link]

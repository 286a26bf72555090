from nat.backend.vllm.folders import folder_with_room, private_folder, weights_folder


def test_folders_of_killed_processes_are_removed(tmp_path):
    """One whose lock is held stays, and so does everything else."""
    abandoned, other = tmp_path / "nat-weights-killed", tmp_path / "other"
    for folder in (abandoned, other):
        folder.mkdir()
        (folder / ".lock").touch()
    with weights_folder(tmp_path) as first, weights_folder(tmp_path) as second:
        assert sorted(tmp_path.iterdir()) == sorted([first, second, other])
        assert first.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == [other]


def test_shared_memory_is_used_if_there_is_room(tmp_path):
    """Twice the size must be free."""
    other = tmp_path / "other"
    assert folder_with_room(1, other, shared_memory=tmp_path) == tmp_path
    assert folder_with_room(2**60, other, shared_memory=tmp_path) == other
    assert folder_with_room(1, other, shared_memory=tmp_path / "absent") == other


def test_a_socket_has_a_short_path_whatever_the_folder_for_temporary_files(tmp_path):
    """The system refuses paths of sockets above a hundred bytes."""
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    with private_folder(tmp_path) as first, private_folder(deep) as second:
        assert first.stat().st_mode & 0o777 == second.stat().st_mode & 0o777 == 0o700
        assert len(str(second / "vllm.sock")) < 100
        assert list(deep.iterdir()) == []
    assert not second.exists()

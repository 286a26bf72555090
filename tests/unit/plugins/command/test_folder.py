"""A program's folder is deleted, and nothing else."""

import os

import pytest

from nat.plugins.command.folder import remove_tree


def nested(folder, depth):
    """Nested folders, deeper than a path can name."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("file", os.O_CREAT, dir_fd=here))
    os.close(here)


def test_a_deep_tree_is_deleted(tmp_path):
    """Three thousand nested folders are deleted."""
    (tmp_path / "root").mkdir()
    nested(tmp_path / "root", 3000)
    remove_tree(tmp_path / "root")
    assert list(tmp_path.iterdir()) == []


def test_permissions_prevent_no_deletion(tmp_path):
    """A folder that its owner may neither read nor change is deleted, too."""
    locked = tmp_path / "root" / "a" / "b"
    locked.mkdir(parents=True)
    (locked / "file").touch()
    for folder in (locked, locked.parent, tmp_path / "root"):
        folder.chmod(0)
    remove_tree(tmp_path / "root")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("inside", [True, False])
def test_links_are_deleted_without_their_targets(tmp_path, inside):
    """This holds for a link inside the folder and for one in its place."""
    kept, root = tmp_path / "kept", tmp_path / "root"
    kept.mkdir()
    (kept / "file").touch()
    if inside:
        root.mkdir()
    (root / "link" if inside else root).symlink_to(kept)
    remove_tree(root)
    assert [path.name for path in tmp_path.rglob("*")] == ["kept", "file"]


def test_a_missing_folder_is_no_error(tmp_path):
    """A program may have deleted its folder itself."""
    remove_tree(tmp_path / "root")
    assert list(tmp_path.iterdir()) == []

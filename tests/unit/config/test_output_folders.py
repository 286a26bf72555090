from pathlib import Path

import pytest

from nat.config.output_folders import check_writable
from nat.errors import ConfigError


def test_a_folder_that_can_be_made_is_not_made_yet(tmp_path):
    """Trying leaves nothing behind, neither the folder nor those above it, and keeps what was there."""
    check_writable(tmp_path / "a" / "b", "finetuning.output_dir")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "kept").mkdir()
    check_writable(tmp_path / "kept", "finetuning.output_dir")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.skipif(not Path("/proc").exists(), reason="there is no /proc on this system")
@pytest.mark.parametrize("folder", ["/proc/nowhere", "/proc/self"])
def test_whatever_the_system_refuses_is_an_error_of_the_option(folder):
    """Permissions do not tell all: root may write to /proc, and yet nothing can be made there."""
    with pytest.raises(ConfigError, match=f"finetuning.output_dir: cannot write to {folder}: "):
        check_writable(Path(folder), "finetuning.output_dir")


def test_a_file_in_the_way_is_named(tmp_path):
    """The file is named, not only the folder that cannot be."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file is a file, so"):
        check_writable(tmp_path / "file" / "below", "eval.general.output_dir")

"""An exported model is moved into the run's folder and replaces nothing but an earlier export."""

import pytest

from nat.errors import BackendError, ExportRefused
from nat.plugins.local.export import export_checkpoint, move_export
from nat.wire.model_folder import MANIFEST, Manifest


def exported(run_dir, text):
    folder = run_dir / "exports" / "model"
    folder.mkdir(parents=True)
    (folder / "weights").write_text(text)
    (folder / MANIFEST).write_text(Manifest(kind="export", files={}).model_dump_json())
    return folder


def test_the_newest_export_is_the_runs_model(tmp_path):
    """An export replaces an earlier one, and the empty folder of exports is removed."""
    for text in ("first", "second"):
        assert move_export(exported(tmp_path, text)) == tmp_path / "model"
    assert (tmp_path / "model" / "weights").read_text() == "second"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("kind", ["file", "folder", "checkpoint", "link", "dangling link"])
def test_other_files_are_not_replaced(tmp_path, kind):
    """A file, folder, checkpoint or link of that name is an error; the export stays where it is."""
    folder, target = exported(tmp_path, "trained"), tmp_path / "model"
    if kind == "file":
        target.write_text("mine")
    elif kind.endswith("link"):
        target.symlink_to(folder if kind == "link" else tmp_path / "none")
    else:
        target.mkdir()
    if kind == "checkpoint":
        (target / MANIFEST).write_text(Manifest(kind="checkpoint", files={}).model_dump_json())
    with pytest.raises(ExportRefused, match="is not an exported model, so it stays"):
        move_export(folder)
    assert (folder / "weights").read_text() == "trained"
    assert target.is_symlink() or target.exists()


@pytest.mark.slow
async def test_the_error_of_the_process_is_shown(tmp_path):
    """It says what is wrong with the checkpoint."""
    with pytest.raises(BackendError, match=r"^the checkpoint .* is damaged: "):
        await export_checkpoint(tmp_path, tmp_path / "exported")

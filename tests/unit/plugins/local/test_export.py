"""An exported model is moved into the run's folder and replaces nothing but an earlier export."""

import json

import pytest
import torch
from safetensors.torch import save_file

from nat.errors import BackendError, ExportRefused
from nat.files import remove_unfinished
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


def test_an_export_that_was_being_replaced_is_no_obstacle(tmp_path, monkeypatch):
    """A run that is killed while the earlier export is deleted goes on."""
    move_export(exported(tmp_path, "first"))
    (tmp_path / "model" / "more").write_text("of it")
    folder = exported(tmp_path, "second")

    def killed(path):
        (path / MANIFEST).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            move_export(folder)
    assert (move_export(folder) / "weights").read_text() == "second"
    remove_unfinished(tmp_path)
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


async def test_the_whole_error_of_the_process_is_shown(tmp_path):
    """Also where it quotes an error of a library, whose class has `Error: ` after it."""
    folder, base = tmp_path / "step_000001", tmp_path / "base"
    for each in (folder, base):
        each.mkdir()
    (base / "config.json").write_text("{}")
    (folder / "state.json").write_text('{"step": 1, "lora": true, "jobs": []}')
    config = {"peft_type": "LORA", "base_model_name_or_path": str(base)}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    for name in ("optimizer", "adapter_model"):
        save_file({"weight": torch.zeros(1)}, folder / f"{name}.safetensors")
    with pytest.raises(BackendError, match=rf"^the model in {base} cannot be loaded: \w+Error: "):
        await export_checkpoint(folder, tmp_path / "exported")

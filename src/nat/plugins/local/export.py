"""Put exported models into the run's folder itself, where users look for them."""

from contextlib import suppress
from pathlib import Path

from nat.builder.child_processes import run_module
from nat.errors import BackendError, ExportRefused
from nat.files import remove_folder
from nat.wire.model_folder import ExportFormat, is_export


def move_export(exported: Path) -> Path:
    """Move `<folder>/exports/<name>` to `<folder>/<name>`, in place of an earlier export only.

    Raises:
        ExportRefused: something else has that name; the model stays where it was exported to.

    """
    target = exported.parent.parent / exported.name
    if is_export(target):
        remove_folder(target)
    elif target.exists() or target.is_symlink():
        raise ExportRefused(
            f"{target} is not an exported model, so it stays; the trained model is in {exported}",
            hint="choose another name",
        )
    exported.rename(target)
    with suppress(OSError):  # other exports are in there
        exported.parent.rmdir()
    return target


async def export_checkpoint(checkpoint: Path, target: Path, form: ExportFormat = "hf") -> Path:
    """Export a checkpoint as a plain model or an adapter, in a separate process; returns the target.

    Raises:
        BackendError: the export failed; with the message of the process.

    """
    code, output = await run_module("nat.backend.export", str(checkpoint), str(target), form)
    if code:
        text = f"\n{output}".rpartition("\nError: ")[2]
        raise BackendError(text or f"the export of {checkpoint} ended with exit code {code}")
    return target

"""`python -m nat.backend.export_checkpoint CHECKPOINT TARGET`: make a plain model of a checkpoint, without a server."""

import shutil
import sys
from pathlib import Path

from nat.backend.checkpoint_folder import ADAPTER_WEIGHTS, OPTIMIZER, verify
from nat.backend.export import ADAPTER, export_folder, write_model
from nat.backend.model import load_model
from nat.errors import NatError
from nat.wire.manifest import MANIFEST, STATE
from nat.wire.model_folder import ADAPTER_CONFIG


def export_checkpoint(checkpoint: Path, target: Path) -> None:
    """Write the model without what only training needs; an adapter is merged, and lies beside it as in any export.

    Raises:
        CheckpointDamaged: a file of the checkpoint is not what was written.
        ExportRefused: something that is not an export stands at the target.
        ModelNotSupported: the model that an adapter sits on cannot be loaded.

    """
    state = verify(checkpoint)
    with export_folder(target) as folder:
        if state.lora:
            write_model(load_model(checkpoint, verified=True), folder)
            (folder / ADAPTER).mkdir()
            for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
                shutil.copyfile(checkpoint / name, folder / ADAPTER / name)
        else:
            for path in checkpoint.iterdir():
                if path.name not in {STATE, OPTIMIZER, MANIFEST}:
                    shutil.copyfile(path, folder / path.name)


def main(arguments: list[str]) -> int:
    """Give the exit code; an error is printed in words."""
    try:
        checkpoint, target = map(Path, arguments)
        export_checkpoint(checkpoint, target)
    except NatError as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201 - the last word of a command line
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

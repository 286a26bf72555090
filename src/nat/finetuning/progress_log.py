"""The log in which a component of a run says how it gets on: a JSON object per line, beside the run's own files."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nat.wire.known_secrets import redact_json

DEFAULT_FOLDER = Path(".tmp/nat/finetuning")


def append(component: str, run_id: str, facts: Mapping[str, Any], *, output_dir: str | None = None) -> None:
    """Add a line to `<component>_<run_id>.jsonl`, in a folder of the component's own if none is given."""
    folder = Path(output_dir) if output_dir else DEFAULT_FOLDER / component
    folder.mkdir(parents=True, exist_ok=True)
    line = {"timestamp": datetime.now(UTC).isoformat(), "run_id": run_id, **facts}
    with (folder / f"{component}_{run_id}.jsonl").open("a", encoding="utf-8") as file:
        file.write(redact_json(json.dumps(line, default=str)) + "\n")

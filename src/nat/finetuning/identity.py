"""What a run depends on, so that it goes on only with the same: its resolved configuration and its data."""

import re
from hashlib import file_digest
from pathlib import Path

from nat.errors import ConfigError
from nat.finetuning.plan import Plan
from nat.runs.journal import reading
from nat.runs.recorded_config import config_of, leaves
from nat.runs.records import RunIdentity

MAY_CHANGE = re.compile(
    r"""(general|imports)[.].* | .*timeout | .*[.](file_path|max_concurrency)
    | eval[.]general[.](output|rollouts).*
    | finetuning[.](budget|early_stopping|export_best|guards|max_failure_rate|output_dir|rollouts|trackers).*
    | finetuning[.](run_configuration.* | (phases[.].*)?num_epochs)
    | llms[.].*[.](api_key|base_url|max_retries|save_every|keep_last|threads|max_num_seqs|tensor_parallel)
    | llms[.].*[.](kv_cache_mb|prefix_cache_mb|vllm_.*)""",
    re.VERBOSE,
)
"""Keys that change where and how fast a run works, or what ends it; paths of files whose content is compared."""

_DIGEST, _NOTHING = "sha256 ", "nothing"


def identity_of(plan: Plan) -> RunIdentity:
    """The settings that decide what is learned, and the digests of the files with data."""
    settings = leaves(config_of(plan.config_text))
    data = {key: file for key, file in settings.items() if key.endswith(".file_path")}
    data["dataset"] = plan.training.dataset.file_path
    data["validation dataset"] = None if plan.held_out is None else plan.held_out.dataset.file_path
    data["validation config"] = plan.given.validation_config_file
    parts = {key: repr(value) for key, value in settings.items() if not MAY_CHANGE.fullmatch(key)}
    for name, path in data.items():
        if path is not None and Path(str(path)).is_file():
            with Path(str(path)).open("rb") as file:
                parts[name] = _DIGEST + file_digest(file, "sha256").hexdigest()
    return RunIdentity(parts=parts)


def check_resumed(run_dir: Path | None, now: RunIdentity, *, accept_changes: bool) -> None:
    """Refuse to go on with other settings or data than the run began with, unless changes are accepted.

    Raises:
        ConfigError: with each difference.

    """
    if run_dir is None or accept_changes:
        return
    with reading(run_dir) as journal:
        before, after = (journal.find(RunIdentity) or now).parts, now.parts
    found = []
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key, _NOTHING), after.get(key, _NOTHING)
        if old != new:
            found.append(f"{key}: {'it has changed' if _DIGEST in old + new else f'{old}, now {new}'}")
    if found:
        raise ConfigError(
            found,
            source=f"what the run {run_dir.name} would go on with",
            hint="undo these changes, or start a new run; --accept_changes goes on with them, and the run's epochs are "
            "then of different kinds",
        )

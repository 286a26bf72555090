"""What a run depends on, so that it goes on only with the same: its resolved configuration and its data."""

from fnmatch import fnmatchcase
from hashlib import file_digest
from pathlib import Path

from nat.errors import ConfigError
from nat.finetuning.plan import Plan
from nat.runs.journal import Journal, reading
from nat.runs.recorded_config import config_of, leaves
from nat.runs.records import RunIdentity

MAY_CHANGE = (
    "general.*",
    "eval.general.item_timeout",
    "eval.general.max_concurrency",
    "eval.general.output*",
    "eval.general.outage_timeout",
    "eval.general.rollouts*",
    "eval.general.scoring_timeout",
    "finetuning.budget*",
    "finetuning.early_stopping*",
    "finetuning.export_best",
    "finetuning.guards.*",
    "finetuning.max_failure_rate",
    "finetuning.num_epochs",
    "finetuning.output_dir",
    "finetuning.phases.*.num_epochs",
    "finetuning.rollouts*",
    "finetuning.run_configuration.*",
    "finetuning.trackers*",
    "imports.*",
    "llms.*.api_key",
    "llms.*.base_url",
    "llms.*.keep_last",
    "llms.*.kv_cache_mb",
    "llms.*.max_num_seqs",
    "llms.*.max_retries",
    "llms.*.prefix_cache_mb",
    "llms.*.save_every",
    "llms.*.startup_timeout",
    "llms.*.tensor_parallel",
    "llms.*.threads",
    "llms.*.timeout",
    "llms.*.vllm_*",
    "*.file_path",
    "*.max_concurrency",
    "*.timeout",
)
"""Keys that change where and how fast a run works, or what ends it; paths of files whose content is compared."""


def identity_of(plan: Plan) -> RunIdentity:
    """The digests of the files with data, which the configuration only names."""
    given, dataset = plan.given, plan.config.eval.general.dataset
    data = {
        "dataset": given.dataset or (dataset and dataset.file_path),
        "validation dataset": given.validation_dataset,
        "validation config": given.validation_config_file,
    }
    data |= {key: file for key, file in leaves(config_of(plan.config_text)).items() if key.endswith(".file_path")}
    files = {name: Path(str(file)) for name, file in data.items() if file is not None}
    return RunIdentity(parts={name: _digest(file) for name, file in files.items() if file.is_file()})


def check_resumed(run_dir: Path | None, plan: Plan, now: RunIdentity, *, accept_changes: bool) -> None:
    """Check the identity of the run that goes on, if one does and changes are not accepted.

    Raises:
        ConfigError: with each difference.

    """
    if run_dir is not None and not accept_changes:
        with reading(run_dir) as journal:
            check_identity(journal, now, plan.config_text)


def check_identity(journal: Journal, now: RunIdentity, config_text: str) -> None:
    """Refuse to go on with another configuration or other data than the run began with.

    Raises:
        ConfigError: with each difference.

    """
    before = journal.identity() or now
    names = sorted(before.parts.keys() | now.parts.keys())
    found = [f"{name}: it has changed" for name in names if before.parts.get(name) != now.parts.get(name)]
    old, new = leaves(config_of(journal.info().config_text)), leaves(config_of(config_text))
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key) and not any(fnmatchcase(key, pattern) for pattern in MAY_CHANGE):
            found.append(f"{key}: {old.get(key)!r}, now {new.get(key)!r}")
    if found:
        raise ConfigError(
            found,
            source=f"what the run {journal.run_dir.name} would go on with",
            hint="undo these changes, or start a new run; --accept_changes goes on with them, and the run's epochs are "
            "then of different kinds",
        )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()

"""What a run depends on, so that it goes on only with the same: configuration, data, model, code, versions."""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from hashlib import file_digest, sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from nat.errors import ConfigError
from nat.finetuning.plan import Plan
from nat.runs.journal import Journal, reading
from nat.runs.recorded_config import config_of
from nat.runs.records import RunIdentity
from nat.wire.extras import DISTRIBUTION

MAY_CHANGE = (
    "general.*",
    "eval.general.dataset.file_path",
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
    "llms.*.replicas",
    "llms.*.save_every",
    "llms.*.startup_timeout",
    "llms.*.tensor_parallel",
    "llms.*.threads",
    "llms.*.timeout",
    "llms.*.vllm_*",
    "*.max_concurrency",
    "*.timeout",
)
"""Keys that change where and how fast a run works, or what ends it; paths of files whose content is compared."""
_PACKAGES = (DISTRIBUTION, "torch", "transformers", "peft", "vllm")
_CONTENT = "content of "
_SHOWN = ("version", "threads")
"""Beginnings of names whose values say more than a digest."""
_SAMPLES, _SAMPLE = 16, 2**18
"""Pieces of a file, and their bytes, that are compared besides its size; a smaller file is compared whole."""


def identity_of(plan: Plan) -> RunIdentity:
    """What the run depends on besides its configuration."""
    given, found = plan.given, dict[str, str]()
    dataset = plan.config.eval.general.dataset
    data = {"dataset": given.dataset or (dataset and dataset.file_path)}
    data |= {"validation dataset": given.validation_dataset, "validation config": given.validation_config_file}
    for name, file in data.items():
        if file is not None and Path(str(file)).is_file():
            found[name] = _file(Path(str(file)))
    for key, path in _leaves(plan.config).items():
        if isinstance(path, Path) and path.exists() and not _may_change(key, MAY_CHANGE):
            found[f"{_CONTENT}{key}"] = files_digest(path)
    found |= {f"code of {name}": files_digest(path, "*.py") for name, path in _sources(plan.config).items()}
    for package in _PACKAGES:
        try:
            found[f"version of {package}"] = version(package)
        except PackageNotFoundError:
            continue
    found["version of Python"] = f"{sys.version_info.major}.{sys.version_info.minor}"
    return RunIdentity(parts=found)


def check_resumed(run_dir: Path | None, plan: Plan, now: RunIdentity, *, accept_changes: bool) -> None:
    """Check the identity of the run that goes on, if one does and changes are not accepted.

    Raises:
        ConfigError: with each difference.

    """
    if run_dir is not None and not accept_changes:
        with reading(run_dir) as journal:
            check_identity(journal, now, plan.config_text)


def check_identity(journal: Journal, now: RunIdentity, config_text: str) -> None:
    """Refuse to go on with another configuration, data, model, code or version than the run began with.

    Raises:
        ConfigError: with each difference.

    """
    before = journal.identity() or RunIdentity(parts={})
    found = list(_different_parts(before.parts, now.parts)) if before.parts else []
    settings = (_leaves(config_of(text)) for text in (journal.info().config_text, config_text))
    both = before.parts.keys() & now.parts.keys()
    compared = {name.removeprefix(_CONTENT) for name in both if name.startswith(_CONTENT)}
    found += _different_settings(*settings, but={*MAY_CHANGE, *compared})
    if found:
        raise ConfigError(
            found,
            source=f"what the run {journal.run_dir.name} would go on with",
            hint="undo these changes, or start a new run; --accept_changes goes on with them, and the run's epochs are "
            "then of different kinds",
        )


def _different_parts(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() | now.keys()):
        if (was := before.get(name)) != (is_now := now.get(name)):
            yield f"{name}: " + (f"{was}, now {is_now}" if name.startswith(_SHOWN) else "it has changed")


def _different_settings(before: Mapping[str, Any], now: Mapping[str, Any], *, but: Collection[str]) -> Iterator[str]:
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key) and not _may_change(key, but):
            yield f"{key}: {before.get(key)!r}, now {now.get(key)!r}"


def _may_change(key: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _leaves(tree: Any, path: str = "") -> dict[str, Any]:
    """The values of a configuration by their dotted keys."""
    if isinstance(tree, BaseModel):
        tree = dict(tree)
    if isinstance(tree, list | tuple):
        tree = dict(enumerate(tree))
    if not isinstance(tree, Mapping):
        return {path: tree}
    return {key: leaf for name, own in tree.items() for key, leaf in _leaves(own, f"{path}.{name}".lstrip(".")).items()}


def _sources(config: BaseModel) -> dict[str, Path]:
    """The packages that register the configuration's components, of plug-ins and of the user, by name.

    It is the outermost one that is no namespace; a module in none is a file.
    """
    found = {}
    for module in {type(each).__module__ for each in _components(config)}:
        parts = module.split(".")
        if parts[0] == "nat" and parts[1:2] != ["plugins"]:
            continue
        for count in range(1, len(parts) + 1):
            name = ".".join(parts[:count])
            file = getattr(sys.modules.get(name), "__file__", None)
            if file is not None:
                found[name] = Path(file).parent if Path(file).name == "__init__.py" else Path(file)
                break
    return found


def _components(tree: Any) -> Iterator[BaseModel]:
    """All models inside a configuration."""
    if isinstance(tree, BaseModel):
        yield tree
        tree = dict(tree)
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        for each in tree:
            yield from _components(each)


def _file(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def files_digest(path: Path, pattern: str = "*") -> str:
    """Digest of a file, or of those below a folder: their names, sizes and pieces."""
    digest = sha256()
    for each in sorted(path.rglob(pattern)) if path.is_dir() else [path]:
        if each.is_file():
            size = each.stat().st_size
            digest.update(f"{each.relative_to(path)} {size}\n".encode())
            with each.open("rb") as file:
                for piece in range(_SAMPLES):
                    file.seek(max(piece * _SAMPLE, piece * (size - _SAMPLE) // (_SAMPLES - 1)))
                    digest.update(file.read(_SAMPLE))
    return digest.hexdigest()

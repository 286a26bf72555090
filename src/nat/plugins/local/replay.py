"""Train a recorded update again: a backend resumes from the checkpoint before it, and gets the batch from the journal.

Nothing of the update is computed here, so that a replay finds what the backend does.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from nat.errors import BackendError, ConfigError, JournalError, did_you_mean, findings_of
from nat.hub import local_model
from nat.plugins.local.adapter import with_labels
from nat.plugins.local.client import BackendClient
from nat.plugins.local.llm import LocalModelConfig, serve_options
from nat.plugins.local.process import running_backend
from nat.plugins.local.recorded_update import RecordedUpdate, as_recorded, recorded_update, resumed_folder, unlike
from nat.reports.token_text import tokenizer_of
from nat.runs.journal import Journal
from nat.runs.records import JobRecord
from nat.runs.replayed import (
    Likeness,
    MovedGradients,
    MovedToken,
    ReplayedToken,
    ReplayReport,
    Trained,
    compare,
    first_beyond,
    moved,
)
from nat.runs.rollouts import RolloutRecord
from nat.runs.token_mismatch import by_example, in_rows
from nat.wire.ledger import LEDGER, trained_jobs
from nat.wire.model_folder import STATE
from nat.wire.serving import CHECKPOINTS, OF_VLLM
from nat.wire.training import TrainingConfig, TrainingGroup, TrainingJob, TrainingRow, rows_of, with_rows

T = TypeVar("T", MovedToken, ReplayedToken)
_FACTORS = ("advantage", "importance_sampling_level", "policy_loss", "aggregation")
"""Settings whose record is the algorithm's name if it has a factor of its own."""
_OF_METRICS = ("loss", "grad_norm", "update_ratio", "approx_kl", "unasked_kl", "optimizer_steps")


async def replay_update(
    journal: Journal, epoch: int, changes: Mapping[str, str], role: str | None = None
) -> ReplayReport:
    """Train the update of an epoch again, and with `changes`, settings and their new values, from the same weights.

    `role` is that of the model, if the run trains several.

    Raises:
        BackendError: the model cannot be loaded, or a checkpoint is damaged.
        ConfigError: the changes are no settings.
        JournalError: the journal has no such update, or the weights before it are gone.

    """
    update = recorded_update(journal, epoch, role)
    changed = _changed(_to_change(update, changes), changes) if changes else None
    found = await _trained(journal, update)
    sent, job = found.sent, update.job
    groups, places = update.groups, update.places
    if update.sent is None:
        groups = _as_records(sent.groups)
        places = [(each, place) for group in groups for each in group for place in range(len(each.rows))]
    replayed = by_example(
        [each for group in groups for each in group], in_rows(rows_of(sent.groups), found.tokens.differences)
    )
    known = [(update.mismatch[name], other) for name, other in replayed.items() if name in update.mismatch]
    if any(len(one) != len(other) for one, other in known):
        raise unlike(journal, "the differences of its tokens are of other tokens")
    compared = list(compare(job, update.record, found, known))
    digest = _digest(journal.run_dir / update.place, job.id)
    moving = None
    if changed is not None:
        other = await _trained(journal, update, changed=with_labels(changed, sent.groups))
        moving = _moved(journal, places, found, other).model_copy(update={"settings": changes})
    return ReplayReport(
        run_id=journal.info().run_id,
        epoch=epoch,
        algorithm=str((job.training or {}).get("algorithm")),
        steps=update.steps,
        same_request=None if digest is None else digest == found.digest,
        compared=compared,
        first=first_beyond(compared, Likeness.ROUNDING),
        weights=found.weights,
        moved=moving,
    )


def _moved(
    journal: Journal, places: Sequence[tuple[RolloutRecord, int]], before: Trained, after: Trained
) -> MovedGradients:
    if before.tokens.gradients is None or after.tokens.gradients is None:
        failure = after.state.failure or before.state.failure
        return MovedGradients(failure="it trains nothing" if failure is None else failure.message)
    seen = moved(places, before.tokens.gradients, after.tokens.gradients)
    one, other = before.state.metrics, after.state.metrics
    pairs = {name: (one[name], other[name]) for name in _OF_METRICS if name in one and name in other}
    return seen.model_copy(update={"metrics": pairs, "most": with_texts(journal, seen.most)})


def with_texts(journal: Journal, tokens: Sequence[T]) -> list[T]:
    """The tokens with their texts, if the model's tokenizer is there."""
    ids = [0 if token.token_id is None else token.token_id for token in tokens]
    try:
        texts = tokenizer_of(journal).pieces(ids) if ids else []
    except JournalError:
        return list(tokens)
    return [token.model_copy(update={"text": text}) for token, text in zip(tokens, texts, strict=True)]


async def _trained(journal: Journal, update: RecordedUpdate, *, changed: TrainingConfig | None = None) -> Trained:
    """Train a job from the first of its two steps, with `changed` settings, or with the recorded ones.

    The latter matter if the job's own come to others today.
    """
    from nat.plugins.local.checkpoint_tensors import compared_checkpoints

    llm, (before, after) = update.llm, update.steps
    model = (await asyncio.to_thread(local_model, llm.model, llm.revision)).folder
    of_sampler = {"engine"} | OF_VLLM  # which trains nothing
    block = llm.model_dump(exclude_unset=True, exclude=llm.model_fields_set & of_sampler)
    own = {"model": model, "model_name": llm.served_name, "save_every": 1, "keep_last": 10**6}
    with resumed_folder(journal, {update.place: before}) as root:
        folder = root / update.place
        folder.mkdir(parents=True, exist_ok=True)
        options = serve_options(LocalModelConfig.model_validate(block | own), folder, {})
        backend = running_backend(options, log_path=root / "backend.log", startup_timeout=llm.startup_timeout)
        async with backend as process, BackendClient(process.base_url, process.api_key) as client:
            health = await client.health()
            if health.policy_version != f"{llm.served_name}@{before}":
                raise BackendError(f"the checkpoint of step {before} is damaged; {health.policy_version} is not")
            job = await update.request(client)
            if changed is not None:
                job = _with_settings(job, changed, needs_teacher=(await client.resolve(changed)).needs_teacher)
            elif (await client.resolve(job.config)).settings != _resolved(update.job):
                job = job.model_copy(update={"config": _recorded(update.job)})
            state = await client.submit(job)
            while not state.status.final:
                state = await client.job(job.id, wait=60)
            tokens = await client.mismatch(job.id, gradients=True)
        ours, theirs = (each / update.place / CHECKPOINTS / f"step_{after:06d}" for each in (root, journal.run_dir))
        reach = state.metrics.get("learning_rate", 0.0) * state.metrics.get("optimizer_steps", 0.0)
        there = changed is None and all((each / STATE).is_file() for each in (ours, theirs))
        with as_recorded(journal):
            weights = compared_checkpoints(ours, theirs, reach) if there else None
        return Trained(job, state, tokens, weights, health.dtype, _digest(folder, job.id))


def _digest(folder: Path, job_id: str) -> str | None:
    """The SHA-256 of a job's request, as the backend of a run's folder has recorded it; None if it has not."""
    ledger, found = folder / CHECKPOINTS / LEDGER, None
    if ledger.is_file():
        for _, _, trained in trained_jobs(ledger):
            if trained.state.id == job_id:
                found = trained.digest
    return found


def _with_settings(job: TrainingJob, changed: TrainingConfig, *, needs_teacher: bool) -> TrainingJob:
    """The job with other settings, and without a teacher's log probabilities if nothing would use them.

    Raises:
        ConfigError: it has none, and the algorithm imitates a teacher.

    """
    rows = rows_of(job.groups)
    if needs_teacher and not all(row.taught for row in rows):
        raise ConfigError(
            [f"training.algorithm: {changed.algorithm!r} imitates a teacher, and none has scored these rollouts"],
            hint="choose an epoch that learned from a teacher, or another algorithm",
        )
    groups = job.groups if needs_teacher else with_rows(job.groups, map(_untaught, rows))
    return job.model_copy(update={"config": changed, "groups": groups})


def _untaught(row: TrainingRow) -> TrainingRow:
    spans = [span.model_copy(update={"teacher_logprobs": None}) for span in row.spans]
    return row.model_copy(update={"spans": spans})


def _as_records(groups: Sequence[TrainingGroup]) -> list[list[RolloutRecord]]:
    """The rows of texts as those of rollouts."""
    return [
        [RolloutRecord(example_id=group.id, generation=at, rows=each.rows) for at, each in enumerate(group.rollouts)]
        for group in groups
    ]


def _resolved(job: JobRecord) -> dict[str, Any]:
    settings = (job.training or {}).get("settings")
    return settings if isinstance(settings, dict) else {}


def _recorded(job: JobRecord) -> TrainingConfig:
    """The recorded settings as those of a request."""
    algorithm = (job.training or {}).get("algorithm")
    own = {name for name in _FACTORS if _resolved(job).get(name) == algorithm}
    others = {name: value for name, value in _resolved(job).items() if name not in own}
    return TrainingConfig.model_validate({"algorithm": algorithm, **others})


def _to_change(update: RecordedUpdate, changes: Mapping[str, str]) -> TrainingConfig:
    """The recorded settings; those of the YAML alone if the algorithm is changed, since it has other defaults."""
    if "algorithm" not in changes:
        return _recorded(update.job)
    given = update.adapter.get("training") or {}
    return TrainingConfig.model_validate({name: value for name, value in given.items() if name != "options"})


def _changed(base: TrainingConfig, changes: Mapping[str, str]) -> TrainingConfig:
    settings = base.model_dump(mode="json", exclude_unset=True)
    for key, text in changes.items():
        name, _, option = key.partition(".")
        value = yaml.safe_load(text)
        settings[name] = {**(settings.get(name) or {}), option: value} if option else value
    try:
        return TrainingConfig.model_validate(settings)
    except ValidationError as error:
        known = TrainingConfig.model_fields
        found = [
            (each, "" if each.place in known else f".{did_you_mean(each.place, known)}") for each in findings_of(error)
        ]
        raise ConfigError([f"training.{each}{meant}" for each, meant in found], source="the changes") from error

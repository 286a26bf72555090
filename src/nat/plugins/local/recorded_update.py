"""What a run has of an update: its batch, its settings, and the checkpoint before it.

A run that trains several models has an update of each, a role, in every epoch.
"""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nat.data_models.finetuning import EpisodeItem, EpisodeItemRole, Trajectory, TrajectoryCollection
from nat.errors import DatasetError, JournalError, describe_error, findings_of, one_of
from nat.finetuning.trajectories.groups import example_id
from nat.finetuning.trajectories.rows import RecordedTrajectory, training_groups
from nat.plugins.local.adapter import overlapping, with_labels
from nat.plugins.local.client import BackendClient
from nat.plugins.local.command import CommandTrainerAdapterConfig
from nat.plugins.local.llm import LocalModelConfig
from nat.plugins.local.texts import tokenized_groups
from nat.plugins.offline.builder import DatasetTrajectoryBuilder, DatasetTrajectoryBuilderConfig
from nat.runs.journal import Journal
from nat.runs.recorded_config import config_of, value_at
from nat.runs.records import EpochRecord, JobRecord, epoch_number
from nat.runs.rollouts import RolloutRecord
from nat.runs.token_mismatch import in_rows, trained
from nat.wire.model_folder import STATE
from nat.wire.rows import MergedRow
from nat.wire.serving import CHECKPOINTS, output_place
from nat.wire.training import JobStatus, TrainingConfig, TrainingGroup, TrainingJob

_STEP = "step_"


@dataclass(frozen=True)
class RecordedUpdate:
    """An update, as a journal has it."""

    epoch: int
    job: JobRecord
    record: EpochRecord | None
    """None if the rewards of the batch are not those of the epoch."""
    llm: LocalModelConfig
    adapter: Mapping[str, Any]
    """The block of its trainer adapter."""
    place: str
    """Of its backend's output folder, in the run's folder."""
    groups: Sequence[Sequence[RolloutRecord]]
    """The trained rollouts, each with the rows of this model."""
    places: Sequence[tuple[RolloutRecord, int]]
    """The same rows in the records of their rollouts, which may have rows of other models."""
    batch: TrajectoryCollection
    sent: TrainingJob | None
    """The request; None if the backend has to turn texts into tokens for it."""
    max_staleness: int
    mismatch: Mapping[str, bytes]
    """By example, how far the learner was from the sampler."""
    steps: tuple[int, int]
    """The optimizer steps before and after it."""

    async def request(self, client: BackendClient) -> TrainingJob:
        """The job as it was sent."""
        return self.sent or self.made(await tokenized_groups(self.batch, client))

    def made(self, groups: list[TrainingGroup]) -> TrainingJob:
        """The job of these groups."""
        training = TrainingConfig.model_validate(self.adapter.get("training") or {})
        meanwhile = overlapping(self.max_staleness)
        return TrainingJob(id=self.job.id, groups=groups, config=with_labels(training, groups), **meanwhile)


@contextmanager
def as_recorded(journal: Journal) -> Iterator[None]:
    """Read what a journal of others may have in any form.

    Raises:
        JournalError: it is of none that `nat` has written.

    """
    try:
        yield
    except ValidationError as error:
        raise unlike(journal, str(findings_of(error)[0])) from error
    except DatasetError:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        raise unlike(journal, describe_error(error)) from error


def unlike(journal: Journal, seen: str) -> JournalError:
    """The error of a journal that is not as `nat` writes it."""
    hint = "restore the run's folder from a copy, or choose another epoch"
    return JournalError(f"{journal.run_dir} has no update that can be trained again: {seen}", hint=hint)


def recorded_update(journal: Journal, epoch: int, role: str | None = None) -> RecordedUpdate:
    """The update of an epoch, and of a role if the run trains several models.

    Raises:
        DatasetError: the file that it was trained on cannot be read.
        JournalError: the journal has no such update.

    """
    with as_recorded(journal):
        config, job, record = config_of(journal.info().config_text), _job(journal, epoch), journal.epoch(epoch)
        settings = _of_phase(config, record)
        adapter = value_at(config, "trainer_adapters", settings.get("trainer_adapter")) or {}
        own = _role(adapter.get("roles") or {}, role)
        if role is not None:
            adapter = value_at(config, "trainer_adapters", own["adapter"])
            job, record = _of_role(job, role), None
        if adapter.get("_type") == CommandTrainerAdapterConfig.static_type():
            raise JournalError(
                f"a program of yours has trained epoch {epoch_number(epoch)}, which `nat replay` does not run",
                hint="run it yourself: docs/scale/your_trainer.md names what it gets",
            )
        try:
            llm = LocalModelConfig.model_validate(value_at(config, "llms", adapter.get("llm")))
        except ValidationError as error:
            raise JournalError(
                f"the run's configuration names no LLM of the type local: {findings_of(error)[0]}"
            ) from error
        whole = _groups(journal, epoch, settings.get("curriculum_learning") or {}, reward=own.get("reward"))
        known = partial(_mismatch, journal, epoch, llm.served_name)
        groups = [[_of_model(each, llm.served_name, own.get("reward")) for each in group] for group in whole]
        taught = any(row.taught for group in groups for each in group for row in each.rows)
        if (job.training or {}).get("needs_teacher") and not taught:
            raise JournalError(
                f"epoch {epoch_number(epoch)} had a teacher, whose log probabilities the journal does not have",
                hint="they are kept from this release on, when a job has ended; replay another epoch",
            )
        texts = not any(each.rows for group in groups for each in group)
        if texts:
            trajectories = _rows_of_file(config, settings, epoch, [group[0].example_id for group in groups])
        else:
            trajectories = [[_trajectory(each, llm.served_name) for each in group] for group in groups]
        after = round(job.metrics["policy_step"])
        update = RecordedUpdate(
            epoch=epoch,
            job=job,
            record=None if texts else record,
            llm=llm,
            adapter=adapter,
            place=output_place(adapter["llm"], several=role is not None),
            groups=groups,
            places=[(each, at) for group in whole for each in group for at in _places(each, llm.served_name)],
            batch=TrajectoryCollection(trajectories=trajectories, run_id=job.id),
            sent=None,
            max_staleness=int(settings.get("max_staleness") or 0),
            steps=(after - round(job.metrics.get("optimizer_steps", 0)), after),
            mismatch={group[0].example_id: packed for group in whole if (packed := known(group)) is not None},
        )
        return update if texts else replace(update, sent=update.made(training_groups(update.batch)))


def _role(roles: Mapping[str, Any], name: str | None) -> Mapping[str, Any]:
    """The block of a role; empty for a run with one model."""
    if name is None and not roles:
        return {}
    if name not in roles:
        seen = f"there is no role {name!r}" if name else "the run trains several models"
        known = f"it has {one_of(roles)}" if roles else "the run trains one model"
        raise JournalError(f"{seen}; {known}", hint="choose one with --role" if roles else "leave out --role")
    block: Mapping[str, Any] = roles[str(name)]
    return block


def _of_role(job: JobRecord, role: str) -> JobRecord:
    """The role's part of an epoch's job, under the name that its backend knows."""

    def own(metrics: Mapping[str, float]) -> dict[str, float]:
        prefix = f"{role}/"
        return {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}

    training = value_at(job.training or {}, "roles", role)
    if training is None or "policy_step" not in (metrics := own(job.metrics)):
        raise JournalError(f"epoch {epoch_number(job.epoch)} has no update of the role {role!r}")
    steps = [step for each in job.steps if (step := own(each))]
    named = {"id": f"{job.id}-{role}", "metrics": metrics, "steps": steps, "training": training}
    return job.model_copy(update=named)


def _of_model(record: RolloutRecord, name: str, reward: str | None) -> RolloutRecord:
    """The rollout with the rows of one model alone, and with the score that is its reward."""
    rows = [record.rows[place] for place in _places(record, name)]
    scored = {} if reward is None else {"reward": record.scores_beside[reward]}
    return record.model_copy(update={"rows": rows, **scored})


def _mismatch(journal: Journal, epoch: int, name: str, group: Sequence[RolloutRecord]) -> bytes | None:
    """The recorded differences of an example, in the rows of one model."""
    packed = journal.mismatch(epoch, group[0].example_id)
    if packed is None:
        return None
    records = trained(group)
    own = [place in _places(each, name) for each in records for place in range(len(each.rows))]
    found = in_rows([row for each in records for row in each.rows], packed)
    return b"".join(row.differences for row, is_own in zip(found, own, strict=True) if is_own)


@contextmanager
def resumed_folder(journal: Journal, steps: Mapping[str, int]) -> Iterator[Path]:
    """A folder from which backends go on at these optimizer steps of a run, whose files it does not change.

    `steps` are by the place of the backend's output folder in the run's folder.

    Raises:
        JournalError: a checkpoint is not there; with the epochs whose checkpoints are.

    """
    with tempfile.TemporaryDirectory(prefix="nat-replay-") as folder:
        for place, step in steps.items():
            for number, path in _checkpoints(journal, place, step).items():
                if number <= step:  # with that of the phase's beginning
                    link = Path(folder, place, CHECKPOINTS, path.name)
                    link.parent.mkdir(parents=True, exist_ok=True)
                    link.symlink_to(path)
        yield Path(folder)


def _checkpoints(journal: Journal, place: str, step: int) -> dict[int, Path]:
    """By optimizer step; one of them is `step`, unless training began there."""
    folder = journal.run_dir.resolve() / place / CHECKPOINTS
    found = (path.parent for path in folder.glob(f"{_STEP}*[0-9]/{STATE}") if not path.parent.is_symlink())
    kept = {int(path.name[len(_STEP) :]): path for path in found if _is_number(path.name[len(_STEP) :])}
    if step and step not in kept:
        jobs = sorted((job for job in journal.jobs() if "policy_step" in job.metrics), key=attrgetter("epoch"))
        there = [after.epoch for job, after in pairwise(jobs) if round(job.metrics["policy_step"]) in kept]
        known, numbers = "epochs that begin with the model or a checkpoint:", [epoch_number(e) for e in [0, *there]]
        if place:  # of one role, whose steps the joined metrics do not count
            known, numbers = "it has those of steps", [0, *sorted(kept)]
        raise JournalError(
            f"{folder} has no checkpoint of optimizer step {step}, where the epoch began; "
            f"{known} {', '.join(map(str, numbers))}",
            hint="choose one of these. To replay any epoch of a later run, set `keep_last: 1000` and "
            "`save_every: 1` in the LLM's block",
        )
    return kept


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _job(journal: Journal, epoch: int) -> JobRecord:
    """The update of an epoch.

    Raises:
        JournalError: there is none, or it cannot be replayed.

    """
    done = {job.epoch: job for job in journal.jobs() if job.status is JobStatus.COMPLETED and job.training is not None}
    if epoch not in done or "policy_step" not in done[epoch].metrics:
        raise JournalError(
            f"epoch {epoch_number(epoch)} has no update of the embedded backend",
            hint=f"epochs with one: {', '.join(str(epoch_number(each)) for each in done) or 'none'}",
        )
    return done[epoch]


def _of_phase(config: Mapping[str, Any], record: EpochRecord | None) -> dict[str, Any]:
    """The `finetuning` section with what the epoch's phase replaces."""
    section: dict[str, Any] = value_at(config, "finetuning") or {}
    phases = [phase for phase in section.get("phases") or [] if record is not None and phase["name"] == record.phase]
    return section | {key: value for phase in phases for key, value in phase.items() if value is not None}


def _groups(
    journal: Journal, epoch: int, curriculum: Mapping[str, Any], *, reward: str | None = None
) -> list[list[RolloutRecord]]:
    """The trained rollouts by example, in the order in which they were trained; `reward` is the evaluator of a role's.

    Rollouts that it has not scored are left out.
    """
    groups: dict[str, list[RolloutRecord]] = {}
    for record in journal.trained_rollouts(epoch):
        if reward is None or reward in record.scores_beside:
            groups.setdefault(record.example_id, []).append(record)
    found = list(groups.values())
    if curriculum.get("enabled"):
        falls = not curriculum.get("sort_ascending")
        found.sort(key=lambda own: sum(each.reward or 0.0 for each in own) / len(own), reverse=falls)
    return found


def _rows_of_file(
    config: Mapping[str, Any], settings: Mapping[str, Any], epoch: int, examples: Sequence[str]
) -> list[list[Trajectory]]:
    """The rows that an epoch has trained on, read again; the request's SHA-256 tells if they are the same."""
    block = value_at(config, "trajectory_builders", settings.get("trajectory_builder")) or {}
    if block.get("_type") != DatasetTrajectoryBuilderConfig.static_type():
        raise JournalError(
            f"the journal has no exact tokens of the rollouts of epoch {epoch_number(epoch)}",
            hint="an epoch whose trajectories a plug-in makes, or whose server reports no tokens, cannot be replayed",
        )
    builder = DatasetTrajectoryBuilder(DatasetTrajectoryBuilderConfig.model_validate(block))
    rows = {example_id(group[0]): group for group in builder.rows_of(epoch, int(settings.get("seed") or 0))}
    if missing := [each for each in examples if each not in rows]:
        path = builder.trajectory_builder_config.file_path
        raise JournalError(
            f"{path} gives epoch {epoch_number(epoch)} other rows than it had: {missing[0]} is not among them",
            hint="restore the file, and run the command in the folder in which the run was started",
        )
    return [rows[each] for each in examples]


def _places(record: RolloutRecord, name: str) -> list[int]:
    """The rows that the model of this name sampled, as the versions of their answers tell."""
    versions = [{span.policy_version for span in row.spans} - {None} for row in record.rows]
    return [at for at, known in enumerate(versions) if all(str(each).startswith(f"{name}@") for each in known)]


def _trajectory(record: RolloutRecord, name: str) -> Trajectory:
    facts = {"finish_reason": "length"} if record.truncated else {}
    if record.reward is None:
        raise ValueError(f"{record.example_id}/{record.generation} was trained without a reward")
    return RecordedTrajectory(
        episode=[EpisodeItem(role=EpisodeItemRole.ASSISTANT, content="", logprobs=[], metadata=facts)],
        reward=record.reward,
        metadata={"id": record.example_id},
        rows=[MergedRow(name, row) for row in record.rows],
    )

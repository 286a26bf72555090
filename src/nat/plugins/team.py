"""Several LLMs of one workflow, each trained on its own calls by an adapter of its own: one run, one verdict.

An epoch is one job of each role, and has a metric of each under `<role>/<metric>`. Under the plain name stands their
sum for what is counted, their highest value for what is bounded, and else their mean.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import Field, model_validator

from nat.builder.builder import Builder
from nat.data_models.component_ref import EvaluatorRef, TrainerAdapterRef
from nat.data_models.finetuning import (
    FinetuneConfig,
    FinetuneModel,
    TrainerAdapterConfig,
    TrainingJobRef,
    TrainingJobStatus,
    TrajectoryCollection,
)
from nat.data_models.llm_usage import LLMUsage
from nat.errors import ConfigError, NoTrajectories
from nat.finetuning.epoch import reported_metrics, reported_usage
from nat.finetuning.interfaces.trainer_adapter import (
    CheckpointKeeper,
    KeptCheckpoint,
    SendsAgain,
    TakesOver,
    TrainerAdapter,
)
from nat.finetuning.metrics import PREFIXES
from nat.finetuning.progress import append_progress
from nat.finetuning.staleness import SEPARATOR
from nat.registry.decorators import register_trainer_adapter
from nat.sizing.forecast import ForecastRequest, TrainingForecast
from nat.sizing.memory import Memory
from nat.wire.training import JobStatus

BACKEND_NAME = "team"
_COUNTS = {
    "trained_rows",
    "trained_tokens",
    "row_tokens",
    "packed_tokens",
    "unique_tokens",
    "optimizer_steps",
    "skipped_steps",
    "shortenings",
    "tokens_per_second",
}
_HIGHEST = {"trained_groups", "trained_rollouts", "logprob_diff_max", "served_diff_max", "policy_step", "seconds"}
_ORDER = (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.RUNNING, JobStatus.PENDING, JobStatus.COMPLETED)
"""Of several jobs, the first of these is the state of all."""


class RoleConfig(FinetuneModel):
    """A part of the workflow with a model of its own."""

    adapter: TrainerAdapterRef
    """The adapter that trains it, a key of `trainer_adapters`."""
    reward: EvaluatorRef | None = None
    """The evaluator whose score is the reward of this role's calls; null: the run's reward."""


class TeamTrainerAdapterConfig(TrainerAdapterConfig, name="team_trainer_adapter"):
    """Trains several LLMs of a workflow in one run, each on its own calls."""

    usual_trajectory_builder = "local_traj_builder"
    usual_trainer = "local_trainer"

    roles: dict[str, RoleConfig] = Field(min_length=1)
    """By the role's name in metrics. `finetuning.trainer_adapters` is a short form."""

    @model_validator(mode="after")
    def _are_different(self) -> "TeamTrainerAdapterConfig":
        adapters = [role.adapter for role in self.roles.values()]
        if twice := [name for name in adapters if adapters.count(name) > 1][:1]:
            raise ValueError(f"roles: '{twice[0]}' trains several; each role has an adapter of its own")
        taken = {prefix.rstrip("/") for prefix in PREFIXES}
        if unusable := [name for name in self.roles if name in taken or not name.isidentifier()]:
            raise ValueError(
                f"roles: '{unusable[0]}' cannot name metrics; use a word of letters, digits and _, not {sorted(taken)}"
            )
        return self


class TeamTrainerAdapter(TrainerAdapter, CheckpointKeeper, TakesOver, SendsAgain):
    """Sends each trajectory to the adapter of every role, which trains the rows of its own model."""

    adapter_config: TeamTrainerAdapterConfig

    def __init__(self, adapter_config: TeamTrainerAdapterConfig, members: Mapping[str, TrainerAdapter]) -> None:
        super().__init__(adapter_config)
        self._members = members
        own = any(role.reward for role in adapter_config.roles.values())
        self.drops_equal_groups = not own and all(member.drops_equal_groups for member in members.values())

    async def initialize(self, run_config: FinetuneConfig) -> None:
        """Initialize all members.

        Raises:
            ConfigError: they compare rewards in different ways, or an option of the run does not suit several models.

        """
        await super().initialize(run_config)
        for member in self._members.values():
            await member.initialize(run_config)
        recipes = {role: member.recipe for role, member in self._members.items()}
        self.recipe = next(iter(recipes.values()))
        found = [f"{role} compares with {recipe.compares!r}" for role, recipe in recipes.items()]
        if any(recipe != self.recipe for recipe in recipes.values()):
            raise ConfigError([f"the roles learn in different ways: {', '.join(found)}"], hint="use one algorithm")
        reward, roles = run_config.reward_function, self.adapter_config.roles
        if reward is not None and reward.credit != "outcome" and (own := [n for n, r in roles.items() if r.reward]):
            raise ConfigError(
                [f"reward_function.credit: {reward.credit!r}, but the role '{own[0]}' has a reward of its own"],
                hint="set credit to 'outcome', or remove the role's reward",
            )

    async def take_over(self, previous: TrainerAdapter) -> None:
        """Begin anew with these settings, on the weights of the phase before."""
        for member in self._keepers(TakesOver):
            await member.take_over(previous)

    async def send_again(self, completed: Sequence[str]) -> None:
        """Have each member train what its checkpoint lacks."""
        for role, member in self._members.items():
            if isinstance(member, SendsAgain):
                await member.send_again([f"{job_id}-{role}" for job_id in completed])

    async def is_healthy(self) -> bool:
        return all(await asyncio.gather(*(member.is_healthy() for member in self._members.values())))

    def warnings(self) -> Sequence[str]:
        return [f"{role}: {text}" for role, member in self._members.items() for text in member.warnings()]

    async def forecast(self, request: ForecastRequest) -> TrainingForecast | None:
        """The memory of all roles together, as far as their backends tell; the rest is the first one's."""
        found = {role: await member.forecast(request) for role, member in self._members.items()}
        known = {role: each for role, each in found.items() if each is not None}
        if not known:
            return None
        first = next(iter(known.values()))
        place = "; ".join(f"{role}: {each.place}" for role, each in known.items())
        parts = {role: each.memory[0].total for role, each in known.items() if each.memory}
        title = ", ".join(f"{role}: {each.memory[0].title}" for role, each in known.items() if each.memory)
        together = [Memory(title=title, parts=parts, total=sum(parts.values()))] if parts else []
        return first.model_copy(update={"memory": together, "place": place})

    async def submit(self, trajectories: TrajectoryCollection) -> TrainingJobRef:
        """Submit a job for each role that the rollouts have rows of.

        Raises:
            NoTrajectories: they have rows of none.

        """
        refs, without = {}, []
        for role, member in self._members.items():
            own = self._of_role(trajectories, role)
            try:
                refs[role] = (await member.submit(own)).model_dump()
            except NoTrajectories as error:
                without.append(error)
        if not refs:
            raise without[0]
        metadata = {"job_id": trajectories.job_id, "roles": refs}
        return TrainingJobRef(run_id=trajectories.run_id, backend=BACKEND_NAME, metadata=metadata)

    async def status(self, ref: TrainingJobRef) -> TrainingJobStatus:
        return _joined(ref, {role: await member.status(own) for role, member, own in self._jobs(ref)})

    async def wait_until_complete(self, ref: TrainingJobRef, poll_interval: float = 10.0) -> TrainingJobStatus:
        """Wait for the jobs of all roles; each trains beside the others."""
        jobs = self._jobs(ref)
        waiting = (member.wait_until_complete(own, poll_interval) for _, member, own in jobs)
        statuses = await asyncio.gather(*waiting)
        return _joined(ref, {role: status for (role, _, _), status in zip(jobs, statuses, strict=True)})

    def log_progress(self, ref: TrainingJobRef, metrics: dict[str, Any], output_dir: str | None = None) -> None:
        """Append the jobs' metrics to `trainer_adapter_<run_id>.jsonl`."""
        append_progress("trainer_adapter", ref.run_id, {"backend": ref.backend, **metrics}, output_dir=output_dir)

    async def export_model(self, name: str) -> Path | None:
        """Write the model of each role to its own folder; returns the one in which these lie."""
        return _parent_of(name, [await member.export_model(name) for member in self._members.values()])

    async def keep_best(self) -> KeptCheckpoint:
        """Keep a checkpoint of each role's weights."""
        first, *others = [await member.keep_best() for member in self._keepers(CheckpointKeeper)]
        name = ", ".join(kept.name for kept in (first, *others))
        return KeptCheckpoint(name=name, path=first.path, others=tuple(kept.path for kept in others if kept.path))

    async def export_best(self, name: str) -> Path | None:
        return _parent_of(name, [await member.export_best(name) for member in self._keepers(CheckpointKeeper)])

    def _keepers(self, kind: type[Any]) -> list[Any]:
        """The members, each of which has to be of the kind."""
        if other := [role for role, member in self._members.items() if not isinstance(member, kind)]:
            raise ConfigError(
                [f"the adapter of the role '{other[0]}' is no {kind.__name__}, which this run needs"],
                hint="train it with an adapter that keeps checkpoints, such as local_trainer_adapter",
            )
        return list(self._members.values())

    def _jobs(self, ref: TrainingJobRef) -> list[tuple[str, TrainerAdapter, TrainingJobRef]]:
        own = (ref.metadata or {}).get("roles", {})
        return [(role, self._members[role], TrainingJobRef.model_validate(job)) for role, job in own.items()]

    def _of_role(self, collection: TrajectoryCollection, role: str) -> TrajectoryCollection:
        """The trajectories with the role's own reward; those without a score of it are left out."""
        job_id = None if collection.job_id is None else f"{collection.job_id}-{role}"
        reward, groups = self.adapter_config.roles[role].reward, collection.trajectories
        if reward is not None:
            scored = [[((t.metadata or {}).get("scores_beside", {}).get(reward), t) for t in group] for group in groups]
            groups = [[t.model_copy(update={"reward": s}) for s, t in group if s is not None] for group in scored]
        return TrajectoryCollection(trajectories=[g for g in groups if g], run_id=collection.run_id, job_id=job_id)


@register_trainer_adapter(config_type=TeamTrainerAdapterConfig)
async def team_trainer_adapter(
    config: TeamTrainerAdapterConfig, builder: Builder
) -> AsyncGenerator[TeamTrainerAdapter, None]:
    """Train each role by its own adapter."""
    yield TeamTrainerAdapter(
        config, {name: await builder.get_trainer_adapter(role.adapter) for name, role in config.roles.items()}
    )


def _joined(ref: TrainingJobRef, of_roles: Mapping[str, TrainingJobStatus]) -> TrainingJobStatus:
    """The jobs of all roles as one."""
    state = next(each for each in _ORDER if any(status.status is each for status in of_roles.values()))
    facts = {role: status.metadata or {} for role, status in of_roles.items()}
    failed = next((own["failure"] for own in facts.values() if own.get("failure")), None)
    messages = [f"{role}: {status.message}" for role, status in of_roles.items() if status.message]
    usage: dict[str, dict[str, LLMUsage]] = {}
    for status in of_roles.values():
        for purpose, by_llm in reported_usage(status).items():
            own = usage.setdefault(purpose, {})
            own |= {llm: own.get(llm, LLMUsage()) + used for llm, used in by_llm.items()}
    return ref.reported(
        state,
        progress=fmean(status.progress or 0.0 for status in of_roles.values()),
        message="\n".join(messages) or None,
        metrics=joined_metrics({role: reported_metrics(status) for role, status in of_roles.items()}),
        steps=[_named(role, step) for role, own in facts.items() for step in own.get("steps", [])],
        training=_settings({role: own["training"] for role, own in facts.items() if own.get("training")}),
        policy_version=SEPARATOR.join(str(own["policy_version"]) for own in facts.values() if own.get("policy_version"))
        or None,
        failure=failed,
        usage={purpose: {llm: used.model_dump() for llm, used in own.items()} for purpose, own in usage.items()},
    )


def _settings(of_roles: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Those of the first role, which tell how all compare rewards, and of each by its name."""
    return {**next(iter(of_roles.values())), "roles": of_roles} if of_roles else None


def joined_metrics(of_roles: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Each role's metrics under its name, and for all together the sum, the highest or the mean."""
    names = dict.fromkeys(name for own in of_roles.values() for name in own)
    values = {name: [own[name] for own in of_roles.values() if name in own] for name in names}
    together = {
        name: sum(own) if name in _COUNTS else max(own) if name in _HIGHEST else fmean(own)
        for name, own in values.items()
    }
    return together | {key: value for role, own in of_roles.items() for key, value in _named(role, own).items()}


def _named(role: str, metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"{role}/{name}": value for name, value in metrics.items()}


def _parent_of(name: str, exported: Iterable[Path | None]) -> Path | None:
    """The folder that has `<llm>/<name>` for each exported model."""
    return next((path.parent.parent for path in exported if path is not None and path.name == name), None)

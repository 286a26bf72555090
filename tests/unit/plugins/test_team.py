"""Several models in one run: how their jobs, metrics and rewards become those of one."""

import pytest

from nat.data_models.finetuning import (
    EpisodeItem,
    EpisodeItemRole,
    FinetuneConfig,
    RewardFunctionConfig,
    TrainerAdapterConfig,
    TrainingJobRef,
    Trajectory,
    TrajectoryCollection,
)
from nat.errors import ConfigError, NoTrajectories
from nat.finetuning.interfaces.trainer_adapter import CheckpointKeeper, KeptCheckpoint, Recipe, TrainerAdapter
from nat.plugins.team import TeamTrainerAdapter, TeamTrainerAdapterConfig, joined_metrics
from nat.sizing.forecast import ForecastRequest, TrainingForecast
from nat.sizing.memory import Memory
from nat.wire.training import JobStatus


class Member(TrainerAdapter, CheckpointKeeper):
    """Remembers what it was given; its jobs end as it is told."""

    drops_equal_groups = True

    def __init__(self, name, *, state=JobStatus.COMPLETED, recipe=None, rows=True):
        super().__init__(TrainerAdapterConfig.model_construct())
        self.name, self.state, self.rows, self.given = name, state, rows, []
        self.recipe = recipe or Recipe()
        self.forecasted = None

    async def forecast(self, request):
        return self.forecasted

    async def is_healthy(self):
        return self.state is not JobStatus.FAILED

    async def submit(self, trajectories):
        if not self.rows:
            raise NoTrajectories(f"no rows of {self.name}")
        self.given.append(trajectories)
        return TrainingJobRef(run_id="run", backend=self.name, metadata={"job_id": trajectories.job_id})

    async def status(self, ref):
        return ref.reported(
            self.state,
            message=None if self.state is JobStatus.COMPLETED else "out of memory",
            metrics={"loss": 1.0},
            policy_version=f"{self.name}@1",
            usage={"teacher": {"big": {"calls": 2}}},
        )

    async def wait_until_complete(self, ref, poll_interval=10.0):
        return await self.status(ref)

    def log_progress(self, ref, metrics, output_dir=None):
        raise NotImplementedError

    async def keep_best(self):
        return KeptCheckpoint(name=f"{self.name}@1", path=f"/runs/llms/{self.name}/checkpoints/step_000001")

    async def export_best(self, name):
        raise NotImplementedError


def team(*members, rewards=None):
    roles = {member.name: {"adapter": member.name, "reward": (rewards or {}).get(member.name)} for member in members}
    return TeamTrainerAdapter(
        TeamTrainerAdapterConfig.model_validate({"roles": roles}), {member.name: member for member in members}
    )


def collection(*scores):
    """One group; each trajectory has the reward 1 and a score by `brevity`, or none."""
    said = EpisodeItem(role=EpisodeItemRole.ASSISTANT, content="a", logprobs=[-1.0])
    beside = [{} if score is None else {"brevity": score} for score in scores]
    group = [Trajectory(episode=[said], reward=1.0, metadata={"scores_beside": each}) for each in beside]
    return TrajectoryCollection(trajectories=[group], run_id="run", job_id="run-000001")


async def test_each_role_has_a_job_of_its_own():
    """Their names differ, so each backend trains its own once; together they are one job with all versions."""
    adapter = team(one := Member("one"), other := Member("other"))
    status = await adapter.wait_until_complete(await adapter.submit(collection(0.5, 0.1)))
    assert [member.given[0].job_id for member in (one, other)] == ["run-000001-one", "run-000001-other"]
    assert (status.status, status.message) == (JobStatus.COMPLETED, None)
    assert status.metadata["policy_version"] == "one@1, other@1"
    assert status.metadata["usage"]["teacher"]["big"]["calls"] == 4


async def test_a_role_that_was_not_called_has_no_job():
    """The others are trained; only if there are no rows at all there is nothing to train."""
    adapter = team(Member("idle", rows=False), Member("busy"))
    ref = await adapter.submit(collection(0.5))
    assert list(ref.metadata["roles"]) == ["busy"]
    with pytest.raises(NoTrajectories, match="idle"):
        await team(Member("idle", rows=False)).submit(collection(0.5))


async def test_a_role_may_have_a_reward_of_its_own():
    """Its rollouts have the score by that evaluator; one without such a score is left out, and no group is dropped."""
    adapter = team(one := Member("one"), other := Member("other"), rewards={"other": "brevity"})
    await adapter.submit(collection(0.5, None, 0.1))
    assert [trajectory.reward for trajectory in one.given[0].trajectories[0]] == [1.0, 1.0, 1.0]
    assert [trajectory.reward for trajectory in other.given[0].trajectories[0]] == [0.5, 0.1]
    assert team(Member("one"), Member("other")).drops_equal_groups
    assert not adapter.drops_equal_groups


async def test_one_failed_job_fails_the_epoch():
    """With the message under the role's name."""
    adapter = team(Member("one"), Member("other", state=JobStatus.FAILED))
    status = await adapter.status(await adapter.submit(collection(0.5)))
    assert (status.status, status.message) == (JobStatus.FAILED, "other: out of memory")
    assert not await adapter.is_healthy()


def test_metrics_are_named_by_role_and_joined():
    """Counts are summed, bounds are the highest, and all else is a mean over the roles that have it."""
    found = joined_metrics(
        {"one": {"trained_tokens": 4, "seconds": 2, "loss": 1}, "other": {"trained_tokens": 6, "seconds": 3, "kl": 5}}
    )
    assert {name: value for name, value in found.items() if "/" not in name} == {
        "trained_tokens": 10,
        "seconds": 3,
        "loss": 1,
        "kl": 5,
    }
    assert (found["one/trained_tokens"], found["other/kl"]) == (4, 5)


def forecast(gigabytes: int) -> TrainingForecast:
    size = gigabytes * 10**9
    memory = [Memory(title="all weights, float32", parts={"weights": size}, total=size)]
    numbers = {"num_parameters": 1, "learning_rate": 1.0, "optimizer_steps": 1, "row_tokens": 1, "chats": 1}
    return TrainingForecast(
        device="cpu", dtype="float32", **numbers, memory=memory, available=9 * 10**9, place=f"trains {gigabytes}"
    )


@pytest.mark.parametrize(("sizes", "fits"), [((4, 5), True), ((5, 5), False)])
async def test_memory_of_all_roles_adds_up(sizes, fits):
    """What each role alone would have room for may be too much together; each says where it trains."""
    one, other = Member("one"), Member("other")
    one.forecasted, other.forecasted = map(forecast, sizes)
    found = await team(one, other).forecast(ForecastRequest(num_rollouts=1, chats=1))
    assert list(found.memory[0].parts) == ["one", "other"]
    assert (found.memory[0].total, found.fits) == (sum(sizes) * 10**9, fits)
    assert found.place == f"one: trains {sizes[0]}; other: trains {sizes[1]}"


async def test_roles_that_learn_in_different_ways_are_refused():
    """Before the first rollout."""
    members = [Member("a"), Member("b", recipe=Recipe(compares="batch"))]
    with pytest.raises(ConfigError, match="a compares with 'group', b compares with"):
        await team(*members).initialize(FinetuneConfig())


async def test_a_reward_of_a_role_needs_the_outcome_as_credit():
    """Step rewards are those of the run's evaluator."""
    config = FinetuneConfig(reward_function=RewardFunctionConfig(name="right", credit="per_step"))
    with pytest.raises(ConfigError, match=r"credit: 'per_step', but the role 'b' has a reward of its own"):
        await team(Member("a"), Member("b"), rewards={"b": "brevity"}).initialize(config)


@pytest.mark.parametrize("roles", [{}, {"val": {"adapter": "a"}}, {"a/b": {"adapter": "a"}}, {"a": {}}])
def test_roles_name_adapters_and_metrics(roles):
    """A name that would hide other metrics is refused."""
    with pytest.raises(ValueError, match="roles"):
        TeamTrainerAdapterConfig.model_validate({"roles": roles})

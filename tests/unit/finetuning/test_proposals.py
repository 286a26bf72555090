"""Proposals: each follows from what was seen, and none from an assumption."""

import pytest

from fakes.finetuning_project import FinetuningProject
from fakes.forecasts import FORECAST, SPEED
from nat.finetuning.plan import resolve
from nat.finetuning.proposals import proposals
from nat.sizing.load import RolloutLoad

LOAD = RolloutLoad(
    calls=1,
    row_tokens=60,
    sampled_tokens=10,
    longest_row=80,
    rollouts=64,
    longest_answer=12,
    groups=8,
    differing=4,
    basis="in the probe of today",
)
ENOUGH_STEPS = FORECAST.model_copy(update={"optimizer_steps": 20})


class Server:
    """An address that nobody asks."""

    base_url = "http://127.0.0.1:9/v1"


@pytest.fixture
def project(tmp_path):
    """A project of 40 examples with eight rollouts each; its trained model has a limit that suits."""
    project = FinetuningProject(tmp_path, Server())
    project.dataset = project.write_rows("train.json", 40)
    project.config["eval"]["general"]["dataset"]["file_path"] = str(project.dataset)
    project.config["trainer_adapters"]["adapter"]["llm"] = "student"
    project.config["llms"]["student"]["max_tokens"] = 24
    project.config["trajectory_builders"]["builder"] |= {"num_generations": 8, "examples_per_epoch": 16}
    return project


async def proposed(project, load=LOAD, forecast=ENOUGH_STEPS) -> dict[str, str]:
    """What to paste, and why."""
    with project.registered():
        plan = await resolve(project.given())
    return {each.settings: each.why for each in proposals(plan, plan.stages[0], load, forecast)}


async def test_settings_that_suit_get_no_proposal(project):
    """Each proposal would change something."""
    assert await proposed(project) == {}


async def test_nothing_follows_from_an_assumption(project):
    """Before the first rollout there is no evidence."""
    del project.config["llms"]["student"]["max_tokens"]
    load = LOAD.model_copy(update={"assumed": True})
    assert await proposed(project, load, FORECAST.model_copy(update={"optimizer_steps": 1})) == {}


@pytest.mark.parametrize(("now", "said"), [(None, "not set"), (48, "48"), (47, None)])
async def test_max_tokens_is_twice_the_longest_answer(project, now, said):
    """It is proposed if there is no limit, or one of four such answers and more."""
    project.config["llms"]["student"]["max_tokens"] = now
    expected = {
        "llms: {student: {max_tokens: 24}}": f"llms.student.max_tokens is {said}: the longest answer of 64 rollouts in "
        "the probe of today took 12 tokens; 24 leave as much room again"
    }
    assert await proposed(project) == (expected if said else {})


async def test_answers_that_were_cut_off_say_nothing_of_their_length(project):
    """The longest answer is not known then."""
    del project.config["llms"]["student"]["max_tokens"]
    assert await proposed(project, LOAD.model_copy(update={"longest_answer": None})) == {}


@pytest.mark.parametrize(
    ("speed", "gives"),
    [
        ({"doubled_step_seconds": 0.12}, True),
        ({"doubled_step_seconds": 0.15}, False),
        ({"doubled_step_seconds": 0.0}, False),
        ({"doubled_step_seconds": 0.12, "chats": 2}, False),
    ],
    ids=["faster", "hardly faster", "not measured", "measured with fewer"],
)
async def test_concurrency_is_doubled_if_that_was_measured_to_be_faster(project, speed, gives):
    """The evidence is twice as many chats as now, at half as much again as many tokens per second."""
    forecast = ENOUGH_STEPS.model_copy(update={"speed": SPEED.model_copy(update=speed)})
    found = await proposed(project, forecast=forecast)
    assert list(found) == (["eval: {general: {max_concurrency: 8}}"] if gives else [])
    assert all("8 chats at a time sampled 1.7 times as many tokens per second as 4" in why for why in found.values())


async def test_an_epoch_without_so_many_rollouts_needs_no_more_at_a_time(project):
    """Seven rollouts are never eight at a time."""
    project.config["trajectory_builders"]["builder"] |= {"num_generations": 7, "examples_per_epoch": 1}
    speed = SPEED.model_copy(update={"doubled_step_seconds": 0.1})
    found = await proposed(project, forecast=ENOUGH_STEPS.model_copy(update={"speed": speed}))
    assert not any("max_concurrency" in settings for settings in found)


@pytest.mark.parametrize(
    ("now", "differing", "wanted"),
    [(16, 4, None), (16, 1, 40), (10, 4, 16), (None, 8, None)],
    ids=["enough", "all that there are", "eight that teach", "all of forty"],
)
async def test_examples_are_so_many_that_groups_teach(project, now, differing, wanted):
    """Eight groups with a difference at least, by the share that was seen, and at most all examples."""
    project.config["trajectory_builders"]["builder"]["examples_per_epoch"] = now
    found = await proposed(project, LOAD.model_copy(update={"differing": differing}))
    settings = f"trajectory_builders: {{builder: {{examples_per_epoch: {wanted}}}}}"
    assert list(found) == ([settings] if wanted else [])
    assert all(f"{differing} of 8 groups in the probe of today had a difference" in why for why in found.values())


async def test_an_epoch_of_a_large_dataset_is_cut_short(project):
    """Of 300 examples 150 would teach; 128 are enough for 64."""
    project.dataset = project.write_rows("train.json", 300)
    project.config["trajectory_builders"]["builder"]["examples_per_epoch"] = None
    found = await proposed(project)
    assert list(found) == ["trajectory_builders: {builder: {examples_per_epoch: 128}}"]


@pytest.mark.parametrize("known", [{"groups": 0, "differing": 0}, {"differing": 0}])
async def test_without_a_difference_no_number_of_examples_follows(project, known):
    """Nobody knows how many examples would have one."""
    project.config["trajectory_builders"]["builder"]["examples_per_epoch"] = 2
    assert await proposed(project, LOAD.model_copy(update=known)) == {}


@pytest.mark.parametrize(
    ("epochs", "steps", "rising", "wanted"),
    [(4, 2, 0, 10), (10, 2, 0, None), (4, 20, 6, 12), (6, 20, 6, 12), (7, 20, 6, None)],
    ids=["few steps", "enough steps", "it rose", "it rose to the end", "more than were played"],
)
async def test_epochs_are_more_if_steps_are_few_or_the_reward_still_rose(project, epochs, steps, rising, wanted):
    """Steps are those of the backend's plan; the rise is that of the run before, which the plan does not exceed."""
    project.finetuning["num_epochs"] = epochs
    load, forecast = LOAD.model_copy(update={"rising": rising}), FORECAST.model_copy(update={"optimizer_steps": steps})
    found = await proposed(project, load, forecast)
    assert list(found) == ([f"finetuning: {{num_epochs: {wanted}}}"] if wanted else [])

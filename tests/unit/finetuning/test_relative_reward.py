import pytest

from fakes.finetuning_project import FinetuningProject
from fakes.openai_server import OpenAIServer
from fakes.run_records import epoch_record, epoch_records, validation_record
from nat.data_models.finetuning import GuardsConfig
from nat.errors import ConfigError, RewardCollapse
from nat.finetuning.diagnosis.catalogue import diagnosis_of
from nat.finetuning.diagnosis.window import Window
from nat.finetuning.dry_run import dry_run
from nat.finetuning.guards import check_reward
from nat.finetuning.interfaces.trainer_adapter import Recipe


@pytest.fixture
async def project(tmp_path):
    async with OpenAIServer() as server:
        made = FinetuningProject(tmp_path, server)
        made.config["llms"]["student"]["max_tokens"] = 8
        made.config["llms"]["judge"] = dict(made.config["llms"]["student"])
        made.config["trainer_adapters"]["adapter"]["llm"] = "student"
        made.config["eval"]["evaluators"]["better"] = {"_type": "relative_judge", "llm_name": "judge"}
        made.finetuning["reward_function"]["name"] = "better"
        with made.registered():
            yield made


async def test_an_algorithm_that_compares_examples_is_warned_of(project):
    """Relative scores of different examples have no common scale."""
    project.adapter.recipe = Recipe(compares="batch")
    plan = await dry_run(project.given(validation_dataset=str(project.held_out)))
    assert "choose one that compares inside groups" in plan.warnings[0]


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda c: c["trajectory_builders"]["builder"].update(num_generations=1), "num_generations: 1, but eval.eval"),
        (lambda c: c["finetuning"].update(curriculum_learning={"enabled": True}), "finetuning.curriculum_learning: it"),
        (lambda c: c["finetuning"].update(export_best=True), "finetuning.export_best: the scores of eval.evaluators"),
        (
            lambda c: c["eval"]["evaluators"]["better"].update(llm_name="student"),
            "its judge 'student' is the model that",
        ),
    ],
)
async def test_what_cannot_go_together_is_an_error(project, change, finding):
    """One generation, a curriculum by mean reward, best weights by reward, and a judge that is trained."""
    change(project.config)
    with pytest.raises(ConfigError) as raised:
        await dry_run(project.given())
    assert finding in str(raised.value)


RELATIVE = {"reward/relative": 1.0}


def test_a_relative_reward_cannot_collapse():
    """The mean of scores that compare is no height to fall from; another reward with these means ends the run."""
    means = [0.9, 0.9, 0.9, 0.1, 0.1, 0.1]
    check_reward(epoch_records(means, metrics=RELATIVE), GuardsConfig())
    with pytest.raises(RewardCollapse, match="the mean reward fell from"):
        check_reward(epoch_records(means), GuardsConfig())


def test_a_flat_relative_reward_is_no_symptom():
    """Such a run is healthy if its held-out score rose; otherwise causes are looked for."""
    epochs = [epoch_record(epoch, 0.5, metrics=RELATIVE) for epoch in range(9)]
    before = validation_record(0, {str(n): 0.5 for n in range(40)})
    better = validation_record(9, {str(n): 1.0 if n % 4 else 0.5 for n in range(40)})

    def causes(*validations):
        return diagnosis_of(Window(epochs, validations=validations)).findings

    assert [each.cause for each in causes()] == ["few_steps"]
    assert causes(before, better) == []
    assert causes(before, before.model_copy(update={"epoch": 9})) != []

from pathlib import Path

import pytest

from nat.config.load import load_config, parse_config
from nat.config.sources import parse_yaml
from nat.data_models.component_ref import LLMRef, TrainedLLMRef
from nat.data_models.evaluate import DatasetBaseConfig
from nat.data_models.evaluate_runtime import Examples
from nat.data_models.evaluator import EvalInputItem, EvaluatorBaseConfig
from nat.finetuning.plan_rules import found, num_shared, refusals, warnings
from nat.finetuning.stage import stages_of
from nat.registry.catalog import pushed_catalog
from nat.registry.decorators import from_config, register_evaluator

EXAMPLE = Path(__file__).parents[3] / "examples" / "tic_tac_toe" / "configs" / "finetune.yml"


JUDGED = """
llms:
  student: {_type: local, model: models/student}
  other: {_type: local, model: models/student}
workflow: {_type: command, name: agent, llm: student, command: ./agent}
eval: {evaluators: {right: {_type: exact_match}, judge: {_type: OF_JUDGE, llm_name: student}}}
trajectory_builders: {rollouts: {_type: local_traj_builder}}
trainer_adapters: {weights: {_type: local_trainer_adapter, llm: student}}
trainers: {epochs: {_type: local_trainer}}
finetuning:
  enabled: true
  trajectory_builder: rollouts
  trainer_adapter: weights
  trainer: epochs
  reward_function: {name: right}
"""


class SelfJudgeConfig(EvaluatorBaseConfig, name="self_judge"):
    llm_name: TrainedLLMRef


class OutsideJudgeConfig(EvaluatorBaseConfig, name="outside_judge"):
    llm_name: LLMRef


def checked(judge, *overrides):
    """The findings about a file with such a judge, which is not the reward."""
    with pushed_catalog():
        for config_type in (SelfJudgeConfig, OutsideJudgeConfig):
            register_evaluator(config_type=config_type)(from_config(lambda _config: None))
        config = parse_config(parse_yaml(JUDGED.replace("OF_JUDGE", judge)), overrides)
    return found(refusals(config, stages_of(config), held_out=True))


@pytest.mark.parametrize("judge", ["llm_judge", "relative_judge", "outside_judge"])
def test_no_evaluator_asks_the_trained_model(judge):
    """Whatever its type and whether or not it is the reward, since a run plays all evaluators."""
    [finding] = checked(judge)
    assert finding.startswith("eval.evaluators.judge: its judge 'student' is the model that is trained")
    assert checked(judge, ("eval.evaluators.judge.llm_name", "other")) == []


def test_an_evaluator_may_ask_the_trained_model_if_its_reference_says_so():
    """A plug-in that lets a model grade itself on purpose declares a TrainedLLMRef."""
    assert checked("self_judge") == []


@pytest.mark.parametrize(("engine", "refused"), [("embedded", True), ("vllm", False)])
def test_epochs_are_played_ahead_only_of_a_model_that_answers_meanwhile(engine, refused):
    """The engine that shares the learner's weights answers no request while it trains; the message names both ways."""
    tree = parse_yaml(JUDGED.replace("OF_JUDGE", "llm_judge").replace("llm_name: student", "llm_name: other"))
    config = parse_config(tree, [("finetuning.max_staleness", "1"), ("llms.student.engine", engine)])
    findings = found(refusals(config, stages_of(config), held_out=True))
    assert any("max_staleness to 0, or engine: vllm" in each for each in findings) is refused


def games(prefix, *contents):
    items = [EvalInputItem(id=f"{prefix}{n}", input_obj=c, expected_output_obj="") for n, c in enumerate(contents)]
    return Examples(DatasetBaseConfig(), items)


def test_the_same_content_is_the_same_example_under_any_id():
    """A held-out example in the training data counts once, however often it is trained on."""
    training = games("train-", "a", "b", "c", "a")
    assert num_shared(training, games("held-", "x", "a", "c", "y")) == 2
    assert num_shared(training, games("held-", "x", "y")) == 0


@pytest.mark.parametrize(("limit", "warns"), [(2, False), (None, True)])
def test_answers_without_a_limit_are_told_before_they_are_paid(limit, warns):
    """The key is named if the trained model's answers may fill its context."""
    config = load_config(EXAMPLE)
    config.llms["player"] = config.llms["player"].model_copy(update={"max_tokens": limit})
    said = found(warnings(config, stages_of(config), held_out=True))
    assert [text.partition(" ")[0] for text in said] == ["llms.player.max_tokens"] * warns

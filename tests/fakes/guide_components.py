"""The components of the guide's samples as a plug-in author would write them."""

from pydantic import Field

from fakes.guide_plugin.my_trainer_adapter import MyTrainerAdapterConfig
from fakes.guide_plugin.my_trajectory_builder import MyTrajectoryBuilderConfig
from nat.builder.builder import Builder, EvalBuilder
from nat.builder.evaluator import EvaluatorInfo
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import (
    register_evaluator,
    register_function,
    register_trainer,
    register_trainer_adapter,
    register_trajectory_builder,
)
from nat.data_models.component_ref import LLMRef
from nat.data_models.evaluator import EvalInput, EvalOutput, EvalOutputItem, EvaluatorBaseConfig
from nat.data_models.finetuning import TrainerConfig
from nat.data_models.function import FunctionBaseConfig


class MyAgentConfig(FunctionBaseConfig, name="my_agent_workflow"):
    """An agent with one model."""

    llm: LLMRef = Field(description="The model")


class MyEvaluatorConfig(EvaluatorBaseConfig, name="my_custom_evaluator"):
    """Scores everything 1."""


class MyTrainerConfig(TrainerConfig, name="my_trainer"):
    """Configuration for my trainer."""


class Part:
    """A trajectory builder, an adapter or a trainer that remembers its arguments."""

    def __init__(self, config):
        self.config = config
        self.bound = ()

    async def bind_components(self, trajectory_builder, trainer_adapter):
        self.bound = (trajectory_builder, trainer_adapter)


def register_guide_components(closed: list[str] | None = None) -> None:
    """Run the decorators; each component adds its name to `closed` when it is closed."""
    log = closed if closed is not None else []

    @register_function(config_type=MyAgentConfig)
    async def my_agent(config: MyAgentConfig, builder: Builder):
        async def answer(question: str) -> str:
            return f"{config.llm}: {question}"

        yield FunctionInfo.from_fn(answer, description="Answers")
        log.append("workflow")

    @register_evaluator(config_type=MyEvaluatorConfig)
    async def my_evaluator(config: MyEvaluatorConfig, builder: EvalBuilder):
        async def evaluate(eval_input: EvalInput) -> EvalOutput:
            items = [EvalOutputItem(id=i.id, score=1.0, reasoning="") for i in eval_input.eval_input_items]
            return EvalOutput(average_score=1.0, eval_output_items=items)

        yield EvaluatorInfo(config=config, evaluate_fn=evaluate, description="Always 1")
        log.append("evaluator")

    @register_trajectory_builder(config_type=MyTrajectoryBuilderConfig)
    async def my_trajectory_builder(config: MyTrajectoryBuilderConfig, builder: Builder):
        yield Part(config)
        log.append("trajectory_builder")

    @register_trainer_adapter(config_type=MyTrainerAdapterConfig)
    async def my_trainer_adapter(config: MyTrainerAdapterConfig, builder: Builder):
        yield Part(config)
        log.append("trainer_adapter")

    @register_trainer(config_type=MyTrainerConfig)
    async def my_trainer(config: MyTrainerConfig, builder: Builder):
        yield Part(config)
        log.append("trainer")


GUIDE_YAML = """
llms:
  my_model:
    _type: openai
    model_name: gpt-4
    base_url: http://localhost:8000/v1
workflow:
  _type: my_agent_workflow
  llm: my_model
eval:
  general:
    max_concurrency: 8
    output_dir: .tmp/finetuning/eval
    dataset:
      _type: json
      file_path: data/train.json
  evaluators:
    my_reward:
      _type: my_custom_evaluator
trajectory_builders:
  my_builder:
    _type: my_traj_builder
    num_generations: 4
    include_tool_calls: true
    min_episode_length: 3
trainer_adapters:
  my_adapter:
    _type: my_trainer_adapter
    backend:
      endpoint: http://training-server:8080
      api_key: ${TRAINING_API_KEY}
      learning_rate: 1e-5
      batch_size: 8
    validate_trajectories: true
trainers:
  my_trainer:
    _type: my_trainer
finetuning:
  enabled: true
  trainer: my_trainer
  trajectory_builder: my_builder
  trainer_adapter: my_adapter
  reward_function:
    name: my_reward
  num_epochs: 20
  output_dir: .tmp/finetuning/output
  curriculum_learning:
    enabled: true
    initial_percentile: 0.3
    increment_percentile: 0.2
    expansion_interval: 5
"""

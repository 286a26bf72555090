"""The import paths that other people's plug-ins use."""

import ast
from importlib import import_module
from pathlib import Path

import pytest

GUIDE = {
    "nat.builder.builder": "Builder EvalBuilder",
    "nat.cli.register_workflow": "register_trajectory_builder register_trainer_adapter register_trainer",
    "nat.data_models.finetuning": "FinetuneConfig FinetuneRunConfig TrainerConfig TrainerAdapterConfig "
    "TrajectoryBuilderConfig TrainingJobRef TrainingJobStatus TrajectoryCollection",
    "nat.eval.config": "EvaluationRunConfig EvaluationRunOutput",
    "nat.eval.evaluate": "EvaluationRun EvaluationRunConfig",
    "nat.eval.evaluator.evaluator_model": "EvalInput EvalInputItem EvalOutput EvalOutputItem",
    "nat.finetuning.interfaces.trainer_adapter": "TrainerAdapter",
    "nat.finetuning.interfaces.trajectory_builder": "TrajectoryBuilder",
    "nat.finetuning.interfaces.finetuning_runner": "Trainer",
    "nat.finetuning": "TrajectoryBuilder TrainerAdapter Trainer",
    "nat.plugins.openpipe.trajectory_builder": "ARTTrajectoryBuilder",
    "nat.plugins.openpipe.trainer_adapter": "ARTTrainerAdapter",
    "nat.plugins.openpipe.trainer": "ARTTrainer",
    "nat.plugins.openpipe.config": "ARTTrajectoryBuilderConfig ARTTrainerAdapterConfig ARTTrainerConfig "
    "ARTBackendConfig ARTTrainingConfig",
    "nat.plugins.openpipe.register": "nat",
}

TOOLKIT = {
    "nat.runtime.loader": "PluginTypes discover_and_register_plugins discover_entrypoints load_config load_workflow",
    "nat.utils": "run_workflow",
    "nat.utils.io.yaml_tools": "yaml_load yaml_loads yaml_dump yaml_dumps deep_merge",
    "nat.utils.type_converter": "TypeConverter GlobalTypeConverter",
    "nat.data_models.common": "TypedBaseModel BaseModelRegistryTag HashableBaseModel "
    "SerializableSecretStr OptionalSecretStr get_secret_value set_secret_from_env",
    "nat.data_models.config": "Config GeneralConfig",
    "nat.cli.register_workflow": "register_function register_evaluator register_dataset_loader register_llm_provider "
    "register_llm_client register_tool_wrapper register_ttc_strategy register_eval_callback",
    "nat.cli.type_registry": "GlobalTypeRegistry TypeRegistry RegisteredInfo",
    "nat.builder.eval_builder": "WorkflowEvalBuilder",
    "nat.builder.workflow_builder": "WorkflowBuilder",
    "nat.builder.component_utils": "WORKFLOW_COMPONENT_NAME",
    "nat.builder.context": "Context ContextState RuntimeTypeEnum",
    "nat.builder.evaluator": "EvaluatorInfo",
    "nat.builder.framework_enum": "LLMFrameworkEnum",
    "nat.builder.function": "Function LambdaFunction",
    "nat.builder.function_info": "FunctionInfo",
    "nat.builder.intermediate_step_manager": "IntermediateStepManager",
    "nat.builder.llm": "LLMProviderInfo",
    "nat.builder.workflow": "Workflow",
    "nat.data_models.function": "FunctionBaseConfig EmptyFunctionConfig",
    "nat.data_models.intermediate_step": "IntermediateStep IntermediateStepPayload IntermediateStepType "
    "IntermediateStepCategory IntermediateStepState StreamEventData TTCEventData TraceMetadata UsageInfo "
    "InvocationNode",
    "nat.data_models.invocation_node": "InvocationNode",
    "nat.data_models.api_server": "Message ChatRequest ChatRequestOrMessage ChatResponse ChatResponseChoice "
    "ChatResponseChunk ChatResponseChunkChoice ChoiceMessage ChoiceDelta Usage",
    "nat.data_models.optimizable": "OptimizableField OptimizableMixin SearchSpace",
    "nat.data_models.retry_mixin": "RetryMixin",
    "nat.finetuning.utils.parsers.base_parser": "parse_to_openai_messages",
    "nat.data_models.component_ref": "LLMRef FunctionRef TTCStrategyRef TrainerRef TrainerAdapterRef "
    "TrajectoryBuilderRef FunctionGroupRef EmbedderRef MemoryRef ObjectStoreRef RetrieverRef AuthenticationRef "
    "MiddlewareRef ComponentGroup",
    "nat.data_models.llm": "LLMBaseConfig APITypeEnum",
    "nat.data_models.evaluator": "EvaluatorBaseConfig EvalInput EvalInputItem",
    "nat.data_models.evaluate": "EvalConfig EvalGeneralConfig EvalOutputConfig",
    "nat.data_models.finetuning": "RewardFunctionConfig TrainingStatusEnum EpisodeItem EpisodeItemRole OpenAIMessage "
    "DPOItem Trajectory CurriculumLearningConfig TrainerConfigT TrajectoryBuilderConfigT TrainerAdapterConfigT",
    "nat.data_models.ttc_strategy": "TTCStrategyBaseConfig",
    "nat.eval.evaluator.base_evaluator": "BaseEvaluator",
    "nat.finetuning.finetuning_runtime": "run_finetuning finetuning_main run_finetuning_sync",
    "nat.data_models.evaluator_config_base": "EvaluatorBaseConfig",
    "nat.experimental.test_time_compute.models.stage_enums": "PipelineTypeEnum StageTypeEnum",
    "nat.experimental.test_time_compute.models.ttc_item": "TTCItem",
    "nat.experimental.test_time_compute.models.strategy_base": "StrategyBase",
    "nat.llm.nim_llm": "NIMModelConfig",
    "nat.llm.openai_llm": "OpenAIModelConfig",
    "nat.plugins.customizer.dpo.config": "DPOTrajectoryBuilderConfig",
    "nat.plugins.customizer.dpo.trajectory_builder": "DPOTrajectoryBuilder CandidateStep PreferencePair",
    "nat.plugins.customizer.register": "nat",
    "nat.profiler.callbacks.token_usage_base_model": "TokenUsageBaseModel",
    # the same under the paths that later releases of the toolkit use
    "nat.plugins.eval.runtime.evaluate": "EvaluationRun",
    "nat.plugins.eval.data_models.evaluator_io": "EvalOutput EvalOutputItem",
    "nat.plugins.eval.evaluator.base_evaluator": "BaseEvaluator",
    "nat.data_models.evaluate_config": "EvalConfig EvalGeneralConfig",
    "nat.data_models.dataset_handler": "EvalDatasetBaseConfig EvalDatasetBaseConfigT EvalDatasetJsonConfig "
    "EvalDatasetJsonlConfig EvalDatasetCsvConfig EvalDatasetParquetConfig EvalDatasetXlsConfig EvalDatasetCustomConfig "
    "EvalDatasetStructureConfig EvalFilterConfig EvalFilterEntryConfig",
    "nat.data_models.telemetry_exporter": "TelemetryExporterBaseConfig TelemetryExporterConfigT",
    "nat.data_models.token_usage": "TokenUsageBaseModel",
    "nat.plugins.eval.eval_callbacks": "EvalCallback EvalCallbackManager EvalResult EvalResultItem build_eval_result",
    "nat.plugins.eval.runtime.builder": "WorkflowEvalBuilder",
    "nat.data_models.evaluate_runtime": "EvaluationRunConfig EvaluationRunOutput UsageStats UsageStatsItem "
    "UsageStatsLLM",
}

NAMES = [(module, name) for part in (GUIDE, TOOLKIT) for module, names in part.items() for name in names.split()]

MOVED = [
    ("nat.eval.evaluate:EvaluationRun", "nat.plugins.eval.runtime.evaluate:EvaluationRun"),
    ("nat.eval.config:EvaluationRunConfig", "nat.data_models.evaluate_runtime:EvaluationRunConfig"),
    ("nat.eval.config:EvaluationRunOutput", "nat.data_models.evaluate_runtime:EvaluationRunOutput"),
    ("nat.eval.evaluator.evaluator_model:EvalInput", "nat.data_models.evaluator:EvalInput"),
    ("nat.eval.evaluator.evaluator_model:EvalOutput", "nat.plugins.eval.data_models.evaluator_io:EvalOutput"),
    ("nat.eval.evaluator.base_evaluator:BaseEvaluator", "nat.plugins.eval.evaluator.base_evaluator:BaseEvaluator"),
    ("nat.data_models.evaluate:EvalGeneralConfig", "nat.data_models.evaluate_config:EvalGeneralConfig"),
]


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[f"{m}.{n}" for m, n in NAMES])
def test_a_plug_in_can_import(module, name):
    """Every import of the guide and of the toolkit's finetuning surface works."""
    assert getattr(import_module(module), name) is not None


@pytest.mark.parametrize(("earlier", "later"), MOVED)
def test_both_paths_give_the_same_object(earlier, later):
    """A class that moved in the toolkit is the same class under both paths, so `isinstance` works."""
    assert found(earlier) is found(later)


def found(path: str) -> object:
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


SOURCE = Path(__file__).parents[2] / "src" / "nat"
RE_EXPORTING = [
    path
    for path in sorted(SOURCE.rglob("*.py"))
    if path.name != "__init__.py"
    and "__all__" in path.read_text("utf-8")
    and all(
        isinstance(node, ast.Expr | ast.ImportFrom | ast.Assign) for node in ast.parse(path.read_text("utf-8")).body
    )
]


@pytest.mark.parametrize("path", RE_EXPORTING, ids=lambda path: str(path.relative_to(SOURCE)))
def test_an_alias_says_where_the_code_is(path):
    """All aliases have the same docstring, which names the module that they import from."""
    tree = ast.parse(path.read_text("utf-8"))
    modules = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    [source] = modules - {"nat.registry.replacements"}  # a `__getattr__` that refuses the toolkit's other names
    assert ast.get_docstring(tree) == f"Alias for plug-ins: the code is in `{source}`."

"""The import paths that this project promises to plug-ins, with the names that each has.

A change to one of them is a change that the changelog tells. A test imports every name.
"""

from collections.abc import Mapping

GUIDE: Mapping[str, str] = {
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
"""Those that the finetuning guides use."""

TOOLKIT: Mapping[str, str] = {
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
"""Those of the rest of the toolkit that plug-ins for finetuning and evaluation use, under earlier and later paths."""

OWN: Mapping[str, str] = {
    "nat.backend.algorithms.algorithm": "Algorithm AlgorithmOptions PolicyTerm PolicyTokens",
    "nat.backend.pretraining": "ASSISTANT END TOOL UNKNOWN USER Schedule make_tokenizer write_chat_model",
    "nat.finetuning.interfaces.trainer_adapter": "CheckpointKeeper KeptCheckpoint Recipe TakesOver TrainsElsewhere",
    "nat.finetuning.progress": "RunProgress",
    "nat.finetuning.trainer": "EpochTrainer",
    "nat.finetuning.trajectories.rows": "training_groups",
    "nat.preferences.pairs": "PairRule",
    "nat.runs": "Run",
    "nat.testing": "Call Played play",
    "nat.wire.serving": "ServeOptions",
    "nat.wire.training": "Span TrainingGroup TrainingRollout TrainingRow",
}
"""Those that only this project has."""


def promised() -> dict[str, list[str]]:
    """The names of each module, both sorted."""
    found: dict[str, set[str]] = {}
    for part in (GUIDE, TOOLKIT, OWN):
        for module, names in part.items():
            found.setdefault(module, set()).update(names.split())
    return {module: sorted(found[module]) for module in sorted(found)}

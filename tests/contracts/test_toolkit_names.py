"""Public names of the toolkit's release 1.9 for finetuning, evaluation, LLMs, functions and datasets."""

from nat.registry.replacements import replacement_for

NAMES = {
    "nat.builder.builder": "Builder EvalBuilder",
    "nat.builder.child_builder": "ChildBuilder",
    "nat.builder.context": "Context ContextState",
    "nat.builder.embedder": "EmbedderProviderInfo",
    "nat.builder.evaluator": "EvaluatorInfo",
    "nat.builder.front_end": "FrontEndBase",
    "nat.builder.function": "Function FunctionGroup LambdaFunction",
    "nat.builder.llm": "LLMProviderInfo",
    "nat.builder.per_user_workflow_builder": "PerUserWorkflowBuilder",
    "nat.builder.retriever": "RetrieverProviderInfo",
    "nat.builder.sync_builder": "SyncBuilder",
    "nat.builder.user_interaction_manager": "UserInteractionManager",
    "nat.cli.cli_utils.config_override": "LayeredConfig load_and_override_config",
    "nat.cli.register_workflow": "register_function register_evaluator register_dataset_loader register_eval_callback "
    "register_optimizer register_optimizer_callback register_function_middleware register_auth_provider "
    "register_telemetry_exporter register_logging_method register_registry_handler register_front_end",
    "nat.data_models.authentication": "AuthProviderBaseConfig",
    "nat.data_models.common": "TypedBaseModel TypedBaseModelT set_secret_from_env",
    "nat.data_models.dataset_handler": "EvalDatasetBaseConfig EvalDatasetJsonConfig EvalDatasetCustomConfig",
    "nat.data_models.embedder": "EmbedderBaseConfig",
    "nat.data_models.evaluate_config": "EvalConfig EvalGeneralConfig",
    "nat.data_models.evaluate_runtime": "EvaluationRunConfig EvaluationRunOutput UsageStats",
    "nat.data_models.evaluator": "EvaluatorBaseConfig EvaluatorLLMConfig EvaluatorBaseConfigT EvalInput EvalInputItem",
    "nat.data_models.finetuning": "Trajectory TrajectoryCollection TrainerConfig",
    "nat.data_models.function": "FunctionBaseConfig FunctionConfigT FunctionGroupBaseConfig",
    "nat.data_models.interactive": "HumanPromptText",
    "nat.data_models.llm": "LLMBaseConfig LLMBaseConfigT APITypeEnum",
    "nat.data_models.memory": "MemoryBaseConfig",
    "nat.data_models.middleware": "MiddlewareBaseConfig",
    "nat.data_models.object_store": "ObjectStoreBaseConfig",
    "nat.data_models.optimizer": "OptimizerConfig",
    "nat.data_models.profiler": "ProfilerConfig",
    "nat.data_models.retriever": "RetrieverBaseConfig",
    "nat.data_models.retry_mixin": "RetryMixin",
    "nat.data_models.runtime_enum": "RuntimeTypeEnum",
    "nat.data_models.telemetry_exporter": "TelemetryExporterBaseConfig",
    "nat.data_models.token_usage": "TokenUsageBaseModel",
    "nat.data_models.ttc_strategy": "TTCStrategyBaseConfig TTCStrategyBaseConfigT",
    "nat.eval.dataset_handler.dataset_handler": "DatasetHandler",
    "nat.eval.eval_callbacks": "EvalCallback EvalCallbackManager EvalResult",
    "nat.experimental.test_time_compute.models.search_config": "MultiLLMPlanConfig",
    "nat.experimental.test_time_compute.selection.llm_judge_selection": "LLMJudgeSelection",
    "nat.finetuning.interfaces": "Trainer TrainerAdapter TrajectoryBuilder",
    "nat.finetuning.utils.parsers.base_parser": "parse_to_openai_messages",
    "nat.finetuning.utils.parsers.common": "extract_content",
    "nat.llm.aws_bedrock_llm": "AWSBedrockModelConfig",
    "nat.llm.azure_openai_llm": "AzureOpenAIModelConfig",
    "nat.llm.dynamo_llm": "DynamoModelConfig",
    "nat.llm.huggingface_inference_llm": "HuggingFaceInferenceLLMConfig",
    "nat.llm.huggingface_llm": "HuggingFaceConfig",
    "nat.llm.litellm_llm": "LiteLlmModelConfig",
    "nat.llm.nim_llm": "NIMModelConfig",
    "nat.llm.oci_llm": "OCIModelConfig",
    "nat.llm.openai_llm": "OpenAIModelConfig",
    "nat.llm.utils.http_client": "async_http_client",
    "nat.llm.utils.thinking": "patch_with_thinking",
    "nat.memory.interfaces": "MemoryEditor",
    "nat.middleware.function_middleware": "FunctionMiddleware",
    "nat.object_store.interfaces": "ObjectStore",
    "nat.observability.exporter.base_exporter": "BaseExporter",
    "nat.plugins.eval.data_models.evaluator_io": "EvalOutput EvalOutputItem",
    "nat.plugins.eval.dataset_handler.dataset_filter": "DatasetFilter",
    "nat.plugins.eval.eval_callbacks": "EvalCallback EvalCallbackManager EvalResult EvalResultItem",
    "nat.plugins.eval.evaluator.atif_base_evaluator": "AtifBaseEvaluator",
    "nat.plugins.eval.evaluator.base_evaluator": "BaseEvaluator",
    "nat.plugins.eval.exporters.file_eval_callback": "FileEvalCallback",
    "nat.plugins.eval.runners.multi_eval_runner": "MultiEvaluationRunner",
    "nat.plugins.eval.runtime.builder": "WorkflowEvalBuilder",
    "nat.plugins.eval.runtime.eval_harness": "EvaluationHarness",
    "nat.plugins.eval.runtime.evaluate": "EvaluationRun",
    "nat.plugins.eval.runtime.remote_workflow": "EvaluationRemoteWorkflowHandler",
    "nat.plugins.langchain.callback_handler": "LangchainProfilerHandler",
    "nat.plugins.langchain.langchain_parser": "parse_to_openai_message",
    "nat.plugins.langchain.llm": "openai_langchain",
    "nat.plugins.langchain.tool_wrapper": "langchain_tool_wrapper",
    "nat.profiler.data_models": "ProfilerResults",
    "nat.profiler.parameter_optimization.optimizer_callbacks": "OptimizerCallback",
    "nat.retriever.interface": "Retriever",
    "nat.runtime.loader": "load_config load_workflow discover_and_register_plugins",
    "nat.runtime.runner": "Runner",
    "nat.runtime.session": "SessionManager",
    "nat.utils.exception_handlers.automatic_retries": "patch_with_retry",
    "nat.utils.type_converter": "TypeConverter GlobalTypeConverter",
}
NAMED = [(module, name) for module, names in NAMES.items() for name in names.split()]


def test_an_import_works_or_says_what_to_use():
    """Where a plug-in's import fails, its message has a replacement for this name, not just a list of what is here."""
    for module, name in NAMED:
        message = told(f"from {module} import {name}")
        assert not message or ": " in message, f"{module}.{name}"
        assert "this project has no such name" not in message, f"{module}.{name}"


def told(statement: str) -> str:
    """What the user of a plug-in with this import reads; empty if it works."""
    try:
        exec(statement, {})  # noqa: S102 - a name of the table above
    except ImportError as error:
        return f"{error}{replacement_for(error)}"
    return ""

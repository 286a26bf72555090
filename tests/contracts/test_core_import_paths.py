import importlib
import subprocess
import sys

import pytest

PATHS = {
    "nat.builder.builder": ["Builder", "EvalBuilder"],
    "nat.builder.component_utils": ["WORKFLOW_COMPONENT_NAME"],
    "nat.builder.context": ["Context", "ContextState", "RuntimeTypeEnum"],
    "nat.builder.eval_builder": ["WorkflowEvalBuilder"],
    "nat.builder.evaluator": ["EvaluatorInfo"],
    "nat.builder.framework_enum": ["LLMFrameworkEnum"],
    "nat.builder.function": ["Function", "LambdaFunction"],
    "nat.builder.function_info": ["FunctionInfo"],
    "nat.builder.intermediate_step_manager": ["IntermediateStepManager"],
    "nat.builder.llm": ["LLMProviderInfo"],
    "nat.builder.workflow": ["Workflow"],
    "nat.builder.workflow_builder": ["WorkflowBuilder"],
    "nat.cli.register_workflow": [
        "register_dataset_loader",
        "register_evaluator",
        "register_function",
        "register_llm_client",
        "register_llm_provider",
        "register_tool_wrapper",
        "register_trainer",
        "register_trainer_adapter",
        "register_trajectory_builder",
        "register_ttc_strategy",
    ],
    "nat.cli.type_registry": ["GlobalTypeRegistry", "RegisteredInfo", "TypeRegistry"],
    "nat.data_models.common": ["TypedBaseModel", "SerializableSecretStr", "OptionalSecretStr", "get_secret_value"],
    "nat.data_models.component_ref": [
        "ComponentGroup",
        "FunctionRef",
        "LLMRef",
        "TTCStrategyRef",
        "TrainerAdapterRef",
        "TrainerRef",
        "TrajectoryBuilderRef",
    ],
    "nat.data_models.config": ["Config"],
    "nat.data_models.evaluate": ["EvalConfig", "EvalGeneralConfig"],
    "nat.data_models.evaluate_config": ["EvalConfig", "EvalGeneralConfig"],
    "nat.data_models.evaluator": ["EvalInput", "EvalInputItem", "EvaluatorBaseConfig"],
    "nat.data_models.finetuning": [
        "CurriculumLearningConfig",
        "DPOItem",
        "EpisodeItem",
        "EpisodeItemRole",
        "FinetuneConfig",
        "FinetuneRunConfig",
        "OpenAIMessage",
        "RewardFunctionConfig",
        "TrainerAdapterConfig",
        "TrainerAdapterConfigT",
        "TrainerConfig",
        "TrainerConfigT",
        "TrainingJobRef",
        "TrainingJobStatus",
        "TrainingStatusEnum",
        "Trajectory",
        "TrajectoryBuilderConfig",
        "TrajectoryBuilderConfigT",
        "TrajectoryCollection",
    ],
    "nat.data_models.function": ["EmptyFunctionConfig", "FunctionBaseConfig"],
    "nat.data_models.intermediate_step": [
        "IntermediateStep",
        "IntermediateStepCategory",
        "IntermediateStepPayload",
        "IntermediateStepState",
        "IntermediateStepType",
        "InvocationNode",
        "StreamEventData",
        "TTCEventData",
        "TraceMetadata",
        "UsageInfo",
    ],
    "nat.data_models.invocation_node": ["InvocationNode"],
    "nat.data_models.llm": ["APITypeEnum", "LLMBaseConfig"],
    "nat.data_models.ttc_strategy": ["TTCStrategyBaseConfig"],
    "nat.profiler.callbacks.token_usage_base_model": ["TokenUsageBaseModel"],
    "nat.runtime.loader": [
        "PluginTypes",
        "discover_and_register_plugins",
        "discover_entrypoints",
        "load_config",
        "load_workflow",
    ],
    "nat.utils": ["run_workflow"],
    "nat.utils.io.yaml_tools": ["deep_merge", "yaml_dump", "yaml_dumps", "yaml_load", "yaml_loads"],
    "nat.utils.type_converter": ["GlobalTypeConverter", "TypeConverter"],
}


@pytest.mark.parametrize("module", PATHS)
def test_what_plugins_import_is_there(module):
    """The import paths that guide and plug-ins use are a promise."""
    imported = importlib.import_module(module)
    assert [name for name in PATHS[module] if name not in vars(imported)] == []


@pytest.mark.parametrize("module", ["nat.config", "nat.builder.workflow_builder", "nat.cli.register_workflow"])
def test_the_core_is_light(module):
    """Loading a configuration and registering components brings in none of the heavy libraries."""
    heavy = (
        "fastapi",
        "httpx",
        "httpx2",
        "matplotlib",
        "numpy",
        "openai",
        "pandas",
        "pyarrow",
        "torch",
        "transformers",
    )
    code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "[]"


def test_nat_is_open_for_other_distributions():
    """`nat` and `nat.plugins` are namespace packages, so that plug-in wheels of others merge into them."""
    for name in ("nat", "nat.plugins"):
        assert importlib.import_module(name).__file__ is None

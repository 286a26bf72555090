from pydantic import SecretStr

from nat.builder.llm import LLMProviderInfo
from nat.builder.workflow_builder import WorkflowBuilder
from nat.data_models.config import Config
from nat.data_models.llm import LLMBaseConfig
from nat.finetuning.workflow_sessions import _served
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.registry.catalog import pushed_catalog
from nat.registry.decorators import register_llm_provider


class HostedConfig(LLMBaseConfig, name="hosted_for_test"):
    """An LLM that the harness serves itself."""

    temperature: float = 1.0
    max_tokens: int | None = None


async def hosted(config, builder):
    served = OpenAIModelConfig(
        base_url="http://127.0.0.1:1/v1", api_key=SecretStr("k"), model_name="m", temperature=config.temperature
    )
    yield LLMProviderInfo(config=served)


async def served(llm, name="student"):
    training = Config(llms={"student": HostedConfig()})
    with pushed_catalog():
        register_llm_provider(config_type=HostedConfig)(hosted)
        async with WorkflowBuilder.from_config(training) as builder:
            return await _served(name, llm, training, builder)


async def test_a_hosted_model_is_validated_on_the_training_server():
    """A second server would hold an untrained model; the validation's own sampling is used."""
    found = await served(HostedConfig(temperature=0.25))
    assert isinstance(found, OpenAIModelConfig)
    assert (found.base_url, found.temperature, found.model_name) == ("http://127.0.0.1:1/v1", 0.25, "m")


async def test_the_validation_inherits_unset_keys():
    """Only keys that the validation's YAML sets replace the training's."""
    found = await served(HostedConfig(max_tokens=5))
    assert isinstance(found, OpenAIModelConfig)
    assert (found.temperature, found.max_tokens) == (1.0, 5)


async def test_other_models_have_the_validations_settings():
    """A judge of the validation, or a remote server, has the validation's settings."""
    judge = OpenAIModelConfig(model_name="judge")
    assert await served(judge, "judge") is judge
    assert await served(judge) is judge

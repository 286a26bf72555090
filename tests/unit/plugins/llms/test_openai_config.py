"""The `openai` LLM in a YAML."""

import pytest
from pydantic import ValidationError

from nat.llm.openai_llm import OpenAIModelConfig
from nat.plugins.llms import openai


def test_the_public_path_is_the_same_class():
    """The guide's import path and the plug-in's are one."""
    assert OpenAIModelConfig is openai.OpenAIModelConfig
    assert OpenAIModelConfig.static_type() == "openai"


def test_the_model_has_two_names():
    """`model_name` and `model` are one field, written as `model`."""
    for key in ("model_name", "model"):
        config = OpenAIModelConfig.model_validate({"_type": "openai", key: "m"})
        assert config.model_name == "m"
        assert config.model_dump(by_alias=True)["model"] == "m"


def test_the_key_is_never_shown():
    """Neither printed nor dumped."""
    config = OpenAIModelConfig(model_name="m", api_key="sk-secret")
    assert "sk-secret" not in repr(config) + config.model_dump_json()


@pytest.mark.parametrize("wrong", [{"temperature": -1}, {"top_p": 2}, {"max_tokens": 0}, {"temprature": 1}])
def test_wrong_values_and_unknown_keys_are_errors(wrong):
    """A setting that would be ignored is refused."""
    with pytest.raises(ValidationError):
        OpenAIModelConfig.model_validate({"model": "m", **wrong})


def test_what_the_config_fills_in():
    """Sampling parameters and the extra body; nothing about connection or key."""
    config = OpenAIModelConfig(model_name="m", temperature=0.5, max_tokens=9, extra_body={"min_p": 0.1, "top_p": 1})
    assert {key: value for key, value in config.request_defaults.items() if value is not None} == {
        "temperature": 0.5,
        "max_tokens": 9,
        "min_p": 0.1,
        "top_p": 1,
    }

"""What the session sends of each key of the YAML, and which LLMs and names it takes for the trained model."""

import json
from typing import Any

import pytest

from nat.art.client.config import ARTBackendConfig, ARTTrainingConfig
from nat.art.client.session import art_model, sampling_warnings, train_body, trained_llms
from nat.art.wire import ArtDevTrainConfig
from nat.data_models.llm import ModelEndpoint
from nat.errors import ConfigError

WHERE: dict[str, Any] = {"ip": "localhost", "port": 7623}
BACKEND = ARTBackendConfig(**WHERE, name="my_run", base_model="Qwen/tiny")
HERE = "http://localhost:8000/v1"
DEV = {
    "advantage_balance": 0.25,
    "epsilon": 0.1,
    "epsilon_high": 0.3,
    "importance_sampling_level": "sequence",
    "kimi_k2_tau": 0.5,
    "kl_penalty_source": "sample",
    "mask_prob_ratio": True,
    "max_negative_advantage_importance_sampling_weight": 2.0,
    "num_trajectories_learning_rate_multiplier_power": 0.5,
    "ppo": True,
    "precalculate_logprobs": True,
    "scale_rewards": False,
    "truncated_importance_sampling": 3.0,
    "packed_sequence_length": 4096,
}
OPTIMIZER = {"adam_beta1": 0.8, "adam_beta2": 0.95, "weight_decay": 0.01, "max_grad_norm": 1.0}
CONFIG = {"learning_rate": 1e-6, "beta": 0.1, "kl_penalty_coef": 0.2, "grad_accumulation_sequences": 4}
DEFAULTS = {"learning_rate": 5e-5, "beta": 0.0, "kl_penalty_coef": 0.0}


def sent(training: dict[str, Any] | None = None, **backend: Any) -> dict[str, Any]:
    config = ARTTrainingConfig(**(training or {}))
    return json.loads(train_body(art_model(ARTBackendConfig(**WHERE, **backend), config), [], config))


def test_each_option_of_the_algorithm_reaches_the_server():
    """Those of the update are in `config` or `dev_config`, those of the optimizer in the model, which it belongs to."""
    assert DEV.keys() | {"kl_penalty_coef"} == ArtDevTrainConfig.model_fields.keys()
    assert ARTTrainingConfig.model_fields.keys() == DEV.keys() | OPTIMIZER.keys() | CONFIG.keys()
    for name, value in DEV.items():
        assert sent({name: value})["dev_config"] == {name: value}
    for name, value in CONFIG.items():
        assert sent({name: value})["config"] == {**DEFAULTS, name: value}
    for name, value in OPTIMIZER.items():
        assert sent({name: value})["model"]["_internal_config"] == {"trainer_args": {name: value}}


def test_unset_options_are_left_out():
    """A null would crash ART's own server, and a default would hide the server's."""
    model = {"name": "trainer_run", "project": "trainer_project", "trainable": True}
    assert sent() == {
        "model": {**model, "base_model": "Qwen/Qwen2.5-7B-Instruct"},
        "trajectory_groups": [],
        "config": DEFAULTS,
        "dev_config": {},
        "verbose": False,
    }
    blocks = {"init_args": {"max_seq_length": None, "a": False}, "engine_args": {"b": None, "c": 1}, "peft_args": None}
    assert sent(**blocks)["model"]["_internal_config"] == {"init_args": {"a": False}, "engine_args": {"c": 1}}


@pytest.mark.parametrize(
    ("block", "value"),
    [
        ("init_args", {"max_seq_length": 8192, "load_in_4bit": False}),
        ("engine_args", {"gpu_memory_utilization": 0.9, "tensor_parallel_size": 2, "max_logprobs": 5}),
        ("peft_args", {"r": 32, "lora_alpha": 64, "target_modules": ["q_proj"]}),
        ("torchtune_args", {"model": "qwen2_5_3b", "enable_activation_offloading": True}),
    ],
)
def test_the_model_travels_with_its_arguments(block, value):
    """Known and unknown arguments are sent as in the YAML."""
    assert sent(**{block: value})["model"]["_internal_config"] == {block: value}


def llm(
    key: str, model: str, base_url: str | None = "http://127.0.0.1:8000/v1", **defaults
) -> dict[str, ModelEndpoint]:
    return {key: ModelEndpoint(model, base_url, defaults)}


def found(*llms: dict[str, ModelEndpoint], target: str | None = None) -> list[str]:
    return [*trained_llms({k: v for one in llms for k, v in one.items()}, BACKEND, inference_url=HERE, target=target)]


@pytest.mark.parametrize("model", ["my_run", "my_run@3", "Qwen/tiny"])
def test_an_llm_may_name_the_run_or_the_base_model(model):
    """Both names mean the trained model there, unless one LLM names the run: then a judge may use the base."""
    others = llm("judge", "judge"), llm("other", "my_run_2")
    assert found(llm("agent", model), *others) == ["agent"]
    if model != "Qwen/tiny":
        assert found(llm("agent", model), llm("judge", "Qwen/tiny")) == ["agent"]


@pytest.mark.parametrize("url", ["http://localhost:8001/v1", "http://10.0.0.5:8000/v1", None, "nonsense"])
def test_an_llm_elsewhere_is_an_error(url):
    """Its answers would come from an untrained model; the error names its server, its model and the remedy."""
    with pytest.raises(ConfigError) as error:
        found(llm("agent", "Qwen/tiny", url))
    assert f"llms.agent: requests Qwen/tiny from {url or 'OpenAI'}, which is not the trained model" in str(error.value)
    assert f"`base_url: {HERE}`" in str(error.value)
    assert "`model_name: my_run`" in str(error.value)


def test_the_target_model_must_be_one_that_is_trained():
    """Training on a judge's answers would train nothing; unknown names are checked by the builder."""
    both = llm("agent", "Qwen/tiny"), llm("judge", "judge")
    with pytest.raises(ConfigError, match=r"finetuning\.target_model: 'judge'"):
        found(*both, target="judge")
    for target in ("agent", "Qwen/tiny", "my_run", None):
        assert found(*both, target=target) == ["agent"]


def test_a_target_model_leaves_others_with_the_base_model():
    """An opponent with the same base model is not trained, unless the target is the model's name, which both have."""
    both = llm("agent", "Qwen/tiny"), llm("opponent", "Qwen/tiny")
    assert found(*both, target="agent") == ["agent"]
    for target in (None, "Qwen/tiny", "agent, opponent"):
        assert found(*both, target=target) == ["agent", "opponent"]


def test_a_temperature_is_a_warning():
    """The guide's own file has temperature 0.4, so it runs; a warning explains what each server does with it."""
    (warned,) = sampling_warnings(llm("agent", "m", temperature=0.4))
    assert "llms.agent samples with temperature 0.4." in warned
    assert "ART's own server trains it as if it were sampled at 1" in warned
    assert sampling_warnings(llm("agent", "m", temperature=1.0, top_p=1.0) | llm("other", "m")) == []


def test_untrainable_sampling_is_an_error():
    """The error comes before the first rollout and names the LLM's key, the field and the remedy."""
    with pytest.raises(ConfigError) as error:
        sampling_warnings(llm("agent", "m", temperature=0.4, top_p=0.9))
    assert "llms.agent: answers sampled with top_p=0.9 cannot be trained on" in str(error.value)
    assert "sampling_in_training" in str(error.value)

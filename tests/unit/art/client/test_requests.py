"""Each key of the YAML becomes a field of a request body."""

import json
from typing import Any

import pytest

from nat.art.client.config import ARTBackendConfig, ARTTrainingConfig
from nat.art.client.requests import art_model, model_body, prepare_body, train_body
from nat.art.wire import ArtChoice, ArtDevTrainConfig, ArtLogprobs, ArtTokenLogprob, ArtTrajectory, ArtTrajectoryGroup

WHERE: dict[str, Any] = {"ip": "localhost", "port": 7623}
DEV = {
    "advantage_balance": 0.25,
    "allow_training_without_logprobs": True,
    "epsilon": 0.1,
    "epsilon_high": 0.3,
    "importance_sampling_level": "sequence",
    "kimi_k2_tau": 0.5,
    "kl_ref_adapter_path": "/adapters/first",
    "logprob_calculation_chunk_size": 512,
    "mask_prob_ratio": True,
    "max_negative_advantage_importance_sampling_weight": 2.0,
    "num_trajectories_learning_rate_multiplier_power": 0.5,
    "plot_tensors": True,
    "ppo": True,
    "precalculate_logprobs": True,
    "scale_rewards": False,
    "truncated_importance_sampling": 3.0,
    "packed_sequence_length": 4096,
}
OPTIMIZER = {"adam_beta1": 0.8, "adam_beta2": 0.95, "weight_decay": 0.01, "max_grad_norm": 1.0}
CONFIG = {"learning_rate": 1e-6, "beta": 0.1, "kl_penalty_coef": 0.2, "grad_accumulation_sequences": 4}


def model_sent(training: dict[str, Any] | None = None, **backend: Any) -> dict[str, Any]:
    return model_body(art_model(ARTBackendConfig(**WHERE, **backend), ARTTrainingConfig(**(training or {}))))


def training_sent(**training: Any) -> dict[str, Any]:
    config = ARTTrainingConfig(**training)
    return json.loads(train_body(art_model(ARTBackendConfig(**WHERE), config), [], config))


def test_every_option_of_art_has_a_test_here():
    """Every option of ART's records is sent, and a test here shows it."""
    assert DEV.keys() | {"kl_penalty_coef"} == ArtDevTrainConfig.model_fields.keys()
    assert ARTTrainingConfig.model_fields.keys() == DEV.keys() | OPTIMIZER.keys() | CONFIG.keys()


@pytest.mark.parametrize(("name", "value"), DEV.items())
def test_options_of_the_algorithm_reach_the_server(name, value):
    """Each option of the algorithm is sent in `dev_config`."""
    assert training_sent(**{name: value})["dev_config"] == {name: value}


@pytest.mark.parametrize(("name", "value"), CONFIG.items())
def test_learning_rate_and_penalties_reach_the_server(name, value):
    """Both are sent in `config`, which the server reads for this update."""
    assert training_sent(**{name: value})["config"] == {
        "learning_rate": 5e-5,
        "beta": 0.0,
        "kl_penalty_coef": 0.0,
        name: value,
    }


@pytest.mark.parametrize(("name", "value"), OPTIMIZER.items())
def test_options_of_the_optimizer_reach_the_server(name, value):
    """The optimizer is created with the model, so its options are part of the model in both requests."""
    expected = {"trainer_args": {name: value}}
    assert model_sent({name: value})["_internal_config"] == expected
    assert training_sent(**{name: value})["model"]["_internal_config"] == expected


def test_unset_options_are_left_out():
    """A null would crash ART's own server, and a default would hide the server's."""
    assert model_sent() == {
        "name": "trainer_run",
        "project": "trainer_project",
        "trainable": True,
        "base_model": "Qwen/Qwen2.5-7B-Instruct",
    }
    body = training_sent()
    assert (body["config"], body["dev_config"], body["verbose"]) == (
        {"learning_rate": 5e-5, "beta": 0.0, "kl_penalty_coef": 0.0},
        {},
        False,
    )
    backend = ARTBackendConfig(**WHERE)
    assert prepare_body(art_model(backend, ARTTrainingConfig()), backend).keys() == {"model"}


def test_no_null_is_sent_for_a_null_in_the_yaml():
    """A key without a value, such as `max_seq_length:`, is left out at any depth."""
    blocks = {"init_args": {"max_seq_length": None, "load_in_4bit": False}, "peft_args": None}
    assert model_sent(**blocks)["_internal_config"] == {"init_args": {"load_in_4bit": False}}


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
    assert model_sent(**{block: value})["_internal_config"] == {block: value}


def test_the_inference_server_gets_its_settings():
    """`server_config` is the `config` of the call that starts it."""
    server_config = {
        "log_file": "vllm.log",
        "server_args": {"port": 8000},
        "engine_args": {"max_model_len": 1024},
        "new": 1,
    }
    backend = ARTBackendConfig(**WHERE, server_config=server_config)
    assert prepare_body(art_model(backend, ARTTrainingConfig()), backend)["config"] == server_config


def test_names_reach_the_server():
    """Name, project and base model are sent as in the YAML."""
    said = {"name": "my_run", "project": "my_project", "base_model": "tiny"}
    assert model_sent(**said) == {**said, "trainable": True}


def test_a_choice_has_the_keys_by_which_servers_know_it():
    """Servers of 0.4 and 0.5 treat an answer without `top_logprobs` as a message and refuse it."""
    token = ArtTokenLogprob(token="token_id:1", logprob=-0.5, top_logprobs=[])
    choice = ArtChoice(
        message={"role": "assistant", "content": "a"},
        finish_reason="stop",
        index=0,
        logprobs=ArtLogprobs(content=[token]),
    )
    group = ArtTrajectoryGroup(trajectories=[ArtTrajectory(messages_and_choices=[choice], reward=1.0)])
    config = ARTTrainingConfig()
    body = json.loads(train_body(art_model(ARTBackendConfig(**WHERE), config), [group], config))
    assert body["trajectory_groups"] == [
        {
            "trajectories": [
                {
                    "messages_and_choices": [
                        {
                            "message": {"role": "assistant", "content": "a"},
                            "finish_reason": "stop",
                            "index": 0,
                            "logprobs": {
                                "content": [{"token": "token_id:1", "logprob": -0.5, "top_logprobs": []}],
                            },
                        }
                    ],
                    "reward": 1.0,
                }
            ]
        }
    ]

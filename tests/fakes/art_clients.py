"""The request bodies of ART's clients by version: their keys and types, with our own values."""

from dataclasses import dataclass
from typing import Any

VERSIONS = ("0.5.17", "0.5.18")
CHAT = {"messages": [{"role": "user", "content": "the"}], "max_completion_tokens": 4}


def choice(*token_ids: int, text: str = "an", logprob: float = -0.5) -> dict[str, Any]:
    """An answer as the OpenAI SDK dumps it, with its tokens as ids."""
    content = [{"token": f"token_id:{i}", "bytes": [97], "logprob": logprob, "top_logprobs": []} for i in token_ids]
    empty = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "tool_calls"))
    return {
        "finish_reason": "stop",
        "index": 0,
        "logprobs": {"content": content, "refusal": None},
        "message": {"content": text, "role": "assistant", **empty},
    }


@dataclass(frozen=True)
class ArtClient:
    """The bodies that a client of one version sends."""

    version: str = "0.5.17"
    name: str = "agent-001"
    internal: Any = "full"
    """The body `full`, or the content of `_internal_config`."""

    def model(self, *, registered: bool = True) -> dict[str, Any]:
        internal = {
            "init_args": {"max_seq_length": 256},
            "engine_args": {"gpu_memory_utilization": 0.5},
            "trainer_args": {"learning_rate": 1e-5, "beta": 0.0},
        }
        server = ("sk-local", "http://127.0.0.1:8000/v1", self.name) if registered else (None, None, None)
        return {
            "name": self.name,
            "project": "demo",
            "entity": None,
            "id": None,
            "config": None,
            "trainable": True,
            "inference_api_key": server[0],
            "inference_base_url": server[1],
            "inference_model_name": server[2],
            "base_model": "Qwen/Qwen2.5-0.5B-Instruct",
            "_internal_config": internal if self.internal == "full" else self.internal,
            "run_id": None,
            "base_path": ".art",
            "report_metrics": None,
        }

    def prepare(self, config: Any = "ours") -> dict[str, Any]:
        ours = {"server_args": {"api_key": "sk-local", "port": 8000}}
        return {"model": self.model(registered=False), "config": ours if config == "ours" else config}

    def trajectory(self, reward: float, *items: dict[str, Any]) -> dict[str, Any]:
        return {
            "messages_and_choices": [{"role": "user", "content": "the"}, *items],
            "tools": None,
            "additional_histories": [],
            "reward": reward,
            "metrics": {"ok": 1.0, "completion_tokens": 2.0},
            "metadata": {"scenario_id": "one"},
            "logs": [],
            "initial_policy_version": None,
            "final_policy_version": None,
        }

    def groups(self, *rewards: float) -> list[dict[str, Any]]:
        """One group of answers that differ in their first token."""
        trajectories = [self.trajectory(r, choice(60 + i, 61)) for i, r in enumerate(rewards or (1.0, 0.0))]
        return [{"trajectories": trajectories, "exceptions": [], "metadata": {}, "metrics": {}, "logs": []}]

    def train(self, *rewards: float, **changes: Any) -> dict[str, Any]:
        config = {"learning_rate": 1e-5, "kl_penalty_coef": 0.0}
        if self.version == "0.5.18":
            config["grad_accumulation_sequences"] = None
        return {
            "model": self.model(),
            "trajectory_groups": self.groups(*rewards),
            "config": config,
            "dev_config": {},
            "verbose": False,
        } | changes

    def delete(self, *steps_to_keep: int) -> dict[str, Any]:
        return {"model": self.model(), "steps_to_keep": list(steps_to_keep)}


SERVERLESS_MODEL = {
    "entity": None,
    "project": "demo",
    "name": "agent-001",
    "base_model": "Qwen/Qwen2.5-0.5B-Instruct",
    "return_existing": True,
}
EXPERIMENTAL = {
    "advantage_balance": 0.0,
    "epsilon": None,
    "epsilon_high": None,
    "importance_sampling_level": "token",
    "kimi_k2_tau": None,
    "learning_rate": 1e-5,
    "mask_prob_ratio": False,
    "max_negative_advantage_importance_sampling_weight": None,
    "ppo": False,
    "precalculate_logprobs": False,
    "scale_rewards": True,
}
EXPERIMENTAL_OF_0_5_23 = EXPERIMENTAL | {
    "allow_training_without_logprobs": False,
    "kl_penalty_coef": 0.0,
    "kl_penalty_reference_step": None,
    "kl_penalty_source": "current_learner",
    "kl_penalty_step_lag": None,
    "kl_ref_adapter_path": None,
    "logprob_calculation_chunk_size": 1024,
    "loss_fn": "cispo",
    "normalize_advantages": True,
    "num_trajectories_learning_rate_multiplier_power": 0.0,
    "packed_sequence_length": None,
    "plot_tensors": False,
    "scale_learning_rate_by_reward_std_dev": False,
    "truncated_importance_sampling": None,
}
FULL_NAT = {
    "init_args": {"max_seq_length": 256},
    "engine_args": {"tensor_parallel_size": 1, "gpu_memory_utilization": 0.9},
    "torchtune_args": None,
    "trainer_args": {"learning_rate": 1e-6, "beta": 0.0},
}
"""`_internal_config` of the NAT plug-in with the guide's YAML."""
MINIMAL_NAT = {"init_args": None, "engine_args": None, "trainer_args": None}
"""`_internal_config` of the NAT plug-in without options in the YAML."""

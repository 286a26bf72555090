"""The sizes in a model's configuration that decide how much memory it takes."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from nat.wire.model_folder import MODEL_CONFIG, base_folder, num_parameters

UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, ArithmeticError)
"""What reading a configuration with missing or wrong sizes raises."""
_UNGATED = frozenset(
    {"apertus", "arcee", "bloom", "falcon", "gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "phi", "starcoder2"}
)
"""Model types whose feed-forward network has two matrices instead of three."""


@dataclass(frozen=True)
class ModelShape:
    """A decoder of layers that are equal, or of two kinds: with experts, and without."""

    num_parameters: int
    vocabulary: int
    hidden: int
    layers: int
    queries: int
    """Width of the queries of all heads."""
    keys: int
    """Width of the keys of all heads, and of their values."""
    dense: int
    """Width of the feed-forward network, or of the experts that every token goes through."""
    active: int
    """Width that a token goes through: that one, or also those of its experts."""
    tied: bool = True
    """Whether the output layer has the weights of the embedding."""
    gated: bool = True
    """Whether the feed-forward network has a gate, and so three matrices."""

    @property
    def embedding(self) -> int:
        """Weights of the embedding, and of an output layer."""
        return self.vocabulary * self.hidden

    @property
    def inside(self) -> int:
        """Weights of the decoder's layers."""
        return self.num_parameters - self.embedding * (1 if self.tied else 2)

    @property
    def cached(self) -> int:
        """Keys and values of a token, in all layers."""
        return 2 * self.keys * self.layers

    def adapter_weights(self, rank: int) -> int:
        """Weights of LoRA on all linear layers inside the decoder; experts that tokens are sent to have none."""
        attention = 2 * (self.hidden + self.queries) + 2 * (self.hidden + self.keys)
        return rank * self.layers * (attention + (2 + self.gated) * (self.hidden + self.dense))

    @classmethod
    def of_config(cls, config: Mapping[str, Any], num_parameters: int) -> "ModelShape":
        """Read a `config.json`, in the names of Llama and its relatives or of GPT-2.

        Raises:
            KeyError: it has none of the names of a size.
            ValueError: a size is below 1.

        """
        text = {**config, **config.get("text_config", {})}
        hidden, heads = int(_first(text, "hidden_size", "n_embd", "d_model")), int(_first(text, *_HEADS))
        head = int(text.get("head_dim") or hidden // heads)
        inner = _widest(text.get("intermediate_size") or text.get("n_inner") or 4 * hidden)
        dense, active = _experts(text) or (inner, inner)
        shape = cls(
            num_parameters=num_parameters,
            vocabulary=int(_first(text, "vocab_size")),
            hidden=hidden,
            layers=int(_first(text, "num_hidden_layers", "n_layer")),
            queries=heads * head,
            keys=int(text.get("num_key_value_heads") or heads) * head,
            dense=dense,
            active=active,
            tied=bool(text.get("tie_word_embeddings", True)),
            gated=text.get("model_type") not in _UNGATED,
        )
        if min(shape.vocabulary, shape.hidden, shape.layers, shape.queries, shape.keys, shape.active) < 1:
            raise ValueError(f"{MODEL_CONFIG} has a size below 1")
        return shape

    @classmethod
    def of_folder(cls, folder: Path) -> "ModelShape":
        """Read a model's folder, or that of the base of an adapter.

        Raises:
            OSError, ValueError, KeyError: the configuration cannot be read, or lacks a size; or no file has weights.

        """
        folder, counted = base_folder(folder), num_parameters(folder)
        if counted is None:
            raise ValueError(f"{folder} has no weights")
        return cls.of_config(from_json((folder / MODEL_CONFIG).read_bytes()), counted)


_HEADS = "num_attention_heads", "n_head"


def _experts(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """Width that every token goes through, and with its own experts; None without experts."""
    count = _any(config, "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    active = _any(config, "num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk")
    if not (isinstance(count, int) and isinstance(active, int) and count > 1):
        return None
    width = _widest(_any(config, "moe_intermediate_size", "intermediate_size"))
    number = _any(config, "n_shared_experts", "num_shared_experts", "moe_num_shared_experts") or 0
    shared = int(_any(config, "shared_expert_intermediate_size", "shared_intermediate_size") or number * width)
    return shared, active * width + shared


def _widest(size: Any) -> int:
    """A size, or the largest of those of all layers."""
    return max(map(int, size)) if isinstance(size, list) else int(size)


def _any(config: Mapping[str, Any], *names: str) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), None)


def _first(config: Mapping[str, Any], *names: str) -> Any:
    found = _any(config, *names)
    if found is None:
        raise KeyError(f"{MODEL_CONFIG} has none of {', '.join(names)}")
    return found

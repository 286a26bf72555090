"""The sizes in a model's configuration that decide how much memory it takes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from nat.sizing.rules import SMALLEST_PACKED
from nat.wire.model_folder import MODEL_CONFIG, base_folder, num_parameters

_UNGATED = frozenset(
    {"apertus", "arcee", "bloom", "falcon", "gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "phi", "starcoder2"}
)
"""Model types whose feed-forward network has two matrices instead of three."""
_NORMED = frozenset(
    {"exaone4", "gemma3", "gemma3_text", "gemma4", "gemma4_text", "olmo2", "olmo3", "olmoe", "qwen3", "qwen3_moe"}
)
"""Model types that norm their queries and keys."""


@dataclass(frozen=True)
class Experts:
    """The experts of a decoder's layers; each token goes through a few of them."""

    count: int = 0
    active: int = 0
    """Those of a token."""
    width: int = 0
    """Width inside an expert."""
    shared: int = 0
    """Width of the experts that every token goes through, together."""
    dense_layers: int = 0
    """Layers with a plain feed-forward network instead."""


@dataclass(frozen=True)
class ModelShape:
    """A decoder of layers that are equal, or of two kinds: with experts, and without."""

    vocabulary: int
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    tied: bool
    """Whether the output layer has the weights of the embedding."""
    gated: bool = True
    """Whether the feed-forward network has a gate, and so three matrices."""
    experts: Experts = Experts()
    normed: bool = False
    """Whether queries and keys go through norms of their own."""
    counted: int | None = None
    """Weights in the files; None computes them."""

    @property
    def queries(self) -> int:
        """Width of the queries of all heads."""
        return self.heads * self.head_size

    @property
    def keys(self) -> int:
        """Width of the keys of all heads, and of their values."""
        return self.kv_heads * self.head_size

    @property
    def embedding(self) -> int:
        """Weights of the embedding, and of an output layer of its own."""
        return self.vocabulary * self.hidden

    @property
    def linears(self) -> list[tuple[int, int]]:
        """Width of input and output of each linear layer inside the decoder; routers and their experts are none."""
        attention = [(self.hidden, self.queries), *[(self.hidden, self.keys)] * 2, (self.queries, self.hidden)]
        plain, shared = self._inner(self.intermediate), self._inner(self.experts.shared)
        return [*attention * self.layers, *plain * (self.layers - self._routed), *shared * self._routed]

    def _inner(self, width: int) -> list[tuple[int, int]]:
        """The matrices of a feed-forward network of this width."""
        return [*[(self.hidden, width)] * (1 + self.gated), (width, self.hidden)] if width else []

    @property
    def _routed(self) -> int:
        """Number of layers with experts."""
        return self.layers - self.experts.dense_layers if self.experts.count else 0

    @property
    def active_width(self) -> float:
        """Width of the feed-forward networks that a token goes through, the mean of the layers."""
        routed = self.experts.active * self.experts.width + self.experts.shared
        return (routed * self._routed + self.intermediate * (self.layers - self._routed)) / self.layers

    @property
    def dispatched(self) -> float:
        """Copies of a token's state that go to experts and come back, the mean of the layers."""
        return 2 * self.experts.active * self._routed / self.layers

    @property
    def num_parameters(self) -> int:
        if self.counted is not None:
            return self.counted
        norms = (2 * self.layers + 1) * self.hidden
        return self.linear_weights + self.expert_weights + norms + self.embedding * (1 if self.tied else 2)

    @property
    def linear_weights(self) -> int:
        """Weights of the linear layers inside the decoder."""
        return sum(one * other for one, other in self.linears)

    @property
    def expert_weights(self) -> int:
        """Weights of experts that tokens are sent to, and of the routers."""
        each = sum(one * other for one, other in self._inner(self.experts.width))
        return self._routed * self.experts.count * (each + self.hidden)

    @property
    def packed(self) -> list[int]:
        """Weights of each layer that the sampler reorders on a CPU: of the linear ones, and of the output layer."""
        sizes = [self.embedding, *(one * other for one, other in self.linears)]
        return [size for size in sizes if size >= SMALLEST_PACKED]

    def adapter_weights(self, rank: int) -> int:
        """Weights of LoRA adapters on all linear layers inside the decoder."""
        return sum(rank * (one + other) for one, other in self.linears)

    @classmethod
    def of_config(cls, config: Mapping[str, Any], counted: int | None = None) -> "ModelShape":
        """Read a `config.json`, in the names of Llama and its relatives or of GPT-2.

        Raises:
            KeyError: it has none of the names of a size.
            ValueError: a size is below 1.

        """
        text = {**config, **config.get("text_config", {})}
        hidden = int(_first(text, "hidden_size", "n_embd", "d_model"))
        heads = int(_first(text, "num_attention_heads", "n_head"))
        shape = cls(
            vocabulary=int(_first(text, "vocab_size")),
            hidden=hidden,
            intermediate=_widest(text.get("intermediate_size") or text.get("n_inner") or 4 * hidden),
            layers=int(_first(text, "num_hidden_layers", "n_layer")),
            heads=heads,
            kv_heads=int(text.get("num_key_value_heads") or heads),
            head_size=int(text.get("head_dim") or hidden // heads),
            tied=bool(text.get("tie_word_embeddings", True)),
            gated=text.get("model_type") not in _UNGATED,
            experts=_experts(text),
            normed=text.get("model_type") in _NORMED,
            counted=counted,
        )
        sizes = (shape.vocabulary, shape.hidden, shape.intermediate, shape.layers, shape.heads, shape.kv_heads)
        if min(*sizes, shape.head_size) < 1:
            raise ValueError("config.json has a size below 1")
        if counted is None or "tie_word_embeddings" in text:
            return shape
        inside = shape.linear_weights + shape.expert_weights
        return replace(shape, tied=counted < inside + 2 * shape.embedding)

    @classmethod
    def of_folder(cls, folder: Path) -> "ModelShape":
        """Read a model's folder, or that of the base of an adapter.

        Raises:
            OSError, ValueError, KeyError: the configuration cannot be read, or lacks a size.

        """
        folder = base_folder(folder)
        return cls.of_config(from_json((folder / MODEL_CONFIG).read_bytes()), num_parameters(folder))


def _experts(config: Mapping[str, Any]) -> Experts:
    """The experts that a configuration names, by the names that transformers' families have for them."""
    count = _any(config, "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    active = _any(config, "num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk")
    if not (isinstance(count, int) and isinstance(active, int) and count > 1):
        return Experts()
    width = _widest(_any(config, "moe_intermediate_size", "intermediate_size"))
    number = _any(config, "n_shared_experts", "num_shared_experts", "moe_num_shared_experts") or 0
    shared = _any(config, "shared_expert_intermediate_size", "shared_intermediate_size") or number * width
    kinds = config.get("mlp_layer_types")
    first = _any(config, "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index") or 0
    plain = kinds.count("dense") if isinstance(kinds, list) else first
    return Experts(count, active, width, int(shared), int(plain) + len(config.get("mlp_only_layers") or ()))


def _widest(size: Any) -> int:
    """A size, or the largest of those of all layers."""
    return max(map(int, size)) if isinstance(size, list) else int(size)


def _any(config: Mapping[str, Any], *names: str) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), None)


def _first(config: Mapping[str, Any], *names: str) -> Any:
    found = _any(config, *names)
    if found is None:
        raise KeyError(f"config.json has none of {', '.join(names)}")
    return found

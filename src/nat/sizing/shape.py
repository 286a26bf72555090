"""The sizes in a model's configuration that decide how much memory it takes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from nat.sizing.rules import SMALLEST_PACKED
from nat.wire.model_folder import MODEL_CONFIG, base_folder, num_parameters

_UNGATED = frozenset({"bloom", "falcon", "gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "phi", "starcoder2"})
"""Model types whose feed-forward network has two matrices instead of three."""


@dataclass(frozen=True)
class ModelShape:
    """A decoder of equal layers."""

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
        """Width of input and output of each linear layer inside a decoder layer."""
        attention = [(self.hidden, self.queries), *[(self.hidden, self.keys)] * 2, (self.queries, self.hidden)]
        into, out = (self.hidden, self.intermediate), (self.intermediate, self.hidden)
        return [*attention, *[into] * (1 + self.gated), out]

    @property
    def num_parameters(self) -> int:
        if self.counted is not None:
            return self.counted
        norms = (2 * self.layers + 1) * self.hidden
        return self.linear_weights + norms + self.embedding * (1 if self.tied else 2)

    @property
    def linear_weights(self) -> int:
        """Weights of the linear layers inside the decoder."""
        return self.layers * sum(one * other for one, other in self.linears)

    @property
    def packed_weights(self) -> int:
        """Weights of the layers that the sampler reorders on a CPU: the linear ones, and the output layer."""
        inside = sum(size for one, other in self.linears if (size := one * other) >= SMALLEST_PACKED)
        return self.layers * inside + (self.embedding if self.embedding >= SMALLEST_PACKED else 0)

    @property
    def packed_layers(self) -> int:
        """Number of those layers."""
        inside = sum(one * other >= SMALLEST_PACKED for one, other in self.linears)
        return self.layers * inside + (self.embedding >= SMALLEST_PACKED)

    def adapter_weights(self, rank: int) -> int:
        """Weights of LoRA adapters on all linear layers inside the decoder."""
        return self.layers * sum(rank * (one + other) for one, other in self.linears)

    @classmethod
    def of_config(cls, config: Mapping[str, Any], counted: int | None = None) -> "ModelShape":
        """Read a `config.json`, in the names of Llama and its relatives or of GPT-2.

        Raises:
            KeyError: it has none of the names of a size.

        """
        text = {**config, **config.get("text_config", {})}
        hidden = int(_first(text, "hidden_size", "n_embd", "d_model"))
        heads = int(_first(text, "num_attention_heads", "n_head"))
        shape = cls(
            vocabulary=int(_first(text, "vocab_size")),
            hidden=hidden,
            intermediate=int(text.get("intermediate_size") or text.get("n_inner") or 4 * hidden),
            layers=int(_first(text, "num_hidden_layers", "n_layer")),
            heads=heads,
            kv_heads=int(text.get("num_key_value_heads") or heads),
            head_size=int(text.get("head_dim") or hidden // heads),
            tied=bool(text.get("tie_word_embeddings", True)),
            gated=text.get("model_type") not in _UNGATED,
            counted=counted,
        )
        if counted is None or "tie_word_embeddings" in text:
            return shape
        return replace(shape, tied=counted < shape.linear_weights + 2 * shape.embedding)

    @classmethod
    def of_folder(cls, folder: Path) -> "ModelShape":
        """Read a model's folder, or that of the base of an adapter.

        Raises:
            OSError, ValueError, KeyError: the configuration cannot be read, or lacks a size.

        """
        folder = base_folder(folder)
        return cls.of_config(from_json((folder / MODEL_CONFIG).read_bytes()), num_parameters(folder))


def _first(config: Mapping[str, Any], *names: str) -> Any:
    found = next((config[name] for name in names if config.get(name) is not None), None)
    if found is None:
        raise KeyError(f"config.json has none of {', '.join(names)}")
    return found

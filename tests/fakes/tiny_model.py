"""Checkpoint directories of tiny models with random weights, a byte-level tokenizer and a chat template.

Every text can be encoded and decoded exactly. A checkpoint takes well under a second;
use it from a session-scoped fixture.
"""

from collections.abc import Callable
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

EOS, START, TOOL_OPEN, TOOL_CLOSE = "<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>"
CHAT_TEMPLATE = (
    "{% if tools %}<|im_start|>tools\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """256 byte tokens (ids 0 to 255), then a few merged tokens, then the template's special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: i for i, symbol in enumerate(alphabet)}
    merges = [("t", "h"), ("th", "e"), ("a", "n"), ("i", "n"), ("Ġ", "the")]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token=EOS,
        additional_special_tokens=[START],
        clean_up_tokenization_spaces=False,
        model_max_length=512,
    )
    tokenizer.add_tokens([TOOL_OPEN, TOOL_CLOSE])
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _shape(vocab_size: int, hidden: int, layers: int) -> dict[str, int]:
    return {
        "vocab_size": vocab_size,
        "hidden_size": hidden,
        "intermediate_size": hidden * 3,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
    }


def _gpt2(vocab_size: int, hidden: int, layers: int) -> PreTrainedConfig:
    dropouts = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2Config(
        vocab_size=vocab_size,
        n_embd=hidden,
        n_layer=layers,
        n_head=4,
        n_positions=512,
        eos_token_id=0,
        bos_token_id=0,
        **dropouts,
    )


CONFIGS: dict[str, Callable[[int, int, int], PreTrainedConfig]] = {
    "qwen2": lambda v, h, n: Qwen2Config(**_shape(v, h, n), tie_word_embeddings=True),
    "qwen3": lambda v, h, n: Qwen3Config(**_shape(v, h, n), head_dim=16, tie_word_embeddings=True),
    "llama": lambda v, h, n: LlamaConfig(**_shape(v, h, n)),
    "gpt2": _gpt2,
    "mistral": lambda v, h, n: MistralConfig(**_shape(v, h, n), sliding_window=6),
    "gemma3": lambda v, h, n: Gemma3TextConfig(
        **_shape(v, h, n), head_dim=16, sliding_window=6, layer_types=["sliding_attention", "full_attention"] * (n // 2)
    ),
}


def make_tiny_model(
    path: Path, kind: str = "qwen2", *, hidden: int = 32, layers: int = 2, seed: int = 0, spread: float = 0.5
) -> Path:
    """Write a checkpoint of the given shape to `path`; `spread` is the scale of the random weights.

    A spread of 0.5 gives peaked, varied distributions, which show errors better than nearly flat ones.
    """
    tokenizer = tiny_tokenizer()
    config = CONFIGS[kind](len(tokenizer), hidden, layers)
    config.eos_token_id = tokenizer.eos_token_id
    config.bos_token_id = config.pad_token_id = None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=spread / parameter.shape[-1] ** 0.5 * 2)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path

"""Checkpoints with random weights in the shapes of real models, with a tokenizer and a chat template.

    python -m bench.shapes smollm2-135m --dtype bfloat16   # prints the folder

Speed and memory depend on the shape, not on what the weights say, so no bench downloads a model. A text of n words,
each after a space, is n tokens.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from string import ascii_lowercase

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

CACHE = Path(__file__).parents[1] / ".tmp" / "shapes"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
END = "<|endoftext|>"
"""Also what transformers takes for a padding token of Qwen2 if it finds none."""
SPECIAL = (END, "<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{% if message['role'] == 'assistant' %}<|endoftext|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TEMPLATE_TOKENS = 2
"""Tokens that the template adds to a single user message."""
_SPACE = "Ġ"
"""How byte-level BPE writes a space."""
SPREAD = 0.02
"""Standard deviation of the weights; biases are zero and norms one."""
_BLOCK = 16_777_259
"""Random numbers that all weights are cut from in turn; prime, so that no two rows of a matrix are equal."""
_SHARD_BYTES = 4 * 2**30


def _config(
    vocabulary: int,
    hidden: int,
    intermediate: int,
    *,
    layers: int,
    heads: int,
    kv_heads: int,
    positions: int = 32768,
    theta: float = 1e6,
    tied: bool = True,
    kind: Callable[..., PreTrainedConfig] = Qwen2Config,
) -> PreTrainedConfig:
    return kind(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=positions,
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=None,
    )


_qwen3 = partial(Qwen3Config, head_dim=128)

SHAPES: dict[str, Callable[[], PreTrainedConfig]] = {
    # The example's model, with a longer context.
    "tiny": lambda: _config(18, 128, 384, layers=2, heads=4, kv_heads=4, positions=4096, theta=1e4, tied=False),
    "stories-15m": lambda: _config(32000, 288, 768, layers=6, heads=6, kv_heads=6, positions=4096, kind=LlamaConfig),
    "smollm2-135m": lambda: _config(
        49152, 576, 1536, layers=30, heads=9, kv_heads=3, positions=8192, theta=1e5, kind=LlamaConfig
    ),
    "smollm2-360m": lambda: _config(
        49152, 960, 2560, layers=32, heads=15, kv_heads=5, positions=8192, theta=1e5, kind=LlamaConfig
    ),
    "qwen2.5-0.5b": lambda: _config(151936, 896, 4864, layers=24, heads=14, kv_heads=2),
    "qwen2.5-1.5b": lambda: _config(151936, 1536, 8960, layers=28, heads=12, kv_heads=2),
    "qwen2.5-7b": lambda: _config(152064, 3584, 18944, layers=28, heads=28, kv_heads=4, tied=False),
    "qwen3-0.6b": lambda: _config(151936, 1024, 3072, layers=28, heads=16, kv_heads=8, positions=40960, kind=_qwen3),
    "qwen3-4b": lambda: _config(151936, 2560, 9728, layers=36, heads=32, kv_heads=8, positions=40960, kind=_qwen3),
    "qwen3-8b": lambda: _config(
        151936, 4096, 12288, layers=36, heads=32, kv_heads=8, positions=40960, tied=False, kind=_qwen3
    ),
}


def checkpoint(name: str, dtype: str = "float32", *, cache: Path = CACHE) -> Path:
    """Give the folder of a shape's checkpoint, written if it is not in the cache yet."""
    folder = cache / f"{name}-{dtype}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=cache, prefix=f".{folder.name}-"))
        try:
            _write(unfinished, SHAPES[name](), DTYPES[dtype])
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def words(random: Random, count: int, vocabulary: int) -> str:
    """Draw a text of `count` tokens."""
    letters = _letters(vocabulary)
    first = len(SPECIAL) + 1 + len(letters)
    return "".join(f" {_word(random.randrange(vocabulary - first), letters)}" for _ in range(count))


def _write(folder: Path, config: PreTrainedConfig, dtype: torch.dtype) -> None:
    tokenizer = _tokenizer(config.vocab_size, config.max_position_embeddings)
    tokenizer.save_pretrained(folder)
    config.dtype = dtype
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)  # type: ignore[no-untyped-call]  # no types there
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    _save({name: each for name, each in model.state_dict().items() if name not in tied}, folder)


def _save(shapes: dict[str, Tensor], folder: Path) -> None:
    """Write random values for tensors on the meta device, in files of a few gigabytes."""
    weights: dict[str, str] = {}
    for number, shard in enumerate(_shards(_values(shapes))):
        name = f"model-{number:05d}.safetensors"
        save_file(shard, folder / name, metadata={"format": "pt"})
        weights |= dict.fromkeys(shard, name)
    size = sum(each.nbytes for each in shapes.values())
    index = {"metadata": {"total_size": size}, "weight_map": weights}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _shards(values: Iterator[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    shard: dict[str, Tensor] = {}
    for name, value in values:
        shard[name] = value
        if sum(each.nbytes for each in shard.values()) >= _SHARD_BYTES:
            yield shard
            shard = {}
    if shard:
        yield shard


def _values(shapes: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Cut each matrix from a repeated block of random numbers, which takes a fraction of the time of drawing them."""
    block, at = torch.randn(_BLOCK, generator=torch.Generator().manual_seed(0)) * SPREAD, 0
    for name, shape in shapes.items():
        if shape.dim() == 1:
            fill = 0.0 if name.endswith("bias") else 1.0
            yield name, torch.full(shape.shape, fill, dtype=shape.dtype)
            continue
        start, size = at % _BLOCK, shape.numel()
        copies = -(-(start + size) // _BLOCK)
        value = block.to(shape.dtype).repeat(copies)[start : start + size]
        yield name, value.reshape(shape.shape).clone()
        at += size


def _tokenizer(vocabulary: int, positions: int) -> PreTrainedTokenizerFast:
    """Special tokens, a space, letters, and for the other ids words that BPE can only merge from left to right."""
    letters = _letters(vocabulary)
    tokens = [*SPECIAL, _SPACE, *letters]
    tokens += [_SPACE + _word(number, letters) for number in range(vocabulary - len(tokens))]
    merges = [(token[:-1], token[-1]) for token in tokens if token.startswith(_SPACE) and token != _SPACE]
    backend = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers has no type for it
        tokenizer_object=backend, eos_token=END, clean_up_tokenization_spaces=False, model_max_length=positions
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def _letters(vocabulary: int) -> str:
    """As many as leave room for words."""
    return ascii_lowercase[: (vocabulary - len(SPECIAL) - 1) // 2]


def _word(number: int, letters: str) -> str:
    """The number in bijective base n: a, b, …, z, aa, ab, …; each word's beginning is a word."""
    word = ""
    number += 1
    while number:
        number, last = divmod(number - 1, len(letters))
        word = letters[last] + word
    return word


def main() -> None:
    """Write a checkpoint and print its folder."""
    parser = argparse.ArgumentParser(prog="python -m bench.shapes", description=main.__doc__)
    parser.add_argument("name", choices=SHAPES)
    parser.add_argument("--dtype", choices=DTYPES, default="float32")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the checkpoints")
    options = parser.parse_args()
    print(checkpoint(options.name, options.dtype, cache=options.cache))


if __name__ == "__main__":
    main()

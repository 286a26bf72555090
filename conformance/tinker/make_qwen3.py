"""Make a tiny Qwen3 that plays tic-tac-toe like a beginner, since SkyRL's JAX backend has no Qwen2.

`python -m conformance.tinker.make_qwen3 FOLDER`; the lessons are those of examples/tic_tac_toe/make_model.py.
"""

import sys
from pathlib import Path

from examples.pretraining import MAX_TOKENS, Schedule, make_tokenizer, write_model
from examples.tic_tac_toe.make_model import CHAT_TEMPLATE, SPECIAL, WORDS, loss_of
from transformers import Qwen3Config, Qwen3ForCausalLM

SCHEDULE = Schedule(steps=300, learning_rate=2.5e-3, warmup_steps=30)


def make_model(tokenizer) -> Qwen3ForCausalLM:
    """Qwen3 with 0.4 million weights."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=MAX_TOKENS,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
        rope_parameters={"rope_theta": 10000.0, "rope_type": "default"},
    )
    return Qwen3ForCausalLM(config)


if __name__ == "__main__":
    write_model(Path(sys.argv[1]), make_tokenizer(SPECIAL, WORDS, CHAT_TEMPLATE), make_model, loss_of, SCHEDULE)

"""Pretrain a tiny language model by supervision: `nat init` makes one, and so does each example's `make_model.py`.

The caller passes words, chat template and a function that makes conversations.

Shapes: B conversations, T tokens, V words.
"""

import logging
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

logger = logging.getLogger(__name__)

END, USER, ASSISTANT, TOOL, UNKNOWN = "<|end|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|unknown|>"
MAX_TOKENS = 128
"""Maximum number of tokens of a conversation."""
CONVERSATIONS_PER_STEP = 64


class Schedule(NamedTuple):
    """The number of steps, the learning rate's peak and warm-up, and the size of a step."""

    steps: int
    learning_rate: float
    warmup_steps: int
    conversations_per_step: int = CONVERSATIONS_PER_STEP


def make_tokenizer(special: tuple[str, ...], words: tuple[str, ...], chat_template: str) -> Any:
    """Make a tokenizer with one token per word; END and UNKNOWN are special tokens."""
    vocabulary = {word: index for index, word in enumerate((*special, *words))}
    core = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    core.pre_tokenizer = WhitespaceSplit()
    core.add_special_tokens([AddedToken(token, special=True) for token in special])
    tokenizer: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call] # transformers has few types
        tokenizer_object=core,
        eos_token=END,
        pad_token=END,
        unk_token=UNKNOWN,
        model_max_length=MAX_TOKENS,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = chat_template
    return tokenizer


def make_llama(tokenizer: Any, width: int = 64) -> LlamaForCausalLM:
    """Make a Llama model of two layers; at width 64 it has a tenth of a million weights."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=MAX_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def assistant_mask(tokens: list[str]) -> list[bool]:
    """True for each token that the assistant wrote, including the end of its turn."""
    own, speaks = [], False
    for token in tokens:
        own.append(speaks)
        speaks = token == ASSISTANT or (speaks and token != END)
    return own


def assistant_loss(model: LlamaForCausalLM, tokenizer: Any, texts: list[str]) -> torch.Tensor:
    """Cross entropy of the assistant's tokens."""
    ids_BT = tokenizer(texts, padding=True, return_tensors="pt")["input_ids"]
    targets_BT = torch.full_like(ids_BT, -100)
    for row, text in enumerate(texts):
        own_T = torch.tensor(assistant_mask(text.split()))
        targets_BT[row, : len(own_T)] = ids_BT[row, : len(own_T)].where(own_T, -100)
    logits_BTV = model(input_ids=ids_BT).logits
    return torch.nn.functional.cross_entropy(logits_BTV[:, :-1].flatten(0, 1), targets_BT[:, 1:].flatten())


def train(model: torch.nn.Module, loss_of_step: Callable[[], torch.Tensor], schedule: Schedule) -> None:
    """Train with AdamW; the rate rises, then falls along a half cosine."""
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(1, schedule.steps + 1):
        decay = 0.5 + 0.5 * math.cos(math.pi * step / (schedule.steps + 1))
        optimizer.param_groups[0]["lr"] = schedule.learning_rate * min(step / schedule.warmup_steps, decay)
        loss = loss_of_step()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call] # torch has few types
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            logger.info("step %4d: loss %.4f", step, loss.item())


def write_model(
    directory: Path,
    tokenizer: Any,
    make_model: Callable[[Any], Any],
    loss_of: Callable[[Any, Any, random.Random], torch.Tensor],
    schedule: Schedule,
) -> None:
    """Make a model, train it by `loss_of(model, tokenizer, rng)` of each step, and write both; always from seed 0."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    # Saved before it is used: a tokenizer writes down how it padded last.
    tokenizer.save_pretrained(directory)
    model, rng = make_model(tokenizer), random.Random(0)
    train(model, lambda: loss_of(model, tokenizer, rng), schedule)
    model.save_pretrained(directory)


def write_chat_model(
    directory: Path, tokenizer: Any, conversation: Callable[[random.Random], str], schedule: Schedule
) -> None:
    """Make a Llama, train it on what the assistant says in random conversations, and write it with its tokenizer."""

    def loss_of(model: LlamaForCausalLM, tokenizer: Any, rng: random.Random) -> torch.Tensor:
        return assistant_loss(model, tokenizer, [conversation(rng) for _ in range(schedule.conversations_per_step)])

    write_model(directory, tokenizer, make_llama, loss_of, schedule)

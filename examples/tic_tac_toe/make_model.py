"""Make model/: a small language model that knows the rules of tic-tac-toe and plays like a beginner.

It is trained on random games. Before a move it learns how a beginner would choose: mostly at random, sometimes to
complete or block three in a line, and too often on the edges of the board. After the last move it learns who won.
It wins little more than a third of its games, from which the reinforcement learning of configs/finetune.yml starts.

`python -m examples.tic_tac_toe.make_model`, from the repository's root, takes five minutes.
The training loop is `examples/pretraining.py`, which all examples share.

Shapes: B games, T tokens, K lessons, V words, D hidden size.
"""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from examples.pretraining import ASSISTANT, END, MAX_TOKENS, UNKNOWN, USER, Schedule, make_tokenizer, write_model
from torch import Tensor, inf, tensor, xlogy, zeros
from transformers import Qwen2Config, Qwen2ForCausalLM

from tic_tac_toe.agent import AGENT, OPPONENT
from tic_tac_toe.game import LINES, Board, Outcome, outcome_of

MODEL = Path(__file__).parent / "model"
SCHEDULE = Schedule(steps=1200, learning_rate=2.5e-3, warmup_steps=50)
GAMES_PER_STEP = 64

# How much a beginner likes each cell, and how many times as much if it completes a line or stops the opponent's.
LIKINGS = (1.0, 3.0, 1.0, 3.0, 0.5, 3.0, 1.0, 3.0, 1.0)
COMPLETES_A_LINE, STOPS_A_LINE = 4.0, 8.0

# Illegal moves are not only rare but far off, in nats: else learning to like a cell makes it likely when it is taken.
MARGIN, MARGIN_WEIGHT = 25.0, 0.05

# A cell of the board is one token, and so is a move.
SPECIAL = (END, USER, ASSISTANT, UNKNOWN)
WORDS = ("X", "O", *"123456789", Outcome.WON, Outcome.DRAW, Outcome.LOST)

# A turn appends to what was said and changes nothing before it: a whole game is one sequence of tokens.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|' + message['role'] + '|> ' + message['content'] }}
{%- if message['role'] == 'assistant' %} <|end|>{% endif %} {% endfor -%}
{%- if add_generation_prompt %}<|assistant|>{% endif -%}
"""


def make_model(tokenizer: Any) -> Qwen2ForCausalLM:
    """Make a Qwen2 model with 0.4 million weights."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=MAX_TOKENS,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return Qwen2ForCausalLM(config)


def random_game(rng: random.Random) -> list[dict[str, str]]:
    """A game of two random players as a conversation; a last message says how it ended."""
    board, turn = Board(), rng.choice((AGENT, OPPONENT))
    messages = []
    while not board.over:
        cell = rng.choice(board.free)
        if turn == AGENT:
            messages += [{"role": "user", "content": str(board)}, {"role": "assistant", "content": str(cell)}]
        board, turn = board.place(turn, cell), OPPONENT if turn == AGENT else AGENT
    return [*messages, {"role": "user", "content": f"{board}\n{outcome_of(board, AGENT)}"}]


def beginner(cells: list[str]) -> dict[str, float]:
    """The probability with which a beginner, playing X, chooses each free cell."""
    likings = {}
    for index, cell in enumerate(cells):
        if cell.isdigit():
            others = [[cells[i] for i in line if i != index] for line in LINES if index in line]
            line = COMPLETES_A_LINE if [AGENT] * 2 in others else STOPS_A_LINE if [OPPONENT] * 2 in others else 1.0
            likings[cell] = line * LIKINGS[index]
    total = sum(likings.values())
    return {cell: liking / total for cell, liking in likings.items()}


def lessons(tokens: list[str]) -> Iterator[tuple[int, dict[str, float]]]:
    """Positions of a game to learn from, with the target words and their probabilities."""
    for position, token in enumerate(tokens):
        if token == ASSISTANT:
            yield position, beginner(tokens[position - 9 : position])
            yield position + 1, {END: 1.0}
        elif token in (Outcome.WON, Outcome.DRAW, Outcome.LOST):
            yield position - 1, {token: 1.0}


class Batch(NamedTuple):
    """Random games of T tokens with K lessons: their positions and targets."""

    ids_BT: Tensor
    rows_K: list[int]
    positions_K: list[int]
    targets_KV: Tensor


def make_batch(tokenizer: Any, rng: random.Random) -> Batch:
    """Play and encode the games of one step."""
    texts = [tokenizer.apply_chat_template(random_game(rng), tokenize=False) for _ in range(GAMES_PER_STEP)]
    ids_BT = tokenizer(texts, padding=True, return_tensors="pt")["input_ids"]
    found = [(row, *lesson) for row, text in enumerate(texts) for lesson in lessons(text.split())]
    rows_K, positions_K, words_K = map(list, zip(*found, strict=True))
    targets_KV = zeros(len(found), len(tokenizer))
    for k, words in enumerate(words_K):
        targets_KV[k, tokenizer.convert_tokens_to_ids(list(words))] = tensor(list(words.values()))
    return Batch(ids_BT, rows_K, positions_K, targets_KV)


def divergence(logits_KV: Tensor, targets_KV: Tensor) -> Tensor:
    """KL divergence to the targets, plus a penalty if an impossible word is not MARGIN less likely than the others."""
    log_probs_KV = logits_KV.log_softmax(dim=-1)
    divergence_K = (xlogy(targets_KV, targets_KV) - targets_KV * log_probs_KV).sum(dim=-1)
    impossible_K = log_probs_KV.masked_fill(targets_KV > 0, -inf).logsumexp(dim=-1)
    return (divergence_K + MARGIN_WEIGHT * (MARGIN + impossible_K).relu()).mean()


def loss_of(model: Qwen2ForCausalLM, tokenizer: Any, rng: random.Random) -> Tensor:
    """The loss of one step's games."""
    batch = make_batch(tokenizer, rng)
    hidden_KD = model.model(input_ids=batch.ids_BT).last_hidden_state[batch.rows_K, batch.positions_K]
    return divergence(model.lm_head(hidden_KD), batch.targets_KV)


if __name__ == "__main__":
    write_model(MODEL, make_tokenizer(SPECIAL, WORDS, CHAT_TEMPLATE), make_model, loss_of, SCHEDULE)

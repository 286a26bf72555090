"""The tokenizer, the template and the weights of the model in the repository."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tic_tac_toe.game import Board

MODEL = Path(__file__).parents[1] / "model"
TOKENIZER: Any = AutoTokenizer.from_pretrained(MODEL)
END = "<|end|>"


def prompt(messages: list[dict[str, str]]) -> list[str]:
    """The prompt's tokens when the model has to answer."""
    ids = TOKENIZER.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    tokens: list[str] = TOKENIZER.convert_ids_to_tokens(ids)
    return tokens


def test_a_cell_is_a_token() -> None:
    """A turn's prompt has nine cells and two role tokens."""
    tokens = prompt([{"role": "user", "content": str(Board().place("X", 5))}])
    assert tokens == ["<|user|>", "1", "2", "3", "4", "X", "6", "7", "8", "9", "<|assistant|>"]


@given(st.permutations([str(number) for number in range(1, 10)]), st.integers(1, 4))
def test_a_game_is_one_sequence_of_tokens(cells: list[str], turns: int) -> None:
    """The prompt of a turn begins with the last turn's prompt and its two sampled tokens."""
    messages: list[dict[str, str]] = []
    so_far: list[str] = []
    board = Board()
    for turn in range(turns):
        messages.append({"role": "user", "content": str(board)})
        tokens = prompt(messages)
        assert tokens[: len(so_far)] == so_far
        answer = cells[2 * turn]
        messages.append({"role": "assistant", "content": answer})
        so_far = [*tokens, answer, END]
        board = board.place("X", int(answer)).place("O", int(cells[2 * turn + 1]))


@pytest.mark.parametrize("number", list("123456789"))
def test_a_sampled_move_is_its_number(number: str) -> None:
    """The end of a turn is not part of the answer's text."""
    ids = TOKENIZER.convert_tokens_to_ids([number, END])
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == number

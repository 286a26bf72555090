"""The model that lies in the repository: what its tokenizer, its template and its weights promise."""

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
    """The tokens that the model is given when it is to answer."""
    ids = TOKENIZER.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    tokens: list[str] = TOKENIZER.convert_ids_to_tokens(ids)
    return tokens


def test_a_cell_is_a_token() -> None:
    """Nine cells and two role marks are a turn's whole prompt."""
    tokens = prompt([{"role": "user", "content": str(Board().place("X", 5))}])
    assert tokens == ["<|user|>", "1", "2", "3", "4", "X", "6", "7", "8", "9", "<|assistant|>"]


@given(st.permutations([str(number) for number in range(1, 10)]), st.integers(1, 4))
def test_a_game_is_one_sequence_of_tokens(cells: list[str], turns: int) -> None:
    """The prompt of a turn begins with the last turn's prompt and the two tokens that were sampled after it."""
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
def test_a_sampled_move_reads_as_its_number(number: str) -> None:
    """The end of a turn is not part of the answer's text."""
    ids = TOKENIZER.convert_tokens_to_ids([number, END])
    assert TOKENIZER.decode(ids, skip_special_tokens=True) == number

import builtins
from collections.abc import Iterator

import pytest

from tic_tac_toe.game import Board
from tic_tac_toe.opponent import HumanOpponent, RandomOpponent


async def test_the_random_opponent_takes_each_free_cell() -> None:
    """Its moves are legal, and each free cell occurs."""
    board = Board(("X", "2", "O", "4", "X", "6", "O", "8", "X"))
    opponent = RandomOpponent(seed=0)
    assert {await opponent.choose(board) for _ in range(100)} == {2, 4, 6, 8}


async def test_the_prompt_repeats_until_the_cell_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invalid input does not end the game."""
    typed: Iterator[str] = iter(["one", "1", "", " 2 "])
    monkeypatch.setattr(builtins, "input", lambda _prompt: next(typed))
    board = Board().place("X", 1)
    assert await HumanOpponent().choose(board) == 2

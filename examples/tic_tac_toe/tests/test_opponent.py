import builtins
from collections.abc import Iterator

import pytest

from tic_tac_toe.game import Board
from tic_tac_toe.opponent import HumanOpponent, RandomOpponent


async def test_the_same_seed_plays_the_same_game() -> None:
    """Both validations meet the same opponent's moves."""
    one, two = RandomOpponent(seed=7), RandomOpponent(seed=7)
    assert [await one.choose(Board()) for _ in range(20)] == [await two.choose(Board()) for _ in range(20)]


async def test_other_seeds_play_other_games() -> None:
    """Generations of an example meet different opponent's moves."""
    games = {tuple([await opponent.choose(Board()) for _ in range(9)]) for opponent in map(RandomOpponent, range(50))}
    assert len(games) == 50


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

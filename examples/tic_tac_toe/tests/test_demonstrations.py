import json
from itertools import product

from examples.tic_tac_toe.make_demonstrations import FILE, GAMES, Teacher, demonstrations, value

from tic_tac_toe.agent import OPPONENT, play_game
from tic_tac_toe.game import Board, Outcome
from tic_tac_toe.opponent import RandomOpponent


def test_the_file_is_what_the_script_writes() -> None:
    """Whoever runs the script gets the same games."""
    assert [json.loads(line) for line in FILE.read_text().splitlines()] == list(demonstrations(GAMES))


async def test_the_teacher_never_loses() -> None:
    """It plays perfectly, whoever opens, and wins about four of five games against random moves."""
    games = [await play_game(Teacher(n), RandomOpponent(n), opener) for n, opener in product(range(50), "XO")]
    outcomes = [game.outcome for game in games]
    assert set(outcomes) <= {Outcome.WON, Outcome.DRAW}
    assert outcomes.count(Outcome.WON) > 70


def test_perfect_play_is_a_draw_and_an_early_win_is_worth_more() -> None:
    """The known value of the game, and of a line that can be completed now or later."""
    assert value(Board(), "X") == 0
    won = Board(("X", "X", "X", "O", "O", "6", "7", "8", "9"))
    assert value(won, OPPONENT) == 1 + 4

import copy
from dataclasses import dataclass, field

import pytest
from openai.types.chat import ChatCompletionMessageParam

from tic_tac_toe.agent import play_game
from tic_tac_toe.game import Board, Mark, Outcome


@dataclass
class ScriptedPlayer:
    """A model with scripted answers that records its conversations."""

    answers: list[str]
    shown: list[list[ChatCompletionMessageParam]] = field(default_factory=list)

    async def __call__(self, messages: list[ChatCompletionMessageParam], /) -> str:
        self.shown.append(copy.deepcopy(messages))
        return self.answers[len(self.shown) - 1]


@dataclass
class ScriptedOpponent:
    """An opponent with scripted moves."""

    moves: list[int]

    async def choose(self, board: Board) -> int:
        return self.moves[sum(cell == "O" for cell in board.cells)]


@pytest.mark.parametrize(
    ("opener", "answers", "moves", "outcome"),
    [
        ("X", ["1", "2", "3"], [4, 5], Outcome.WON),
        ("O", ["1", "2", "3"], [4, 5, 9], Outcome.WON),
        ("O", ["1", "2", "7"], [4, 5, 6], Outcome.LOST),
        ("X", ["1", "3", "4", "6", "8"], [2, 5, 7, 9], Outcome.DRAW),
        ("O", ["2", "5", "7", "9"], [1, 3, 4, 6, 8], Outcome.DRAW),
        ("X", ["1", "4"], [4], Outcome.ILLEGAL),
        ("X", ["hello"], [], Outcome.ILLEGAL),
    ],
)
async def test_a_game_is_played_to_its_end(
    opener: Mark, answers: list[str], moves: list[int], outcome: Outcome
) -> None:
    """Three in a line, a full board or an illegal answer ends the game, whoever opens."""
    player = ScriptedPlayer(answers)
    game = await play_game(player, ScriptedOpponent(moves), opener)
    assert game.outcome == outcome
    assert game.opener == opener
    assert len(player.shown) == len(game.answers)


async def test_a_game_is_one_growing_conversation() -> None:
    """Each turn adds the model's answer and the next board."""
    player = ScriptedPlayer(["1", "2", "3"])
    await play_game(player, ScriptedOpponent([4, 5]), "X")
    assert player.shown[-1] == [
        {"role": "user", "content": "1 2 3\n4 5 6\n7 8 9"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "X 2 3\nO 5 6\n7 8 9"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "X X 3\nO O 6\n7 8 9"},
    ]
    for earlier, later in zip(player.shown, player.shown[1:], strict=False):
        assert later[: len(earlier)] == earlier

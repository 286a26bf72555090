"""The agent: a language model that plays one game, turn by turn, in one growing conversation."""

from typing import Protocol

from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel

from tic_tac_toe.game import Board, Mark, Outcome, outcome_of, read_move
from tic_tac_toe.opponent import Opponent

AGENT: Mark = "X"
OPPONENT: Mark = "O"


class GameRecord(BaseModel):
    """A finished game: the workflow's output, from which the reward is computed."""

    opener: Mark
    """The player who moved first; the agent is X."""
    board: list[str]
    """The last position, row by row."""
    answers: list[str]
    """The model's answers, turn by turn."""
    outcome: Outcome


class Player(Protocol):
    """A language model as a function from the conversation to the assistant's next message."""

    async def __call__(self, messages: list[ChatCompletionMessageParam], /) -> str: ...


async def play_game(player: Player, opponent: Opponent, opener: Mark) -> GameRecord:
    """Play until somebody has won, the board is full, or the model names no free cell.

    At each turn the model sees the board. The conversation keeps all messages, so a whole game is one sequence of
    tokens and one row of training data.
    """
    board, answers = Board(), list[str]()
    messages: list[ChatCompletionMessageParam] = []
    if opener == OPPONENT:
        board = board.place(OPPONENT, await opponent.choose(board))
    while not board.over:
        messages.append({"role": "user", "content": str(board)})
        answer = await player(messages)
        messages.append({"role": "assistant", "content": answer})
        answers.append(answer)
        cell = read_move(answer, board)
        if cell is None:
            return GameRecord(opener=opener, board=board.rows, answers=answers, outcome=Outcome.ILLEGAL)
        board = board.place(AGENT, cell)
        if not board.over:
            board = board.place(OPPONENT, await opponent.choose(board))
    return GameRecord(opener=opener, board=board.rows, answers=answers, outcome=outcome_of(board, AGENT))

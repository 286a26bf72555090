"""Write data/demonstrations.jsonl: games of a teacher that plays perfectly, as conversations to imitate.

The teacher is a player like the language model: it reads the board in the last message and answers with a cell. It
looks at all ways in which the game can go on (minimax), wins as early as it can, and draws lots among equal moves.

`python -m examples.tic_tac_toe.make_demonstrations`, from the repository's root, takes a second.
"""

import asyncio
import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from openai.types.chat import ChatCompletionMessageParam

from tic_tac_toe.agent import AGENT, OPPONENT, play_game
from tic_tac_toe.game import Board, Mark
from tic_tac_toe.opponent import RandomOpponent

FILE = Path(__file__).parent / "data" / "demonstrations.jsonl"
GAMES = 128


@cache
def value(board: Board, turn: Mark) -> int:
    """What the game is worth to the agent if both play perfectly: more for an early win, less for an early loss."""
    if board.winner is not None:
        return (1 + len(board.free)) * (1 if board.winner == AGENT else -1)
    if not board.free:
        return 0
    best, after = (max, OPPONENT) if turn == AGENT else (min, AGENT)
    return best(value(board.place(turn, cell), after) for cell in board.free)


class Teacher:
    """Plays perfectly, and remembers the conversation of its game."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self.messages: list[ChatCompletionMessageParam] = []

    async def __call__(self, messages: list[ChatCompletionMessageParam], /) -> str:
        board = Board(tuple(str(messages[-1]["content"]).split()))
        values = {cell: value(board.place(AGENT, cell), OPPONENT) for cell in board.free}
        answer = str(self._dice.choice([cell for cell in values if values[cell] == max(values.values())]))
        self.messages = [*messages, {"role": "assistant", "content": answer}]
        return answer


def demonstrations(games: int) -> Iterator[dict[str, list[ChatCompletionMessageParam]]]:
    """The teacher's games against the random opponent; the two open alternately."""
    for number in range(games):
        teacher = Teacher(number)
        asyncio.run(play_game(teacher, RandomOpponent(number), (AGENT, OPPONENT)[number % 2]))
        yield {"messages": teacher.messages}


if __name__ == "__main__":
    FILE.write_text("".join(f"{json.dumps(row)}\n" for row in demonstrations(GAMES)), encoding="utf-8")
    print(f"{FILE.name}: {GAMES} games")

"""The agent's opponents."""

import asyncio
import random
from typing import Protocol

from tic_tac_toe.game import Board


class Opponent(Protocol):
    """Chooses a free cell of a board that is not full."""

    async def choose(self, board: Board) -> int: ...


class RandomOpponent:
    """Takes a random free cell; a seed gives the same game against the same moves."""

    def __init__(self, seed: int | None) -> None:
        self._dice = random.Random(seed)

    async def choose(self, board: Board) -> int:
        return self._dice.choice(board.free)


class HumanOpponent:
    """Asks at the terminal until it gets a free cell."""

    async def choose(self, board: Board) -> int:
        print(f"\n{board}")
        while (answer := await asyncio.to_thread(input, "Your move (O): ")).strip() not in map(str, board.free):
            print(f"Free are {', '.join(map(str, board.free))}.")
        return int(answer)

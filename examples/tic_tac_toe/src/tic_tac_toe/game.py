"""The rules of tic-tac-toe; pure.

Marks are "X" and "O". The cells are numbered 1 to 9, row by row.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, Self

Mark = Literal["X", "O"]

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
"""The rows, columns and diagonals, as indices from 0."""


class Outcome(StrEnum):
    """The agent's result of a game."""

    WON = "won"
    DRAW = "draw"
    LOST = "lost"
    ILLEGAL = "illegal"
    """The agent's answer was not a free cell, which loses the game."""


@dataclass(frozen=True)
class Board:
    """A position. A cell holds a mark or, while it is free, its own number."""

    cells: tuple[str, ...] = tuple("123456789")

    def __str__(self) -> str:
        """The board as three lines of three words, which the model reads."""
        return "\n".join(self.rows)

    @property
    def rows(self) -> list[str]:
        return [" ".join(self.cells[row : row + 3]) for row in (0, 3, 6)]

    @property
    def free(self) -> list[int]:
        return [number for number in range(1, 10) if self.cells[number - 1] == str(number)]

    @property
    def winner(self) -> Mark | None:
        for mark in ("X", "O"):
            if any(all(self.cells[cell] == mark for cell in line) for line in LINES):
                return mark
        return None

    @property
    def over(self) -> bool:
        return self.winner is not None or not self.free

    def place(self, mark: Mark, number: int) -> Self:
        """The position after `mark` took the free cell `number`."""
        if number not in self.free:
            raise ValueError(f"cell {number} is not free; free are {self.free}")
        return type(self)((*self.cells[: number - 1], mark, *self.cells[number:]))


def read_move(answer: str, board: Board) -> int | None:
    """The free cell, if it is the whole answer; else None."""
    word = answer.strip()
    return int(word) if word in board.cells and word.isdigit() else None


def outcome_of(board: Board, agent: Mark) -> Outcome:
    """The agent's result of a finished game."""
    if board.winner is None:
        return Outcome.DRAW
    return Outcome.WON if board.winner == agent else Outcome.LOST

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tic_tac_toe.game import LINES, Board, Mark, Outcome, outcome_of, read_move

MARKS: tuple[Mark, Mark] = ("X", "O")


def played(*cells: int) -> Board:
    """The board after X and O alternately took the cells."""
    board = Board()
    for turn, cell in enumerate(cells):
        board = board.place(MARKS[turn % 2], cell)
    return board


def test_a_taken_cell_is_refused() -> None:
    """A move to a taken cell is an error that lists the free cells."""
    with pytest.raises(ValueError, match=r"cell 5 is not free; free are \[1, 2, 3, 4, 6, 7, 8, 9\]"):
        played(5, 5)


@pytest.mark.parametrize("line", LINES)
def test_three_in_a_line_win(line: tuple[int, int, int]) -> None:
    """Each row, column and diagonal wins for both marks."""
    for mark in MARKS:
        board = Board()
        for cell in line:
            assert board.winner is None
            board = board.place(mark, cell + 1)
        assert board.winner == mark
        assert board.over


@given(st.permutations(range(1, 10)))
def test_every_game_ends(cells: list[int]) -> None:
    """Every game ends after 5 to 9 moves, and the numbers of marks differ by at most one."""
    board, taken = Board(), 0
    for turn, cell in enumerate(cells):
        if board.over:
            break
        board, taken = board.place(MARKS[turn % 2], cell), turn + 1
    assert board.over
    assert 5 <= taken <= 9
    assert len(board.free) == 9 - taken


@pytest.mark.parametrize(
    ("cells", "for_x", "for_o"),
    [
        ((1, 4, 2, 5, 3), Outcome.WON, Outcome.LOST),
        ((1, 4, 2, 5, 9, 6), Outcome.LOST, Outcome.WON),
        ((1, 2, 3, 5, 4, 7, 6, 9, 8), Outcome.DRAW, Outcome.DRAW),
    ],
)
def test_an_outcome_is_the_agents(cells: tuple[int, ...], for_x: Outcome, for_o: Outcome) -> None:
    """A win of one side is a loss of the other; a full board without a line is a draw for both."""
    assert outcome_of(played(*cells), "X") == for_x
    assert outcome_of(played(*cells), "O") == for_o


@pytest.mark.parametrize(
    ("answer", "move"),
    [("5", 5), (" 5\n", 5), *((no_move, None) for no_move in ("1", "X", "", "5 6", "0", "10", "five"))],
)
def test_a_move_is_the_number_of_a_free_cell_and_nothing_else(answer: str, move: int | None) -> None:
    """White space is allowed; a taken cell, a mark, two numbers or other words are no move."""
    assert read_move(answer, played(1)) == move

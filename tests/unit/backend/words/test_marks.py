"""Texts as lists of marks."""

import time

import pytest

from nat.backend.words.marks import disjoint


@pytest.mark.parametrize(
    ("marks", "kept"),
    [
        (["<a>", "<b>", "<a>"], ["<a>", "<b>"]),
        (["<a><b>", "<a>"], ["<a>", "<b>"]),
        (["<a><b><c>", "<a>", "<a><b>"], ["<a>", "<b>", "<c>"]),
        (["<a>text", "<a>"], ["<a>text"]),
        (["", "<a> <b>", "<a>"], ["<a>", "<b>"]),
    ],
)
def test_no_mark_begins_with_another_one(marks: list[str], kept: list[str]):
    """A longer one leaves the mark after the shorter one; if it leaves no mark, the shorter one is dropped."""
    assert sorted(disjoint(marks)) == kept


@pytest.mark.parametrize("marks", [[f"<{n}>" for n in range(20_000)], ["<a>" * n for n in range(300)]])
def test_a_tokenizer_with_many_marks_takes_no_time(marks: list[str]):
    """A model's folder chooses its special tokens; comparing all pairs of them took minutes, or nested too deeply."""
    began = time.process_time()
    assert len(disjoint(marks)) in {1, 20_000}
    assert time.process_time() - began < 5

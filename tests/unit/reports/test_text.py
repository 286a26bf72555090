"""Text for terminals."""

import pytest

from nat.reports.text import indented, one_line, printable, table


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("a\rb\x08\x7f", r"a\rb\x08\x7f"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202eevil\u2066", r"\u202eevil\u2066"),
        ("\u2028\ufeff\U000e0041", r"\u2028\ufeff\U000e0041"),
        ("\ud800", r"\ud800"),
        ("tab\there\nnext", "tab\there\nnext"),
        ("日本 é 👩\u200d💻", "日本 é 👩\u200d💻"),
    ],
)
def test_control_characters_are_shown_as_escapes(text, shown):
    """Nothing that a terminal obeys, reverses or hides is printed; text of any language is."""
    assert printable(text) == shown


def test_known_secrets_are_redacted():
    """As everywhere else."""
    assert printable(f"key sk-nat-{'x' * 43}") == "key **********"


def test_every_line_of_a_text_is_indented():
    """Also lines that end with a carriage return."""
    assert indented("a\r\n\nb", "│ ") == [r"│ a\r", "│", "│ b"]


def test_columns_are_as_wide_as_their_widest_cell():
    """The first to the left, the others to the right."""
    assert table(("a", "b"), [("xx", "1"), ("y", "222")]) == "a     b\nxx    1\ny   222"
    assert one_line("a\n b  c", 4) == "a b…"

"""Configurations in journals, which may be damaged or another's."""

import pytest

from nat.runs.recorded_config import config_of

BOMB = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 20))


def test_a_configuration_is_read():
    """As `nat` writes it."""
    assert config_of("llms:\n  student: {model: small}\n") == {"llms": {"student": {"model": "small"}}}


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "[a]",
        "a: \0",
        "a: 2026-13-45",
        f"a: {'9' * 5000}",
        "a: !!python/object/apply:os.getpid []",
        "a: &a [*a]",
        BOMB,
        "[" * 5000 + "]" * 5000,
        "{a: " * 200 + "}" * 200,
    ],
)
def test_any_other_text_is_none(text):
    """Nothing is raised or executed, and nothing grows, whatever a damaged or foreign journal has."""
    assert config_of(text) == {}

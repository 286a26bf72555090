"""One mistake, one message, before anything is paid: what was seen, where, what was wanted, and what to do."""

import pytest

from mistakes.corpus import files, message_of, read

MISTAKES = [(file.stem, each, read(file).command) for file in files() for each in read(file).mistakes]


@pytest.mark.parametrize(
    ("name", "mistake", "command"), MISTAKES, ids=[f"{name}: {each.mistake}" for name, each, _ in MISTAKES]
)
def test_the_message_is_as_it_stands(tmp_path, name, mistake, command):
    """Each mistake of the corpus prints its message, letter by letter."""
    found = message_of(mistake, command, tmp_path)
    assert found == mistake.message, (
        f"{mistake.mistake}: another message. If it reads better: cd tests && python -m mistakes {name}"
    )

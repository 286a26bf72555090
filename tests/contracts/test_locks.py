"""`make` and CI install pinned, tested versions."""

import pytest
from conformance.environments import PROJECT, REPOSITORY, check, name_of, names, requirements_in


def test_every_requirement_of_make_install_is_pinned():
    """`constraints.txt` pins each package of the extras that are installed into .venv."""
    asked = [
        PROJECT["dependencies"],
        *(PROJECT["optional-dependencies"][extra] for extra in ("local", "parquet", "dev")),
    ]
    pinned = requirements_in(REPOSITORY / "constraints.txt")
    assert {name_of(text) for texts in asked for text in texts} <= set(pinned)
    assert all(str(pin.specifier).startswith("==") for pin in pinned.values())


@pytest.mark.parametrize("name", names())
def test_each_environment_has_a_matching_lock(name):
    """Each lock pins all requirements of its file and of our package to allowed versions."""
    assert check(name) == []

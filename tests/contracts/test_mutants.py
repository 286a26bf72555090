"""The names in `mutants/` are checked here, because `make mutants` takes hours."""

import pytest
from mutants.__main__ import SOURCE, TARGETS, TESTS, Part
from mutants.equivalent import EQUIVALENT
from mutants.mutate import mutants


def test_modules_and_tests_of_each_target_exist():
    """Every module and test that `mutants` names exists."""
    modules = {module for target in TARGETS.values() for module in target.modules}
    named = {SOURCE / module for module in modules | EQUIVALENT.keys()}
    named |= {TESTS / test for target in TARGETS.values() for test in target.tests}
    assert [str(path) for path in sorted(named) if not path.is_file()] == []


def test_every_equivalent_change_has_a_reason():
    """Every change that counts as equivalent has a reason; otherwise it would hide a gap."""
    assert all(reason for changes in EQUIVALENT.values() for reason in changes.values())


def test_the_parts_make_all_changes_once():
    """A run takes hours, so it can be made in parts; none of them overlap, and together they leave nothing out."""
    source = "def f(a, b):\n    return a < b and a + 2 < 7 or not b\n"
    whole = list(mutants(source))
    parts = [Part.parse(f"{number}/3").chosen(mutants(source)) for number in (1, 2, 3)]
    assert len(whole) > 6
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert sorted(change.source for part in parts for change in part) == sorted(change.source for change in whole)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b"])
def test_a_part_of_no_whole_is_refused(text):
    """Such a part would make no change, which looks as if every change were noticed."""
    with pytest.raises(ValueError):  # noqa: PT011 - argparse words it
        Part.parse(text)

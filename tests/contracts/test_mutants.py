"""The names in `mutants/` are checked here, because `make mutants` takes hours."""

from mutants.__main__ import SOURCE, TARGETS, TESTS
from mutants.equivalent import EQUIVALENT


def test_modules_and_tests_of_each_target_exist():
    """Every module and test that `mutants` names exists."""
    modules = {module for target in TARGETS.values() for module in target.modules}
    named = {SOURCE / module for module in modules | EQUIVALENT.keys()}
    named |= {TESTS / test for target in TARGETS.values() for test in target.tests}
    assert [str(path) for path in sorted(named) if not path.is_file()] == []


def test_every_equivalent_change_has_a_reason():
    """Every change that counts as equivalent has a reason; otherwise it would hide a gap."""
    assert all(reason for changes in EQUIVALENT.values() for reason in changes.values())

"""`make mutants` takes hours, so what it names is checked here."""

from mutants.__main__ import SOURCE, TARGETS, TESTS
from mutants.equivalent import EQUIVALENT


def test_every_module_and_test_that_mutants_names_is_there():
    """A renamed module is renamed in the targets, too."""
    modules = {module for target in TARGETS.values() for module in target.modules}
    named = {SOURCE / module for module in modules | EQUIVALENT.keys()}
    named |= {TESTS / test for target in TARGETS.values() for test in target.tests}
    assert [str(path) for path in sorted(named) if not path.is_file()] == []


def test_every_equivalent_change_has_a_reason():
    """Without it, a gap would count as proven."""
    assert all(reason for changes in EQUIVALENT.values() for reason in changes.values())

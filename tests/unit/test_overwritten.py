"""Distributions that bring the package `nat`, too, are named with the commands that mend the environment."""

from importlib.metadata import PackageNotFoundError, entry_points

import pytest

import nat.overwritten
from nat.overwritten import CONFLICTING, STAND_IN, conflict


def versions(**installed):
    def version(name):
        try:
            return installed[name.replace("-", "_")]
        except KeyError:
            raise PackageNotFoundError(name) from None

    return version


@pytest.mark.parametrize("name", CONFLICTING)
def test_a_distribution_with_our_files_is_a_conflict(name):
    """The message says what was found, and the hint what to uninstall and to install again."""
    message, hint = conflict(versions(**{name.replace("-", "_"): "1.9.0", "nvidia_nat_mcp": "1.9.0"}))
    assert f"{name} 1.9.0 and nat-finetuning-harness" in message
    assert f"pip uninstall --yes {name}; pip install --force-reinstall --no-deps" in hint


def test_other_plug_ins_and_our_stand_ins_are_no_conflict():
    """Plug-ins without files of ours may stay; a stand-in has no files at all."""
    assert conflict(versions(nvidia_nat_mcp="1.9.0", nvidia_nat_openpipe_art=f"1.9.0{STAND_IN}")) is None


def test_the_command_of_others_ends_when_it_loads_our_entry_point(monkeypatch):
    """Upstream's command loads all entry points of `nat.cli`, and passes a SystemExit on."""
    (point,) = [point for point in entry_points(group="nat.cli") if point.name == "nat_overwritten"]
    with pytest.raises(AttributeError, match="command"):
        point.load()
    monkeypatch.setattr(nat.overwritten, "conflict", lambda: ("two", "mend"))
    with pytest.raises(SystemExit, match="Error: two\n  → mend"):
        point.load()

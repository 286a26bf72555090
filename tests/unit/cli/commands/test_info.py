import json

import pytest
from click.testing import CliRunner

from fakes.guide_components import register_guide_components
from nat.cli.commands.info import SECTIONS, info_command
from nat.registry import discovery
from nat.registry.catalog import pushed_catalog


@pytest.fixture
def run():
    """`nat info components` with the guide's components registered."""
    with pushed_catalog():
        register_guide_components()
        yield lambda *options: CliRunner().invoke(info_command, ["components", *options])


def test_components_with_their_fields(run):
    """Types, packages, fields, defaults and descriptions of all registered components are listed."""
    output = run().stdout
    assert "trajectory_builders: my_traj_builder" in output
    assert "num_generations: int, default 2 - Number of trajectory generations per example" in output
    assert "llms: openai  (nat/openai, nat.plugins.llms.openai)" in output


@pytest.mark.parametrize(("theirs", "section"), SECTIONS.items())
def test_the_toolkits_names_of_types_choose_sections(run, theirs, section):
    """`-t evaluator` shows what `-t eval.evaluators` does, in any case."""
    assert run("-t", theirs.upper()).stdout == run("-t", str(section)).stdout


def test_query_finds_text(run):
    """`-q` searches types, fields and descriptions, ignoring case."""
    output = run("-q", "TRAINING API endpoint").stdout
    assert "my_trainer_adapter" in output
    assert "my_traj_builder" not in output
    assert run("-q", "no such words anywhere").stdout == "No component matches.\n"


def test_json_for_machines(run):
    """`--json` prints a list of records."""
    [component] = json.loads(run("--json", "-t", "trajectory_builders", "-q", "my_traj").stdout)
    assert component["type"] == "my_traj_builder"
    field = next(f for f in component["fields"] if f["name"] == "num_generations")
    assert field == {
        "name": "num_generations",
        "type": "int",
        "required": False,
        "default": 2,
        "description": "Number of trajectory generations per example",
    }


def test_failed_plugins_are_listed(run):
    """The list explains why a component is missing."""
    discovery.failures.append("The plug-in 'p' failed to import (p.register): ImportError: no q")
    try:
        assert "The plug-in 'p' failed to import (p.register): ImportError: no q" in run().stderr
    finally:
        discovery.failures.pop()

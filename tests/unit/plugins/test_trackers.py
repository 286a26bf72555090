"""The built-in trackers as components; `conformance/trackers` tests them with their packages."""

import posixpath
import re

import pytest
from conformance.environments import PROJECT

from nat.config.load import dump_resolved, parse_config
from nat.data_models.component_ref import ComponentGroup
from nat.errors import ConfigError
from nat.plugins.trackers.mlflow import accepted_name
from nat.plugins.trackers.tensorboard import TensorBoardConfig
from nat.plugins.trackers.wandb import WandbConfig
from nat.registry.catalog import current_catalog
from nat.registry.discovery import discover_components

TYPES = ["comet", "mlflow", "tensorboard", "trackio", "wandb"]


def tracked(trackers):
    return parse_config({"finetuning": {"trackers": trackers}}).finetuning.trackers


@pytest.mark.parametrize("name", TYPES)
async def test_each_type_has_an_extra_of_its_name(name):
    """It is made without its package, which is imported when a run begins; the extra installs what it imports."""
    discover_components()
    component = current_catalog().component(ComponentGroup.TRACKERS, name)
    config = component.config_type()
    assert config.extra == name
    extra = {text.partition(">=")[0].replace("-", "_") for text in PROJECT["optional-dependencies"][name]}
    assert set(config.packages) <= extra
    async with component.build_fn(config, None) as opened:
        assert callable(opened)


def test_trackers_are_named_in_the_yaml():
    """Several at once, also of one type."""
    found = tracked(
        {"a": {"_type": "wandb", "project": "games"}, "b": {"_type": "wandb"}, "c": {"_type": "tensorboard"}}
    )
    assert found == {"a": WandbConfig(project="games"), "b": WandbConfig(), "c": TensorBoardConfig()}


def test_the_resolved_configuration_has_only_trackers_that_are_set():
    """So that a run without them records what it did before."""
    with_one = dump_resolved(parse_config({"finetuning": {"trackers": {"board": {"_type": "tensorboard"}}}}))
    assert "_type: tensorboard" in with_one
    assert "trackers" not in dump_resolved(parse_config({}))


@pytest.mark.parametrize(
    ("trackers", "words"),
    [
        ({"a": {"_type": "wandbb"}}, "finetuning.trackers.a._type: 'wandbb' is not registered as tracker"),
        ({"a": {"_type": "wandb", "projekt": "x"}}, "finetuning.trackers.a.projekt"),
        ({"../a": {"_type": "wandb"}}, "finetuning.trackers"),
        ({"a": "wandb"}, "write {_type: wandb}"),
    ],
)
def test_a_wrong_tracker_is_named_by_its_place(trackers, words):
    """A name is also that of a file, so it has no slash."""
    with pytest.raises(ConfigError) as caught:
        tracked(trackers)
    assert words in str(caught.value)


@pytest.mark.parametrize("odd", ["a|b", "a$b", "a//b", "../x", "/abs", "x/..", "x\ny", "\x00", "\ud800", "n" * 10_000])
def test_mlflow_gets_names_that_it_accepts(odd):
    """Characters, parts of a path and lengths that it refuses are replaced; different names stay different."""
    found = accepted_name(odd)
    assert re.fullmatch(r"[\w./ :-]{1,250}", found)
    assert posixpath.normpath(found) == found
    assert not found.startswith(("/", ".."))
    assert found != accepted_name(f"{odd}.")


def test_mlflow_gets_other_names_as_they_are():
    """Those of all metrics of the project, and of evaluators in any script."""
    for name in ("train/grad_norm", "reward/beside_ü b:1", "llms.student.model"):
        assert accepted_name(name) == name

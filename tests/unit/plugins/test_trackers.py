"""The built-in trackers as components; `conformance/trackers` tests them with their packages."""

import posixpath
import re

import pytest
from conformance.environments import PROJECT

from nat.config.load import parse_config
from nat.data_models.component_ref import ComponentGroup
from nat.errors import ConfigError
from nat.plugins.trackers import accepted_name
from nat.registry.catalog import current_catalog
from nat.registry.discovery import discover_components

TYPES = ["comet", "mlflow", "tensorboard", "trackio", "wandb"]


def tracked(trackers):
    return parse_config({"finetuning": {"trackers": trackers}}).finetuning.trackers


@pytest.mark.parametrize("name", TYPES)
async def test_each_type_has_an_extra_of_its_name(name):
    """It is made without its package, which is imported when a run begins; the extra installs what it imports."""
    discover_components()
    component = current_catalog().components[ComponentGroup.TRACKERS].get(name)
    config = component.config_type()
    assert config.extra == name
    extra = {text.partition(">=")[0].replace("-", "_") for text in PROJECT["optional-dependencies"][name]}
    assert set(config.packages) <= extra
    async with component.build_fn(config, None) as opened:
        assert callable(opened)


@pytest.mark.parametrize(
    ("trackers", "words"),
    [
        ({"a": {"_type": "wandbb"}}, "finetuning.trackers.a._type: 'wandbb' is not registered as tracker"),
        ({"a": {"_type": "wandb", "projekt": "x"}}, "finetuning.trackers.a.projekt"),
        ({"../a": {"_type": "wandb"}}, "finetuning.trackers"),
        ({"a": "wandb"}, "finetuning.trackers.a: expected a mapping with the key _type, got 'wandb'"),
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

"""Names that may become folders, and the models that requested names mean."""

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nat.art.server.store import ModelReference, Store, key_of, parse, version
from nat.art.wire import ArtModel

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", fullmatch=True)


@given(project=st.text(max_size=140), name=st.text(max_size=140))
def test_accepted_names_stay_below_the_root(project, name):
    """A model name is refused or becomes its own folder inside the output folder."""
    try:
        key = key_of(ArtModel(project=project, name=name))
    except ValueError as error:
        assert "use letters" in str(error)  # noqa: PT017 - either way is right
    else:
        folder = Store(Path("/root")).folder(key)
        assert folder.resolve() == folder
        assert folder.parts == ("/", "root", project, "models", name)


@given(project=NAMES, name=NAMES, step=st.integers(0, 10**6), entity=st.text(string.ascii_letters, min_size=1))
def test_served_names_parse_back(project, name, step, entity):
    """Every name that the server lists, and those of the serverless client, are parsed to exactly its weights."""
    artifact = f"wandb-artifact:///{entity}/{project}/{name}"
    assert parse(version(name, step)) == ModelReference(name, step=step)
    assert parse(f"{artifact}:step{step}") == ModelReference(name, project, step)
    assert parse(artifact) == ModelReference(name, project)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("m", ModelReference("m")),
        ("m@latest", ModelReference("m")),
        ("m@x", ModelReference("m@x")),
        ("m@", ModelReference("m@")),
        ("m@²", ModelReference("m@²")),
        ("m@" + "1" * 5000, ModelReference("m@" + "1" * 5000)),
        ("wandb-artifact:///e/p/m:latest", ModelReference("m", "p")),
        ("wandb-artifact:///e/p/m:v3", ModelReference("wandb-artifact:///e/p/m:v3")),
        ("Qwen/Qwen2.5-0.5B", ModelReference("Qwen/Qwen2.5-0.5B")),
    ],
)
def test_other_names_are_plain_names(text, wanted):
    """`latest` is the newest; a suffix that is no version is part of the name."""
    assert parse(text) == wanted

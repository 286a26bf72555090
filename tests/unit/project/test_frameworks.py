import pytest

from nat.errors import ProjectRefused
from nat.project.frameworks import FRAMEWORKS, SHARED, TEMPLATES, framework_named


def test_every_framework_has_a_template():
    """The folders of `templates/` are the frameworks, and what all of them share."""
    folders = {path.name for path in TEMPLATES.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders == {*FRAMEWORKS, SHARED.name}


def test_the_name_of_an_extra_is_understood():
    """A framework may be written as its extra; an unknown one suggests the nearest."""
    assert framework_named("Llama-Index") == "llama_index"
    with pytest.raises(ProjectRefused, match="Did you mean 'langgraph'"):
        framework_named("langraph")

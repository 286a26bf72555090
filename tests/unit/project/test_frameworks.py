import ast

import pytest
from conformance.environments import PROJECT, REPOSITORY

from nat.data_models.llm import LLMFrameworkEnum
from nat.errors import ProjectRefused
from nat.project.frameworks import FRAMEWORKS, SHARED, TEMPLATES, framework_named

PAGES = REPOSITORY / "docs" / "agents" / "frameworks"


def test_every_framework_has_a_template():
    """The folders of `templates/` are the frameworks, and what all of them share."""
    folders = {path.name for path in TEMPLATES.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders == {*FRAMEWORKS, SHARED.name}


def test_every_supported_framework_is_offered():
    """Each `wrapper_type` has a template whose agent uses it; the blocking OpenAI client has the other one's."""
    used = {ast.literal_eval(value) for name in FRAMEWORKS if (value := wrapper_type(name)) is not None}
    assert used == set(LLMFrameworkEnum) - {LLMFrameworkEnum.OPENAI_SYNC}


def wrapper_type(name: str) -> ast.expr | None:
    """The value of FRAMEWORK in a template; None for a program."""
    agent = TEMPLATES / name / "agent.py"
    body = ast.parse(agent.read_text()).body if agent.exists() else []
    named = [node for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "FRAMEWORK"]
    return named[0].value if named else None


def test_every_extra_exists():
    """The extras that projects name are those of this package."""
    named = {framework.extra for framework in FRAMEWORKS.values()} - {None}
    assert named <= set(PROJECT["optional-dependencies"])


@pytest.mark.parametrize("name", ["llama_index", "llama-index", "Llama_Index"])
def test_the_name_of_an_extra_is_understood(name):
    """A framework may be written as its extra."""
    assert framework_named(name) == "llama_index"


def test_the_page_of_each_framework_begins_a_project():
    """Each page of the docs has the command that writes a project for its framework."""
    pages = [page for page in PAGES.glob("*.md") if page.stem != "openai"]
    assert len(pages) > 10
    assert [page.name for page in pages if f"`nat init my_agent --framework {page.stem}`" not in page.read_text()] == []


def test_an_unknown_framework_suggests_the_nearest():
    """The error names the nearest framework, and lists all of them."""
    with pytest.raises(ProjectRefused) as raised:
        framework_named("langraph")
    assert raised.value.message == "there is no framework 'langraph'. Did you mean 'langgraph'?"
    assert all(name in str(raised.value.hint) for name in FRAMEWORKS)

"""Files and modules that a configuration names register its components."""

import sys

import pytest

from nat.data_models.component_ref import ComponentGroup
from nat.errors import RegistryError
from nat.registry.catalog import current_catalog, pushed_catalog
from nat.registry.imports import function_at, import_components

COMPONENT = """
from nat.cli.register_workflow import register_function
from nat.data_models.function import FunctionBaseConfig
{more}

class AgentConfig(FunctionBaseConfig, name="{name}"):
    pass


@register_function(config_type=AgentConfig)
async def agent(config, builder):
    yield lambda question: question
"""


@pytest.fixture(autouse=True)
def process(monkeypatch, tmp_path):
    """A process that has imported nothing from the test's folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pushed_catalog():
        before = set(sys.modules)  # with the built-in components, which the process registers once
        yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(path, name, more=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(COMPONENT.format(name=name, more=more))
    return str(path)


def registered(name):
    return name in current_catalog().components[ComponentGroup.FUNCTIONS].names()


def test_a_file_registers_its_components(tmp_path):
    """An absolute path, and one from the current folder; a second import does nothing."""
    import_components(write(tmp_path / "elsewhere" / "first_agent.py", "first"))
    write(tmp_path / "second_agent.py", "second")
    for _ in range(2):
        import_components("second_agent.py")
    assert registered("first")
    assert registered("second")


def test_a_file_imports_its_neighbours(tmp_path):
    """As in a script, the file's folder is searched first."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "near_helper.py").write_text("VALUE = 1\n")
    import_components(write(tmp_path / "lib" / "near_agent.py", "near", more="from near_helper import VALUE\n"))
    assert registered("near")


def test_a_module_is_found_from_the_current_folder(tmp_path):
    """A package beside the configuration needs no installation."""
    write(tmp_path / "my_package" / "agents.py", "packaged")
    import_components("my_package.agents")
    assert registered("packaged")


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("missing.py", None, "the file missing.py does not exist"),
        ("missing_module", None, "missing_module cannot be imported: ModuleNotFoundError"),
        ("json.py", "", r"json\.py cannot be imported as 'json': Python finds .*json/__init__\.py"),
        ("time.py", "", r"time\.py cannot be imported as 'time': Python finds a built-in"),
        ("agent.v2.py", "", r"agent\.v2\.py cannot be imported: ModuleNotFoundError"),
        ("broken_agent.py", "1 / 0", r"broken_agent\.py cannot be imported: ZeroDivisionError: .*agent\.py, line 4\)"),
        ("ends_agent.py", "raise SystemExit(3)", r"cannot be imported: SystemExit: 3"),
        ("needs_agent.py", "import no_such_package", r"cannot be imported: ModuleNotFoundError: .*no_such_package"),
        ("upstream_agent.py", "import nat.embedder", r"docs/from/nat\.md lists what is here"),
    ],
)
def test_what_cannot_be_imported_is_named_with_its_place(tmp_path, name, more, message):
    """A missing file or module, a name that Python has given to another, and code that raises."""
    if more is not None:
        write(tmp_path / name, "refused", more=more)
    with pytest.raises(RegistryError, match=message):
        import_components(name)
    assert not registered("refused")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("score.py:scored", r"score\.py has no function 'scored'\. Did you mean 'score'\?"),
        ("score.py:of_item", r"it has the parameters \(item\)\n.*`def of_item\(item, output\)`"),
        ("score", "names no file or module"),
    ],
)
def test_a_function_is_named_with_its_file(tmp_path, name, message):
    """It is taken from `file.py:name` or `module.name`; another name, or other parameters, are errors."""
    (tmp_path / "score.py").write_text("def score(item, output): return 1\ndef of_item(item): return 1\n")
    assert function_at("score.py:score", "item", "output") is function_at("score.score", "item", "output")
    with pytest.raises(RegistryError, match=message):
        function_at(name, "item", "output")


def test_code_that_is_no_python_is_named_with_its_line(tmp_path):
    """A syntax error says the file and the line."""
    (tmp_path / "typo_agent.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(RegistryError, match=r"cannot be imported: .*typo_agent\.py, line 2"):
        import_components("typo_agent.py")

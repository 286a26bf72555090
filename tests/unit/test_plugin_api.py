"""The import path for plug-ins of release 1.9 and later."""

import subprocess
import sys

import pytest

import nat.plugin_api
from nat.errors import NatError, NotProvided

MISSING = sorted(nat.plugin_api.NOT_PROVIDED)


@pytest.mark.parametrize("name", nat.plugin_api.__all__)
def test_what_is_promised_is_there(name):
    """Every name of `__all__` can be imported."""
    assert getattr(nat.plugin_api, name) is not None


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_part_says_what_to_use(name):
    """`from nat.plugin_api import` of another part of the toolkit ends with its replacement."""
    with pytest.raises(NotProvided, match=rf"nat\.plugin_api\.{name}: .*(not part of this project|no person to ask); "):
        exec(f"from nat.plugin_api import {name}", {})  # noqa: S102 - a name of the list above


def test_other_names_are_ordinary_attribute_errors():
    """Tools that look for attributes, such as test runners, find none."""
    assert not hasattr(nat.plugin_api, "pytest_plugins")
    with pytest.raises(ImportError, match="cannot import name 'Bilder'"):
        exec("from nat.plugin_api import Bilder", {})  # noqa: S102 - a misspelt name


def test_the_refusal_is_an_import_error():
    """Plug-ins that import optional parts inside `try: … except ImportError` work."""
    assert issubclass(NotProvided, ImportError)
    assert issubclass(NotProvided, NatError)


def test_the_older_path_refuses_too():
    """The decorators that `nat.cli.register_workflow` lacks say what to use."""
    with pytest.raises(NotProvided, match="retrievers are not part of this project"):
        exec("from nat.cli.register_workflow import register_retriever_client", {})  # noqa: S102 - as above


def test_both_paths_give_the_same_objects():
    """A class imported from either path is the same, so `isinstance` works."""
    from nat.builder.builder import Builder
    from nat.cli.register_workflow import register_function

    assert nat.plugin_api.Builder is Builder
    assert nat.plugin_api.register_function is register_function


def test_a_star_import_gives_what_is_there():
    """`from nat.plugin_api import *` needs none of the missing parts."""
    code = "from nat.plugin_api import *; print(register_evaluator.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "register_evaluator"

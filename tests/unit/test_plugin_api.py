"""The import path for plug-ins of release 1.9 and later."""

import subprocess
import sys

import pytest

import nat.plugin_api


@pytest.mark.parametrize("name", nat.plugin_api.__all__)
def test_what_is_promised_is_there(name):
    """Every name of `__all__` can be imported."""
    assert getattr(nat.plugin_api, name) is not None


def test_a_missing_name_is_no_error_to_ask_for():
    """`hasattr` and `getattr` with a default tell a plug-in what is there; the toolkit has more names."""
    assert not hasattr(nat.plugin_api, "ObjectStore")
    assert getattr(nat.plugin_api, "FunctionGroup", None) is None


def test_both_paths_give_the_same_objects():
    """A class imported from either path is the same, so `isinstance` works."""
    from nat.builder.builder import Builder
    from nat.cli.register_workflow import register_function

    assert nat.plugin_api.Builder is Builder
    assert nat.plugin_api.register_function is register_function


def test_a_star_import_gives_what_is_there():
    """`from nat.plugin_api import *` needs none of the missing parts."""
    code = "from nat.plugin_api import *; print(callable(register_evaluator))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"

import importlib

import pytest

from nat.errors import ConfigError
from nat.plugins.llms.extras import needs_extra


def test_a_missing_framework_names_its_extra():
    """The error says which package is missing and what to install."""
    with pytest.raises(ConfigError) as raised, needs_extra("some_framework"):
        importlib.import_module("some_framework_that_nobody_has")
    assert "wrapper_type 'some_framework': the package 'some_framework_that_nobody_has'" in str(raised.value)
    assert raised.value.hint.startswith("pip install 'nat-finetuning-harness[some_framework]'")


def test_a_framework_that_fails_to_import_is_its_own_error():
    """Another error while importing is not mistaken for a missing package."""
    with pytest.raises(ImportError, match="it is of another time"), needs_extra("some_framework"):
        raise ImportError("it is of another time")

"""Runs of these suites are not remembered as the user's, either; by the pytest.ini here, pytest does not look above."""

from conftest import pytest_configure, pytest_unconfigure

__all__ = ["pytest_configure", "pytest_unconfigure"]

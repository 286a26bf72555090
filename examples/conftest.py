"""Fixtures of the examples' tests."""

from fakes.forked_processes import forked_processes, forked_processes_of_this_run, shared_folder

__all__ = ["forked_processes", "forked_processes_of_this_run", "shared_folder"]

"""Tiny models for all tests of the backend."""

from fakes.tiny_fixtures import loaded, make_learner, tiny_dir

__all__ = ["loaded", "make_learner", "tiny_dir"]

"""For all tests: a busy machine is no failure, so property tests have no deadline; in CI they stay derandomized."""

from hypothesis import settings

settings.register_profile("patient", settings(), deadline=None)
settings.load_profile("patient")

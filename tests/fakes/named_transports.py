"""Connections that tell which test opened them: one that was left open may be found in a later test."""

import os
from asyncio import selector_events


def name_transports() -> None:
    """Have the warning of an unclosed connection name its test."""
    kind = selector_events._SelectorTransport
    begin, text = kind.__init__, kind.__repr__

    def begin_in_test(self: object, *args: object, **options: object) -> None:
        self.__dict__["opened_in"] = os.environ.get("PYTEST_CURRENT_TEST")
        begin(self, *args, **options)

    kind.__init__ = begin_in_test
    kind.__repr__ = lambda self: f"{text(self)}, opened in {self.__dict__.get('opened_in')}"

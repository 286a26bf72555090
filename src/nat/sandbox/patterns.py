"""Match the regular expressions of an adapter's configuration as peft does, to see that they end."""

import re
from collections.abc import Sequence

_FORMS = ("{}", r"(.*\.)?({})$", r"(^|.*\.){}($|\..*)", r"(?:^|.*?\.){}\.(?P<idx>\d+)\.")
"""How peft matches target modules, keys of ranks, modules to save, and layers."""


def match_all(patterns: Sequence[str], names: Sequence[str]) -> None:
    """Match each pattern with each name in each form; patterns that are none are left to peft, which names them."""
    for pattern in patterns:
        for form in _FORMS:
            try:
                compiled = re.compile(form.format(pattern))
            except re.error:
                continue
            for name in names:
                compiled.match(name)
                compiled.fullmatch(name)

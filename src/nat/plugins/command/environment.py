"""Which variables a program sees. Pure: the harness's own environment is passed in.

It is built from nothing, since the harness's own holds keys that no agent should have.
"""

from collections.abc import Mapping
from pathlib import Path

_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT")
_MODEL_SERVER = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY")


def check_names(env: dict[str, str]) -> dict[str, str]:
    """The configuration's own variables, if they leave alone those that lead to the model."""
    taken = sorted(set(env) & set(_MODEL_SERVER))
    if taken:
        raise ValueError(f"{', '.join(taken)}: set for each rollout, so that its calls are its own")
    return env


def environment(
    own: Mapping[str, str], inherited: Mapping[str, str], *, url: str, key: str, home: Path, scratch: Path
) -> dict[str, str]:
    """`url` is the gateway's, without `/v1`; `own` is the configuration's and wins."""
    passed_on = {name: inherited[name] for name in _PASSED_ON if name in inherited}
    model = dict(zip(_MODEL_SERVER, (f"{url}/v1", key, url, key), strict=True))
    return {**passed_on, "HOME": str(home), "TMPDIR": str(scratch), **own, **model}

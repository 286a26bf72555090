"""The script: the user's messages, and the scripted server's answers.

Every text of the user has a marker with the rollout and the scene, `[many-7 sum]`. The last marker, and the number of
answers since, select the next answer. So one server serves many concurrent rollouts, and frameworks may wrap the
texts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.frameworks.talks import CAUSE, SCENES

from fakes.openai_replies import Refuse, Say, tool_call

_OPEN, _CLOSE = "<code>", "</code>"
_MARKER = re.compile(r"\[([a-z]+-\d+) ([a-z]+)\]")
_FINISH = "final_answer"
"""Some frameworks have a tool of this name, which the agent calls when it has finished."""


@dataclass(frozen=True)
class Cue:
    """The place of a request in the script."""

    rollout: str
    scene: str
    spoken: int
    """Answers since the marker."""


def cue_of(body: Mapping[str, Any]) -> Cue | None:
    """The place that the request's last marker names; None if no message has a marker.

    An error message counts as an answer: smolagents keeps it and forgets the call that it came from.
    """
    spoken = 0
    for message in reversed(body["messages"]):
        if message["role"] == "assistant":
            spoken += 1
            continue
        text = text_of(message.get("content"))
        spoken += CAUSE in text
        markers = _MARKER.findall(text)
        if markers:
            rollout, scene = markers[-1]
            return Cue(rollout, scene, spoken)
    return None


def reply(cue: Cue, body: Mapping[str, Any], times: int) -> Say | Refuse:
    """The server's answer; `times` is the number of equal requests so far, this one included."""
    if cue.scene == "busy" and times == 1:
        return Refuse(503, "busy", {"retry-after-ms": "1"})
    lines = SCENES[cue.scene]
    line = lines[min(cue.spoken, len(lines) - 1)]
    if isinstance(line, str):
        return _say(line.format(times=times), cue, body)
    if wants_code(body):
        return Say(calls_in_code([(name, _filled(arguments, cue)) for name, arguments in line]))
    calls = [
        tool_call(_offered(name, body), _filled(arguments, cue), f"call_{cue.rollout}_{cue.scene}_{number}")
        for number, (name, arguments) in enumerate(line, 1)
    ]
    return Say(content=None, tool_calls=tuple(calls))


def _say(text: str, cue: Cue, body: Mapping[str, Any]) -> Say:
    if wants_code(body):
        return Say(finish_in_code(text))
    if _FINISH not in _tools(body):
        return Say(text)
    finish = tool_call(_FINISH, {"answer": text}, f"call_{cue.rollout}_{cue.scene}_end_{cue.spoken}")
    return Say(content=None, tool_calls=(finish,))


def _filled(arguments: Mapping[str, Any], cue: Cue) -> dict[str, Any]:
    """The answer with the rollout's name in its texts, so that a sub-agent's request has a cue."""
    return {k: v.format(rollout=cue.rollout) if isinstance(v, str) else v for k, v in arguments.items()}


def _offered(name: str, body: Mapping[str, Any]) -> str:
    """The tool's name in the request: the framework may put a prefix before ours."""
    return next((offered for offered in _tools(body) if offered.endswith(name)), name)


def _tools(body: Mapping[str, Any]) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools") or ()]


def text_of(content: Any) -> str:
    """The texts of a message, without images."""
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content)
    return str(content or "")


def wants_code(body: Mapping[str, Any]) -> bool:
    """True if the system prompt says how to mark code: such an agent writes Python instead of tool calls."""
    return any(_OPEN in str(message["content"]) for message in body["messages"] if message["role"] == "system")


def calls_in_code(calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Code that calls tools and prints what they return."""
    return _code_block(f"print({name}(**{dict(arguments)!r}))" for name, arguments in calls)


def finish_in_code(text: str) -> str:
    """Code that gives the final answer."""
    return _code_block([f"final_answer({text!r})"])


def _code_block(lines: Iterable[str]) -> str:
    return "\n".join(["I know what to do.", _OPEN, *lines, _CLOSE])

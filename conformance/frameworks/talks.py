"""The conversations that every framework's agent plays, and the answers that it gets.

Standard library only: every framework's environment imports this module.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

AGENT = "You are a careful agent."
EXPERT = "You are an expert whom other agents ask."
CAUSE = "nothing can be divided by 0"
"""The text of the error that the failing tool raises."""
ONE_PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)

Line = str | tuple[tuple[str, Mapping[str, Any]], ...]
"""The assistant's next message: a text, or tool calls with their arguments."""

SCENES: Mapping[str, Sequence[Line]] = {
    "hello": ("Good morning.",),
    "more": ("That is all I know.",),
    "sum": ((("add", {"a": 2, "b": 3}),), "The sum is 5."),
    "pairs": ((("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})), "They are 3 and 7."),
    "fail": ((("divide", {"a": 1, "b": 0}),), "It cannot be divided."),
    "again": ("The same, said {times} times.",),
    "retry": ("Attempt {times}.",),
    "busy": ("Now there is time.",),
    "expert": ((("expert", {"question": "Is it so? [{rollout} expertise]"}),), "The expert agrees."),
    "expertise": ("It is so.",),
    "image": ("One pixel.",),
    "stream": ((("add", {"a": 20, "b": 22}),), "Streamed: 42."),
}


@dataclass(frozen=True)
class Said:
    """One message of the user."""

    text: str
    image_url: str | None = None

    @property
    def picture(self) -> bytes:
        """The bytes of the image, a PNG, for frameworks that do not take its URL."""
        assert self.image_url is not None, "this message has no image"
        return base64.b64decode(self.image_url.partition("base64,")[2])


class AsGiven:
    """A picture for a framework that encodes PIL images; `save` writes the original bytes."""

    def __init__(self, picture: bytes) -> None:
        self._picture = picture

    def save(self, file: IO[bytes], format: str) -> None:
        """Write the original bytes, with the signature of PIL's `save`."""
        file.write(self._picture)


@dataclass(frozen=True)
class Talk:
    """One conversation of an agent with its user."""

    scene: str
    system: str
    says: tuple[Said, ...]
    answers: tuple[str, ...]
    """The agent's expected answers, one for each message."""
    tools: tuple[str, ...] = ()
    stream: bool = False


def talks_of(rollout: str) -> list[Talk]:
    """All conversations of one rollout, in order; the sub-agent's own is `expertise`."""
    return [
        _talk(rollout, "turns", "hello", "more"),
        _talk(rollout, "sum", "sum", tools=("add", "divide")),
        _talk(rollout, "pairs", "pairs", tools=("add", "divide")),
        _talk(rollout, "fail", "fail", tools=("add", "divide")),
        _talk(rollout, "again", "again", "again"),
        _talk(rollout, "retry", "retry"),
        _talk(rollout, "retry", "retry", times=2),
        _talk(rollout, "busy", "busy"),
        _talk(rollout, "expert", "expert", tools=("expert",)),
        Talk("image", AGENT, (Said(f"What is this? [{rollout} image]", ONE_PIXEL),), ("One pixel.",)),
        _talk(rollout, "stream", "stream", tools=("add",), stream=True),
    ]


def expertise(question: str) -> Talk:
    """The sub-agent's conversation about a question."""
    return Talk("expertise", EXPERT, (Said(question),), ("It is so.",))


def _talk(
    rollout: str, name: str, *scenes: str, times: int = 1, tools: tuple[str, ...] = (), stream: bool = False
) -> Talk:
    said = tuple(Said(f"Go on, please. [{rollout} {scene}]") for scene in scenes)
    answers = []
    for number, scene in enumerate(scenes):
        last = SCENES[scene][-1]
        assert isinstance(last, str), "a scene ends with a text"
        answers.append(last.format(times=times + scenes[:number].count(scene)))
    return Talk(name, AGENT, said, tuple(answers), tools, stream)

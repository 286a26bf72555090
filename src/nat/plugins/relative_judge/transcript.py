"""An attempt as the judge reads it: messages as text, shortened to a limit. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal

from nat.data_models.evaluator import EvalInputItem
from nat.finetuning.trajectories.calls import calls_of
from nat.finetuning.trajectories.messages import conversations, text_of
from nat.plugins.evaluators.llm_judge import text_of_value

_LEFT_OUT = "\n[… {} characters left out …]\n"
_NOTE = len(_LEFT_OUT) + 8


@dataclass(frozen=True)
class TranscriptPart:
    """One message; only its text may be shortened."""

    role: str
    text: str
    calls: tuple[str, ...] = ()
    """Its tool calls."""

    def __str__(self) -> str:
        return "\n".join(filter(None, [f"[{self.role}]", self.text, *self.calls]))


@dataclass(frozen=True)
class Transcript:
    """One attempt."""

    parts: tuple[TranscriptPart, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.parts))


def transcript(item: EvalInputItem, judged: Literal["trajectory", "answer"]) -> Transcript:
    """The conversations of an attempt, and its answer unless the last message has it."""
    answer = text_of_value(item.output_obj)
    parts: list[TranscriptPart] = []
    if judged == "trajectory":
        threads = conversations(calls_of(item.trajectory))
        for number, thread in enumerate(threads, start=1):
            parts += [TranscriptPart("next conversation", str(number))] if number > 1 else []
            parts += map(_part, thread.messages)
    if not parts or parts[-1].text.strip() != answer.strip():
        parts.append(TranscriptPart("answer", answer))
    return Transcript(tuple(parts))


def _part(message: dict[str, Any]) -> TranscriptPart:
    calls = tuple(
        f"→ {function.get('name')}({function.get('arguments')})"
        for call in message.get("tool_calls") or ()
        for function in [call.get("function") or {}]
    )
    return TranscriptPart(str(message.get("role")), text_of(message), calls)


def shared_beginning(transcripts: Sequence[Transcript]) -> int:
    """The number of leading parts that all attempts have in common."""
    return sum(
        1 for _ in takewhile(lambda parts: len(set(parts)) == 1, zip(*(t.parts for t in transcripts), strict=False))
    )


def shortened(parts: Sequence[TranscriptPart], limit: int) -> str:
    """The parts as text of at most `limit` characters: the longest texts are cut first, tool calls last."""
    whole = "\n".join(map(str, parts))
    if len(whole) <= limit:
        return whole
    lengths = sorted(len(part.text) for part in parts)
    room = limit - (len(whole) - sum(lengths))
    cap = _cap(lengths, room)
    cut = "\n".join(str(replace(part, text=cut_in_the_middle(part.text, cap))) for part in parts)
    return cut_in_the_middle(cut, limit)


def _cap(lengths: Sequence[int], room: int) -> int:
    """The largest length such that texts cut to it fit into the room; `lengths` in rising order."""
    for number, length in enumerate(lengths):
        share = max(0, room) // (len(lengths) - number)
        if length > share:
            return share
        room -= length
    return lengths[-1] if lengths else 0


def cut_in_the_middle(text: str, limit: int) -> str:
    """The beginning and the end of a text, with a note between them that says how much is missing."""
    if len(text) <= limit:
        return text
    kept = max(0, limit - _NOTE)
    head, tail = text[: kept - kept // 2], text[len(text) - kept // 2 :]
    return head + _LEFT_OUT.format(len(text) - kept) + tail

"""The certificate of `nat fits` as text, and as JSON."""

import json
from collections.abc import Iterator

import yaml

from nat.reports.text import labelled, printable
from nat.sizing.certificate import Certificate, Layers, Way
from nat.sizing.forecast import bytes_text, speed_text

_MANY = 10**8
_YES, _NO = "✓", "✗"


def certificate_page(found: Certificate) -> str:
    """Name and text of each part, the verdict, and the block for the YAML."""
    problems = found.problems
    verdict = "; ".join(problems) or "it fits by prediction; what has a ✓ is proven"
    parts = [labelled(_rows(found)), f"{_NO if problems else _YES} {found.model}: {verdict}"]
    if not problems:
        block = yaml.safe_dump({"llms": {"student": found.block}}, sort_keys=False, allow_unicode=True)
        parts += ["For the YAML:", block.rstrip()]
    return printable("\n\n".join(parts))


def certificate_json(found: Certificate) -> str:
    """The certificate with its verdict, as one JSON object."""
    verdict = {"fits": not found.problems, "problems": found.problems}
    return json.dumps(found.model_dump(mode="json") | verdict, ensure_ascii=False)


def _rows(found: Certificate) -> Iterator[tuple[str, str]]:
    words = found.words
    if found.family is not None:
        count = found.num_parameters or 0
        size = f"{count / 1e9:.3g} billion weights" if count >= _MANY else f"{count:,} weights"
        commit = f", commit {found.revision}" if found.revision else ""
        yield "Family", f"{found.family} ({found.architecture}), {size}{commit}; context {found.context:,} tokens"
    yield "Layers", _layers(found.layers)
    if words.refusal is not None:
        yield "Words", f"{_NO} {words.refusal}"
    elif words.format is not None:
        calls = "tool calls are read" if words.warning is None else f"for agents without tools only: {words.warning}"
        thinking = "" if words.reads_thinking else "not "
        yield "Words", f"{_YES} format: {words.format}; {calls}; thinking is {thinking}told apart"
    for kind, how in words.misread.items():
        yield "", f"misread: {kind}: {how}"
    for talk in found.conversations:
        if talk.rows is None:
            why = f"{_NO} {talk.title}: {talk.problem}" if talk.problem else f"not played: {talk.untried}"
            yield "Conversation", why
            continue
        exact = f"drift: {', '.join(talk.drift)}" if talk.drift else "each turn continues the tokens of the last"
        answers, rows = _counted(talk.answers, "answer"), _counted(talk.rows, "row")
        yield "Conversation", f"{_YES} {talk.title}: {answers}, {rows} per rollout; {exact}"
    if found.ways:
        room = "" if found.room is None else f"; {bytes_text(found.room)} may be taken"
        yield "Memory", f"predicted for {found.device}{room}; {found.workload}"
        yield from (("", _way(way)) for way in found.ways)
        yield "Time", _time(found)


def _layers(layers: Layers) -> str:
    if layers.refusal is not None:
        return f"{_NO} {layers.refusal}"
    if layers.untried is not None:
        return f"not tried; loading the model will tell: {layers.untried}"
    return f"{_YES} {layers.notice or 'a small model of this class samples and trains as transformers computes it'}"


def _time(found: Certificate) -> str:
    if found.speed is not None:
        return f"measured on some of its layers, {speed_text(found.speed)}"
    return f"not measured: {found.untimed or '`--time` does it here, on some layers of random weights'}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _way(way: Way) -> str:
    memory = way.memory
    host = f", {bytes_text(memory.host)} of the host" if memory.host else ""
    longest = "" if memory.longest_row is None else f": max_seq_length up to {memory.longest_row:,}"
    fits = f"fits{longest}" if way.problem is None else "does not fit"
    return f"{memory.title:<15}{bytes_text(memory.total):>9}{host}; {fits}"

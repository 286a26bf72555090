"""Read server-sent events as an OpenAI client does."""

import json


def chunks_of(text: str) -> list[dict]:
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]

"""Play an agent without its model: a script answers the calls, and everything else is real.

    played = play("config.yml", "What is 2 + 3?", [Call("add", a=2, b=3), Say("5")])
    assert played.answer == "5"

The script is a server with OpenAI's chat API on this machine, so agents in every framework and in other processes can
be played.
"""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from nat.builder.workflow import Workflow
from nat.builder.workflow_builder import WorkflowBuilder
from nat.capture.policy import CapturePolicy
from nat.config.load import load_config
from nat.data_models.config import Config
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.rollout_failure import RolloutFailure
from nat.errors import WorkflowError, one_of
from nat.eval.result_path import answer_of
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.rollout.rollout import run_rollout

_DEADLINE_S = 60.0


@dataclass(frozen=True)
class Say:
    """The model answers with a text."""

    text: str


@dataclass(frozen=True, init=False)
class Call:
    """The model calls a tool; the name may lack the prefix that a framework puts before it (`tools-add`)."""

    tool: str
    arguments: dict[str, Any]

    def __init__(self, tool: str, **arguments: Any) -> None:
        object.__setattr__(self, "tool", tool)
        object.__setattr__(self, "arguments", arguments)


@dataclass(frozen=True)
class Played:
    """What the agent did."""

    answer: Any
    requests: list[dict[str, Any]]
    """The bodies of its calls of the model, in order."""


def play(config_file: str | Path, question: Any, script: Sequence[Say | Call]) -> Played:
    """Run the workflow of a YAML once, on one input, with the script as every model.

    Raises:
        WorkflowError: the workflow failed, or called the model more or less often than the script says.

    """
    with _serving(script) as server:
        config = load_config(Path(config_file))
        served = OpenAIModelConfig(
            model_name="script", base_url=server.base_url, api_key="none", max_retries=0, timeout=_DEADLINE_S
        )
        scripted = config.model_copy(update={"llms": dict.fromkeys(config.llms, served)})
        answer, failure = asyncio.run(_rollout(scripted, question))
    if server.refused:
        raise WorkflowError(server.refused[0])
    if failure is not None:
        raise WorkflowError(f"the workflow failed: {failure}")
    if len(server.requests) < len(script):
        raise WorkflowError(
            f"the script has {len(script)} answers, and the agent asked {len(server.requests)} times",
            hint=f"it ended with {answer!r}",
        )
    return Played(answer, server.requests)


async def _rollout(config: Config, question: Any) -> tuple[Any, RolloutFailure | None]:
    item = EvalInputItem(id="played", input_obj=question, expected_output_obj=None)
    async with WorkflowBuilder.from_config(config) as builder:
        workflow = Workflow(builder.get_workflow())
        rollout = await run_rollout(workflow, item, seed=None, policy=CapturePolicy(), deadline=_DEADLINE_S)
    return (None if rollout.failed else answer_of(rollout.output, None)), rollout.error


class _Server(ThreadingHTTPServer):
    """Answers the calls in the order of the script; `refused` says what the script did not expect."""

    daemon_threads = True

    def __init__(self, script: Sequence[Say | Call]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self._script = script
        self._lock = threading.Lock()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def message(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The assistant's message, in parts of the API; None if the script has none for the request."""
        with self._lock:
            self.requests.append(request)
            asked = len(self.requests)
        if asked > len(self._script):
            self.refused.append(f"the agent asked {asked} times, and the script has {len(self._script)} answers")
            return None
        said = self._script[asked - 1]
        if isinstance(said, Say):
            return {"role": "assistant", "content": said.text}
        offered = [tool["function"]["name"] for tool in request.get("tools") or []]
        name = next((name for name in offered if name == said.tool or name.endswith(f"-{said.tool}")), None)
        if name is None:
            self.refused.append(f"the agent offers no tool '{said.tool}', but {one_of(offered)}")
            return None
        function = {"name": name, "arguments": json.dumps(said.arguments)}
        call = {"index": 0, "id": f"call_{asked}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = self.server.message(request)
        if message is None:
            self._send(400, "application/json", _json({"error": {"message": self.server.refused[-1]}}))
        elif request.get("stream"):
            events = b"".join(b"data: " + _json(event) + b"\n\n" for event in _events(message, request))
            self._send(200, "text/event-stream", events + b"data: [DONE]\n\n")
        else:
            self._send(200, "application/json", _json(_completion(message, "message")))

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Print nothing."""


@contextmanager
def _serving(script: Sequence[Say | Call]) -> Iterator[_Server]:
    with _Server(script) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def _completion(message: dict[str, Any], part: str) -> dict[str, Any]:
    reason = "tool_calls" if "tool_calls" in message else "stop"
    return {
        "id": "played",
        "object": "chat.completion" if part == "message" else "chat.completion.chunk",
        "created": 0,
        "model": "script",
        "choices": [{"index": 0, part: message, "finish_reason": reason}],
        "usage": _USAGE,
    }


def _events(message: dict[str, Any], request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The whole message in one event, and the usage in another where it is requested."""
    whole = _completion(message, "delta")
    yield {**whole, "usage": None}
    if (request.get("stream_options") or {}).get("include_usage"):
        yield {**whole, "choices": []}


_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def _json(value: object) -> bytes:
    return json.dumps(value).encode()

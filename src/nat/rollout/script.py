"""A script in the place of a model: a server with OpenAI's chat API, for agents in any framework or process."""

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from nat.data_models.component_ref import ComponentGroup
from nat.data_models.config import Config
from nat.errors import one_of
from nat.registry.catalog import current_catalog

SECONDS = 60.0
"""The longest that a rollout with a script may take, or one of its calls."""
_POLL_SECONDS = 0.05
"""The server ends within this time."""


@dataclass(frozen=True)
class Say:
    """The model answers with a text."""

    text: str


class Call:
    """The model calls a tool; the name may lack the prefix that a framework puts before it (`tools-add`)."""

    def __init__(self, tool: str, **arguments: Any) -> None:
        self.tool = tool
        self.arguments = arguments


class ScriptServer(ThreadingHTTPServer):
    """Answers the calls in the order of the script; `refused` says what the script did not expect."""

    daemon_threads = True

    def __init__(self, script: Iterable[Say | Call]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self._script = iter(script)
        self._lock = threading.Lock()

    def replacing_llms(self, config: Config) -> Config:
        """The configuration with the script as every model."""
        url = f"http://127.0.0.1:{self.server_port}/v1"
        options = {"model_name": "script", "base_url": url, "api_key": "none", "max_retries": 0, "timeout": SECONDS}
        served = current_catalog().components[ComponentGroup.LLMS].get("nat/openai").config_type.model_validate(options)
        return config.model_copy(update={"llms": dict.fromkeys(config.llms, served)})

    def message(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """The assistant's message, in parts of the API; None if the script has none for the request."""
        with self._lock:
            self.requests.append(request)
            asked = len(self.requests)
            said = next(self._script, None)
        if said is None:
            self.refused.append(f"the agent asked {asked} times, and the script has {asked - 1} answers")
            return None
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
    server: ScriptServer

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = self.server.message(request)
        if message is None:
            self._send(400, "application/json", json.dumps({"error": {"message": self.server.refused[-1]}}))
        elif request.get("stream"):  # the whole message in one event, and the usage in another where it is requested
            whole = _completion("delta", message)
            events = [{**whole, "usage": None}]
            if (request.get("stream_options") or {}).get("include_usage"):
                events.append({**whole, "choices": []})
            lines = [f"data: {each}\n\n" for each in [*map(json.dumps, events), "[DONE]"]]
            self._send(200, "text/event-stream", "".join(lines))
        else:
            self._send(200, "application/json", json.dumps(_completion("message", message)))

    def _send(self, status: int, content_type: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Print nothing."""


@contextmanager
def serving(script: Iterable[Say | Call]) -> Iterator[ScriptServer]:
    """The script's server, until the block ends."""
    with ScriptServer(script) as server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def _completion(part: str, message: dict[str, Any]) -> dict[str, Any]:
    """A completion or a chunk of one, whose choice has the message as this part."""
    reason = "tool_calls" if "tool_calls" in message else "stop"
    return {
        "id": "played",
        "object": "chat.completion" if part == "message" else "chat.completion.chunk",
        "created": 0,
        "model": "script",
        "choices": [{"index": 0, part: message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }

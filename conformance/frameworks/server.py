"""The scripted server: OpenAI's chat route, with an exact log of every request and response."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from conformance.frameworks.scenario import Cue, cue_of, reply

from fakes.openai_replies import Refuse, Say, completion, events

MODEL, FINGERPRINT = "scripted", "scripted@1"


@dataclass(frozen=True)
class Served:
    """One request and its response."""

    rollout: str
    scene: str
    request: bytes
    status: int
    streamed: bool
    answer: bytes
    """The response's body as it was sent, events included."""
    completion: dict[str, Any] | None
    """The unstreamed answer; None for a refusal."""

    @property
    def chat(self) -> dict[str, Any]:
        return json.loads(self.request)


class Script(ThreadingHTTPServer):
    """Answers every connection in a thread of its own."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.log: list[Served] = []
        self.unknown: list[bytes] = []
        """Requests for which the script has no answer."""
        self._lock = threading.Lock()
        self._times = Counter[Cue]()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def answer(self, body: bytes) -> tuple[int, dict[str, str], list[bytes], bool]:
        """Give status, headers, the pieces of the body, and whether they are events of a stream."""
        request = json.loads(body)
        cue = cue_of(request)
        if cue is None:
            self.unknown.append(body)
            return 400, {}, [_error("no marker in these messages")], False
        with self._lock:
            self._times[cue] += 1
            said = reply(cue, request, self._times[cue])
            streamed = bool(request.get("stream")) and isinstance(said, Say)
            whole = None if isinstance(said, Refuse) else completion(said, request, chat=True, fingerprint=FINGERPRINT)
            pieces = list(_stream(said, request)) if streamed else [_error("busy") if whole is None else _json(whole)]
            status, headers = (said.status, said.headers) if isinstance(said, Refuse) else (200, {})
            self.log.append(Served(cue.rollout, cue.scene, body, status, streamed, b"".join(pieces), whole))
        return status, headers, pieces, streamed


@contextmanager
def serving() -> Iterator[Script]:
    """A script that is served until the block ends."""
    with Script() as script:
        thread = threading.Thread(target=script.serve_forever)
        thread.start()
        try:
            yield script
        finally:
            script.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Script

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, headers, pieces, streamed = self.server.answer(body)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
        if streamed:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in [*pieces, b""]:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            return
        self.send_header("Content-Length", str(len(pieces[0])))
        self.end_headers()
        self.wfile.write(pieces[0])

    def log_message(self, *_args: object) -> None:
        """The log is `Script.log`."""


def _stream(said: Say | Refuse, request: dict[str, Any]) -> Iterator[bytes]:
    assert isinstance(said, Say)
    for event in events(said, request, fingerprint=FINGERPRINT):
        yield b"data: " + _json(event) + b"\n\n"
    yield b"data: [DONE]\n\n"


def _error(message: str) -> bytes:
    return _json({"error": {"message": message, "type": "scripted", "code": None}})


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()

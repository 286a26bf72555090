"""A server of models in a thread: the first part of the path says what it answers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

_ANSWER = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
_CHOICE = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "2"}}
_REPLIES = {
    "good": (200, json.dumps({**_ANSWER, "choices": [_CHOICE]})),
    "failing": (500, json.dumps({"error": {"message": "CUDA out of memory", "type": "server_error"}})),
    "proxy": (502, "<html><head><title>502 Bad Gateway</title></head><body>nginx</body></html>"),
    "page": (200, "<!doctype html><html><head><title>My models</title></head></html>"),
    "keys": (401, json.dumps({"error": {"message": "Incorrect API key provided", "type": "invalid_request_error"}})),
    "names": (404, json.dumps({"error": {"message": "The model `m` does not exist", "type": "not_found"}})),
    "empty": (200, json.dumps({**_ANSWER, "choices": []})),
    "busy": (429, json.dumps({"error": {"message": "Rate limit reached", "type": "rate_limit"}})),
}


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status, text = _REPLIES[self.path.split("/")[1]]
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if text.startswith("<") else "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def model_server() -> Iterator[str]:
    """The address of the server, while the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

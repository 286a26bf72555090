"""Our server in ART mode, in its own process with a tiny model, as a user starts it."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nat.wire.serving import API_KEY_VARIABLE

NAT = "from nat.cli.main import run_cli; run_cli()"
HOST = "127.0.0.2"
"""A loopback address of its own, so that the chosen ports are free."""
NO_KEY = "default"
"""The well-known key that clients use by default."""
READY_DEADLINE_S = 300
STOP_DEADLINE_S = 30


@dataclass(frozen=True)
class Served:
    """The server's addresses, model and output folder."""

    port: int
    inference_port: int
    api_key: str
    base_model: str
    output_dir: Path
    log: Path
    process: subprocess.Popen[str]

    @property
    def settings(self) -> dict[str, str]:
        """The settings for a client; the key is in the URL, since ART's clients have no other place for it."""
        user = "" if self.api_key == NO_KEY else f"art:{self.api_key}@"
        return {
            "host": HOST,
            "port": str(self.port),
            "control_url": f"http://{user}{HOST}:{self.port}",
            "inference_url": f"http://{HOST}:{self.inference_port}/v1",
            "api_key": self.api_key,
            "base_model": self.base_model,
        }

    def model_folder(self, name: str) -> Path:
        """The server's folder of the model `name` in the clients' project."""
        return self.output_dir / "interop" / "models" / name


@contextlib.contextmanager
def serving(
    model: Path, folder: Path, *, port: int = 0, inference_port: int = 0, api_key: str = NO_KEY
) -> Iterator[Served]:
    """Serve the checkpoint `model`, write below `folder`, and stop at the end."""
    log, output_dir = folder / "server.log", folder / "art"
    command = [sys.executable, "-c", NAT, "backend", "serve", "--model", str(model), "--output_dir", str(output_dir)]
    command += ["--host", HOST, "--port", str(port), "--inference_port", str(inference_port), "--threads", "1"]
    chosen = {} if api_key == NO_KEY else {API_KEY_VARIABLE: api_key}
    with log.open("a") as file:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=file, text=True, env={**os.environ, **chosen}
        )
    try:
        ports = ports_of(process, log)
        yield Served(ports["port"], ports["inference_port"], api_key, model.name, output_dir, log, process)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_DEADLINE_S)
        process.kill()
        process.communicate()


def ports_of(process: subprocess.Popen[str], log: Path) -> dict[str, Any]:
    """Read the ports from the server's ready line."""
    assert process.stdout is not None
    deadline = threading.Timer(READY_DEADLINE_S, process.kill)
    deadline.start()
    line = process.stdout.readline()
    deadline.cancel()
    if not line:
        raise RuntimeError(f"the server did not start within {READY_DEADLINE_S} s; it wrote\n{log.read_text()[-4000:]}")
    return json.loads(line)

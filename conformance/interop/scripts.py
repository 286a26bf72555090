"""Run a script of `clients/` in its environment, offline and with a deadline."""

import json
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.environments import outside, python_of

CLIENTS = Path(__file__).parent / "clients"
DEADLINE_S = 900
OFFLINE = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "WANDB_MODE": "disabled",
    "WEAVE_DISABLED": "true",
    "TQDM_DISABLE": "1",
    "DO_NOT_TRACK": "1",
}
"""Offline, without telemetry, and without progress bars in the logs."""


class ScriptFailed(Exception):
    """A script failed, hung or reported nothing; the message has its output."""


def run(script: str, environment: str, settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Run `clients/{script}.py` in `folder` and give the JSON of its last line."""
    log = folder / f"{script}.log"
    with log.open("w") as file:
        process = start(script, environment, settings, folder, file)
        try:
            code = process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            code = f"none within {DEADLINE_S} s"
        finally:
            process.kill()
            process.wait()
    text = log.read_text()
    if code != 0:
        raise ScriptFailed(f"{script} in the environment {environment}: exit code {code}; it wrote\n{text[-6000:]}")
    return json.loads(text.strip().splitlines()[-1])


def start(
    script: str, environment: str, settings: Mapping[str, Any], folder: Path, log: Any
) -> subprocess.Popen[bytes]:
    """Start `clients/{script}.py` in `folder`; its output goes to the open file `log`."""
    variables = {name: value for name, value in outside().items() if not name.startswith("WANDB_")}
    return subprocess.Popen(
        [python_of(environment), CLIENTS / f"{script}.py"],
        cwd=folder,
        env={**variables, **OFFLINE, "INTEROP": json.dumps(dict(settings))},
        stdout=log,
        stderr=subprocess.STDOUT,
    )


def until_it_listens(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server of another project accepts connections."""
    deadline = time.monotonic() + DEADLINE_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.1)
        else:
            return
    raise ScriptFailed(f"nothing listens on port {port}; the server's exit code is {process.poll()}")

"""Take the pictures of docs/recipes/trackers.md: `python -m conformance.trackers.screenshots [RUN_DIR [TRACKER …]]`.

A copy of the run, by default the newest of `examples/tic_tac_toe`, is sent to each tracker that has an own local
dashboard, the dashboard is started, and Debian's Chromium opens it. Look at the pictures before you commit them.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

from conformance.environments import REPOSITORY, outside, python_of
from PIL import Image

IMAGES = REPOSITORY / "docs" / "images"
SHOOT, TERMINAL = (Path(__file__).with_name(name) for name in ("shoot.py", "terminal.py"))
PROJECT = "tic-tac-toe"
MAX_BYTES = 120_000
"""Of a picture in the repository."""
COLOURS = 256
DEADLINE_S = 120
"""For a dashboard to start; MLflow takes half a minute."""


class Shot(NamedTuple):
    """A picture of a page; `{run}` in its acts and path is the run's id, `{id}` the run's id in the tracker."""

    name: str
    path: str
    size: tuple[int, int]
    acts: tuple[tuple[str, ...], ...] = ()


class Dashboard(NamedTuple):
    """How a tracker gets the run, and how its dashboard is started and looked at; `{home}` is its folder.

    With `keys`, it is a program in a terminal, and the keys are typed there; `{file}` is what the tracker wrote.
    """

    settings: dict[str, str]
    command: tuple[str, ...]
    shots: tuple[Shot, ...]
    keys: str = ""


_IN_MLFLOW = (
    ("click", "[data-component-id='mlflow.assistant.chat_panel.close']"),
    ("click", "text={run}"),
)
_MLFLOW = "/#/experiments/1/runs?workflowType=machine_learning"
"""The list of runs; without the workflow, MLflow opens an experiment as one of prompts and traces."""
_CELLS = (120, 26)
"""Of a terminal, each 8 by 16 pixels."""
DASHBOARDS = {
    "wandb": Dashboard(
        {"offline": "true"},
        ("wandb", "leet", "run", "{file}"),
        (Shot("curves", "", (_CELLS[0] * 8 + 16, _CELLS[1] * 16 + 16)),),
        keys="/^(val/)?avg_reward$|^val/interval|^train/loss$|^reward/std\r]",
    ),
    "tensorboard": Dashboard(
        {},
        ("tensorboard", "--logdir", "runs", "--port", "{port}"),
        (
            Shot(
                "curves",
                "/?smoothing=0&tagFilter=%5E(val%2F)%3Favg_reward%24#timeseries",
                (1000, 600),
                (
                    ("wait", "text=avg_reward"),
                    ("click", "text=Ignore outliers"),
                    ("click", "button:has-text('Settings')"),
                ),
            ),
            Shot(
                "verdict",
                "/#text",
                (1000, 620),
                (("wait", "text=artifact"), ("fill", "input >> nth=-1", "verdict")),
            ),
        ),
    ),
    "mlflow": Dashboard(
        {"tracking_uri": "sqlite:///{home}/mlflow.db", "experiment": PROJECT},
        ("mlflow", "ui", "--backend-store-uri", "sqlite:///{home}/mlflow.db", "--port", "{port}", "--workers", "1"),
        (
            Shot(
                "curves",
                _MLFLOW,
                (1100, 1000),
                (
                    *_IN_MLFLOW,
                    ("click", "text=Model metrics"),
                    ("fill", "[placeholder='Search metric charts']", "^(val/)?avg_reward$"),
                ),
            ),
            Shot("verdict", _MLFLOW, (1100, 700), _IN_MLFLOW),
            Shot(
                "rollouts",
                _MLFLOW,
                (1100, 700),
                (
                    *_IN_MLFLOW,
                    ("click", "text=Artifacts"),
                    ("click", "text=/^rollouts$/"),
                    ("click", "text=epoch_0023.json"),
                ),
            ),
        ),
    ),
    "trackio": Dashboard(
        {"project": PROJECT},
        ("trackio", "show", "--project", PROJECT),
        (
            Shot(
                "curves",
                f"/?project={PROJECT}",
                (1100, 820),
                (
                    ("wait", "text=avg_reward"),
                    ("fill", "[placeholder*=loss]", "^(val/)?avg_reward$"),
                    ("fill", "input[type=range]", "0"),
                    ("click", "text=Show section headers"),
                ),
            ),
            Shot("verdict", f"/?project={PROJECT}", (1000, 600), (("click", "text=Media & Tables"),)),
        ),
    ),
}


def take(name: str, run_dir: Path) -> None:
    """Send the run to this tracker, and write the pictures of its dashboard."""
    dashboard = DASHBOARDS[name]
    with TemporaryDirectory() as folder:
        home, port = Path(folder), _free_port()
        copy = home / "runs" / run_dir.name
        shutil.copytree(run_dir, copy, ignore=shutil.ignore_patterns("trackers"))
        env = outside() | {
            "HOME": folder,
            "DO_NOT_TRACK": "true",
            "TRACKIO_DIR": f"{folder}/trackio",
            "GRADIO_SERVER_PORT": str(port),
        }
        options = [part for key, value in dashboard.settings.items() for part in ("-o", key, _filled(value, home=home))]
        sent = [_program("nat"), "runs", "send", str(copy), "--to", name, *options]
        subprocess.run(sent, cwd=home, env=env, check=True, timeout=DEADLINE_S)
        names = {"run": run_dir.name, "id": json.loads((copy / "trackers" / f"{name}.json").read_text())["tracker_id"]}
        if dashboard.keys:
            page = _in_terminal(dashboard, copy / "trackers", home, env)
            _shoot([_request(shot, name, page, names) for shot in dashboard.shots])
            return
        program, *arguments = (_filled(part, home=home, port=port) for part in dashboard.command)
        with _serving([_program(program), *arguments], home, env, port) as url:
            _shoot([_request(shot, name, url, names) for shot in dashboard.shots])


def _in_terminal(dashboard: Dashboard, wrote: Path, home: Path, env: Mapping[str, str]) -> str:
    """The address of a page with what the program shows."""
    (file,) = wrote.rglob("*.wandb")
    program, *arguments = (_filled(part, file=file.parent) for part in dashboard.command)
    page, command = home / "terminal.html", [_program(program), *arguments]
    request = json.dumps({"command": command, "size": _CELLS, "keys": dashboard.keys, "file": str(page)})
    drawn = [python_of("playwright"), TERMINAL]
    subprocess.run(drawn, input=request, text=True, cwd=home, env=env, check=True, timeout=DEADLINE_S)
    return page.as_uri()


def _request(shot: Shot, tracker: str, url: str, names: Mapping[str, str]) -> dict[str, Any]:
    return {
        "url": url + _filled(shot.path, **names),
        "size": shot.size,
        "acts": [[_filled(word, **names) for word in each] for each in shot.acts],
        "file": str(IMAGES / f"{tracker}_{shot.name}.png"),
    }


def _shoot(shots: list[dict[str, Any]]) -> None:
    request = json.dumps({"chromium": shutil.which("chromium"), "shots": shots})
    command = [python_of("playwright"), SHOOT]
    subprocess.run(command, input=request, text=True, env=outside(), check=True, timeout=DEADLINE_S * len(shots))
    for shot in shots:
        file = Path(shot["file"])
        with Image.open(file) as picture:
            small = picture.convert("RGB").quantize(COLOURS)
        small.save(file, optimize=True)
        size = file.stat().st_size
        print(f"{file.relative_to(REPOSITORY)}: {size:,} bytes")
        if size > MAX_BYTES:
            sys.exit(f"{file.name} is larger than {MAX_BYTES:,} bytes: make it smaller")


@contextmanager
def _serving(command: list[str], home: Path, env: Mapping[str, str], port: int) -> Iterator[str]:
    """A dashboard that answers; it is ended with all its processes."""
    with (home / "dashboard.log").open("w+") as log:
        process = subprocess.Popen(command, cwd=home, env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(url, process)
            yield url
        except TimeoutError:
            print((home / "dashboard.log").read_text()[-3000:], file=sys.stderr)
            raise
        finally:
            os.killpg(process.pid, 15)
            process.wait(DEADLINE_S)


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            urlopen(url, timeout=5).close()
        except (URLError, OSError):
            time.sleep(0.5)
        else:
            return
    raise TimeoutError(f"nothing answers at {url}")


def _program(name: str) -> str:
    return str(python_of("trackers").with_name(name))


def _filled(text: str, **values: object) -> str:
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def main() -> None:
    """Take the pictures of the trackers that the command line names, or of all."""
    if shutil.which("chromium") is None:
        sys.exit("there is no `chromium` on PATH; it is a package of Debian")
    found = sys.argv[1:2] or sorted(map(str, (REPOSITORY / ".tmp" / "tic_tac_toe").glob("2*")))
    if not found:
        sys.exit("there is no run of examples/tic_tac_toe; make one with `make demo`")
    for name in sys.argv[2:] or DASHBOARDS:
        take(name, Path(found[-1]).absolute())


if __name__ == "__main__":
    main()

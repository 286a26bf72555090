"""The backend's process: options, ready line, a job over HTTP, and its ends. Parts of it run in the test's process."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from fakes.families import make_tiny_family
from fakes.processes import DEADLINE, NAT, Processes, first_line
from fakes.training_batches import random_groups
from nat.backend.output_folder import LOCK, claimed
from nat.backend.protocol import Endpoint
from nat.backend.serve import open_training, serve
from nat.errors import BackendError
from nat.wire.serving import NOTICES, ServeOptions
from nat.wire.training import ExportedModel, JobState, TrainingConfig, TrainingJob


@pytest.fixture
def source(tiny_dir) -> Path:
    return tiny_dir()


@pytest.fixture
def start(source) -> Iterator[Callable[..., tuple[subprocess.Popen, httpx.Client]]]:
    """Start backends; processes that a test leaves running are killed."""
    with Processes() as processes:

        def start_one(*options):
            command = ["-c", NAT, "backend", "serve", "--model", str(source), "--port=0", "--threads=1", *options]
            environment = {**os.environ, "NAT_BACKEND_API_KEY": "key"}
            process = processes.start(*command, stdin=subprocess.PIPE, env=environment)
            http = httpx.Client(
                base_url=f"http://127.0.0.1:{json.loads(first_line(process))['port']}",
                headers={"Authorization": "Bearer key"},
                timeout=DEADLINE,
                trust_env=False,
            )
            return process, http

        yield start_one


def end(process, sign):
    """Send a signal, or close stdin for None; gives the exit code."""
    process.stdin.close()
    process.stdin = None
    if sign is not None:
        process.send_signal(sign)
    process.communicate(timeout=DEADLINE)
    return process.returncode


def test_an_output_folder_belongs_to_one_server(tmp_path):
    """A second server would write checkpoints of the same numbers; it ends before it loads its model."""
    options = ServeOptions(model=tmp_path / "nowhere", port=0, output_dir=tmp_path)
    with (
        claimed(tmp_path),
        pytest.raises(BackendError, match=f"in use by another server, process {os.getpid()}"),
    ):
        serve(options)
    assert (tmp_path / LOCK).read_text() == f"{os.getpid()}\n"


@pytest.mark.usefixtures("forked_processes")
def test_trains_exports_and_resumes(tmp_path, source, loaded, start):
    """After a restart, a trained job is known and its weights are served; only `resume` uses checkpoints again."""
    job = TrainingJob(id="job-1", groups=random_groups(loaded), config=TrainingConfig(learning_rate=1e-3))
    process, http = start("--output_dir", str(tmp_path), "--served_model_name", "me")
    with http:
        for _ in range(2):
            assert http.post("/v1/training/jobs", content=job.model_dump_json()).status_code == 200
        state = JobState.model_validate_json(http.get("/v1/training/jobs/job-1", params={"wait": 60}).content)
        assert (state.status, state.policy_version, state.progress) == ("completed", "me@1", 100)
        assert state.training is not None
        assert (state.training.algorithm, state.training.settings["learning_rate"]) == ("lite_ppo", 1e-3)
        odd = job.model_copy(update={"id": "job-2", "config": TrainingConfig(algorithm="rlo")})
        refused = http.post("/v1/training/jobs", content=odd.model_dump_json())
        assert (refused.status_code, "Did you mean 'rloo'" in refused.text) == (400, True)
        assert http.get("/health").json()["policy_version"] == "me@1"
        assert http.get("/health", headers={"Authorization": "Bearer other"}).status_code == 401
        exported = ExportedModel.model_validate_json(http.post("/v1/training/export", json={"name": "out"}).content)
        assert (Path(exported.path) / "model.safetensors").is_file()
        assert http.post("/v1/training/export", json={"name": "../out"}).status_code == 422
    assert end(process, signal.SIGHUP) == 0

    with pytest.raises(BackendError, match="holds checkpoints of an earlier run, up to step 1") as error:
        serve(ServeOptions(model=source, port=0, output_dir=tmp_path))
    assert "--resume" in error.value.hint

    process, http = start("--output_dir", str(tmp_path), "--served_model_name", "me", "--resume", "--exit_with_parent")
    with http:
        again = JobState.model_validate_json(http.post("/v1/training/jobs", content=job.model_dump_json()).content)
        assert again == state
        assert http.get("/health").json()["policy_version"] == "me@1"
    assert end(process, None) == 0


@pytest.mark.usefixtures("forked_processes")
def test_a_backend_that_cannot_start_reports_the_reason_to_its_parent(tmp_path, source):
    """The reason and the remedy are a line on stdout, so nobody needs to read a log; people read them on stderr."""
    command = ["-c", NAT, "backend", "serve", "--model", str(source), "--port", "0", "--exit_with_parent"]
    with claimed(tmp_path), Processes() as processes:
        process = processes.start(*command, "--output_dir", str(tmp_path), stdin=subprocess.PIPE)
        event = json.loads(first_line(process))
        _, log = process.communicate(timeout=DEADLINE)
    assert process.returncode == 1
    assert event["event"] == "failed"
    assert event["message"] == f"{tmp_path} is in use by another server, process {os.getpid()}"
    assert event["hint"]
    assert f"Error: {event['message']}" in log
    assert event["hint"] in log


def test_the_user_is_told_that_a_model_takes_the_plain_path(tmp_path, caplog):
    """As a notice, which goes to the parent, too."""
    with open_training(ServeOptions(model=make_tiny_family(tmp_path / "model", "qwen3_5_text")), Endpoint({}, "key")):
        [notice] = [record.getMessage() for record in caplog.records if record.name == NOTICES]
    assert "takes the plain path, because" in notice

"""The backend's process: options, ready line, a job over HTTP, and every way to end it."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from fakes.damage import flip_a_bit
from fakes.processes import DEADLINE, Processes, first_line
from fakes.tiny_model import make_tiny_model
from fakes.training_batches import random_groups
from nat.backend.__main__ import parse
from nat.backend.model_loader import load_model
from nat.backend.serve import claimed
from nat.errors import BackendError
from nat.wire.training import ExportedModel, JobState, TrainingConfig, TrainingJob

EVERYWHERE = "0.0.0.0"  # noqa: S104 - it is to be refused


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def start(source) -> Iterator[Callable[..., tuple[subprocess.Popen, httpx.Client]]]:
    """Start backends; processes that a test leaves running are killed."""
    with Processes() as processes:

        def start_one(*options, **process_options):
            command = ["-m", "nat.backend", "--model", str(source), "--port", "0", "--threads", "1", *options]
            environment = {**os.environ, "NAT_BACKEND_API_KEY": "key"}
            process = processes.start(*command, stdin=subprocess.PIPE, env=environment, **process_options)
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


def test_an_output_folder_belongs_to_one_server(tmp_path, source, start):
    """A second server would write checkpoints of the same numbers; the error names the owner."""
    first, http = start("--output_dir", str(tmp_path))
    with http, Processes() as processes:
        command = ["-m", "nat.backend", "--model", str(source), "--port", "0", "--output_dir", str(tmp_path)]
        second = processes.start(*command, stdin=subprocess.PIPE)
        assert f"in use by another server, process {first.pid}" in second.communicate(timeout=DEADLINE)[1]
        assert second.returncode == 1
        assert http.get("/health").status_code == 200


def test_trains_exports_and_resumes(tmp_path, source, start):
    """After a restart, a trained job is known and its weights are served."""
    job = TrainingJob(id="job-1", groups=random_groups(load_model(source)), config=TrainingConfig(learning_rate=1e-3))
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
        exported = ExportedModel.model_validate_json(http.post("/v1/training/export", json={"name": "out"}).content)
        assert (Path(exported.path) / "model.safetensors").is_file()
        assert http.post("/v1/training/export", json={"name": "../out"}).status_code == 422
    assert end(process, signal.SIGHUP) == 0

    refused = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-m", "nat.backend", "--model", str(source), "--port", "0", "--output_dir", str(tmp_path)],
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    assert refused.returncode == 1
    assert b"--resume" in refused.stderr

    process, http = start("--output_dir", str(tmp_path), "--served_model_name", "me", "--resume", "--exit_with_parent")
    with http:
        again = JobState.model_validate_json(http.post("/v1/training/jobs", content=job.model_dump_json()).content)
        assert again == state
        assert http.get("/health").json()["policy_version"] == "me@1"
    assert end(process, None) == 0


def test_resume_skips_a_damaged_checkpoint(tmp_path, source, start):
    """The log reports the damage; the earlier job is known, and the lost one is trained again."""
    config = TrainingConfig(learning_rate=1e-3, max_logprob_difference=100)
    job = TrainingJob(id="job-1", groups=random_groups(load_model(source)), config=config)
    options = ("--output_dir", str(tmp_path), "--served_model_name", "me")
    process, http = start(*options)
    with http:
        for number in (1, 2):
            text = job.model_copy(update={"id": f"job-{number}"}).model_dump_json()
            assert http.post("/v1/training/jobs", content=text).status_code == 200
            http.get(f"/v1/training/jobs/job-{number}", params={"wait": 60})
    assert end(process, signal.SIGTERM) == 0
    flip_a_bit(tmp_path / "checkpoints" / "step_000002" / "model.safetensors")
    process, http = start(*options, "--resume")
    with http:
        assert http.get("/health").json()["policy_version"] == "me@1"
        assert http.get("/v1/training/jobs/job-1").json()["status"] == "completed"
        assert http.get("/v1/training/jobs/job-2").status_code == 404
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=DEADLINE)
    assert "step_000002 is damaged: model.safetensors has another checksum" in log


def test_a_full_disk_has_its_own_remedy(start, source, tmp_path):
    """A checkpoint that cannot be written fails its job, and an export its request, with a remedy for disks."""

    def small_files_only():
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    job = TrainingJob(id="job-1", groups=random_groups(load_model(source)), config=TrainingConfig(learning_rate=1e-3))
    process, http = start("--output_dir", str(tmp_path), preexec_fn=small_files_only)
    with http:
        http.post("/v1/training/jobs", content=job.model_dump_json())
        state = JobState.model_validate_json(http.get("/v1/training/jobs/job-1", params={"wait": 60}).content)
        refused = http.post("/v1/training/export", json={"name": "out"})
    end(process, signal.SIGTERM)
    assert state.status == "failed"
    assert "File too large" in state.failure.message
    assert "ulimit -f" in state.failure.hint
    assert "micro_batch_tokens" not in state.failure.hint
    assert refused.status_code == 500
    assert "ulimit -f" in refused.text


def test_a_backend_that_cannot_start_reports_the_reason_to_its_parent(tmp_path):
    """The reason and the remedy are a line on stdout, so nobody needs to read a log."""
    command = ["-m", "nat.backend", "--model", str(tmp_path), "--port", "0", "--exit_with_parent"]
    with Processes() as processes:
        process = processes.start(*command, stdin=subprocess.PIPE)
        event = json.loads(first_line(process))
        assert process.wait(timeout=DEADLINE) == 1
    assert event["event"] == "failed"
    assert event["message"] == f"{tmp_path} is not a Hugging Face checkpoint: it has no config.json"
    assert event["hint"]


def test_without_output_dir_it_serves_only(start):
    """Training is refused with the reason, and Ctrl-C ends the process with exit code 0."""
    process, http = start()
    with http:
        answer = http.post("/v1/training/jobs", json={})
        assert (answer.status_code, "--output_dir" in answer.text) == (409, True)
        assert http.get("/health", headers={"Authorization": "Bearer other"}).status_code == 401
    assert end(process, signal.SIGINT) == 0


def test_wrong_options_end_with_every_finding(capsys, tmp_path):
    """One message has all findings, before anything is loaded."""
    with pytest.raises(SystemExit) as error:
        parse(["--model", str(tmp_path), "--port", "99999", "--keep_last", "0"], {})
    assert error.value.code == 2
    text = capsys.readouterr().err
    assert "port" in text
    assert "keep_last" in text


def test_public_address_needs_a_key(capsys, tmp_path):
    """0.0.0.0 is refused unless the environment or an option sets a key."""
    arguments = ["--model", str(tmp_path), "--host", EVERYWHERE]
    with pytest.raises(SystemExit):
        parse(arguments, {})
    assert "NAT_BACKEND_API_KEY" in capsys.readouterr().err
    assert parse(arguments, {"NAT_BACKEND_API_KEY": "k"}).api_key.get_secret_value() == "k"


def test_options_reach_their_fields(tmp_path):
    """Values are read by the types of the fields; a flag needs no value."""
    options = parse(["--model", str(tmp_path), "--lora_rank", "8", "--device", "cpu", "--exit_with_parent"], {})
    assert (options.lora_rank, options.device, options.exit_with_parent, options.resume) == (8, "cpu", True, False)
    assert options.name == tmp_path.name


HOLD = "import sys; from pathlib import Path; from nat.backend.serve import claimed\n"
HOLD += "with claimed(Path(sys.argv[1])):\n    print('held', flush=True); sys.stdin.read()"


def test_a_folder_belongs_to_one_process(tmp_path):
    """A second process gets an error with the owner; when the first has ended in any way, the folder is free."""
    folder = tmp_path / "new" / "art"
    with subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout.readline() == b"held\n"
        with (
            pytest.raises(BackendError, match=f"in use by another server, process {first.pid}") as error,
            claimed(folder),
        ):
            pass
        assert "--output_dir" in error.value.hint
        first.kill()
        first.communicate()
    with claimed(folder):
        assert (folder / ".lock").read_text() == f"{os.getpid()}\n"


@pytest.mark.parametrize(("place", "seen"), [("file", "File exists"), ("file/out", "Not a directory")])
def test_an_unusable_folder_is_a_mistake_of_the_caller(tmp_path, place, seen):
    """The error names the folder, the system's reason and a remedy, whatever the reason is."""
    (tmp_path / "file").touch()
    with (
        pytest.raises(BackendError, match=rf"cannot write to {tmp_path / place}: {seen}") as error,
        claimed(tmp_path / place),
    ):
        pass
    assert "choose another" in error.value.hint

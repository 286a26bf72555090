"""`nat finetune` on the example in its own process, with the embedded backend: a complete and an interrupted run."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.doc_pages import ROOT
from fakes.processes import ended, started_as
from nat.backend.output_folder import LOCK
from nat.reports.overview import overviews
from nat.runs.journal import Journal
from nat.runs.liveness import ShownState
from nat.runs.preemption import EXIT_CODE
from nat.runs.records import RunState
from nat.wire.training import JobStatus

pytestmark = pytest.mark.usefixtures("forked_processes")

CONFIG = "examples/tic_tac_toe/configs/finetune.yml"
SMALL = {
    "trajectory_builders.games.num_generations": "4",
    "eval.general.max_concurrency": "16",
    "llms.player.threads": "1",
}


@pytest.fixture
def games(tmp_path) -> tuple[str, ...]:
    """Options for a few games only: six to train on, twelve held out."""
    for split, count in (("train", 6), ("validation", 12)):
        lines = (ROOT / f"examples/tic_tac_toe/data/{split}.jsonl").read_text().splitlines()[:count]
        (tmp_path / split).write_text("\n".join(lines))
    return (
        "-o",
        "eval.general.dataset.file_path",
        f"{tmp_path / 'train'}",
        f"--validation_dataset={tmp_path / 'validation'}",
    )


# A background shell hands its children a SIGINT that is ignored; a terminal does not.
TERMINAL = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
NAT = f"{TERMINAL}; from nat.cli.main import run_cli; run_cli()"


def command(output_dir: Path, *more: str) -> list[str]:
    overrides = {**SMALL, "finetuning.num_epochs": "2", "finetuning.output_dir": str(output_dir)}
    return [
        sys.executable,
        "-c",
        NAT,
        "--log-level",
        "info",
        "finetune",
        f"--config_file={CONFIG}",
        *(part for key, value in overrides.items() for part in ("-o", key, value)),
        *more,
    ]


def finished(output_dir: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, a success though the environment names a proxy that reaches nothing."""
    env = os.environ | dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy"), "http://127.0.0.1:9")
    run = subprocess.run(
        command(output_dir, *options), cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert run.returncode == 0, run.stderr
    return run


def started(output_dir: Path, *options: str) -> subprocess.Popen[str]:
    """Start a run of many epochs, whose lines can be read as they come."""
    return subprocess.Popen(
        command(output_dir, *options, "-o", "finetuning.num_epochs", "1000"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def seen(run: subprocess.Popen[str], *words: str) -> str:
    """What the run has printed when a line with these words appears."""
    assert run.stdout is not None
    shown = ""
    for line in run.stdout:
        shown += line
        if all(word in line for word in words):
            break
    return shown


def backends_of(output_dir: Path) -> list[int]:
    """The ids of the backend processes of the runs in this folder."""
    owners = {int(lock.read_text()) for lock in output_dir.glob(f"*/{LOCK}")}
    return [pid for pid in owners if not ended(pid)]


ADAPTERS = ("-o", "llms.player.lora", "{rank: 4}")
COLD = ("-o", "llms.player.temperature", "0.6")


@pytest.mark.parametrize(
    "options",
    [(), pytest.param((*ADAPTERS, *COLD), marks=pytest.mark.slow)],
    ids=["all weights", "adapters at temperature 0.6"],
)
def test_a_run_leaves_a_model_a_plot_and_a_verdict(tmp_path, games, options):
    """One command gives new weights, every documented file and a summary as JSON."""
    output_dir = tmp_path / "runs"
    told = json.loads(finished(output_dir, *games, "--json", *options).stdout)
    run_dir = Path(told["run_dir"])
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary == {key: value for key, value in told.items() if key != "run_dir"}
    assert summary["verdict"] in {"improved", "not shown", "worse"}
    assert summary["epochs"] == 2
    assert summary["tokens_trained"] > 0
    assert summary["num_examples"] == 12
    assert (run_dir / summary["model"] / "model.safetensors").stat().st_size > 1_000_000
    assert (run_dir / summary["plot"]).read_bytes().startswith(b"\x89PNG")
    for name in ("training_metrics.jsonl", "reward_history.json", "reward_plot.png", "summary.json"):
        assert (output_dir / name).resolve() == (run_dir / name).resolve()
    for line in (run_dir / "training_metrics.jsonl").read_text().splitlines():
        metrics = json.loads(line)["metrics"]
        assert metrics["train/logprob_diff_mean"] < 1e-4
        assert (metrics["drift/untrainable_calls"], metrics["drift/untempered_calls"]) == (0, 0)
    weights = (ROOT / "examples/tic_tac_toe/model/model.safetensors").read_bytes()
    assert (run_dir / summary["model"] / "model.safetensors").read_bytes() != weights
    assert (run_dir / summary["model"] / "adapter" / "adapter_model.safetensors").is_file() == bool(options)
    assert not backends_of(output_dir)


@pytest.mark.parametrize(
    ("number", "code", "state"),
    [
        pytest.param(signal.SIGINT, 130, RunState.CANCELED, marks=pytest.mark.slow),
        (signal.SIGTERM, EXIT_CODE, RunState.INTERRUPTED),
    ],
)
def test_a_signal_ends_the_run_and_keeps_its_checkpoint(tmp_path, games, number, code, state):
    """After a signal, the run ends its backend, closes its journal and says how to use the newest checkpoint."""
    output_dir = tmp_path / "runs"
    run = started(output_dir, *games)
    shown = seen(run, "Completed epoch 2/")
    try:
        assert backends_of(output_dir), shown
        run.send_signal(number)
        rest, _ = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == code, shown + rest
    assert "Traceback" not in rest
    run_dir = (output_dir / "latest").resolve()
    assert f"The run's records are in {run_dir}" in rest
    assert f"`nat runs export {run_dir} --checkpoint last`" in rest.replace("\n", "")
    assert not backends_of(output_dir)
    with Journal.open(run_dir, read_only=True) as journal:
        assert journal.info().state is state
        assert len(journal.epochs()) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("group", [False, True], ids=["the process", "the control group"])
@pytest.mark.parametrize("moment", ["Starting epoch 2 ", "Submitted"])
def test_sigterm_interrupts_a_run_that_a_restart_completes(tmp_path, games, moment, group):
    """In rollouts and in an update, whether or not the backend gets it, too: nothing slow happens, and it goes on."""
    output_dir = tmp_path / "runs"
    options = (*games, "-o", "finetuning.export_best", "true", "--grace=20")
    first = command(output_dir, *options)
    run = subprocess.Popen(first, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    shown = seen(run, moment)
    try:
        for backend in backends_of(output_dir) if group else ():
            os.kill(backend, signal.SIGTERM)
        run.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        rest, _ = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == EXIT_CODE, shown + rest
    assert time.monotonic() - begun < 20
    run_dir = (output_dir / "latest").resolve()
    assert f"Go on with the run: nat finetune --resume {run_dir}" in rest.replace("\n", "")
    assert "Traceback" not in rest
    assert not (run_dir / "best_model").exists()
    assert not backends_of(output_dir)
    assert overview_of(run_dir) == (ShownState.INTERRUPTED, "interrupted by SIGTERM")
    again = subprocess.run(
        [*first, "--resume=auto", "--json"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert again.returncode == 0, again.stderr
    told = json.loads(again.stdout)
    assert told["run_dir"] == str(run_dir)
    assert (told["state"], told["epochs"], told["ended_early"]) == ("completed", 2, None)
    with Journal.open(run_dir, read_only=True) as journal:
        assert [job.status for job in journal.jobs()] == [JobStatus.COMPLETED] * 2


def overview_of(run_dir: Path) -> tuple[ShownState, str | None]:
    """The state of a run as lists show it, and its reason."""
    [found] = overviews([run_dir])
    return found.state, found.message


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["Starting epoch 3 ", "Submitted"])
def test_a_killed_backend_ends_the_run_at_once(tmp_path, games, moment):
    """In rollouts and in an update: no client goes on to retry, and the error names process, exit code and log."""
    output_dir = tmp_path / "runs"
    run = started(output_dir, *games, "-o", "llms.player.max_retries", "1000")
    shown = seen(run, moment)
    [backend] = backends_of(output_dir)
    process = started_as(backend)
    try:
        os.kill(backend, signal.SIGKILL)
        rest, _ = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == 1, shown + rest
    assert "Traceback" not in rest
    run_dir = (output_dir / "latest").resolve()
    assert (
        f"Error: the backend has ended with exit code -9 (process {process}); the end of {run_dir}/backend.log:" in rest
    )
    summary = json.loads((run_dir / "summary.json").read_text())
    assert summary["state"] == "failed"
    assert "exit code -9" in summary["ended_early"]
    with Journal.open(run_dir, read_only=True) as journal:
        assert journal.info().state is RunState.FAILED

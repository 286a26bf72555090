"""Assumptions of the benches."""

import json
import os
import subprocess
import sys
import threading
from math import prod
from pathlib import Path
from random import Random

import pytest
from bench import disk, engines, gpu, growth, hand_over, judge, many_rollouts, overlap, real, sampler
from bench.busy import busy
from bench.ceiling import Pass, rows_of, seconds_of
from bench.learner import groups_of, model_of
from bench.learner_real import SIDES, Case, run
from bench.load import Load
from bench.servers import our_backend
from bench.shapes import TEMPLATE_TOKENS, checkpoint, words
from bench.tinker_update import ROUNDS, by_jobs

from fakes.training_rows import row_of
from nat.backend.model_loader import load_model
from nat.plugins.local.client import BackendClient
from nat.plugins.local.process import running_backend
from nat.wire.serving import ServeOptions
from nat.wire.training import TrainingConfig, TrainingGroup, TrainingJob, TrainingRollout


async def test_the_stub_backend_answers_the_harness(tmp_path: Path):
    """The bench of long runs needs an answer to each request of the adapter, in the form that the client reads."""
    row = row_of([1, 2], [None, -1.0])
    group = TrainingGroup(id="a", rollouts=[TrainingRollout(reward=1.0, rows=[row])])
    command = (sys.executable, "-m", "bench.stub_backend")
    log, options = tmp_path / "backend.log", ServeOptions(model=tmp_path, output_dir=tmp_path)
    async with (
        running_backend(options, log_path=log, startup_timeout=60, command=command) as backend,
        BackendClient(backend.base_url, backend.api_key) as client,
    ):
        assert await client.healthy()
        assert (await client.resolve(TrainingConfig())).algorithm == "lite_ppo"
        assert (await client.submit(TrainingJob(id="job", groups=[group]))).status.final
        assert (await client.job("job", wait=1)).id == "job"
        assert (await client.keep_best()).policy_version == "stub@0"
        exported = await client.export("model")
    assert Path(exported.path).parts[-2:] == ("exports", "model")


@pytest.mark.bench
def test_a_shape_is_a_checkpoint_of_exact_lengths(tmp_path: Path):
    """A word is a token, an answer encodes to the words that were sampled, and a shape is written once."""
    folder = checkpoint("tiny", cache=tmp_path)
    written = folder.stat().st_mtime_ns
    loaded = load_model(folder, device="cpu")
    text = words(Random(0), 100, loaded.vocab_size)  # noqa: S311 - a sample, not a secret
    prompt = loaded.tokenizer.render_chat([{"role": "user", "content": text}])
    assert len(prompt) == 100 + TEMPLATE_TOKENS
    assert loaded.tokenizer.decode(prompt) == text
    assert loaded.num_parameters == 432_000
    assert checkpoint("tiny", cache=tmp_path).stat().st_mtime_ns == written


@pytest.fixture
def shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A cache of checkpoints for this test alone."""
    for bench in (sampler, growth):
        monkeypatch.setattr(bench, "CACHE", tmp_path)


@pytest.mark.bench
@pytest.mark.usefixtures("shapes")
def test_the_sampler_is_measured_over_http():
    """Conversations run to their end; a row has tokens per second, memory, cores and what the products allow."""
    (row,) = sampler._rows("tiny", "float32", [Load(2, 16, 4, turns=2)], {"ours": our_backend}, rounds=1)
    case, *figures, _ = row.strip("| ").split(" | ")
    assert case == "tiny, float32: 2 x 2 turns, 16 in, 4 out"
    assert len(figures) == 4
    assert all(float(figure.replace(",", "")) > 0 for figure in figures)


@pytest.mark.bench
def test_more_answers_take_more_products():
    """The time of the products grows with the tokens of the answers."""
    measured = {2: Pass(2, 1.0, 0.5, "linear"), 32: Pass(32, 8.0, 4.0, "oneDNN")}
    assert rows_of(Load(2, 16, 4)) == (32, 2)
    assert seconds_of(Load(2, 16, 4), measured) == 8.0 + 0.5 + 3 * 1.5
    assert seconds_of(Load(2, 16, 4, turns=3), measured) == 3 * 13.0


@pytest.mark.bench
@pytest.mark.usefixtures("shapes")
def test_growth_is_measured(monkeypatch: pytest.MonkeyPatch):
    """Each prompt has the time to its first token and that of a step."""
    monkeypatch.setattr(growth, "PROMPTS", (16, 64))
    rows = list(growth._loads("prompt", "tiny", "float32"))
    assert [row.split(" | ")[0] for row in rows] == ["| prompt: 1, 16 in, 1 out", "| prompt: 1, 64 in, 1 out"]


@pytest.mark.bench
def test_a_rollout_on_disk_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """The journal takes less than half of the bytes that the same rollout takes as JSON."""
    monkeypatch.setattr(disk, "ROLLOUTS", 4)
    disk.main()
    sizes = [int(line.split(" | ")[1].replace(",", "")) for line in capsys.readouterr().out.splitlines()[-2:]]
    assert 2 * sizes[0] < sizes[1]


@pytest.mark.bench
def test_many_rollouts_are_measured(tmp_path: Path):
    """Each command and page has its time and memory, here of a run that was killed in its first epoch."""
    rows = list(many_rollouts.looked_at(many_rollouts.Size(1, 80, killed=True), cache=tmp_path))
    assert len(rows) == 16
    assert all(float(row.split(" | ")[1]) > 0 for row in rows if "`" in row)


@pytest.mark.bench
def test_the_bench_of_a_gpu_runs_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Sampler, learner, epoch and the most memory are measured; nothing fails or is left out."""
    sizes = ["--chats", "2", "--lengths", "32", "--tokens", "256"]
    options = ["--device=cpu", "--shapes", "tiny", "--mode", "lora", *sizes, f"--out={tmp_path}/gpu.json"]
    monkeypatch.setattr(sys, "argv", ["bench.gpu", *options])
    gpu.main()
    found = json.loads((tmp_path / "gpu.json").read_text())["figures"]
    assert [figure["part"] for figure in found] == ["sampler", "learner", "epoch", "memory"]
    assert not [figure for figure in found if "error" in figure]
    assert found[2]["status"] == "completed"
    assert found[3]["predicted_gb"] > 0


@pytest.mark.bench
def test_each_suite_of_the_bench_of_a_gpu_is_left_out_where_time_is_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Its options are known to both processes, and what there was no time for is listed."""
    for suite, chosen in gpu.SUITES.items():
        monkeypatch.setattr(sys, "argv", ["bench.gpu", f"--suite={suite}", "--device=cpu", "--seconds=0"])
        gpu.main()
        cases = [line for line in capsys.readouterr().out.splitlines() if "the time for everything was over" in line]
        switched = [len(chosen.get(name, ["on"])) for name in gpu.SWITCHES]
        assert len(cases[:-1]) == len(chosen["shapes"]) * len(chosen["mode"]) * prod(switched)


@pytest.mark.bench
def test_suites_measure_with_and_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each of the two has figures of its own; the sampler alone is measured, with the prompts of the call."""
    sizes = ["--shapes=tiny", "--mode=lora", "--chats", "2", "--prompts", "8", "70"]
    out = tmp_path / "gpu.json"
    for switch in gpu.SWITCHES:
        monkeypatch.setattr(sys, "argv", ["bench.gpu", f"--suite={switch}", "--device=cpu", *sizes, f"--out={out}"])
        gpu.main()
        found = [(figure[switch], figure["prompt"]) for figure in json.loads(out.read_text())["figures"]]
        assert found == [("on", 8), ("on", 70), ("off", 8), ("off", 70)]


@pytest.mark.bench
def test_the_bench_of_a_gpu_needs_little_installed():
    """A borrowed machine has torch, transformers, peft, pydantic and numpy, with what they need, and no more."""
    script = """if True:
        import sys

        class Refused:
            def find_spec(self, name, *_):
                if name.partition(".")[0] in {"fastapi", "uvicorn", "starlette", "openai", "pyarrow", "click"}:
                    raise ImportError(f"{name} is not there")

        sys.meta_path.insert(0, Refused())
        import bench.gpu, bench.gpu_case
    """
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)  # noqa: S603 - ours


@pytest.mark.bench
def test_overlap_is_measured(tmp_path: Path):
    """A run with overlap has a speed and held-out rewards; timing decides how many answers are stale."""
    more = ["-o", "trajectory_builders.games.num_generations", "4", "-o", "llms.player.threads", "1"]
    for split, option in (("train", "--dataset"), ("validation", "--validation_dataset")):
        lines = Path(f"examples/tic_tac_toe/data/{split}.jsonl").read_text().splitlines()[:6]
        (tmp_path / f"{split}.jsonl").write_text("\n".join(lines))
        more.append(f"{option}={tmp_path / f'{split}.jsonl'}")
    run = overlap.measure(1, 0, 3, *more)
    assert run.epochs_per_minute > 0
    assert 0 <= run.before <= 1
    assert 0 <= run.staleness <= 1
    assert 0 < run.overlapped <= 1
    assert run.row().count("|") == overlap.HEAD.splitlines()[0].count("|")


@pytest.mark.bench
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # an old name, which peft uses
@pytest.mark.parametrize("weights", ["full", "LoRA"])
def test_the_learner_and_plain_transformers_train_on_the_same_rows(monkeypatch, tmp_path, capsys, weights: str):
    """Each side takes a step with checkpointing, and reports time, CPU time and memory."""
    folder = checkpoint("tiny", cache=tmp_path)
    monkeypatch.setattr("bench.learner_real.checkpoint", lambda *_: folder)
    for side in SIDES:
        run(side, Case("tiny", rows=4, length=24, dtype="float32", weights=weights, checkpointing=True))
        found = json.loads(capsys.readouterr().out)
        assert found["seconds"] > 0
        assert found["cpu_seconds"] > 0
        assert found["peak_mb"] > 100


@pytest.mark.bench
async def test_engines_are_measured():
    """Each conversation stays, and no call fails, whatever a busy machine makes of the rates."""
    found = await engines.figures(engines.own)
    assert found["kept"] == engines.SESSIONS
    assert found["failed while one is sick, of 100"] == found["lost by a kill, of 12"] == 0
    assert await engines.rate(engines.own, 2) > 0


@pytest.mark.bench
def test_a_hand_over_is_measured():
    """An epoch has an update, a checkpoint, and an answer by the new weights."""
    found = hand_over.measured("tiny", "lora")
    assert min(found[f"{part}_seconds"] for part in ("update", "checkpoint", "first_answer")) > 0
    assert hand_over.row("tiny", "LoRA", found).count("|") == hand_over.HEAD[0].count("|")


@pytest.mark.bench
async def test_updates_by_jobs_are_timed(tmp_path: Path):
    """Each is trained and then answers; `make tinker-server` has the official client beside them."""
    marks = await by_jobs(model_of(tmp_path / "model"), groups_of(Random(0), "update")[:1], tmp_path)  # noqa: S311 - a sample
    assert len(marks) == ROUNDS
    assert all(seconds > 0 for mark in marks for seconds in mark)


async def test_a_scripted_judge_is_measured():
    """An exact judge finds the planted ranking, a noisy one less of it, and a blind one none, which is seen as bias."""
    exact, noisy = [await judge.measure(judge.Setting("", judge.Faults(noise=noise)), 20) for noise in (0, 0.3)]
    blind = await judge.measure(judge.Setting("", judge.Faults(bias=1, blind=True), both_orders=1), 20)
    assert exact.tau == 1
    assert 0.2 < noisy.tau < 0.8
    assert (blind.tau, blind.facts.position_bias, blind.calls) == (0, pytest.approx(1), 2)
    assert judge.row(judge.Setting("name"), exact).startswith("| name | 1.00 |")


def test_busy_processes_end_with_their_block():
    """A load that can be had again: so many processes, of this priority, for as long as the block runs."""

    def children():
        return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()

    before = children()
    with busy(2, nice=19):
        new = set(children()) - set(before)
        while {os.getpriority(os.PRIO_PROCESS, int(pid)) for pid in new} != {19}:
            pass
        assert len(new) == 2
    assert children() == before


def test_real_runs_are_ordinary_commands(tmp_path: Path):
    """With nothing chosen, a run of a task sets its seed and its folder, and nothing else."""
    options = real.options_of([])
    cases = list(real.cases_of(options))
    assert len(cases) == len(real.TASKS) * 3
    assert real.finetune_options(cases[1], tmp_path, options) == [
        "--config_file=config.yml",
        *("-o", "finetuning.seed", "1"),
        *("-o", "finetuning.output_dir", str(tmp_path / "runs")),
    ]


def test_the_matrix_has_every_combination_once():
    """Three ways to hold weights, two precisions and two engines, on two tasks; TRL only where it can score."""
    options = real.options_of(["--seeds", "0", "--matrix", "--trl"])
    cases = list(real.cases_of(options))
    for task in real.IN_MATRIX:
        own = {case.overrides for case in cases if case.task == task and case.overrides}
        assert len(own) == 12
    assert {case.task for case in cases if case.setting == real.TRL_DEFAULTS} == {"city", "sentiment"}
    assert len({case.name for case in cases}) == len(cases)


def test_a_finished_real_run_is_kept(tmp_path: Path):
    """What was measured before is read again, with the interval that TRL's scores give."""
    found = {"before": [0.0] * 20, "after": [1.0] * 20, "seconds": 3.0, "rollouts": 256}
    result = real.result_of(found, "2026-11-25 10:00, load 1.0", seconds=5.0)
    assert (result.before, result.after, result.verdict, result.seconds) == (0.0, 1.0, "improved", 3.0)
    assert real.kept_result(tmp_path) is None
    (tmp_path / "result.json").write_text(json.dumps({"result": vars(result)}))
    assert real.kept_result(tmp_path) == result
    row = result.row(real.Case("city", real.NOTHING, 0))
    assert "| +1.000 |" in row
    assert row.count("|") == real.HEAD.splitlines()[0].count("|")

"""An update by a program of the user's: its rows, its weights under our proofs, and everything that it may do wrong."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file

from e2e.doc_pages import ROOT
from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.training.program import PROGRAM_JOBS, ProgramUpdate
from nat.errors import UpdateRejected
from nat.wire.training import TrainerProgram, TrainingConfig, TrainingJob

TRAINER = ROOT / "examples/trainers/plain_torch.py"
COPY = "import os, shutil; e = os.environ; start, out = e.get('NAT_ADAPTER') or e['NAT_MODEL'], e['NAT_OUTPUT']; "
COPY += "shutil.copytree(start, out, dirs_exist_ok=True); "
TENSORS = COPY + (
    "import glob; from safetensors.numpy import load_file, save_file; (file,) = glob.glob(out + '/*.safetensors'); "
    "w = load_file(file); name = max(w, key=lambda n: w[n].size); "
)
SAVE = "; save_file(w, file, metadata={'format': 'pt'})"


def weights(loaded):
    return {name: p.detach().clone() for name, p in loaded.trainable_parameters().items()}


@pytest.fixture
def update(make_learner, tmp_path):
    """Trains by a program; without one, by code for `python -c`."""

    def run(loaded, *arguments, timeout=60.0, report=lambda _: None, **settings):
        command = list(arguments) if len(arguments) > 1 else [sys.executable, "-c", *arguments]
        config = TrainingConfig(algorithm="grpo", **settings)
        program = TrainerProgram(arguments=command, timeout=timeout)
        job = TrainingJob(id="job", groups=random_groups(loaded), config=config, program=program)
        resolved = resolve(config)
        learner = make_learner(loaded)
        elsewhere = ProgramUpdate(job, program, resolved, loaded, tmp_path)
        steps = []
        metrics = learner.update(job.groups, resolved, program=elsewhere, report=report, on_step=steps.append)
        return learner, metrics, steps

    return run


@pytest.mark.parametrize("kind", ["loaded", "lora"])
@pytest.mark.slow
def test_a_plain_trainer_trains(update, kind, request, tmp_path):
    """The example's weights are served, its steps count, and nothing but the log is left."""
    model = request.getfixturevalue(kind)
    before = weights(model)
    learner, metrics, steps = update(model, sys.executable, str(TRAINER))
    assert any(not torch.equal(now, before[name]) for name, now in weights(model).items())
    assert (learner.step, len(steps), metrics["optimizer_steps"]) == (2, 2, 2)
    assert metrics["served_diff_mean"] < 1e-4
    assert metrics["approx_kl"] > 0
    assert [path.name for path in (tmp_path / PROGRAM_JOBS).iterdir() if path.is_dir()] == []


def test_the_two_files_have_the_same_rows(update, loaded, tmp_path):
    """JSONL and safetensors agree token by token; the old log probabilities are the sampler's."""
    keep = TENSORS + f"shutil.copytree(os.environ['NAT_BATCH'], {str(tmp_path / 'kept')!r}); w[name] += 1e-3" + SAVE
    update(loaded, keep, beta=0.1)
    lines = [json.loads(line) for line in (tmp_path / "kept/rows.jsonl").read_text().splitlines()]
    tensors = load_file(tmp_path / "kept/rows.safetensors")
    job = json.loads((tmp_path / "kept/job.json").read_text())
    assert (job["nat_batch"], job["rows"], job["settings"]["beta"]) == (1, len(lines), 0.1)
    offsets = tensors["offsets"].tolist()
    for number, line in enumerate(lines):
        part = slice(offsets[number], offsets[number + 1])
        for name in ("input_ids", "loss_mask", "advantages", "logprobs", "old_logprobs", "ref_logprobs"):
            assert tensors[name][part].tolist() == pytest.approx(line[name])
        assert line["old_logprobs"] == pytest.approx(line["logprobs"], abs=1e-4)
        assert sum(line["loss_mask"]) > 0


WRONG = {
    "nothing": ("pass", "no config"),
    "unchanged": (COPY, "no weight changed"),
    "not finite": (TENSORS + "w[name][0] = float('nan')" + SAVE, "not finite"),
    "another shape": (TENSORS + "w[name] = w[name][1:].copy()" + SAVE, "other shapes"),
    "a missing tensor": (TENSORS + "del w[name]" + SAVE, "lacks"),
    "another tensor": (TENSORS + "w['more'] = w[name] + 1" + SAVE, "does not have: more"),
    "half-written": (TENSORS + "os.truncate(file, 1000)", "no readable weights"),
    "missing weights": (TENSORS + "os.remove(file)", "no readable weights"),
    "a pipe for weights": (TENSORS + "os.remove(file); os.mkfifo(file)", "no file of the folder is"),
    "failed": ("import sys; print('out of luck', file=sys.stderr); sys.exit(3)", "exit code 3"),
    "killed": ("import os; os.kill(os.getpid(), 9)", "by signal SIGKILL"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("kind", ["loaded", "lora"])
def test_wrong_output_changes_nothing(update, kind, wrong, request):
    """Each is refused with what was seen; weights and step are as before."""
    model = request.getfixturevalue(kind)
    code, message = WRONG[wrong]
    before = weights(model)
    with pytest.raises(UpdateRejected, match=message):
        update(model, code)
    assert all(torch.equal(now, before[name]) for name, now in weights(model).items())

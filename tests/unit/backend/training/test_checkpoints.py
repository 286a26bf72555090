"""Checkpoints are complete, resuming is exact, and exports load without our code."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from fakes.damage import cut_short, flip_a_bit
from fakes.tiny_model import make_tiny_model
from fakes.training_batches import random_groups
from nat.backend.algorithms.registry import resolve
from nat.backend.attention import PackedRows, packed_logits
from nat.backend.checkpoint_folder import TrainedJob, verify, write_manifest
from nat.backend.export import export_model
from nat.backend.lora import LoraSettings
from nat.backend.model_loader import load_model
from nat.backend.training.checkpoints import Checkpoints, restore
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.errors import BackendError, ExportRefused
from nat.wire.model_folder import forget_optimizer
from nat.wire.serving import NOTICES
from nat.wire.training import JobState, JobStatus, TrainingConfig

ROWS = PackedRows.of([[5, 6, 7], [8, 9]])
CONFIG = TrainingConfig(learning_rate=1e-3, max_logprob_difference=100)
LORA = LoraSettings(rank=4)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    torch.set_num_threads(1)
    return make_tiny_model(tmp_path_factory.mktemp("model"))


def opened(path, lora=None, dtype="float32"):
    loaded = load_model(path, device="cpu", dtype=dtype, lora=lora)
    reference = Reference(loaded, lambda: load_model(path, device="cpu").model)
    return loaded, Learner(loaded, reference)


def weights(loaded):
    return {name: p.detach().clone() for name, p in loaded.trainable_parameters().items()}


@pytest.mark.parametrize(("lora", "dtype"), [(None, "float32"), (LORA, "float32"), (None, "bfloat16")])
def test_resuming_is_exact(tmp_path, source, lora, dtype):
    """One update, a checkpoint, a new process and another update give bitwise the weights of two updates in a row."""
    loaded, learner = opened(source, lora, dtype)
    groups = random_groups(loaded)
    learner.update(groups, resolve(CONFIG))
    checkpoints = Checkpoints(tmp_path, keep_last=2)
    job = TrainedJob(state=JobState(id="a", status=JobStatus.COMPLETED), digest="d")
    checkpoints.save(loaded, learner, job)
    learner.update(groups, resolve(CONFIG))

    found = Checkpoints(tmp_path, keep_last=2).open()
    assert found is not None
    assert found.state.job == job
    again, second = opened(source if lora else found.path, lora, dtype)
    restore(found, again, second)
    second.update(groups, resolve(CONFIG))
    assert second.step == learner.step == 2
    expected = weights(loaded)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(again).items())


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, LORA], ids=["all weights", "adapter"])
def test_a_resumed_phase_has_its_reference(tmp_path, source, lora):
    """The KL term pulls to the weights at the phase's beginning, whose checkpoint stays, and not to the run's."""
    pulled = resolve(CONFIG.model_copy(update={"beta": 0.5}))
    loaded, learner = opened(source, lora)
    groups, checkpoints = random_groups(loaded), Checkpoints(tmp_path, keep_last=1)
    learner.update(groups, resolve(CONFIG))
    learner.begin_phase(pulled)
    checkpoints.save(loaded, learner, None)
    for _ in range(2):
        learner.update(groups, pulled)
        checkpoints.save(loaded, learner, None)
    assert checkpoints.numbers() == [1, 3]
    found = checkpoints.open()
    phase = checkpoints.phase_of(found)
    again = load_model(source if lora else found.path, device="cpu", lora=lora)
    second = Learner(again, Reference(again, lambda: load_model(phase, device="cpu").model))
    restore(found, again, second, phase)
    seen, expected = second.update(groups, pulled), learner.update(groups, pulled)
    assert seen["reference_kl"] == expected["reference_kl"] > 0
    expected = weights(loaded)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(again).items())


@pytest.mark.slow
@pytest.mark.parametrize("lora", [None, LORA], ids=["all weights", "adapter"])
def test_a_checkpoint_loads_as_a_model(tmp_path, source, lora):
    """A checkpoint's folder loads as a model, an adapter's merged, and is itself a starting point for training."""
    for round_ in ("first", "second"):
        loaded, learner = opened(source, lora)
        learner.update(random_groups(loaded), resolve(CONFIG))
        path = Checkpoints(tmp_path / round_, keep_last=2).save(loaded, learner, None)
        again = load_model(path, device="cpu")
        assert again.peft is None
        with torch.no_grad():
            torch.testing.assert_close(packed_logits(again.model, ROWS), packed_logits(loaded.model, ROWS))
        source = path


def test_the_newest_are_kept_and_the_best_however_old(tmp_path, source):
    """`latest` points to the newest, also after a crash before its link; the best does not count for `keep_last`.

    The newest alone has the optimizer's state, which is larger than the weights; the others stay whole as models.
    """
    loaded, learner = opened(source)
    checkpoints = Checkpoints(tmp_path, keep_last=1)
    for step in range(5):
        learner.step = step
        checkpoints.save(loaded, learner, None)
        if step == 2:
            checkpoints.keep_best(2)
    assert checkpoints.numbers() == [2, 4]
    assert [path.parent.name for path in tmp_path.glob("step_*/optimizer.safetensors")] == ["step_000004"]
    assert verify(tmp_path / "step_000002").step == 2
    assert (tmp_path / "best").readlink() == Path("step_000002")
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").symlink_to("step_000002")
    (tmp_path / ".unfinished-x").mkdir()
    assert Checkpoints(tmp_path, keep_last=1).open() is not None
    assert (tmp_path / "latest").readlink() == Path("step_000004")
    checkpoints.keep_best(4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "latest", "step_000004"]


def test_a_kill_before_the_optimizers_state_is_gone_harms_nothing(tmp_path, source, caplog):
    """The folder is a whole model at each moment, and the next checkpoint finishes what was begun."""
    checkpoints = saved(tmp_path, source, steps=(1, 2))
    state, newest = (tmp_path / f"step_00000{step}" / "optimizer.safetensors" for step in (1, 2))
    state.write_bytes(newest.read_bytes())
    assert verify(state.parent).step == 1
    assert checkpoints.open().state.step == 2
    assert caplog.text == ""
    checkpoints.keep_best(2)
    assert not state.exists()


def test_a_checkpoint_of_an_older_release_is_named(tmp_path, source):
    """Nothing of it is read; the message says which release made it, and to start anew."""
    saved(tmp_path, source, steps=(1,))
    edited(tmp_path / "step_000001" / "state.json", jobs=[])
    (tmp_path / "step_000001" / "manifest.json").unlink()
    write_manifest(tmp_path / "step_000001", "checkpoint")
    with pytest.raises(BackendError, match=r"step_000001 was made by nat 0\.6") as raised:
        Checkpoints(tmp_path, keep_last=2).open()
    assert "start anew" in raised.value.hint


def edited(state: Path, **changes: object) -> None:
    state.write_text(json.dumps(json.loads(state.read_text()) | changes))


DAMAGES = {
    "cut-short weights": lambda folder: cut_short(folder / "model.safetensors"),
    "cut-short optimizer": lambda folder: cut_short(folder / "optimizer.safetensors"),
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "no configuration": lambda folder: (folder / "config.json").unlink(),
    "no optimizer": lambda folder: (folder / "optimizer.safetensors").unlink(),
    "no state": lambda folder: (folder / "state.json").unlink(),
    "a state of no step": lambda folder: edited(folder / "state.json", step=10**300),
    "a phase of no step": lambda folder: edited(folder / "state.json", first_step=-1),
    "half a state": lambda folder: cut_short(folder / "state.json"),
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "nothing": lambda folder: [path.unlink() for path in folder.iterdir()],
}
FLIPS = {
    "flipped weights": lambda folder: flip_a_bit(folder / "model.safetensors"),
    "flipped optimizer": lambda folder: flip_a_bit(folder / "optimizer.safetensors"),
    "flipped tokenizer": lambda folder: flip_a_bit(folder / "tokenizer.json"),
    "half a manifest": lambda folder: cut_short(folder / "manifest.json"),
}


def saved(folder, source, steps=(1, 2), keep_last=9):
    """Real checkpoints of these steps."""
    loaded, learner = opened(source)
    checkpoints = Checkpoints(folder, keep_last=keep_last)
    for step in steps:
        learner.step = step
        checkpoints.save(loaded, learner, None)
    return checkpoints


@pytest.mark.parametrize("damage", [*DAMAGES.values(), *FLIPS.values()], ids=[*DAMAGES, *FLIPS])
def test_a_damaged_checkpoint_is_replaced_by_the_previous_one(tmp_path, source, caplog, damage):
    """Each kind of damage moves the newest checkpoint aside with the reason; `latest` is the previous one.

    Training goes on from its weights, since the newest alone had the optimizer's state.
    """
    checkpoints = saved(tmp_path, source)
    damage(tmp_path / "step_000002")
    found = checkpoints.open()
    assert found is not None
    assert found.state.step == 1
    assert "step_000002 is damaged: " in caplog.text
    assert [record.name for record in caplog.records if record.levelname == "WARNING"] == [NOTICES] * 2
    assert "step_000001 has the weights alone, so the optimizer's moments begin anew" in caplog.text
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"latest", "step_000001", "step_000002.damaged"}
    assert (tmp_path / "latest").readlink() == Path("step_000001")


def test_weights_alone_go_on(tmp_path, source):
    """Of a checkpoint without the optimizer's state, weights and step are those of the checkpoint, moments are new."""
    loaded, learner = opened(source)
    groups, checkpoints = random_groups(loaded), Checkpoints(tmp_path, keep_last=2)
    learner.update(groups, resolve(CONFIG))
    path = checkpoints.save(loaded, learner, None)
    expected = weights(loaded)
    forget_optimizer(path)
    again, second = opened(path)
    restore(checkpoints.open(), again, second)
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(again).items())
    assert (second.step, second.optimizer.state()) == (1, {})
    second.update(groups, resolve(CONFIG))


@pytest.mark.parametrize("lora", [None, LORA])
def test_export_loads_in_transformers(tmp_path, source, lora):
    """The export loads in transformers alone, with the served logits; exporting changes no served weight."""
    loaded, learner = opened(source, lora)
    learner.update(random_groups(loaded), resolve(TrainingConfig(learning_rate=1e-2, max_logprob_difference=100)))
    before = weights(loaded)
    adapter = export_model(loaded, tmp_path / "trained")
    assert all(torch.equal(weight, before[name]) for name, weight in weights(loaded).items())
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "trained")
    tokens = AutoTokenizer.from_pretrained(tmp_path / "trained")("hello there")["input_ids"]
    with torch.no_grad():
        expected = packed_logits(loaded.model, PackedRows.of([tokens]))
        assert torch.allclose(model(torch.tensor([tokens])).logits[0], expected, atol=1e-4)
    assert (adapter is None) == (lora is None)
    if adapter is not None:
        assert json.loads((adapter / "adapter_config.json").read_text())["r"] == 4


def test_export_replaces_nothing_else(tmp_path, source):
    """Checkpoints, other folders, files and links are refused as targets and stay unchanged."""
    loaded, _ = opened(source)
    saved(tmp_path, source, steps=(1,))
    (tmp_path / "mine").mkdir()
    (tmp_path / "backend.log").write_text("log")
    (tmp_path / "link").symlink_to("mine")
    (tmp_path / "dangling").symlink_to("none")
    for name in ("step_000001", "latest", "mine", "backend.log", "link", "dangling", "backend.log/below"):
        with pytest.raises(ExportRefused, match="a model cannot be written to"):
            export_model(loaded, tmp_path / name)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"step_000001", "latest", "mine", "backend.log", "link", "dangling"}
    assert (tmp_path / "step_000001" / "optimizer.safetensors").is_file()
    assert (tmp_path / "backend.log").read_text() == "log"

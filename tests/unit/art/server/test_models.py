"""Several clients' models on one base are served side by side, trained, saved, restored and deleted."""

import threading

import pytest
import torch

from fakes.art_batches import DEADLINE, PROMPT, answer, art_batch, ask, collect, silent_batch
from fakes.damage import flip_a_bit
from fakes.listeners import one, run
from fakes.tiny_fixtures import mostly_slow
from nat.art.options import ArtServeOptions
from nat.art.server.models import ArtModels
from nat.art.wire import ArtModel, InternalModelConfig
from nat.backend.export import merged
from nat.backend.inference.engine import Engine
from nat.backend.model_loader import load_model
from nat.errors import (
    CheckpointDamaged,
    ModelBusy,
    ModelNotServed,
    ModelNotSupported,
    TooManyModels,
    TrainingFailed,
    UpdateCanceled,
)
from nat.wire.training import JobStatus

A = ArtModel(project="p", name="a")
B = ArtModel(project="p", name="b", internal_config={"peft_args": {"r": 2, "lora_alpha": 8}})


@pytest.fixture
def start(tiny_dir, tmp_path):
    """Open the models on a new base with the same files."""
    opened = []

    def start_one(dtype="float32", **options):
        base = load_model(tiny_dir("qwen2"), device="cpu", dtype=dtype)
        own = {"model": base.path, "served_model_name": "base", "output_dir": tmp_path / "out", "lora_rank": 4}
        opened.append(ArtModels(base, ArtServeOptions(inference_port=0, **(own | options))))
        return opened[-1]

    yield start_one
    for models in opened:
        models.close()


@pytest.fixture
def models(start):
    return start()


def prepared(models, model):
    return models._models.get(models._key(model))


def weights(models, model):
    found = prepared(models, model)
    return {name: p.detach().clone() for name, p in found.adapter.loaded.trainable_parameters().items()}


def same(one_state, other):
    return one_state.keys() == other.keys() and all(torch.equal(one_state[name], other[name]) for name in other)


def alike(found, expected, rounding=1e-5):
    """True if both have the same tokens and, up to the effect of batching, the same log probabilities."""
    near = pytest.approx(expected.logprobs, abs=rounding)
    return found.token_ids == expected.token_ids and found.logprobs == near


class Gate:
    """Holds the model thread until it is released."""

    def __init__(self, models):
        self._open = threading.Event()
        models.worker.run_exclusive(lambda: self._open.wait(DEADLINE))

    def open(self):
        self._open.set()


async def test_models_answer_side_by_side_each_with_its_own_weights(models):
    """Concurrently, two trained models and the base give the same answers as alone; the base never changes."""
    untouched = await answer(ask(models.worker, "base"))
    for seed, model in enumerate((A, B)):
        await models.prepare(model)
        await collect(models.train(model, art_batch(models.base, seed=seed)))
    gate = Gate(models)
    requests = [ask(models.worker, name, count=3) for name in ("a", "b", "base", "b@1", "a", "")]
    gate.open()
    answers = [await answer(request) for request in requests]
    assert [found.version for found in answers] == ["a@1", "b@1", "base", "b@1", "a@1", "base"]
    for one_answer, other in ((0, 4), (1, 3), (2, 5)):
        assert alike(answers[one_answer], answers[other])
    assert alike(answers[2], untouched)
    for found, model in zip(answers, (A, B), strict=False):
        alone = Engine(load_alone(models, model), policy_version="alone")
        [sequence] = run(alone, one(PROMPT, max_tokens=12, temperature=0.0, ignore_eos=True))
        assert alike(found, sequence, rounding=1e-4)
        assert not alike(found, untouched, rounding=1e-3)


def load_alone(models, model):
    """The model with its adapter merged, in a copy."""
    base = load_model(models.base.path, device="cpu")
    base.model.load_state_dict(merged(prepared(models, model).adapter.loaded).state_dict())
    return base


async def test_requests_that_wait_for_an_update_get_the_new_weights(models):
    """The plain name gets the new weights; a pinned name keeps the old ones, loaded from their checkpoint."""
    await models.prepare(A)
    before = await answer(ask(models.worker, "a"))
    gate = Gate(models)
    call = models.train(A, art_batch(models.base))
    names = ("a@0", "a", "wandb-artifact:///e/p/a:step0", "wandb-artifact:///e/p/a", "base")
    waiting = [ask(models.worker, name) for name in names]
    gate.open()
    await collect(call)
    pinned, newest, artifact, newest_artifact, base = [await answer(request) for request in waiting]
    assert (pinned.version, newest.version, base.version) == ("a@0", "a@1", "base")
    assert alike(pinned, before)
    assert alike(artifact, before)
    assert alike(newest, newest_artifact)
    assert not alike(newest, before, rounding=1e-3)


async def test_a_training_call_reports_each_step_and_ends_when_the_weights_are_served(models, tmp_path):
    """Every line has the number of steps; at the end, step, name, checkpoint and job agree."""
    await models.prepare(A)
    assert models.step(A) == 0
    call = models.train(A, art_batch(models.base, num_iterations=3))
    lines = await collect(call)
    assert [line["num_gradient_steps"] for line in lines] == [3.0] * 3
    assert all({"loss", "grad_norm", "learning_rate"} <= line.keys() for line in lines)
    assert (models.step(A), models.steps(A)) == (1, [0, 1])
    assert (await answer(ask(models.worker, "a"))).version == "a@1"
    state = models.job(call.job_id)
    assert state is not None
    assert (state.status, state.policy_version, state.progress) == (JobStatus.COMPLETED, "a@1", 100.0)
    assert call.facts == {"fact": 1.0}
    assert models.job("other") is None


@pytest.mark.parametrize("dtype", mostly_slow(["float32", "bfloat16"], "float32"))
async def test_training_across_a_restart_is_exact(start, tmp_path, dtype):
    """One call, a new process and another call give the weights and optimizer state of two calls in a row."""
    ends = []
    for restart in (False, True):
        models = start(dtype, output_dir=tmp_path / str(restart))
        await models.prepare(B)  # so that the adapters' keys differ between the two processes
        await models.prepare(A)
        first = models.train(A, art_batch(models.base, seed=1))
        await collect(first)
        if restart:
            models.close()
            models = start(dtype, output_dir=tmp_path / str(restart))
            assert models.step(A) == 1
            models.register(A)
            await models.prepare(A)
            assert (await answer(ask(models.worker, "a"))).version == "a@1"
            assert models.job(first.job_id).status is JobStatus.COMPLETED
        await collect(models.train(A, art_batch(models.base, seed=2)))
        assert models.step(A) == 2
        found = prepared(models, A)
        ends.append((weights(models, A), found.learner.optimizer.state(), found.learner.step))
    (one_weights, one_state, one_step), (other_weights, other_state, other_step) = ends
    assert same(one_weights, other_weights)
    assert same(one_state, other_state)
    assert one_step == other_step == 2


async def test_a_batch_without_signal_trains_nothing_and_is_a_step(models):
    """The call reports one line without gradient steps; the weights stay the same under the next number."""
    await models.prepare(A)
    before = weights(models, A)
    assert await collect(models.train(A, silent_batch())) == [{"num_gradient_steps": 0.0}]
    assert same(weights(models, A), before)
    assert (models.step(A), models.steps(A)) == (1, [0, 1])
    assert models.engine("a").policy_version == "a@1"


async def nothing_changed(models, before):
    """Weights, optimizer, step and files are unchanged; the next call is trained."""
    state, optimizer = before
    found = prepared(models, A)
    assert same(weights(models, A), state)
    assert same(found.learner.optimizer.state(), optimizer)
    assert (models.step(A), found.learner.step, models.steps(A)) == (1, 1, [0, 1])
    assert found.engine.policy_version == "a@1"
    await collect(models.train(A, art_batch(models.base, seed=3)))
    assert models.step(A) == 2


@pytest.fixture
async def trained(models):
    """A model after one training call, with its weights and optimizer state."""
    await models.prepare(A)
    await collect(models.train(A, art_batch(models.base)))
    state = prepared(models, A).learner.optimizer.state()
    return weights(models, A), {name: tensor.clone() for name, tensor in state.items()}


async def test_an_update_that_is_rejected_changes_nothing(models, trained):
    """The reason for the rejection reaches the caller and the job."""
    call = models.train(A, art_batch(models.base, seed=9, learning_rate=1e-12))
    with pytest.raises(TrainingFailed, match="weights"):
        await collect(call)
    assert models.job(call.job_id).failure.type == "weights_unchanged"
    await nothing_changed(models, trained)


async def test_a_checkpoint_that_cannot_be_written_undoes_the_update(models, trained, monkeypatch):
    """Weights that cannot be saved are not served, because a restart would lose them."""
    with monkeypatch.context() as patch:
        patch.setattr("nat.backend.training.checkpoints.save_file", full_disk)
        with pytest.raises(TrainingFailed, match="disk full"):
            await collect(models.train(A, art_batch(models.base, seed=9)))
    await nothing_changed(models, trained)


def full_disk(tensors, path):
    raise OSError("disk full")


async def test_a_canceled_call_changes_nothing(models, trained):
    """The call stops at its next micro-batch and undoes the steps that it made."""
    gate = Gate(models)
    call = models.train(A, art_batch(models.base, num_iterations=3))
    told = call.on_step

    def cancel_after_the_first(metrics):
        told(metrics)
        call.cancel()

    call.on_step = cancel_after_the_first
    gate.open()
    with pytest.raises(UpdateCanceled):
        await collect(call)
    assert models.job(call.job_id).status is JobStatus.CANCELED
    await nothing_changed(models, trained)


async def test_one_call_for_a_model_at_a_time(models):
    """A second call for the same model is refused; a call for another model waits its turn."""
    for model in (A, B):
        await models.prepare(model)
    gate = Gate(models)
    calls = [models.train(A, silent_batch()), models.train(B, silent_batch())]
    with pytest.raises(ModelBusy, match="p/a is being trained"):
        models.train(A, silent_batch())
    with pytest.raises(ModelBusy):
        await models.remove(A)
    gate.open()
    for call in calls:
        await collect(call)
    assert (models.step(A), models.step(B)) == (1, 1)


async def test_at_most_two_old_weights_stay_loaded(models):
    """The least recently used weights are unloaded, and loaded from their checkpoints when requested."""
    await models.prepare(A)
    answers = []
    for seed in range(4):
        answers.append(await answer(ask(models.worker, "a")))
        await collect(models.train(A, art_batch(models.base, seed=seed)))
    for step in (0, 1, 2, 0, 3, 2, 0):
        again = await answer(ask(models.worker, f"a@{step}"))
        assert again.version == f"a@{step}"
        assert alike(again, answers[step])
        layers = [name for name, _ in models.base.model.named_parameters() if "layers.0" in name]
        assert len([name for name in layers if "q_proj.lora_A" in name]) <= 3
    assert [folder.name for folder in models._kept] == ["0002", "0000"]


async def test_deleting_keeps_the_newest_and_the_requested_steps(models):
    """Names of deleted steps are unknown and no longer listed."""
    await models.prepare(A)
    for _ in range(4):
        await collect(models.train(A, silent_batch()))
    assert await models.delete(A, [1, 7]) == [0, 2, 3]
    assert models.steps(A) == [1, 4]
    assert models.names() == ["base", "a", "a@1", "a@4"]
    assert [models.knows(f"a@{step}") for step in range(6)] == [False, True, False, False, True, False]
    with pytest.raises(ModelNotServed, match="step 2"):
        await answer(ask(models.worker, "a@2"))
    assert await models.delete(A, []) == [1]
    assert (models.step(A), models.steps(A)) == (4, [4])


async def test_a_removed_model_is_gone_with_its_files(models, tmp_path):
    """A removed model's names are unknown, its waiting requests fail, and it can be created again; others continue."""
    for model in (A, B):
        await models.prepare(model)
        await collect(models.train(model, art_batch(models.base)))
    await answer(ask(models.worker, "a@0"))
    await models.remove(A)
    assert models.names() == ["base", "b", "b@0", "b@1"]
    assert not (tmp_path / "out/p/models/a").exists()
    with pytest.raises(ModelNotServed):
        await answer(ask(models.worker, "a"))
    assert (await answer(ask(models.worker, "b"))).version == "b@1"
    await models.prepare(A)
    assert (await answer(ask(models.worker, "a"))).version == "a@0"
    await models.remove(ArtModel(project="p", name="never-prepared"))


async def test_listed_names_are_served(models):
    """The server lists the base, registered ids, models and versions; it answers to references with an entity, too."""
    entity = ArtModel(project="q", name="c", entity="e", base_model="Qwen/Qwen2.5-0.5B")
    for model in (A, entity):
        models.register(model)
        await models.prepare(model)
    reference = "wandb-artifact:///e/q/c"
    assert models.names() == ["base", "Qwen/Qwen2.5-0.5B", "a", "a@0", "c", "c@0"]
    others = ("a@latest", reference, f"{reference}:step0", f"{reference}:latest")
    assert all(models.knows(name) for name in [*models.names(), *others])
    assert not any(models.knows(name) for name in ("", "d", "a@1", "base@0", "a@x", "wandb-artifact:///e/p/c"))
    assert (await answer(ask(models.worker, "Qwen/Qwen2.5-0.5B"))).version == "base"


async def test_the_plain_name_means_the_model_that_was_prepared_last(models, caplog):
    """If two projects use one name, the log reports the change of owner; references distinguish them."""
    mine, theirs = (ArtModel(project=project, name="m", entity="e") for project in ("p", "q"))
    await models.prepare(mine)
    await collect(models.train(mine, silent_batch()))
    await models.prepare(theirs)
    assert "m is now the model of q/m, no longer of p/m" in caplog.text
    assert (await answer(ask(models.worker, "m"))).version == "m@0"
    assert (await answer(ask(models.worker, "wandb-artifact:///e/p/m"))).version == "m@1"
    await models.prepare(mine)
    assert (await answer(ask(models.worker, "m"))).version == "m@1"


@pytest.mark.parametrize("name", ["base", "../a", "a@1"])
async def test_bad_names_are_refused_before_anything_happens(models, tmp_path, name):
    """Names that cannot be folders, or would hide the base model, are refused."""
    bad = ArtModel(project="p", name=name)
    for method in (models.register, models.step, models.steps):
        with pytest.raises(ValueError, match=r"name '.*'"):
            method(bad)
    for asking in (models.prepare(bad), models.delete(bad, []), models.remove(bad)):
        with pytest.raises(ValueError, match=r"name '.*'"):
            await asking
    assert not (tmp_path / "out").exists()


async def test_settings_without_effect_are_named(models, caplog):
    """One warning names options without effect, one a too large length, one another base model."""
    requested = {"init_args": {"max_seq_length": 10**6}, "engine_args": {"gpu_memory_utilization": 0.5}}
    model = ArtModel(project="p", name="a", base_model="Qwen/Qwen2.5-0.5B", internal_config=requested)
    for _ in range(2):
        await models.prepare(model)
    assert caplog.text.count("engine_args.gpu_memory_utilization") == 1
    assert caplog.text.count("max_seq_length is 1000000; this model has 512 tokens") == 1
    assert caplog.text.count("requests the base model 'Qwen/Qwen2.5-0.5B'; here it is base") == 1


async def test_a_damaged_checkpoint_is_replaced_by_the_previous_one(start, tmp_path, caplog):
    """Training continues from the previous checkpoint; the damaged one is neither served nor loaded."""
    models = start()
    await models.prepare(A)
    for _ in range(2):
        await collect(models.train(A, art_batch(models.base)))
    models.close()
    flip_a_bit((tmp_path / "out/p/models/a") / "checkpoints" / "0002" / "adapter_model.safetensors")
    flip_a_bit((tmp_path / "out/p/models/a") / "checkpoints" / "0000" / "adapter_model.safetensors")
    models = start()
    await models.prepare(A)
    assert (models.step(A), models.steps(A)) == (1, [0, 1])
    assert "0002 is damaged: adapter_model.safetensors has another checksum" in caplog.text
    assert (await answer(ask(models.worker, "a"))).version == "a@1"
    with pytest.raises(CheckpointDamaged, match="0000"):
        await answer(ask(models.worker, "a@0"))


async def test_the_rank_of_an_adapter_is_bounded(models, tmp_path):
    """A rank above the model's width is refused (two million took 12.9 GB); the attempt leaves nothing."""
    huge = B.model_copy(update={"internal_config": InternalModelConfig.model_validate({"peft_args": {"r": 2_000_000}})})
    with pytest.raises(ModelNotSupported, match="rank of 2000000 is more than this model's hidden size of 32"):
        await models.prepare(huge)
    assert prepared(models, huge) is None
    assert not list((tmp_path / "out").rglob("*.safetensors"))
    await models.prepare(B)


async def test_the_number_of_models_is_bounded(start):
    """Existing models keep working; removing one allows another."""
    models = start(max_models=1)
    await models.prepare(A)
    with pytest.raises(TooManyModels, match="holds 1 models"):
        await models.prepare(B)
    await models.prepare(A)
    await models.remove(A)
    await models.prepare(B)

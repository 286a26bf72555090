"""A whole backend on a fake server: requests, jobs, checkpoints, and going on from them."""

import io
import json
import tarfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
import torch
from safetensors.torch import save

from fakes.keys import KEY
from fakes.training_batches import random_groups
from nat.backend.export import export_checkpoint
from nat.backend.model_loader import load_model
from nat.backend.protocol import Endpoint
from nat.backend.server.app import create_app
from nat.backend.training.batch import Row
from nat.backend.training.mismatch import served_logprobs
from nat.errors import BackendError
from nat.tinker.remote.serve import open_remote
from nat.wire.model_folder import ADAPTER_CONFIG, MANIFEST, REMOTE_WEIGHTS, STATE
from nat.wire.training import TrainingConfig, TrainingJob

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "go"}], "max_tokens": 6, "logprobs": True, "seed": 3}
CONFIG = TrainingConfig(learning_rate=1e-2, warmup_steps=1, max_logprob_difference=2.0)
ALL_MODULES = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
ROW = Row(0, 0, 0, [5, 6, 7], [0, 1, 2], [6, 7, 8], [None] * 3, [0.0] * 3)


@contextmanager
def backend(options, service):
    """A client of the backend, and its jobs."""
    with open_remote(options, Endpoint({}, KEY), connected=service) as opened:
        app = create_app(opened.engine, api_key=KEY, extra_routers=opened.routers)
        transport, headers = httpx.ASGITransport(app=app), {"Authorization": f"Bearer {KEY}"}
        yield httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers), jobs_of(opened)


def jobs_of(opened):
    """The jobs behind the routes of training; None if it only serves."""
    return opened.routers[0].routes[0].endpoint.__self__._open_jobs


@pytest.fixture
def groups(tiny_dir):
    return random_groups(load_model(tiny_dir("qwen2"), device="cpu", dtype="float32"))


@pytest.fixture
def opened_on(start, remote_options):
    """A backend that trains all weights on a fake server of a kind."""
    return lambda **kind: backend(remote_options(lora_rank=0), start(all_weights=True, **kind))


async def answer(http, **more):
    found = await http.post("/v1/chat/completions", json=CHAT | more)
    assert found.status_code == 200, found.text
    return found.json()


def logprobs(found):
    return [each["logprob"] for each in found["choices"][0]["logprobs"]["content"]]


def trained(jobs, groups, name):
    jobs.submit(TrainingJob(id=name, groups=groups, config=CONFIG))
    jobs.find(name).finished.result(120)
    return jobs.get(name)


@pytest.mark.parametrize("rank", [4, pytest.param(0, marks=pytest.mark.slow)])
async def test_a_job_changes_what_is_served_and_is_resumed(start, remote_options, groups, rank):
    """Answers are those of the newest weights, also after a restart; the end of a turn is a stop id."""
    service, remote_options = start(all_weights=rank == 0), partial(remote_options, lora_rank=rank)
    with backend(remote_options(), service) as (http, jobs):
        before = await answer(http)
        state = trained(jobs, groups, "job-1")
        assert (state.status, state.failure, state.policy_version) == ("completed", None, "tiny@1")
        assert state.metrics["served_diff_max"] < 1e-4
        after = await answer(http)
        assert logprobs(after) != logprobs(before)
        assert (await answer(http, n=2, stop=["a"]))["usage"]["completion_tokens"] > 0
        refused = await http.post("/v1/chat/completions", json=CHAT | {"top_logprobs": 2})
        assert "reports no alternatives of tokens" in refused.text
        eos = sorted(jobs.loaded.eos_token_ids)
    assert service.client.sampled[0].stop == eos
    with backend(remote_options(resume=True), start(all_weights=rank == 0)) as (http, jobs):
        assert jobs.learner.step == 1
        assert logprobs(await answer(http)) == pytest.approx(logprobs(after), abs=1e-5)
        assert trained(jobs, groups, "job-1").policy_version == "tiny@1"
        assert trained(jobs, groups, "job-2").policy_version == "tiny@2"


async def test_the_server_keeps_the_states_that_the_run_s_folder_names(start, remote_options, groups):
    """Those of pruned checkpoints are deleted, also after a restart; not that of an export."""
    made, deleted = [], []
    for resume, names in ((False, ["job-1", "job-2"]), (True, ["job-3"])):
        with backend(remote_options(keep_last=1, resume=resume), service := start()) as (http, jobs):
            made += [] if resume else [jobs.learner.trained.state]
            for name in names:
                assert trained(jobs, groups, name).status == "completed"
                made.append(jobs.learner.trained.state)
                if name == "job-1":
                    await http.post("/v1/training/export", json={"name": "model"})
        deleted += [f"tinker://{run}/{name}" for run, name in service.client.deleted]
    named = {json.loads(path.read_text())["state"] for path in remote_options().output_dir.rglob("tinker.json")}
    assert named == {made[1], made[3]}
    assert {path for path in deleted if "/weights/" in path} == {made[0], made[2]}


async def test_an_export_and_a_checkpoint_name_the_weights_on_the_server(start, remote_options, groups):
    """They can be the `model` of another backend, which serves them; a damaged one is an error."""
    service = start()
    with backend(remote_options(), service) as (http, jobs):
        trained(jobs, groups, "job-1")
        wanted = logprobs(await answer(http))
        exported = (await http.post("/v1/training/export", json={"name": "model"})).json()
    folder = remote_options().output_dir / "exports" / "model"
    assert exported["path"] == str(folder.resolve())
    assert json.loads((folder / REMOTE_WEIGHTS).read_text())["state"].startswith("tinker://")
    with backend(remote_options(model=folder, output_dir=None), service) as (http, jobs):
        assert jobs is None
        assert logprobs(await answer(http)) == pytest.approx(wanted, abs=1e-5)


async def test_an_archive_becomes_an_adapter_that_peft_loads_whole(start, remote_options, groups):
    """Its modules are read from its weights; merged into the local base, it gives the served log probabilities."""
    service = start(archives=True)
    with backend(remote_options(), service) as (_, jobs):
        trained(jobs, groups, "job-1")
        kept = (await jobs.keep_best()).path
        deleted = {name for _, name in service.client.deleted if name.startswith("sampler_weights/")}
        assert len(deleted) == service.client.asked_for_archives > 0
        scores = jobs.learner.trained.sampler().score([5, 6, 7, 8])
    assert set(json.loads((Path(kept) / ADAPTER_CONFIG).read_text())["target_modules"]) == ALL_MODULES
    target = remote_options().output_dir / "exported"
    export_checkpoint(Path(kept), target, "peft")
    own = served_logprobs(load_model(target, device="cpu", dtype="float32"), [ROW])[0]
    assert own.tolist() == pytest.approx(scores, abs=1e-5)


@pytest.mark.slow
async def test_an_archive_of_all_weights_becomes_a_model(start, remote_options, groups):
    """It gives the served log probabilities; a checkpoint is exported without a server, and without its training."""
    service = start(archives=True, all_weights=True)
    with backend(remote_options(lora_rank=0), service) as (_, jobs):
        trained(jobs, groups, "job-1")
        kept = (await jobs.keep_best()).path
        scores = jobs.learner.trained.sampler().score([5, 6, 7, 8])
    assert not service.client.models._models, "the model was given back"
    target = remote_options().output_dir / "exported"
    export_checkpoint(Path(kept), target, "hf")
    assert not {STATE, REMOTE_WEIGHTS} & {path.name for path in target.iterdir()}
    loaded = load_model(target, device="cpu", dtype="float32")
    assert served_logprobs(loaded, [ROW])[0].tolist() == pytest.approx(scores, abs=1e-5)
    assert loaded.tokenizer.hf.chat_template
    with pytest.raises(BackendError, match="has all weights and no LoRA adapter"):
        export_checkpoint(Path(kept), target, "peft")


def packed(**files):
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name.replace("__", "."))
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return content.getvalue()


@pytest.mark.parametrize(
    "archive",
    [
        b"<html>",
        packed(),
        packed()[:-4],
        packed(adapter_model__safetensors=b"x", adapter_config__json=b"{}"),
        packed(adapter_model__safetensors=save({"w": torch.zeros(1)}), adapter_config__json=b"[1]"),
    ],
    ids=["a page", "no files", "cut short", "no tensors", "no object"],
)
async def test_an_archive_that_is_no_adapter_is_left_out(start, remote_options, groups, caplog, archive):
    """The checkpoint still names the weights on the server, and the log says what the archive is, as does an export."""
    with backend(remote_options(), start(archives=archive)) as (_, jobs):
        assert trained(jobs, groups, "job-1").status == "completed"
        kept, state = Path((await jobs.keep_best()).path), jobs.learner.trained.state
    assert state in (kept / REMOTE_WEIGHTS).read_text()
    assert not (kept / ADAPTER_CONFIG).exists()
    assert "is no adapter in PEFT's format" in caplog.text
    for form in ("hf", "peft"):
        with pytest.raises(BackendError, match=r"has no weights: they are on the Tinker server"):
            export_checkpoint(kept, kept.parent / "exported", form)


@pytest.mark.parametrize(
    ("archive", "said"),
    [
        (packed(config__json=b"{}"), "it has 0 weights"),
        (packed(config__json=b"{}", model__safetensors=save({"w": torch.zeros(8)})), "it has 8 weights, and the model"),
        (packed(config__json=b"{", model__safetensors=save({"w": torch.zeros(8)})), "JSONDecodeError"),
        (packed(config__json=b"{}", model__safetensors=save({"w": torch.zeros(8)})[:-4]), "SafetensorError"),
        (packed(adapter_config__json=b"{}"), "FileNotFoundError"),
    ],
    ids=["no weights", "too few weights", "no configuration", "cut short", "an adapter"],
)
def test_an_archive_that_is_no_model_is_left_out(opened_on, groups, caplog, archive, said):
    """Nothing of it is kept, and the log says why; the checkpoint still names the weights on the server."""
    with opened_on(archives=archive) as (_, jobs):
        assert trained(jobs, groups, "job-1").status == "completed"
    [kept] = jobs._checkpoints.folder.glob("step_*1")
    assert "is no model in Hugging Face's format" in caplog.text
    assert said in caplog.text
    assert {path.name for path in kept.iterdir()} == {REMOTE_WEIGHTS, STATE, MANIFEST}


@pytest.mark.parametrize("status", [404, 503])
def test_a_server_without_archives_is_asked_once(start, remote_options, groups, caplog, status):
    """After another failure the next checkpoint asks again, and the log says which has none."""
    with backend(remote_options(), service := start(archives=status)) as (_, jobs):
        for name in ("job-1", "job-2"):
            trained(jobs, groups, name)
    assert service.client.asked_for_archives == (1 if status == 404 else 2)
    assert caplog.text.count("as the server answered 503") == (0 if status == 404 else 2)


@pytest.mark.parametrize(
    ("spoiled", "said"),
    [
        ({"tokens": [5, 6]}, "log probabilities for 2 tokens"),
        ({"tokens": [5, 6], "logprobs": [-1.0, float("nan")]}, "1 log probabilities for 2 tokens"),
        ({"tokens": [10**9], "logprobs": [-1.0]}, "sampled a token 1000000000"),
        ({"logprobs": None}, "not iterable"),
    ],
)
async def test_an_answer_that_cannot_be_is_an_error(start, remote_options, spoiled, said):
    """Of the server, not of the request; other requests go on."""
    service = start(spoils=lambda found: found | (spoiled if service.client.broken else {}))
    service.client.broken = True
    with backend(remote_options(), service) as (http, _):
        found = await http.post("/v1/chat/completions", json=CHAT)
        assert found.status_code >= 500
        assert said in found.text
        service.client.broken = False
        assert await answer(http)

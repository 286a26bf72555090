"""The backend's metrics: behind its key, under vLLM's names, and read without the model thread."""

import threading

import pytest

from fakes.keys import KEY
from fakes.metrics import scrape
from nat.backend.inference.engine import Engine, EngineLimits
from nat.backend.inference.sequence import EngineLoad
from nat.backend.inference.worker import Worker
from nat.backend.training.job_table import JobTable
from nat.errors import UpdateCanceled

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "ignore_eos": True}


async def test_a_scrape_needs_the_key(connect, worker):
    """Metrics need what the health check needs: the key, as a bearer token or as a password."""
    async with connect(worker, headers={}) as client:
        assert (await client.get("/metrics")).status_code == 401
        found = await scrape(client, auth=("prometheus", KEY))
        assert found["nat_requests_failed_total", "unauthorized"] == 1


async def test_with_a_well_known_key_foreign_pages_are_refused(connect, worker):
    """A server without a key of its own admits this machine, and no web page."""
    async with connect(worker, headers={}, well_known_key=True) as client:
        assert await scrape(client)
        assert (await client.get("/metrics", headers={"origin": "https://evil.example"})).status_code == 403


@pytest.mark.parametrize("stream", [False, True])
async def test_answers_are_counted(connect, worker, stream):
    """Tokens, latency and the time to the first token are those of the answers, streamed or not."""
    async with connect(worker) as client:
        answer = await client.post("/v1/chat/completions", json={**CHAT, "n": 2, "stream": stream})
        assert answer.status_code == 200
        found = await scrape(client)
    assert found["vllm:generation_tokens_total", "tiny"] == 10
    assert found["vllm:prompt_tokens_total", "tiny"] > 10
    assert found["vllm:request_success_total", "length", "tiny"] == 2
    first, whole = (f"vllm:{name}_seconds" for name in ("time_to_first_token", "e2e_request_latency"))
    assert found[f"{first}_count", "tiny"] == found[f"{whole}_count", "tiny"] == 1
    assert 0 < found[f"{first}_sum", "tiny"] <= found[f"{whole}_sum", "tiny"]


async def test_versions_of_the_weights_share_a_label(connect, worker):
    """Each update makes a new name `model@step`; as labels, these would grow without bound."""
    async with connect(worker) as client:
        await client.post("/v1/completions", json={"model": "tiny@4", "prompt": "a", "max_tokens": 1})
        found = await scrape(client)
    assert found["vllm:prompt_tokens_total", "tiny"] == 1
    assert ("vllm:prompt_tokens_total", "tiny@4") not in found


async def test_refused_requests_are_counted_by_cause(connect, worker):
    """A wrong model, a wrong body and a wrong path are different causes, and none is an answer."""
    async with connect(worker) as client:
        await client.post("/v1/chat/completions", json={**CHAT, "model": "other"})
        await client.post("/v1/chat/completions", json={})
        found = await scrape(client)
    assert found["nat_requests_failed_total", "not found"] == 1
    assert sum(value for name, value in found.items() if name[0] == "nat_requests_failed_total") == 2
    assert not [name for name in found if name[0] == "vllm:prompt_tokens_total"]


async def test_the_policy_step_is_that_of_the_weights(connect, worker):
    """The step of the weights that answer, so that a dashboard sees each update."""
    async with connect(worker) as client:
        assert (await scrape(client))["nat_policy_step", "tiny"] == 4


async def test_updates_are_counted_by_their_end(connect, worker):
    """Completed, failed and canceled updates are counted apart; what an earlier process trained is not."""
    jobs = JobTable()

    def canceled(_):
        raise UpdateCanceled("stopped")

    def failed(_):
        raise RuntimeError("broken")

    done = jobs.add("done")
    done.run(lambda _: done.completed({}, "tiny@5"))
    jobs.add("canceled").run(canceled)
    for name in ("failed", "failed too"):
        jobs.add(name).run(failed)
    jobs.add_ended(jobs.get("done"))
    async with connect(worker, jobs=jobs) as client:
        found = await scrape(client)
    assert {name[1]: found[name] for name in found if name[0] == "nat_updates_total"} == {
        "completed": 1,
        "failed": 2,
        "canceled": 1,
    }


async def test_a_scrape_does_not_wait_for_an_update(connect, loaded):
    """While the model thread trains, the page shows who waits for it."""
    worker, free = Worker(Engine(loaded, policy_version="tiny@4")), threading.Event()
    try:
        updating = worker.run_exclusive(lambda: free.wait(20))
        async with connect(worker) as client:
            while not updating.running():
                pass
            worker.run_between(lambda: None)
            found = await scrape(client)
            assert (found["vllm:num_requests_running", "tiny"], found["vllm:num_requests_waiting", "tiny"]) == (0, 1)
            assert not free.is_set()
    finally:
        free.set()
        worker.close()


def test_the_share_of_memory_is_that_of_the_running_answers(loaded):
    """Keys and values of what runs, as a share of their bound; without a bound there is no share."""
    assert Engine(loaded, policy_version="tiny@4").load() == EngineLoad(0, 0, None)
    limits = EngineLimits(kv_cache_bytes=100 * loaded.token_bytes)
    assert Engine(loaded, policy_version="tiny@4", limits=limits).load() == EngineLoad(0, 0, 0.0)

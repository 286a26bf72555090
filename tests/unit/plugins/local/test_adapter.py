"""The adapter and the backend agree on the algorithm before the first rollout."""

import httpx
import pytest

from fakes.training_rows import sent_job
from nat.backend.algorithms.registry import resolve
from nat.data_models.finetuning import (
    EpisodeItem,
    EpisodeItemRole,
    FinetuneConfig,
    Trajectory,
    TrajectoryCollection,
)
from nat.errors import AlgorithmError, BackendError, ConfigError
from nat.finetuning.run_log import open_run
from nat.http.errors import ApiError
from nat.plugins.local.adapter import LocalTrainerAdapter, LocalTrainerAdapterConfig
from nat.plugins.local.client import BackendClient
from nat.wire.training import JobState, JobStatus, SavedJobs, TrainingConfig, TrainingJob


class RunningProcess:
    """A backend that is up."""

    alive = True


def answer(request: httpx.Request) -> httpx.Response:
    """A transport that answers by the backend's own rules, without its process."""
    if request.method == "GET":
        return httpx.Response(200)
    try:
        report = resolve(TrainingConfig.model_validate_json(request.content)).report()
    except AlgorithmError as error:
        return httpx.Response(400, content=ApiError(error.message).json())
    return httpx.Response(200, content=report.model_dump_json())


async def initialized(max_staleness=0, **training):
    """An adapter after `initialize`, and the bodies that it sent."""
    bodies = []

    def seen(request):
        bodies.append(request.content)
        return answer(request)

    config = LocalTrainerAdapterConfig(llm="student", training=training)
    async with BackendClient("http://backend", "key", transport=httpx.MockTransport(seen)) as client:
        adapter = LocalTrainerAdapter(config, client=client, backend=RunningProcess())
        await adapter.initialize(FinetuneConfig(max_staleness=max_staleness))
    return adapter, bodies[-1]


@pytest.mark.parametrize(
    ("training", "compares"),
    [
        ({}, "group"),
        ({"algorithm": "reinforce_pp"}, "batch"),
        ({"advantage": "reinforce_pp"}, "batch"),
        ({"algorithm": "sft"}, "nothing"),
        ({"algorithm": "dpo"}, "group"),
    ],
)
async def test_the_backend_decides_what_is_compared(training, compares):
    """The harness knows no algorithm by name."""
    adapter, _ = await initialized(**training)
    assert adapter.recipe.compares == compares


async def test_an_unknown_algorithm_is_an_error_before_the_first_rollout():
    """The error is the backend's: it lists the algorithms and suggests the nearest."""
    with pytest.raises(BackendError, match=r"'rlo' is unknown; there are .*lite_ppo.*Did you mean 'rloo'"):
        await initialized(algorithm="rlo")


def test_a_written_configuration_trains_the_same_when_it_is_read_again():
    """The written settings are the user's, so that the algorithm's defaults still apply to the others."""
    config = LocalTrainerAdapterConfig(llm="student", training={"algorithm": "gspo", "beta": 0.0})
    written = config.model_dump(mode="json")
    assert written["training"] == {"algorithm": "gspo", "beta": 0.0}
    again = LocalTrainerAdapterConfig.model_validate(written)
    assert resolve(again.training).report() == resolve(config.training).report()
    assert resolve(again.training).config.epsilon == 3e-4
    assert LocalTrainerAdapterConfig(llm="student").model_dump()["training"] == {"algorithm": "lite_ppo"}


async def test_answers_of_earlier_weights_need_a_correction():
    """Without a cap, the learner's own ratio ignores the sampler, so `max_staleness` is refused; others are not."""
    for training in ({}, {"importance_sampling_cap": None, "old_logprobs": "sampler"}):
        await initialized(max_staleness=1, **training)
    await initialized(importance_sampling_cap=None)
    with pytest.raises(ConfigError, match=r"training\.importance_sampling_cap: null, so nothing corrects"):
        await initialized(max_staleness=1, importance_sampling_cap=None)


async def jobs_of(*names, max_staleness=0):
    """The jobs that an adapter sends for collections under these names."""
    jobs = []

    def seen(request):
        if request.url.path != "/v1/training/jobs":
            return answer(request)
        jobs.append(TrainingJob.model_validate_json(request.content))
        return httpx.Response(200, content=JobState(id=jobs[-1].id, status=JobStatus.PENDING).model_dump_json())

    tokens = {"model": "student", "prompt_token_ids": [1], "token_ids": [2]}
    item = EpisodeItem(role=EpisodeItemRole.ASSISTANT, content="", logprobs=[-1.0], metadata=tokens)
    groups = [[Trajectory(episode=[item], reward=1.0)]]
    async with BackendClient("http://backend", "key", transport=httpx.MockTransport(seen)) as client:
        config = LocalTrainerAdapterConfig(llm="student")
        adapter = LocalTrainerAdapter(config, client=client, backend=RunningProcess())
        await adapter.initialize(FinetuneConfig(max_staleness=max_staleness))
        for name in names:
            await adapter.submit(TrajectoryCollection(trajectories=groups, run_id="r", job_id=name))
    return jobs


async def test_a_job_has_the_name_that_its_trainer_gave():
    """Then the backend trains what is submitted again only once; what has no name is a job of its own each time."""
    named, again, one, other = await jobs_of("r-000001", "r-000001", None, None)
    assert named == again
    assert named.id == "r-000001"
    assert one.id != other.id


async def test_an_adapter_that_takes_over_tells_the_backend_its_settings():
    """The backend begins the algorithm anew, on the weights that it has."""
    requests = []

    def seen(request):
        requests.append((request.url.path, request.content))
        return answer(request)

    async with BackendClient("http://backend", "key", transport=httpx.MockTransport(seen)) as client:
        configs = [LocalTrainerAdapterConfig(llm="student", training={"algorithm": name}) for name in ("sft", "rloo")]
        first, second = (LocalTrainerAdapter(each, client=client, backend=RunningProcess()) for each in configs)
        await second.take_over(first)
        assert requests[-1] == ("/v1/training/phase", b'{"algorithm":"rloo"}')


@pytest.mark.parametrize("saved", ["run-000001", None])
async def test_updates_that_are_lost_are_an_error(tmp_path, saved):
    """The checkpoint is older than what can be sent again; the run does not go on without them."""
    answers = SavedJobs(newest=saved, fallback=None).model_dump_json()
    transport = httpx.MockTransport(lambda _: httpx.Response(200, content=answers))
    with open_run(FinetuneConfig(output_dir=tmp_path), "{}") as run:
        for number in (3, 4):
            run.journal.keep_batch("student", sent_job(f"run-{number:06d}"), needed_from=None)
        async with BackendClient("http://backend", "key", transport=transport) as client:
            config = LocalTrainerAdapterConfig(llm="student")
            adapter = LocalTrainerAdapter(config, client=client, backend=RunningProcess(), folder=tmp_path)
            with pytest.raises(
                BackendError, match=rf"the weights of {saved or 'no update'}, and the batches .* are gone"
            ):
                await adapter.send_again([f"run-{number:06d}" for number in range(1, 5)])

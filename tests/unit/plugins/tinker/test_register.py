"""The `tinker` LLM's options, as the backend gets them, and what is refused."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from fakes.processes import refused_port
from nat.builder.workflow_builder import WorkflowBuilder
from nat.data_models.finetuning import FinetuneConfig, TrainingJobRef
from nat.data_models.llm_usage import LLMUsage
from nat.errors import BackendUnreachable, ConfigError
from nat.finetuning.epoch import reported_usage
from nat.plugins.local.adapter import LocalTrainerAdapterConfig, trained_provider
from nat.plugins.local.llm import LocalModelConfig, LocalProviderInfo
from nat.plugins.tinker.register import TinkerModelConfig, TinkerTrainerAdapter, TinkerTrainerAdapterConfig
from nat.sizing.forecast import ForecastRequest
from nat.wire.serving import handover, received
from nat.wire.training import JobState, JobStatus

BLOCK = {"model": Path("m"), "base_url": "http://127.0.0.1:7624", "base_model": "owner/m", "max_tokens": 8}


def options_of(folder=None, environment=None, **given):
    """What the backend's process reads for this configuration."""
    return received(handover(TinkerModelConfig(**(BLOCK | given)).options(folder, environment or {})))


def test_the_options_reach_the_backend(tmp_path):
    """By the class that only a parent chooses, with the key of the block or else of the environment."""
    found = options_of(tmp_path, {"TINKER_API_KEY": "tml-of-the-variable"}, lora={"rank": 4}, seed=3, save_every=2)
    assert found.opener == "nat.tinker.remote.serve:open_remote"
    assert (found.tinker_url, found.base_model, found.lora_rank, found.seed) == (BLOCK["base_url"], "owner/m", 4, 3)
    assert (found.output_dir, found.resume, found.save_every) == (tmp_path, False, 2)
    assert found.tinker_api_key.get_secret_value() == "tml-of-the-variable"
    assert (options_of(lora=None).lora_rank, options_of().lora_rank) == (0, 16)
    assert options_of(api_key="tml-of-the-yaml").tinker_api_key.get_secret_value() == "tml-of-the-yaml"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"lora": {"rank": 4, "alpha": 8}}, "alpha"),
        ({"device": "cuda"}, "device: no effect"),
        ({"engine": "vllm"}, "engine: no effect"),
        ({"dtype": "bfloat16", "threads": 2}, "dtype, threads: no effect"),
        ({"max_tokens": None}, "max_tokens"),
        ({"base_model": None}, "base_model"),
    ],
)
def test_what_the_server_would_ignore_is_refused_by_name(given, named):
    """An error at the start, not a setting without effect."""
    with pytest.raises(ValidationError, match=named):
        TinkerModelConfig(**(BLOCK | given))


async def test_epochs_do_not_overlap_and_nothing_is_forecast():
    """A server trains between epochs, and nobody knows what it takes."""
    adapter = TinkerTrainerAdapter(TinkerTrainerAdapterConfig(llm="student"), client=None, backend=None)
    with pytest.raises(ConfigError, match=r"finetuning.max_staleness: 1, but a Tinker server"):
        await adapter.initialize(FinetuneConfig.model_construct(max_staleness=1))
    assert await adapter.forecast(ForecastRequest.model_construct()) is None


def test_the_tokens_of_an_update_are_recorded_as_usage():
    """Under the LLM's key, so that its prices count them; a job that failed has none."""
    adapter = TinkerTrainerAdapter(TinkerTrainerAdapterConfig(llm="student"), client=None, backend=None)
    ref = TrainingJobRef(run_id="run", backend="local", metadata={"job_id": "1"})
    sent = {"server_trained_calls": 2.0, "server_trained_tokens": 500.0}
    checked = {"server_check_calls": 3.0, "server_check_tokens": 700.0}
    done = JobState(id="1", status=JobStatus.COMPLETED, metrics={"loss": 0.5, **sent, **checked})
    assert reported_usage(adapter._status(ref, done)) == {
        "training": {"student": LLMUsage(calls=2, prompt_tokens=500)},
        "checks": {"student": LLMUsage(calls=3, prompt_tokens=700)},
    }
    assert reported_usage(adapter._status(ref, JobState(id="1", status=JobStatus.FAILED))) == {}


@pytest.fixture
def provided(monkeypatch):
    """Gives what an adapter finds as its LLM."""
    builder = WorkflowBuilder.__new__(WorkflowBuilder)

    async def find(adapter, block):
        async def provider(_):
            return LocalProviderInfo.model_construct(block=block)

        monkeypatch.setattr(builder, "get_llm_provider", provider, raising=False)
        monkeypatch.setattr(builder, "get_llm_config", lambda _: block, raising=False)
        return await trained_provider(adapter(llm="student"), builder)

    return find


@pytest.mark.parametrize(
    ("adapter", "block", "says"),
    [
        (LocalTrainerAdapterConfig, TinkerModelConfig(**BLOCK), "'tinker', but local_trainer_adapter trains 'local'"),
        (
            TinkerTrainerAdapterConfig,
            LocalModelConfig(model="m"),
            "'local', but tinker_trainer_adapter trains 'tinker'",
        ),
    ],
)
async def test_an_adapter_trains_its_own_type_of_llm(adapter, block, says, provided):
    """The error names both types."""
    with pytest.raises(ConfigError, match=says):
        await provided(adapter, block)


async def test_a_server_that_does_not_listen_is_an_error_at_once():
    """The official client would retry for minutes; the error names the option and the address."""
    with refused_port() as port:
        config = TinkerModelConfig(**(BLOCK | {"base_url": f"http://127.0.0.1:{port}"}))
        found = rf"llms\.student\.base_url: no server answers at http://127\.0\.0\.1:{port}: "
        async with WorkflowBuilder() as builder:
            with pytest.raises(BackendUnreachable, match=found):
                await builder.add_llm("student", config)

"""The adapter of a program refuses what it cannot do, before the first rollout."""

import httpx
import pytest

from nat.backend.algorithms.registry import resolve
from nat.data_models.finetuning import FinetuneConfig
from nat.errors import ConfigError
from nat.plugins.local.client import BackendClient
from nat.plugins.local.command import CommandTrainerAdapter, CommandTrainerAdapterConfig
from nat.wire.training import TrainingConfig


class RunningProcess:
    """A backend that is up."""

    alive = True


async def initialized(command, max_staleness=0):
    """The adapter after `initialize`."""

    def answer(request):
        if request.method == "GET":
            return httpx.Response(200)
        report = resolve(TrainingConfig.model_validate_json(request.content)).report()
        return httpx.Response(200, content=report.model_dump_json())

    config = CommandTrainerAdapterConfig(llm="student", command=command, timeout=5)
    async with BackendClient("http://backend", "key", transport=httpx.MockTransport(answer)) as client:
        adapter = CommandTrainerAdapter(config, client=client, backend=RunningProcess())
        await adapter.initialize(FinetuneConfig(max_staleness=max_staleness))
    return adapter


async def test_a_program_that_is_not_there_is_an_error_before_the_first_rollout():
    """The message names it; a command line is the shell's matter."""
    await initialized("anything")
    with pytest.raises(ConfigError, match=r"command: there is no program 'no-such-program'"):
        await initialized(["no-such-program"])


async def test_epochs_do_not_overlap():
    """`max_staleness` is refused."""
    with pytest.raises(ConfigError, match=r"max_staleness: 1, but a program trains while nothing is played"):
        await initialized("anything", max_staleness=1)

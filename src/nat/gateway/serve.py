"""`nat gateway serve`: open the LLMs of a YAML and serve them until a signal stops it."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path

from nat.builder.workflow_builder import WorkflowBuilder
from nat.config.load import load_config
from nat.data_models.config import Config
from nat.errors import ConfigError, did_you_mean
from nat.gateway import WRAPPER_TYPE
from nat.gateway.access import Keyring
from nat.gateway.app import GatewayApp
from nat.gateway.options import GatewayOptions
from nat.gateway.rollouts import RolloutRoutes, Rollouts
from nat.gateway.upstream import Upstream
from nat.http.guards import HostNames
from nat.http.server import bind, listening
from nat.secrets import new_key
from nat.wire.hosts import host_names

OnReady = Callable[[str, str], None]
"""Called with URL and key once the server accepts requests."""


async def serve(
    config_file: Path, override: tuple[tuple[str, str], ...], options: GatewayOptions, on_ready: OnReady
) -> None:
    """Serve the LLMs of a YAML until SIGTERM or Ctrl-C.

    Raises:
        ConfigError: the configuration is wrong, or the port is taken.

    """
    async with running_gateway(load_config(config_file, override), options) as (url, key):
        with _stopped() as stop:
            on_ready(url, key)
            await stop.wait()


@asynccontextmanager
async def running_gateway(config: Config, options: GatewayOptions) -> AsyncIterator[tuple[str, str]]:
    """URL and key of a gateway to the LLMs of a configuration, until the block ends."""
    key = new_key() if options.api_key is None else options.api_key.get_secret_value()
    llms = _first(list(config.llms), options.llm)
    config = config.model_copy(update={"eval": config.eval.model_copy(update={"evaluators": {}})})
    names = HostNames(options.host, host_names(options.allowed_hosts))
    with bind(options.host, options.port, command="nat gateway serve") as listener:
        async with WorkflowBuilder.from_config(config, workflow=False) as builder:
            upstreams: dict[str, Upstream] = {name: await builder.get_llm(name, WRAPPER_TYPE) for name in llms}
            keyring = Keyring()
            rollouts = Rollouts(keyring, upstreams)
            app = RolloutRoutes(GatewayApp(keyring), rollouts, api_key=key)
            async with listening(app, listener, names) as url, aclosing(rollouts):
                yield url, key


def _first(names: list[str], chosen: str | None) -> list[str]:
    """All LLMs; the first one answers requests that name none of them."""
    if not names:
        raise ConfigError(["llms: the configuration has no LLM to serve"])
    if chosen is None:
        return names
    if chosen not in names:
        raise ConfigError([f"--llm {chosen}: not under `llms`.{did_you_mean(chosen, names)}"])
    return [chosen, *(name for name in names if name != chosen)]


@contextmanager
def _stopped() -> Iterator[asyncio.Event]:
    """Set by SIGTERM or Ctrl-C until the block ends."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

"""`nat gateway serve`: open the LLMs of a YAML and serve them until a signal stops it."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
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
        loop, stop, signals = asyncio.get_running_loop(), asyncio.Event(), (signal.SIGTERM, signal.SIGINT)
        for number in signals:
            loop.add_signal_handler(number, stop.set)
        on_ready(url, key)
        await stop.wait()
        for number in signals:
            loop.remove_signal_handler(number)


@asynccontextmanager
async def running_gateway(config: Config, options: GatewayOptions) -> AsyncIterator[tuple[str, str]]:
    """URL and key of a gateway to the LLMs of a configuration, until the block ends."""
    key = new_key() if options.api_key is None else options.api_key.get_secret_value()
    if not config.llms:
        raise ConfigError(["llms: the configuration has no LLM to serve"])
    first = options.llm or next(iter(config.llms))  # it answers requests that name none of them
    if first not in config.llms:
        raise ConfigError([f"--llm {first}: not under `llms`.{did_you_mean(first, config.llms)}"])
    config = config.model_copy(update={"eval": config.eval.model_copy(update={"evaluators": {}})})
    names = HostNames(options.host, host_names(options.allowed_hosts))
    with bind(options.host, options.port, command="nat gateway serve") as listener:
        async with WorkflowBuilder.from_config(config, workflow=False) as builder:
            upstreams: dict[str, Upstream] = {
                name: await builder.get_llm(name, WRAPPER_TYPE) for name in {first: None, **config.llms}
            }
            keyring = Keyring()
            rollouts = Rollouts(keyring, upstreams)
            app = RolloutRoutes(GatewayApp(keyring), rollouts, api_key=key)
            async with listening(app, listener, names) as url, aclosing(rollouts):
                yield url, key

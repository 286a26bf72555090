"""Open the LLMs of a YAML, take the port, and stand until told to stop."""

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path

from nat.asgi.host_check import HostNames
from nat.asgi.listen import take_port
from nat.builder.workflow_builder import WorkflowBuilder
from nat.config.load import load_config
from nat.data_models.config import Config
from nat.errors import ConfigError, did_you_mean
from nat.gateway import WRAPPER_TYPE
from nat.gateway.app import GatewayApp
from nat.gateway.keys import Keyring
from nat.gateway.listen import listening
from nat.gateway.options import GatewayOptions
from nat.gateway.rollout_routes import RolloutRoutes
from nat.gateway.rollouts import Rollouts
from nat.gateway.upstream import Upstream
from nat.secrets import new_key
from nat.wire.hosts import host_names

OnReady = Callable[[str, str], None]
"""Is told URL and key once requests are welcome."""


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
    """URL and key of a gateway to the LLMs of a configuration, while it stands."""
    key = new_key() if options.api_key is None else options.api_key.get_secret_value()
    llms = _first(list(config.llms), options.llm)
    config = config.model_copy(update={"eval": config.eval.model_copy(update={"evaluators": {}})})
    names = HostNames(options.host, host_names(options.allowed_hosts))
    with _taken(options) as listener:
        async with WorkflowBuilder.from_config(config, workflow=False) as builder:
            upstreams: dict[str, Upstream] = {name: await builder.get_llm(name, WRAPPER_TYPE) for name in llms}
            keyring = Keyring()
            rollouts = Rollouts(keyring, upstreams)
            app = RolloutRoutes(GatewayApp(keyring), rollouts, api_key=key)
            async with listening(app, listener, names) as url, aclosing(rollouts):
                yield url, key


def _taken(options: GatewayOptions) -> socket.socket:
    """The port, before a model is loaded, so that a taken one is told at once."""
    try:
        return take_port(options.host, options.port)
    except OSError as error:
        raise ConfigError(
            [f"--host {options.host} --port {options.port}: cannot listen there: {error.strerror or error}"],
            source="the options of `nat gateway serve`",
            hint="choose another --port; 0 takes a free one",
        ) from error


def _first(names: list[str], chosen: str | None) -> list[str]:
    """All LLMs, the one that takes what names none of them first."""
    if not names:
        raise ConfigError(["llms: there is none to serve"])
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

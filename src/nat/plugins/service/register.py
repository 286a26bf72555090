"""Register the workflow `service`, which runs its own gateway on a fixed port while it is open."""

import socket
from collections.abc import AsyncGenerator

from pydantic import Field, SecretStr

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.data_models.component_ref import LLMRef
from nat.data_models.function import FunctionBaseConfig
from nat.data_models.llm import USUAL_CONCURRENCY
from nat.errors import ConfigError
from nat.gateway import WRAPPER_TYPE, check_installed
from nat.registry.decorators import register_function

GATEWAY_HOST = "127.0.0.1"


class ServiceConfig(FunctionBaseConfig, name="service"):
    """Sends each example to an unmodified agent's server, which calls the model at the gateway's port."""

    most_at_a_time = USUAL_CONCURRENCY
    llm: LLMRef
    """The model that answers, for every model name in the service's requests."""
    url: str = Field(pattern=r"^https?://\S+$")
    """The service's route for OpenAI's chat requests, such as `http://localhost:8100/v1/chat/completions`."""
    api_key: SecretStr | None = None
    """Key of the service, sent as a bearer token."""
    gateway_port: int = Field(default=8010, ge=1, le=65535)
    """Port of this machine where the gateway listens: the base URL of the service's model is
    `http://127.0.0.1:8010/v1`."""
    timeout: float = Field(default=300.0, gt=0)
    """Seconds until a request is cancelled, and the rollout fails."""


@register_function(config_type=ServiceConfig)
async def service(config: ServiceConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """Listen on the gateway's port, check that the service is there, and send it each input."""
    check_installed("service")
    from nat.gateway.access import Keyring
    from nat.gateway.app import GatewayApp
    from nat.http.server import bound_socket, listening
    from nat.plugins.service.workflow import ServiceWorkflow, open_client

    def listener() -> socket.socket:
        try:
            return bound_socket(GATEWAY_HOST, config.gateway_port)
        except OSError as error:
            raise ConfigError(
                [f"workflow.gateway_port: cannot listen on port {config.gateway_port}: {error.strerror or error}"],
                hint="stop the other program, or choose another port, also in the base URL of the service's model",
            ) from error

    upstream = await builder.get_llm(config.llm, wrapper_type=WRAPPER_TYPE)
    keyring = Keyring()
    async with (
        open_client(config.api_key) as http,
        listening(GatewayApp(keyring), listener()) as gateway,
    ):
        upstreams = {str(config.llm): upstream}
        workflow = ServiceWorkflow(http, config.url, upstreams, keyring, gateway=gateway, timeout=config.timeout)
        await workflow.check()
        yield FunctionInfo.from_fn(workflow.run, description="Sends each input to a server that calls the model")

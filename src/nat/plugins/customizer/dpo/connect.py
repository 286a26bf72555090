"""Open the connections of the configured service."""

import asyncio
from contextlib import AsyncExitStack

import httpx
from pydantic import SecretStr

from nat.http.service import ServiceClient, Sleep
from nat.plugins.customizer.dpo.config import NeMoCustomizerTrainerAdapterConfig
from nat.plugins.customizer.dpo.connection import ServiceConnection
from nat.plugins.customizer.dpo.data_store import DataStore
from nat.plugins.customizer.dpo.microservices import Microservices
from nat.plugins.customizer.dpo.nemo_platform import NeMoPlatform
from nat.plugins.customizer.dpo.service import TrainingService

_UPLOAD_TIMEOUT = httpx.Timeout(600.0, connect=10.0)


async def connect(
    config: NeMoCustomizerTrainerAdapterConfig, stack: AsyncExitStack, *, sleep: Sleep = asyncio.sleep
) -> TrainingService:
    """The configured service; the stack closes its connections. Retries wait by `sleep`."""

    def connection(url: str, token: SecretStr, service: str, key_field: str) -> ServiceConnection:
        opened = ServiceConnection(url, token.get_secret_value(), service=service, key_field=key_field, sleep=sleep)
        stack.push_async_callback(opened.close)
        return opened

    name = "NeMo Platform" if config.api == "platform" else "NeMo Customizer"
    entities = connection(config.entity_host, config.api_key, f"{name} (entity_host)", "api_key")
    if config.datastore_host is None:
        return NeMoPlatform(config, connection=entities)
    files = connection(config.datastore_host, config.hf_token, "the Data Store (datastore_host)", "hf_token")
    storage = ServiceClient("", "", name="the storage of the Data Store", timeout=_UPLOAD_TIMEOUT)
    outside = await stack.enter_async_context(storage)
    return Microservices(config, entities=entities, data_store=DataStore(files, config.namespace, outside=outside))

"""The LLM of the workflow that is trained, and how it comes to call the deployed model."""

from collections.abc import Mapping

import httpx

from nat.capture.context import Redirects, address_of
from nat.data_models.finetuning import ServedModel
from nat.errors import BackendError
from nat.http.service import ServiceClient
from nat.plugins.llms.openai import OpenAIModelConfig

_TIMEOUT = httpx.Timeout(60.0, connect=10.0)


def trained_llm(llms: Mapping[str, OpenAIModelConfig], target: str | None) -> tuple[str, OpenAIModelConfig] | str:
    """The LLM that `finetuning.target_model` names, or the only one, and its key; else why it is not known."""
    found = [(key, llm) for key, llm in llms.items() if target in {None, key, llm.model_name}]
    if len(found) == 1:
        return found[0]
    if not found:
        named = "" if target is None else f" that finetuning.target_model '{target}' names"
        return f"the configuration has no LLM with a base_url{named}"
    keys = ", ".join(key for key, _ in found)
    return f"the configuration has several LLMs ({keys}); set finetuning.target_model to the key of the trained one"


async def send_to(
    model: str, key: str, llms: Mapping[str, OpenAIModelConfig], redirects: Redirects
) -> ServedModel | str:
    """Send the requests of one LLM to the trained model on the same server; else why they cannot be sent there."""
    from nat.plugins.llms.client import api_key

    llm = llms[key]
    assert llm.server_url is not None, "others are not asked"
    url, name = llm.server_url.rstrip("/"), f"the server of llms.{key}"
    client = ServiceClient(url, api_key(llm, llm_name=key), name=name, timeout=_TIMEOUT)
    async with client:
        try:
            served = await client.served_models()
        except BackendError as error:
            return error.message
    if model not in served:
        return f"{name} does not serve it: {url}/models lists {', '.join(served) or 'nothing'}"
    server = address_of(llm.server_url)
    assert server is not None, "it has just answered"
    redirects.send(server, llm.model_name, model, frozen_llms=llms.keys() - {key})
    return ServedModel(name=model, base_url=llm.server_url, overrides=((f"llms.{key}.model_name", model),))

"""The LLM of the workflow that is trained, and how it comes to call the deployed model."""

from collections.abc import Mapping

import httpx

from nat.capture.redirect import Redirects, address_of
from nat.data_models.finetuning import ServedModel
from nat.errors import describe_error
from nat.http.client import DirectAsyncClient, json_of
from nat.http.service import bearer
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


async def send_to(model: str, key: str, llm: OpenAIModelConfig, redirects: Redirects) -> ServedModel | str:
    """Send the LLM's requests to the trained model on the same server; else why they cannot be sent there."""
    from nat.plugins.llms.client import api_key  # noqa: PLC0415 - imports the openai SDK, which registering must not

    assert llm.server_url is not None, "others are not asked"
    headers = bearer(api_key(llm, llm_name=key))
    url = f"{llm.server_url.rstrip('/')}/models"
    try:
        async with DirectAsyncClient(proxy=llm.proxy, timeout=_TIMEOUT) as client:
            response = (await client.get(url, headers=headers)).raise_for_status()
        names = [str(entry["id"]) for entry in json_of(response)["data"]]
    except httpx.HTTPError as error:
        return f"{url} gave no list of models: {describe_error(error)}"
    except (ValueError, KeyError, TypeError):
        return f"{url} gave no list of models"
    if model not in names:
        return f"the server of llms.{key} does not serve it: {url} lists {', '.join(names) or 'nothing'}"
    server = address_of(llm.server_url)
    assert server is not None, "it has just answered"
    redirects.send(server, llm.model_name, model)
    return ServedModel(name=model, base_url=llm.server_url, overrides=((f"llms.{key}.model_name", model),))

"""The LLM of the workflow that is trained, and how it comes to call the deployed model."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from nat.capture.redirect import Redirects, address_of
from nat.data_models.finetuning import ServedModel
from nat.errors import describe_error
from nat.http.client import DirectAsyncClient, json_of

_TIMEOUT = httpx.Timeout(60.0, connect=10.0)


@dataclass(frozen=True)
class WorkflowLLM:
    """An LLM with OpenAI's API."""

    key: str
    """Its key under `llms`."""
    model: str
    base_url: str
    api_key: str = field(repr=False)
    proxy: str | None = field(default=None, repr=False)


def trained_llm(llms: Sequence[WorkflowLLM], target: str | None) -> WorkflowLLM | str:
    """The LLM that `finetuning.target_model` names, or the only one; else why it is not known."""
    found = [llm for llm in llms if target in {None, llm.key, llm.model}]
    if len(found) == 1:
        return found[0]
    if not found:
        named = "" if target is None else f" that finetuning.target_model '{target}' names"
        return f"the configuration has no LLM with a base_url{named}"
    keys = ", ".join(llm.key for llm in found)
    return f"the configuration has several LLMs ({keys}); set finetuning.target_model to the key of the trained one"


async def send_to(
    model: str, llm: WorkflowLLM, redirects: Redirects, *, transport: httpx.AsyncBaseTransport | None = None
) -> ServedModel | str:
    """Send the LLM's requests to the trained model on the same server; else why they cannot be sent there."""
    headers = {"Authorization": f"Bearer {llm.api_key}"}
    url = f"{llm.base_url.rstrip('/')}/models"
    try:
        async with DirectAsyncClient(transport=transport, proxy=llm.proxy, timeout=_TIMEOUT) as client:
            response = (await client.get(url, headers=headers)).raise_for_status()
        names = [str(entry["id"]) for entry in json_of(response)["data"]]
    except httpx.HTTPError as error:
        return f"{url} gave no list of models: {describe_error(error)}"
    except (ValueError, KeyError, TypeError):
        return f"{url} gave no list of models"
    if model not in names:
        return f"the server of llms.{llm.key} does not serve it: {url} lists {', '.join(names) or 'nothing'}"
    server = address_of(llm.base_url)
    assert server is not None, "it has just answered"
    redirects.send(server, llm.model, model)
    return ServedModel(name=model, base_url=llm.base_url, overrides=((f"llms.{llm.key}.model_name", model),))

"""What of the wider toolkit is not here, and what to use instead, for plug-ins that import it. Pure."""

import re

_FROM_WORKFLOW = "call it from the workflow"
_INSTEAD = {
    "retriever": f"retrievers are not part of this project; {_FROM_WORKFLOW}",
    "embedder": f"embedders are not part of this project; {_FROM_WORKFLOW}",
    "memory": f"memory stores are not part of this project; {_FROM_WORKFLOW}",
    "object_store": f"object stores are not part of this project; {_FROM_WORKFLOW}",
    "auth": "authentication providers are not part of this project; read keys from the environment",
    "middleware": "middleware is not part of this project; wrap the function in another one",
    "function_group": "function groups are not part of this project; register each function",
    "per_user": "functions per user are not part of this project; use register_function",
    "front_end": "front ends are not part of this project; `nat serve` serves a workflow",
    "telemetry": "exporters are not part of this project; the run's journal has every step",
    "observability": "exporters are not part of this project; the run's journal has every step",
    "logging_method": "logging methods are not part of this project; use Python's logging",
    "registry_handler": "registry handlers are not part of this project; install plug-ins with pip",
    "langchain_parser": "use nat.finetuning.utils.parsers.base_parser.parse_to_openai_messages for every framework",
    "llama_index_parser": "use nat.finetuning.utils.parsers.base_parser.parse_to_openai_messages for every framework",
    "adk_parser": "use nat.finetuning.utils.parsers.base_parser.parse_to_openai_messages for every framework",
    "callback_handler": "calls are captured at the HTTP client; no callback handler is needed",
    "nim_llm": "use the `openai` LLM with base_url",
    "azure_openai_llm": "use the `openai` LLM with base_url",
    "litellm_llm": "use the `openai` LLM with base_url",
    "aws_bedrock_llm": "put an OpenAI-compatible proxy before it, and use the `openai` LLM with base_url",
    "nat.agent": "agents come from your framework; see docs/guides/frameworks",
    "nat.tool": "tools are functions of yours, under register_function",
    "test_time_compute": "write the search over candidates as part of the workflow",
}
"""A part of the missing name → what to do."""

_FROM = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")


def instead_of(error: BaseException) -> str:
    """What to use instead of the name of `nat` that an import missed, with a leading colon; empty if it is not ours."""
    missing = _missing(error)
    if missing is None or not missing.startswith("nat."):
        return ""
    known = next((text for part, text in _INSTEAD.items() if part in missing), None)
    return f": {known or 'this project has no such name; docs/guides/coming_from_nat.md lists what is here'}"


def _missing(error: BaseException) -> str | None:
    """The dotted name that could not be imported."""
    if isinstance(error, ModuleNotFoundError):
        return error.name
    if isinstance(error, ImportError) and (found := _FROM.match(str(error))):
        return f"{found[2]}.{found[1]}"
    return None

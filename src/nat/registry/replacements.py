"""Names of the toolkit that this project does not have, and what to use instead.

An import of one through a plug-in, a file of the YAML's `imports`, or one of our own modules ends with that text.
"""

import re
from collections.abc import Callable, Iterable
from typing import NoReturn

from nat.errors import NotProvided

_FROM_WORKFLOW = "call it from the workflow"
_BASE_PARSER = "nat.finetuning.utils.parsers.base_parser.parse_to_openai_messages"
_REPLACEMENTS = {
    "retriever plugin_api.document": f"retrievers are not part of this project; {_FROM_WORKFLOW}",
    "embedder": f"embedders are not part of this project; {_FROM_WORKFLOW}",
    "memory": f"memory stores are not part of this project; {_FROM_WORKFLOW}",
    "object_store key_already_exists no_such_key": f"object stores are not part of this project; {_FROM_WORKFLOW}",
    "auth": "authentication providers are not part of this project; read keys from the environment",
    "circuit_breaker middleware invocation_action invocation_context": (
        "middleware is not part of this project; wrap the function in another one"
    ),
    "human interact multiple_choice": "a rollout has no person to ask; let a function of the workflow answer instead",
    "function_group": "function groups are not part of this project; register each function",
    "per_user": "functions per user are not part of this project; use register_function",
    "front_end fastapi": "front ends are not part of this project; `nat serve` serves a workflow",
    "optimizer parameter_optimization": "the optimizer is not part of this project; `nat finetune` trains the model",
    "telemetry observability": "exporters are not part of this project; the run's journal has every step",
    "logging_method": "logging methods are not part of this project; use Python's logging",
    "registry_handler": "registry handlers are not part of this project; install plug-ins with pip",
    "langchain_parser llama_index_parser adk_parser parsers.common": f"use {_BASE_PARSER} for every framework",
    "callback_handler": "calls are captured at the HTTP client; no callback handler is needed",
    "azure_openai_llm litellm_llm dynamo_llm oci_llm": "use the `openai` LLM with base_url",
    "aws_bedrock_llm": "put an OpenAI-compatible proxy before it, and use the `openai` LLM with base_url",
    "huggingface": "use the `local` LLM, which loads a model of the Hub, or the `openai` LLM with base_url",
    "llm.utils": "builder.get_llm gives a client; the LLM's keys `thinking`, `timeout` and `verify_ssl` set it up",
    "exception_handlers": "clients retry by themselves: `max_retries` of the LLM",
    "session runner": "use nat.utils.run_workflow for one input, and nat.eval.evaluate.EvaluationRun for a dataset",
    "child_builder sync_builder": "a build function is async and gets a Builder, which it awaits",
    "dataset_handler dataset_downloader dataset_filter": "write a loader, under register_dataset_loader",
    "atif": "steps stay as recorded; read EvalInputItem.trajectory",
    "harness multi_eval": "use nat.eval.evaluate.EvaluationRun, once for each configuration",
    "remote_workflow llm_validator output_uploader eval.exporters": (
        "`nat eval` does this; a callback of your own goes under register_eval_callback"
    ),
    "cli_utils": "use nat.config.load_config, which takes overrides",
    "nat.profiler data_models.profiler": "there is no profiler; training_metrics.jsonl has times and tokens",
    "nat.plugins.langchain": 'LangChain is built in: builder.get_llm(…, wrapper_type="langchain") and get_tools',
    "nat.agent": "agents come from your framework; see docs/agents/index.md",
    "nat.tool": "tools are functions of yours, under register_function",
    "test_time_compute": "write the stage as a strategy of your own, under register_ttc_strategy",
}
"""Parts of missing names → what to do."""

_FROM = re.compile(r"cannot import name '(\w+)' from '([\w.]+)'")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def replacement_for(error: BaseException) -> str:
    """The replacement for a missing name of `nat`, with a leading colon; empty for other packages."""
    missing = _missing(error)
    return f": {replacement(missing)}" if missing is not None and missing.startswith("nat.") else ""


def replacement(missing: str) -> str:
    """What to use instead of a dotted name; `MemoryEditor` is found like `memory_editor`."""
    snake = _CAMEL.sub("_", missing).lower()
    found = next((text for parts, text in _REPLACEMENTS.items() if any(p in snake for p in parts.split())), None)
    return found or "this project has no such name; docs/from/nat.md lists what is here"


def refusing(module: str, names: Iterable[str]) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module that lacks these names of the toolkit: an import of one says what to use.

    It is an ImportError also for `module.name`, since Python drops the text of an AttributeError in `from … import`.
    """
    refused = frozenset(names)

    def refuse(name: str) -> NoReturn:
        if name in refused:
            missing = f"{module}.{name}"
            raise NotProvided(f"{missing}: {replacement(missing)}")
        raise AttributeError(f"module '{module}' has no attribute '{name}'")

    return refuse


def _missing(error: BaseException) -> str | None:
    """The dotted name that could not be imported."""
    if isinstance(error, ModuleNotFoundError):
        return error.name
    if isinstance(error, ImportError) and (found := _FROM.match(str(error))):
        return f"{found[2]}.{found[1]}"
    return None

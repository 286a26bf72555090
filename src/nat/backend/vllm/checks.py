"""Check that a vLLM server can be used: its version, its routes, its model, and the log probabilities it reports."""

import re
from http import HTTPStatus

import torch
from pydantic import BaseModel, ValidationError

from nat.backend.model import LoadedModel
from nat.backend.training.batch import Row
from nat.backend.training.loss import ByRow
from nat.backend.training.mismatch import difference, served_logprobs
from nat.backend.vllm.client import Control, refused
from nat.backend.vllm.hand_over import LOAD_ADAPTER, RPC
from nat.backend.vllm.wire import GENERATE
from nat.errors import EngineFailed
from nat.secrets import excerpt

TESTED = "0.32.0"
OLDEST, NEWEST = (0, 32), (0, 33)
"""Versions that are accepted; only TESTED was run."""
_PROBE_TOKENS = 12
_PROBE_TEMPERATURE = 0.5
"""Not 1, so that log probabilities before the temperature are recognised."""
_ALLOWED = {torch.float32: 0.1}
_ALLOWED_ROUNDED = 0.5
"""Mean |Δ log p| of the two models at the start, in float32 and in other types; another model differs by more."""


class _Version(BaseModel):
    version: str


class _Card(BaseModel):
    id: str
    parent: str | None = None
    max_model_len: int | None = None


class _Cards(BaseModel):
    data: list[_Card]


def _check_version(control: Control) -> None:
    seen = control.get("/version")
    try:
        text = _Version.model_validate_json(seen.content).version
    except ValidationError:
        text = seen.text
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None or not OLDEST <= (int(found[1]), int(found[2])) <= NEWEST:
        first, last = (".".join(map(str, version)) for version in (OLDEST, NEWEST))
        raise EngineFailed(
            f"the sampling server says that it is vLLM {excerpt(repr(text), 80)}; versions {first} to {last} work",
            hint=f"install vLLM {TESTED}, which is tested, in an environment of its own",
        )


def check_server(control: Control, *, context: int) -> str:
    """Check version, routes and context; gives the name that the server has for its base model."""
    _check_version(control)
    if not control.knows(GENERATE):
        raise EngineFailed(
            f"vLLM has no route {GENERATE}, which takes and gives token ids", hint="start it with --enable-scale-out"
        )
    models = control.get("/v1/models")
    if not models.is_success:
        hint = (
            "set vllm_api_key, or VLLM_API_KEY, to the key of that server"
            if models.status_code == HTTPStatus.UNAUTHORIZED
            else None
        )
        raise EngineFailed(refused(models).message, hint=hint)
    try:
        bases = [card for card in _Cards.model_validate_json(models.content).data if card.parent is None]
        base = bases[0]
    except (ValidationError, IndexError) as error:
        raise EngineFailed(
            f"vLLM names no model at /v1/models: {excerpt(repr(models.text), 80)}", hint="check vllm_url and its log"
        ) from error
    if base.max_model_len is not None and base.max_model_len < context:
        raise EngineFailed(
            f"vLLM takes {base.max_model_len} tokens of prompt plus answer, fewer than the {context} of the model here",
            hint=f"set max_seq_length to {base.max_model_len}, or start vLLM with --max-model-len {context}",
        )
    return base.id


def check_updates(control: Control, *, lora: bool) -> None:
    """Check the route through which weights are handed over."""
    path, purpose, start = (
        (LOAD_ADAPTER, "gets new adapters", "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora")
        if lora
        else (RPC, "gets new weights", "VLLM_SERVER_DEV_MODE=1")
    )
    if not control.knows(path):
        raise EngineFailed(
            f"vLLM has no route {path}, through which it {purpose}",
            hint=f"start it with {start}, on a loopback address: its key does not guard the control routes",
        )


def dtype_name(loaded: LoadedModel) -> str:
    """The model's precision as a value of --dtype."""
    return str(loaded.dtype).removeprefix("torch.")


def probe_row(loaded: LoadedModel) -> Row:
    """A short row of tokens from all over the vocabulary."""
    last = loaded.vocab_size - 1
    tokens = min(_PROBE_TOKENS, loaded.max_seq_length - 1)
    ids = [last * number // tokens for number in range(tokens)]
    count = len(ids) - 1
    return Row(
        index=0,
        group=0,
        rollout=0,
        input_ids=ids[:-1],
        positions=list(range(count)),
        targets=ids[1:],
        sampler_logprobs=[],
        advantages=[0.0] * count,
        temperatures=[_PROBE_TEMPERATURE] * count,
    )


def check_probe(loaded: LoadedModel, row: Row, served: ByRow) -> None:
    """Compare the log probabilities of vLLM's model with those of the loaded one."""
    seen = difference([row], served_logprobs(loaded, [row]), served)
    allowed = _ALLOWED.get(loaded.dtype, _ALLOWED_ROUNDED)
    if not seen.mean <= allowed:
        raise EngineFailed(
            f"vLLM reports other log probabilities than the model in {loaded.path} gives: {seen}, allowed is "
            f"{allowed:g}",
            hint=f"a server of yours must serve this very model, with --dtype {dtype_name(loaded)} and "
            "--logprobs-mode processed_logprobs",
        )

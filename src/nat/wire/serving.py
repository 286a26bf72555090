"""Options of the embedded backend's process, for `nat backend serve` and for an LLM of a configuration."""

import json
import logging
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    SecretStr,
    field_validator,
    model_validator,
)

from nat.files import UserPath, UserPathText, expanded
from nat.secrets import known_secrets
from nat.wire.hosts import HOST_LIST, check_public_host
from nat.wire.json import parse_json

logger = logging.getLogger(__name__)

API_KEY_VARIABLE = "NAT_BACKEND_API_KEY"
"""Environment variable of the key; unlike an option, it is not in process lists."""
KEY_VARIABLES = {"api_key": API_KEY_VARIABLE, "vllm_api_key": "VLLM_API_KEY", "tinker_api_key": "TINKER_API_KEY"}
"""The options that are keys, and their environment variables; clients of vLLM and Tinker read theirs, too."""
READY, FAILED, NOTICE = "ready", "failed", "notice"
"""Events of the backend's process: one line of JSON on stdout, `ready` with its ports or `failed` with the reason, and
at any time `notice`, what a user should know."""
NOTICES = "nat.backend.notices"
"""Name of the logger of these notices."""
LOCAL_PACKAGES = (
    "fastapi",
    "huggingface_hub",
    "jinja2",
    "numpy",
    "peft",
    "safetensors",
    "torch",
    "transformers",
    "uvicorn",
)
"""Packages that the backend imports; the extra `local` installs them."""
CHECKPOINTS, EXPORTS = "checkpoints", "exports"
"""Folders inside the output folder."""
LLMS = "llms"
"""In the folder of a run that trains several LLMs: the output folder of each one's backend, by its key."""
NEWEST_CHECKPOINT = "latest"
"""In CHECKPOINTS, a link to the newest checkpoint."""
BEST_CHECKPOINT = "best"
"""In CHECKPOINTS, a link to the checkpoint that a client keeps as the best so far; it is never deleted."""
PROTOCOLS = "nat.backend.protocols"
"""Entry-point group of further protocols of the backend; each value is a class of options."""
_OF_VLLM = {"tensor_parallel", "vllm_command", "vllm_args", "vllm_startup_timeout", "vllm_url", "vllm_api_key"}
SERVER_URL = "^https?://[^/]"
"""Pattern of a server's address."""


def _mapping(value: object) -> object:
    """A mapping as it is; a text is its JSON, as on a command line, or names a file that has it."""
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value if value.lstrip().startswith("{") else Path(expanded(value)).read_text("utf-8"))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"expected a mapping, its JSON, or the path of a JSON file; {value[:80]!r}: {why}") from error


class Health(BaseModel):
    """The backend's answer to `GET /health`."""

    status: Literal["ok"] = "ok"
    policy_version: str
    device: str
    """Type of the learner's device: `cpu` or `cuda`."""
    dtype: str
    """Precision of the served weights, such as `float32`."""
    vocabulary: int
    """Ids that the tokenizer has: the highest one, plus 1."""


class BackendOptions(BaseModel):
    """What a backend is made of, however it is started: by `nat backend serve`, or for an LLM of a configuration."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    engine: Literal["embedded", "vllm"] = "embedded"
    """What samples: the backend's own engine, or vLLM in a process of its own."""
    vllm_command: UserPathText | None = None
    """With engine vllm: the command that starts vLLM, such as `/opt/vllm/bin/vllm serve`; default: `vllm serve`."""
    vllm_url: str | None = Field(default=None, pattern=SERVER_URL)
    """With engine vllm: a vLLM server that you run on this machine, in place of one that the backend starts."""
    vllm_api_key: SecretStr | None = None
    """With vllm_url: key of that server; better set as the environment variable VLLM_API_KEY."""
    tensor_parallel: int = Field(default=1, ge=1)
    """With engine vllm: GPUs of the server that the backend starts, among which the model is split."""
    vllm_args: str | None = None
    """With engine vllm: further arguments of `vllm serve`, in one string, such as `--data-parallel-size 2`."""
    device: str = "auto"
    """Where the model runs: `cpu`, `cuda`, `cuda:1` for the second GPU; `auto`: a GPU if there is
    one. With engine vllm, `cuda` is a GPU that both share; one with a number is the learner's alone, and vLLM gets the
    others."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the served weights; `auto`: bfloat16 on GPUs, and from 100 M weights on CPUs with fast bfloat16."""
    max_seq_length: int | None = Field(default=None, ge=8)
    """Most tokens of prompt plus answer; default: the model's own limit."""
    max_num_seqs: int = Field(default=64, ge=1)
    """Sequences sampled at the same time; others wait."""
    kv_cache_mb: int | None = Field(default=None, ge=0)
    """Memory in MB for keys and values while sampling, per model; sequences wait for it; default: 1/4 of what is
    free."""
    prefix_cache_mb: int | None = Field(default=None, ge=0)
    """Memory in MB of the prefix cache, per model, for earlier prompts and answers; default: 1/16 of what is free."""
    threads: int | None = Field(default=None, ge=1)
    """CPU threads per operation; default: one for each core, and one to sample from a small model."""
    chat_template_kwargs: Annotated[dict[str, JsonValue], BeforeValidator(_mapping)] = {}
    """Variables of the model's chat template for everything that does not set them, such as `enable_thinking: false` of
    Qwen3."""
    response_template: Annotated[dict[str, Any], BeforeValidator(_mapping)] | None = None
    """How the model writes thinking and tool calls, as a `response_template` of transformers or the path of a JSON file
    with one; default: the tokenizer's, else found in the chat template."""
    sanitize_control_tokens: bool = False
    """Encode special tokens as text, such as `<|im_end|>`, where a message of a user or a tool has them."""
    seed: int = 0
    """Seed of the adapters' initial weights."""
    save_every: int = Field(default=1, ge=1)
    """Updates between checkpoints; one is also written at the end."""
    keep_last: int = Field(default=2, ge=1)
    """Number of newest checkpoints to keep."""

    @field_validator("vllm_command", "vllm_args")
    @classmethod
    def _are_words(cls, text: str | None) -> str | None:
        try:
            shlex.split(text or "")
        except ValueError as error:
            raise ValueError(f"{text!r} cannot be split into words, as in a shell: {error}") from error
        return text

    @field_validator("device")
    @classmethod
    def _is_device(cls, name: str) -> str:
        if re.fullmatch(r"auto|cpu|cuda(:\d{1,3})?", name, re.ASCII) is None:
            raise ValueError(f"expected 'auto', 'cpu', 'cuda' or 'cuda:N' (the N-th GPU, from 0), got {name!r}")
        return name

    @model_validator(mode="after")
    def _fit_the_engine(self) -> Self:
        """A resolved configuration has the defaults of all options; these are accepted."""
        if self.engine == "embedded":
            if idle := sorted(_OF_VLLM & self.model_dump(exclude_defaults=True).keys()):
                raise ValueError(f"{', '.join(idle)}: no effect with engine embedded; leave it out")
        elif self.loads_in_4bit:
            raise ValueError(
                "load_in_4bit: vLLM would sample from the base weights before they are rounded to four bits, and "
                "disagree with the learner; use engine embedded, or leave it out"
            )
        if self.vllm_url is not None and "@" in self.vllm_url:
            raise ValueError("vllm_url has a login; leave it out, and set vllm_api_key")
        return self

    @property
    def loads_in_4bit(self) -> bool:
        """The base weights are held in four bits."""
        return False


class ServeOptions(BackendOptions):
    """Options of the backend process; each field is the option of the same name.

    A subclass adds another protocol: the options that it has besides these, the one of them that chooses it (`switch`),
    and what opens it in the backend's process. Its module imports no torch.
    """

    switch: ClassVar[str] = ""
    """The option that chooses this protocol; empty for the backend's own."""
    opener: ClassVar[str] = "nat.backend.serve:open_training"
    """`module:function` of a `nat.backend.protocol.Open`; imported in the backend's process only."""
    well_known_key: ClassVar[str | None] = None
    """Default key, if clients of the protocol expect a certain one; otherwise a key is generated."""
    key_prefix: ClassVar[str] = ""
    """How keys must begin for the protocol's clients."""

    model: UserPath
    """A Hugging Face folder (config.json, safetensors, tokenizer and chat template), a .gguf file, or OWNER/NAME."""
    served_model_name: str | None = None
    """Name of the served model; by default the last part of `model`."""
    output_dir: UserPath | None = None
    """Folder for checkpoints and exported models; without it the backend only serves."""
    host: str = "127.0.0.1"
    """Address to listen on; any but a loopback address needs a key that you set."""
    allowed_hosts: str | None = Field(default=None, pattern=HOST_LIST)
    """Further host names of this server, such as a proxy's; separated by commas."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 picks a free one, which the ready line names."""
    api_key: SecretStr | None = None
    """Key for requests; generated if left out. Better set as NAT_BACKEND_API_KEY."""
    vllm_startup_timeout: float = Field(default=600.0, gt=0)
    """With engine vllm: seconds until the started vLLM has to answer."""
    lora_rank: int | None = Field(default=None, ge=1)
    """Train LoRA adapters of this rank; if left out, all weights."""
    lora_alpha: int = Field(default=32, ge=1)
    """Scale (alpha) of the LoRA adapters."""
    load_in_4bit: bool = False
    """Hold the base weights under LoRA adapters in four bits (QLoRA), on CUDA by the package bitsandbytes: 0.56 instead
    of 2 or 4 bytes each; they round."""
    resume: bool = False
    """Resume from the newest checkpoint in output_dir, if there is one."""
    exit_with_parent: bool = False
    """Exit when stdin ends, which means that the parent process has ended."""

    @model_validator(mode="after")
    def _options_agree(self) -> Self:
        check_public_host(self.host, self.api_key, API_KEY_VARIABLE)
        if self.resume and self.output_dir is None:
            raise ValueError("resume needs output_dir, the folder of the checkpoints")
        if self.load_in_4bit and self.lora_rank is None:
            raise ValueError("load_in_4bit: weights of four bits cannot be trained; set lora_rank, or leave it out")
        return self

    @property
    def loads_in_4bit(self) -> bool:
        return self.load_in_4bit

    @property
    def name(self) -> str:
        return self.served_model_name or self.model.resolve().name

    @property
    def ports(self) -> dict[str, int]:
        """The ports to listen on, by the options that choose them."""
        return {"port": self.port}

    @property
    def key_is_well_known(self) -> bool:
        """True if the server uses a key that is publicly known."""
        return self.api_key is None and self.well_known_key is not None


class AdapterServeOptions(ServeOptions):
    """Options of a protocol whose clients train adapters of their own on one base model."""

    max_models: int = Field(default=16, ge=1)
    """With inference_port or protocol: largest number of models in memory, each with its optimizer."""

    @model_validator(mode="after")
    def _fit_adapters(self) -> Self:
        if self.engine != "embedded":
            raise ValueError(
                f"engine {self.engine}: {self.switch} serves several models that this process trains and samples; "
                "leave it out"
            )
        return self


def handover(options: ServeOptions, secrets: Iterable[str] = ()) -> bytes:
    """The line that a parent sends through a pipe, since a process's environment and arguments can be read.

    It has the given options with their keys and the name of their class, and `secrets`, further values that the
    backend's log must redact.
    """
    keys = {name: value.get_secret_value() for name, value in options if isinstance(value, SecretStr)}
    kind = f"{type(options).__module__}:{type(options).__qualname__}"
    given = options.model_dump(exclude_unset=True) | keys
    sent = {"class": kind, "options": given, "secrets": list(secrets)}
    return json.dumps(sent, default=str).encode() + b"\n"


def received(line: bytes) -> ServeOptions:
    """The options of a handover; its keys and secrets are redacted from here on."""
    sent = json.loads(line)
    options: dict[str, Any] = sent["options"]
    known_secrets.remember([*(options.get(name) or "" for name in KEY_VARIABLES), *sent["secrets"]])
    kind: type[ServeOptions] = resolve_name(sent["class"])
    return kind.model_validate(options)


def environment_keys(given: Collection[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The keys that the environment has for the options that are given: vLLM's is for a server at a URL only."""
    wanted = {"api_key"} | ({"vllm_api_key"} if "vllm_url" in given else set())
    return {name: environment[KEY_VARIABLES[name]] for name in wanted if environment.get(KEY_VARIABLES[name])}


def protocols() -> list[type[ServeOptions]]:
    """The options of every installed protocol, in the order of their names; one that cannot be imported is logged."""
    found: list[type[ServeOptions]] = []
    for point in sorted(entry_points(group=PROTOCOLS), key=lambda point: point.name):
        try:
            protocol = point.load()
        except Exception as error:  # noqa: BLE001 - a plug-in that fails must not stop the backend
            protocol = error
        if isinstance(protocol, type) and issubclass(protocol, ServeOptions):
            found.append(protocol)
        else:
            wanted = "not a class of ServeOptions"
            logger.warning("skipped the protocol '%s': %s is %r, %s", point.name, point.value, protocol, wanted)
    return found


def options_class(given: Collection[str]) -> type[ServeOptions]:
    """The class that checks these options: that of the protocol that one of them chooses, or `ServeOptions`."""
    return next((protocol for protocol in protocols() if protocol.switch in given), ServeOptions)

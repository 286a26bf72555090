"""How the embedded backend is started: its options, shared by its own command line and by `nat backend serve`."""

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from nat.wire.hosts import HOST_LIST, is_loopback

KEY_FD = "--key_fd"
"""Option of `python -m nat.backend` alone: the file descriptor whose first line is a Handover."""
API_KEY_VARIABLE = "NAT_BACKEND_API_KEY"
"""Environment variable of the key; unlike an option it shows in no process list."""
READY, FAILED = "ready", "failed"
"""Events of the backend's process: one line of JSON on stdout, `ready` with its ports or `failed` with the reason."""
LOCAL_PACKAGES = ("fastapi", "httptools", "jinja2", "numpy", "peft", "safetensors", "torch", "transformers", "uvicorn")
"""What the backend imports; the extra `local` brings all of it."""
CHECKPOINTS, EXPORTS = "checkpoints", "exports"
"""Folders inside the output folder."""
NEWEST_CHECKPOINT = "latest"
"""In there, a link to the newest checkpoint."""
BEST_CHECKPOINT = "best"
"""In there, a link to the checkpoint that a client asked to keep as the best so far, which nothing deletes."""
ART_API_KEY = "default"
"""The key that OpenPipe ART's servers have if nobody chose one."""
ART_OUTPUT_DIR = Path(".art")
"""Where OpenPipe ART's servers write if nobody chose a folder."""
MAX_MODELS = 16
"""Models of ART's clients if nobody chose a number."""
ART_LORA_RANK, ART_LORA_ALPHA = 8, 16
_NOT_FOR_ART = ("save_every", "keep_last")
_FOR_ART_ONLY = ("max_models", "s3_buckets")
_BUCKET = "[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
"""How S3 names them."""


class Handover(BaseModel):
    """What a parent tells the backend through a pipe, since a process's environment and arguments can be read."""

    api_key: str | None = None
    secrets: list[str] = []
    """Further values that the backend's log must not show."""

    def line(self) -> bytes:
        return self.model_dump_json().encode() + b"\n"


class ServeOptions(BaseModel):
    """Options of the backend process; each field is the option of the same name."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    model: Path
    """Directory of a Hugging Face checkpoint: config.json, safetensors, tokenizer and chat template."""
    served_model_name: str | None = None
    """Name that requests use; the directory's name if left out."""
    output_dir: Path | None = None
    """Where checkpoints and models go; without it the backend only serves, or with inference_port takes .art."""
    host: str = "127.0.0.1"
    """Address to listen on; one that others can reach needs a key that you chose."""
    allowed_hosts: str | None = Field(default=None, pattern=HOST_LIST)
    """Further names under which this server may be called, with commas between, such as that of a proxy."""
    port: int = Field(default=8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one, which the ready line tells."""
    inference_port: int | None = Field(default=None, ge=0, le=65535)
    """Serve OpenPipe ART's clients: they train through `port` and sample through this one; 0 takes a free one."""
    max_models: int = Field(default=MAX_MODELS, ge=1)
    """With inference_port: most models that clients may have in memory, each with its optimizer."""
    s3_buckets: str | None = Field(default=None, pattern=f"^{_BUCKET}(,{_BUCKET})*$")
    """With inference_port: S3 buckets, with commas between, that clients may copy models to and from; else none."""
    api_key: SecretStr | None = None
    """Key for requests; better given as NAT_BACKEND_API_KEY. By default made up, with inference_port `default`."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the model runs; `auto` takes CUDA if there is some."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the served weights; `auto` is float32 on the CPU and bfloat16 on CUDA."""
    lora_rank: int | None = Field(default=None, ge=1)
    """Train LoRA adapters of this rank; all weights if left out. With inference_port: 8, if the client has no wish."""
    lora_alpha: int = Field(default=32, ge=1)
    """Scale of the adapters. With inference_port: 16, if the client has no wish."""
    max_seq_length: int | None = Field(default=None, ge=2)
    """Longest prompt plus answer in tokens; the model's own limit if left out."""
    max_num_seqs: int = Field(default=64, ge=1)
    """Sequences that are sampled at the same time; others wait."""
    prefix_cache_mb: int = Field(default=256, ge=0)
    """Memory for what was computed of prompts and answers, which later prompts then begin with; for each model."""
    threads: int | None = Field(default=None, ge=1)
    """CPU threads of one operation; all cores if left out."""
    seed: int = 0
    """Seed of the adapters' start."""
    save_every: int = Field(default=1, ge=1)
    """Write a checkpoint after every so many jobs."""
    keep_last: int = Field(default=2, ge=1)
    """Checkpoints to keep."""
    resume: bool = False
    """Go on from the newest checkpoint in output_dir, if there is one."""
    exit_with_parent: bool = False
    """End when stdin ends, which it does when the process that holds its other end is gone."""

    @model_validator(mode="after")
    def _options_agree(self) -> Self:
        if self.api_key is None and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host} can be reached from outside, so the key must be yours: set {API_KEY_VARIABLE}"
            )
        if self.resume and self.output_dir is None and self.inference_port is None:
            raise ValueError("resume needs output_dir, where the checkpoints are")
        if self.inference_port is not None:
            self._check_for_art(self.inference_port)
        elif idle := sorted(self.model_fields_set.intersection(_FOR_ART_ONLY)):
            raise ValueError(f"{', '.join(idle)}: no effect without inference_port; leave it out")
        return self

    def _check_for_art(self, inference_port: int) -> None:
        idle = sorted(self.model_fields_set.intersection(_NOT_FOR_ART))
        if idle:
            raise ValueError(
                f"{', '.join(idle)}: no effect with inference_port, where each training call is a checkpoint "
                "and clients say what to delete; leave it out"
            )
        if inference_port == self.port != 0:
            raise ValueError(f"port and inference_port are both {self.port}; choose two")

    @property
    def name(self) -> str:
        return self.served_model_name or self.model.resolve().name

    @property
    def well_known_key(self) -> bool:
        """True for a server whose key everybody knows."""
        return self.inference_port is not None and self.api_key is None

    @property
    def buckets(self) -> list[str]:
        """S3 buckets that clients may use; the first one is for those that name none."""
        return self.s3_buckets.split(",") if self.s3_buckets else []

    @property
    def art_output_dir(self) -> Path:
        """Where the models of ART's clients are."""
        return self.output_dir or ART_OUTPUT_DIR

    @property
    def art_lora(self) -> tuple[int, int]:
        """Rank and alpha of an adapter for which the client has no wish."""
        alpha = self.lora_alpha if "lora_alpha" in self.model_fields_set else ART_LORA_ALPHA
        return self.lora_rank or ART_LORA_RANK, alpha

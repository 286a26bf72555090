"""Load a Hugging Face causal language model, with or without LoRA, ready for packed batches.

The sampler and the learner share the one `LoadedModel`, so an update is served without copying a weight.
"""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedModel

from nat.backend.attention import PACKED_ATTENTION
from nat.backend.checkpoint_folder import check_weights
from nat.backend.compatibility import check_config, check_forward
from nat.backend.tokenizer import ChatTokenizer
from nat.backend.weights import base_of, load_weights
from nat.errors import ModelNotSupported, describe_error
from nat.wire.model_folder import is_adapter

SOLE_ADAPTER = "default"
"""peft's key of an adapter that is alone in its model."""
DTypeName = Literal["auto", "float32", "bfloat16"]
_VOCABULARIES = (("tokenizer.json",), ("*.model*",), ("tekken*.json",), ("vocab.json", "merges.txt"), ("vocab.txt",))
"""Patterns of files that together hold all that a tokenizer knows; each kind of tokenizer reads one of them."""
_SAVE_TOKENIZER = "save the tokenizer beside the model with tokenizer.save_pretrained(directory)"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class LoraSettings:
    """A low-rank adapter on every linear layer of the decoder."""

    rank: int
    alpha: int = 32


@dataclass(frozen=True)
class LoadedModel:
    """A model on its device; with LoRA the adapter's layers sit inside `model` and `peft` wraps it.

    Where several adapters sit in one model, each has a `LoadedModel` of its own, which means that one.
    """

    model: PreTrainedModel
    tokenizer: ChatTokenizer
    path: Path
    max_seq_length: int
    eos_token_ids: frozenset[int]
    peft: PeftModel | None
    adapter: str = SOLE_ADAPTER
    """peft's key of the adapter that is meant, if there is one."""

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def vocab_size(self) -> int:
        """Width of the logits, which may exceed the tokenizer's vocabulary."""
        return int(self.model.config.get_text_config().vocab_size)

    @property
    def num_parameters(self) -> int:
        """All weights, an adapter's included."""
        return sum(p.numel() for p in self.model.parameters())

    def trainable_parameters(self) -> dict[str, torch.nn.Parameter]:
        """What an optimizer may change: all weights, or only the adapter's, by names that leave its key out."""
        if self.peft is None:
            return {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        mine, neutral = f".{self.adapter}.", f".{SOLE_ADAPTER}."
        return {name.replace(mine, neutral): p for name, p in self.model.named_parameters() if mine in name}


def load_model(
    path: Path | str,
    *,
    dtype: DTypeName = "auto",
    device: str = "auto",
    lora: LoraSettings | None = None,
    max_seq_length: int | None = None,
    seed: int = 0,
    verified: bool = False,
) -> LoadedModel:
    """Load a checkpoint directory and prove that packed batches compute what the model computes.

    A checkpoint or an export of ours is loaded only if its weights are what was written; `verified` says that the
    caller has just compared them.

    `auto` means CUDA and bfloat16 where there is CUDA, else the CPU and float32. `seed` decides the adapter's start.
    """
    path = Path(path)
    if not verified:
        check_weights(path)
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    where = _device(device)
    wanted = (torch.bfloat16 if where.type == "cuda" else torch.float32) if dtype == "auto" else _DTYPES[dtype]
    model = load_weights(path, wanted)
    model.train(mode=False).to(where)
    tokenizer = _load_tokenizer(path)
    limit = _context_limit(model, max_seq_length)
    check_config(model.config, limit)
    check_forward(model)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        path=path,
        max_seq_length=limit,
        eos_token_ids=_eos_token_ids(model, tokenizer),
        peft=None if lora is None else add_adapter(model, lora_config(lora), SOLE_ADAPTER, seed=seed),
    )


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        raise ModelNotSupported(
            f"device {name}: there is no CUDA device here that this torch {torch.__version__} ({built}) can use",
            hint="set device to cpu or auto; or check the driver (nvidia-smi) and install a CUDA build of torch",
        )
    return torch.device(name)


def _load_tokenizer(path: Path) -> ChatTokenizer:
    """Only from the checkpoint itself; transformers would make up an empty one where there is none."""
    if is_adapter(path) and not (_has_vocabulary(path) or (path / "tokenizer_config.json").is_file()):
        return _load_tokenizer(base_of(path))
    if not _has_vocabulary(path):
        others = ", ".join(" with ".join(files) for files in _VOCABULARIES[1:])
        raise ModelNotSupported(
            f"{path} has no tokenizer.json (nor another file of a tokenizer's vocabulary: {others})",
            hint=f"copy tokenizer.json from the original model, or {_SAVE_TOKENIZER}",
        )
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError) as error:
        raise ModelNotSupported(
            f"the tokenizer in {path} cannot be read: {describe_error(error)}", hint="copy the checkpoint's files anew"
        ) from error
    if not tokenizer.get_vocab().keys() - {token.content for token in tokenizer.added_tokens_decoder.values()}:
        raise ModelNotSupported(
            f"{path} has a tokenizer without a vocabulary: it knows special tokens only", hint=_SAVE_TOKENIZER
        )
    return ChatTokenizer(tokenizer)


def _has_vocabulary(path: Path) -> bool:
    return any(all(any(path.glob(pattern)) for pattern in files) for files in _VOCABULARIES)


def token_logprobs(logits_KV: Tensor, token_ids_K: Tensor, temperatures_K: Tensor | None = None) -> Tensor:
    """Log probability [K] of each token under its logits and at its temperature, in float32 whatever the dtype."""
    logits_KV = logits_KV.float()
    if temperatures_K is not None:
        logits_KV = logits_KV / temperatures_K.float().unsqueeze(-1)
    chosen_K = logits_KV.gather(-1, token_ids_K.unsqueeze(-1)).squeeze(-1)
    return chosen_K - logits_KV.logsumexp(-1)


def _context_limit(model: PreTrainedModel, wanted: int | None) -> int:
    possible: int = model.config.get_text_config().max_position_embeddings
    if wanted is not None and wanted > possible:
        raise ModelNotSupported(
            f"max_seq_length {wanted} is more than the {possible} positions of {model.config.model_type}",
            hint=f"set max_seq_length to at most {possible}",
        )
    return wanted or possible


def _eos_token_ids(model: PreTrainedModel, tokenizer: ChatTokenizer) -> frozenset[int]:
    config = model.generation_config.eos_token_id if model.generation_config is not None else None
    ids = [config] if isinstance(config, int) else list(config or ())
    return frozenset(i for i in (*ids, tokenizer.eos_token_id) if i is not None)


def lora_config(lora: LoraSettings) -> LoraConfig:
    """The settings in peft's words."""
    return LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, target_modules="all-linear", lora_dropout=0.0, task_type="CAUSAL_LM"
    )


def add_adapter(model: PreTrainedModel | PeftModel, config: LoraConfig, key: str, *, seed: int) -> PeftModel:
    """Put an adapter inside `model`, from a seed of its own; the base weights stop requiring gradients.

    Raises:
        ModelNotSupported: the rank is more than the model's width, where an adapter is larger than what it adapts.

    """
    width: int = model.config.get_text_config().hidden_size
    if config.r > width:
        raise ModelNotSupported(
            f"a LoRA rank of {config.r} is more than this model's hidden size of {width}",
            hint=f"ask for {width} at most",
        )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fan_in_fan_out")  # GPT-2's Conv1D; peft corrects it by itself
        warnings.filterwarnings("ignore", category=FutureWarning)  # peft asks transformers by an older name
        torch.manual_seed(seed)
        if isinstance(model, PeftModel):
            model.add_adapter(key, config)
            wrapped = model
        else:
            wrapped = get_peft_model(model, config, adapter_name=key)
            attention = model.config.get_text_config()._attn_implementation  # noqa: SLF001 - no public name for it
            assert attention == PACKED_ATTENTION, "an adapter leaves the attention as it is"
    wrapped.train(mode=False)
    return wrapped

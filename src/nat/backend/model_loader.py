"""Load a Hugging Face causal language model, with or without LoRA, ready for packed batches.

A folder without all weights, with damaged ones or with NaN is refused; transformers would fill in random values and log
a warning. A model that packed attention would compute wrongly takes the plain path, row by row: that is found by its
configuration (kinds of layers), then by comparing the logits of packed rows with transformers' own. A model is refused
if that path fails, too, or by position embeddings that depend on the length of what is computed.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from peft import LoraConfig, PeftModel
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from nat.backend.checkpoint_folder import check_weights
from nat.backend.decoder_parts import freeze_other_parts
from nat.backend.folder_check import check_folder
from nat.backend.lora import LoraSettings, add_adapter, lora_config
from nat.backend.memory import chosen_device
from nat.backend.model import SOLE_ADAPTER, LoadedModel
from nat.backend.model_checks import OTHER_KIND, check_positions, failing_as
from nat.backend.model_path import path_of, sampler_linears
from nat.backend.products import has_fast_bfloat16
from nat.backend.tokenizer import ChatOptions, ChatTokenizer
from nat.errors import ModelNotSupported
from nat.hub import cached_folder
from nat.wire.extras import missing_packages
from nat.wire.model_folder import (
    ADAPTER_CONFIG,
    MODEL_CONFIG,
    hub_model,
    indexed_files,
    is_adapter,
    is_model,
    num_parameters,
)

logger = logging.getLogger(__name__)

_COPY_AGAIN = "copy or download the checkpoint's files again, or use an earlier checkpoint"
_MAX_LISTED = 3
DTypeName = Literal["auto", "float32", "bfloat16"]
_VOCABULARIES = (("tokenizer.json",), ("*.model*",), ("tekken*.json",), ("vocab.json", "merges.txt"), ("vocab.txt",))
"""Patterns of vocabulary files; each kind of tokenizer reads one of these sets."""
_SAVE_TOKENIZER = "save the tokenizer beside the model with tokenizer.save_pretrained(directory)"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_MOSTLY_PRODUCTS = 100_000_000
"""Weights of a model that spends most of its time in matrix products."""


def load_model(
    path: Path | str,
    *,
    dtype: DTypeName = "auto",
    device: str = "auto",
    lora: LoraSettings | None = None,
    load_in_4bit: bool = False,
    max_seq_length: int | None = None,
    seed: int = 0,
    verified: bool = False,
    chats: ChatOptions | None = None,
    plain_because: str | None = None,
) -> LoadedModel:
    """Load a checkpoint directory and check that packed batches compute what the model computes.

    If they do not, or for the reason `plain_because`, the model takes the plain path.

    The weights of our own checkpoints and exports are compared with their checksums, unless the caller has just
    `verified` them. `chats` are checked before the weights are read. `auto` means a GPU if there is one, and bfloat16
    where the device multiplies it faster. With `load_in_4bit`, bitsandbytes rounds the linear weights, so only
    adapters can be trained. `seed` initialises the adapter.
    """
    path = Path(path)
    if not verified:
        check_weights(path)
    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    tokenizer = None if chats is None else load_tokenizer(path, chats)
    where = chosen_device(device)
    precision = _DTYPES.get(dtype) or fastest_dtype(where, _num_weights(path))
    model = load_weights(path, precision, where if load_in_4bit else None)
    if (named := hub_model(path)) is not None:
        model.name_or_path = named.name  # adapters name it as their base, so that they load on other machines
    model.train(mode=False)
    if not load_in_4bit:  # else it is there
        model.to(where)  # type: ignore[arg-type]  # transformers hides torch's signature
    freeze_other_parts(model)
    tokenizer = tokenizer or load_tokenizer(path, chats)
    limit = context_limit(model.config, max_seq_length)
    check_positions(model.config, limit)
    heads, plain = path_of(model, limit, plain_because)
    linears = sampler_linears(model, plain)  # before an adapter's layers are in the way
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        path=path,
        max_seq_length=limit,
        eos_token_ids=eos_token_ids(model, tokenizer),
        peft=None if lora is None else add_adapter(model, lora_config(lora, path), SOLE_ADAPTER, seed=seed),
        heads=heads,
        linears=linears,
        plain=plain,
    )


def _in_four_bits(device: torch.device, dtype: torch.dtype) -> BitsAndBytesConfig:
    if device.type != "cuda":
        raise ModelNotSupported(
            f"load_in_4bit: the model is on {device}, and bitsandbytes computes with four bits on CUDA",
            hint="leave load_in_4bit out, or set device to cuda",
        )
    if missing_packages(["bitsandbytes"]):
        raise ModelNotSupported(
            "load_in_4bit needs the package bitsandbytes, which is not installed",
            hint="pip install bitsandbytes, or leave load_in_4bit out",
        )
    return BitsAndBytesConfig(  # type: ignore[no-untyped-call]  # transformers has no types for it
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
    )


def fastest_dtype(device: torch.device, num_weights: int) -> torch.dtype:
    """bfloat16 on GPUs, and on CPUs that multiply it much faster for models whose time is mostly that of products."""
    faster = device.type != "cpu" or (num_weights >= _MOSTLY_PRODUCTS and has_fast_bfloat16())
    return torch.bfloat16 if faster else torch.float32


def _num_weights(path: Path) -> int:
    """Weights of a folder; 0 if they are in other files or damaged, which loading them will say."""
    try:
        return num_parameters(base_of(path) if is_adapter(path) else path) or 0
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, ModelNotSupported):
        return 0


def load_tokenizer(path: Path, chats: ChatOptions | None = None) -> ChatTokenizer:
    """Load the checkpoint's tokenizer; if it has none, transformers would create an empty one."""
    if is_adapter(path) and not (_has_vocabulary(path) or (path / "tokenizer_config.json").is_file()):
        return load_tokenizer(base_of(path), chats)
    if not _has_vocabulary(path):
        others = ", ".join(" with ".join(files) for files in _VOCABULARIES[1:])
        raise ModelNotSupported(
            f"{path} has no tokenizer.json (nor another file of a tokenizer's vocabulary: {others})",
            hint=f"copy tokenizer.json from the original model, or {_SAVE_TOKENIZER}",
        )
    check_folder(path)
    with failing_as(f"the tokenizer in {path} cannot be read", _COPY_AGAIN):
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    if not tokenizer.get_vocab().keys() - {token.content for token in tokenizer.added_tokens_decoder.values()}:
        raise ModelNotSupported(
            f"{path} has a tokenizer without a vocabulary: it has special tokens only", hint=_SAVE_TOKENIZER
        )
    own = ChatTokenizer(tokenizer, options=chats)
    own.check_options()
    return own


def _has_vocabulary(path: Path) -> bool:
    return any(all(any(path.glob(pattern)) for pattern in files) for files in _VOCABULARIES)


def context_limit(config: PreTrainedConfig, wanted: int | None) -> int:
    """The most tokens of a conversation: those that are wanted, or all positions of the model."""
    possible = getattr(config.get_text_config(), "max_position_embeddings", None)
    if possible is None and wanted is not None:
        return wanted
    if not (isinstance(possible, int) and possible > 0):
        raise ModelNotSupported(
            f"max_position_embeddings of {MODEL_CONFIG} is {possible!r}; wanted is the number of the model's positions",
            hint=f"{_COPY_AGAIN}; if {config.model_type} has no such number, set max_seq_length",
        )
    if wanted is not None and wanted > possible:
        raise ModelNotSupported(
            f"max_seq_length {wanted} is more than the {possible} positions of {config.model_type}",
            hint=f"set max_seq_length to at most {possible}",
        )
    return wanted or possible


def eos_token_ids(model: PreTrainedModel, tokenizer: ChatTokenizer) -> frozenset[int]:
    """The tokens that end an answer: those of the generation config, the tokenizer's, and what the template writes.

    A template may end a turn with the next speaker's mark, or with a token that a base model's configuration lacks.
    """
    config = model.generation_config.eos_token_id if model.generation_config is not None else None
    ids = [config] if isinstance(config, int) else list(config or ())
    if wrong := [each for each in ids if not isinstance(each, int)]:
        raise ModelNotSupported(
            f"eos_token_id of the generation config has {wrong[0]!r}, no token id", hint=_COPY_AGAIN
        )
    stops = {i for i in (*ids, tokenizer.eos_token_id) if i is not None}
    found = {end.token for calls in (False, True) if (end := tokenizer.turn_end(stops, calls=calls))} - stops
    if found and model.generation_config is not None:
        model.generation_config.eos_token_id = sorted(stops | found)  # other servers of an export then stop there, too
    return frozenset(stops | found)


def load_weights(path: Path, dtype: torch.dtype, four_bits_on: torch.device | None = None) -> PreTrainedModel:
    """Load the folder's model; an adapter is merged into its base model, in float32 as in an export.

    With `four_bits_on`, linear layers are rounded to four bits on that device.
    """
    with _reading(path):
        if is_adapter(path) and four_bits_on is not None:
            raise ModelNotSupported(
                f"load_in_4bit: {path} is an adapter, which is merged into a base of all bits",
                hint="export it first (`nat runs export`), and set model to that folder",
            )
        model = _load_merged(path, dtype) if is_adapter(path) else _load_whole(path, dtype, four_bits_on)
    with torch.no_grad():
        not_finite = [name for name, weight in model.named_parameters() if not torch.isfinite(weight).all()]
    if not_finite:
        raise ModelNotSupported(
            f"{len(not_finite)} tensors of the weights in {path} hold NaN or infinity, the first is {not_finite[0]}",
            hint="use an earlier checkpoint: these weights are damaged, or their training diverged",
        )
    return model


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    if not is_model(path):
        raise ModelNotSupported(
            f"{path} is not a Hugging Face checkpoint: it has no config.json",
            hint="give the directory of config.json, the safetensors and the tokenizer",
        )
    with failing_as(f"the model in {path} cannot be loaded", _COPY_AGAIN):
        yield


def read_config(path: Path) -> PreTrainedConfig:
    """The configuration of the folder's model, or of an adapter's base, without its weights."""
    with _reading(path):
        return _config_of(base_of(path) if is_adapter(path) else path)


def _config_of(path: Path) -> PreTrainedConfig:
    config = AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelNotSupported(f"transformers has no causal language model for {config.model_type}", hint=OTHER_KIND)
    assert isinstance(config, PreTrainedConfig), "transformers returns its own configurations"
    return config


def base_of(adapter: Path) -> Path:
    """The folder of an adapter's base model, which may be in the Hub's cache; nothing is downloaded."""
    config = LoraConfig.from_pretrained(str(adapter))
    name = config.base_model_name_or_path or ""
    base = Path(name) if is_model(Path(name)) else cached_folder(name, config.revision)
    if base is None or not is_model(base):
        commit = f" --revision {config.revision}" if config.revision else ""
        raise ModelNotSupported(
            f"{adapter} is a LoRA adapter on {name}, which is neither a model's folder on this machine nor in the "
            "cache of the Hugging Face Hub",
            hint=f"for a model of the Hub, run `hf download {name}{commit}`; else put the model there, or name its "
            f"folder as base_model_name_or_path in {adapter / ADAPTER_CONFIG}",
        )
    return base


def _load_whole(path: Path, dtype: torch.dtype, four_bits_on: torch.device | None) -> PreTrainedModel:
    four_bits: dict[str, Any] = {}
    if four_bits_on is not None:
        four_bits = {"quantization_config": _in_four_bits(four_bits_on, dtype), "device_map": {"": four_bits_on}}
    for index in path.rglob("*.index.json"):
        indexed_files(index)
    _config_of(path)
    if not any(path.glob("*.safetensors")):
        raise ModelNotSupported(
            f"{path} has no weights in safetensors; other formats are not read, since they can hold code",
            hint="save the model again with model.save_pretrained(directory)",
        )
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        path,
        use_safetensors=True,
        dtype=dtype,
        attn_implementation="eager",
        local_files_only=True,
        trust_remote_code=False,  # else transformers would ask whether to run the folder's code
        output_loading_info=True,
        ignore_mismatched_sizes=True,  # reported below, by name
        **four_bits,
    )
    model, found = loaded
    if found["mismatched_keys"]:
        name, stored, wanted = min(found["mismatched_keys"])
        raise ModelNotSupported(
            f"{len(found['mismatched_keys'])} tensors of the weights in {path} have other shapes than {MODEL_CONFIG} "
            f"gives them, the first is {name}: {list(stored)} in the file, {list(wanted)} by the configuration",
            hint=f"copy {MODEL_CONFIG} and the weights from the same model",
        )
    if missing := sorted(found["missing_keys"]):
        more = f" and {len(missing) - _MAX_LISTED} more" if len(missing) > _MAX_LISTED else ""
        raise ModelNotSupported(
            f"the weights in {path} lack {len(missing)} tensors: {', '.join(missing[:_MAX_LISTED])}{more}",
            hint=_COPY_AGAIN,
        )
    assert isinstance(model, PreTrainedModel), "transformers returns its own models"
    return model


def _load_merged(adapter: Path, dtype: torch.dtype) -> PreTrainedModel:
    base = load_weights(base_of(adapter), torch.float32)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fan_in_fan_out")  # GPT-2's Conv1D; peft corrects it by itself
        warnings.filterwarnings("ignore", category=FutureWarning)  # peft uses a deprecated name of transformers
        model = PeftModel.from_pretrained(base, str(adapter)).merge_and_unload()
    assert isinstance(model, PreTrainedModel), "our adapters wrap models of transformers"
    model.to(dtype=dtype)  # type: ignore[call-arg]  # transformers hides torch's signature
    model.name_or_path = str(adapter)  # adapters that are trained on it record this path as their base
    return model

"""Read the weights in a model's folder, and refuse those that are missing, damaged or not finite.

transformers fills in at random what it does not find, and warns in a log; here that is an error.
"""

import warnings
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, PreTrainedModel

from nat.errors import ModelNotSupported, describe_error
from nat.wire.model_folder import ADAPTER_CONFIG, is_adapter, is_model

_COPY_ANEW = "copy or download the checkpoint's files anew, or take an earlier checkpoint"
_SHOWN = 3


def load_weights(path: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The model that the folder means; an adapter is merged into its own model, in float32 as in an export.

    Raises:
        ModelNotSupported: the folder is no model, or its weights are not all there, or not all numbers.

    """
    if not is_model(path):
        raise ModelNotSupported(
            f"{path} is not a Hugging Face checkpoint: it has no config.json",
            hint="give the directory that holds config.json, the safetensors and the tokenizer",
        )
    try:
        model = _merged(path, dtype) if is_adapter(path) else _whole(path, dtype)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise ModelNotSupported(
            f"the model in {path} cannot be loaded: {describe_error(error)}", hint=_COPY_ANEW
        ) from error
    _check_finite(model, path)
    return model


def base_of(adapter: Path) -> Path:
    """The folder of the model that an adapter sits on."""
    base = Path(LoraConfig.from_pretrained(str(adapter)).base_model_name_or_path or "")
    if not is_model(base):
        raise ModelNotSupported(
            f"{adapter} is a LoRA adapter on {base}, which is no model's folder here",
            hint=f"put the model there, or name its folder as base_model_name_or_path in {adapter / ADAPTER_CONFIG}",
        )
    return base


def _whole(path: Path, dtype: torch.dtype) -> PreTrainedModel:
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype, attn_implementation="eager", local_files_only=True, output_loading_info=True
    )
    model, found = loaded
    missing = sorted(found["missing_keys"])
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise ModelNotSupported(
            f"the weights in {path} lack {len(missing)} tensors: {', '.join(missing[:_SHOWN])}{more}", hint=_COPY_ANEW
        )
    assert isinstance(model, PreTrainedModel), "transformers gives a model of its own"
    return model


def _merged(adapter: Path, dtype: torch.dtype) -> PreTrainedModel:
    base = load_weights(base_of(adapter), torch.float32)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fan_in_fan_out")  # GPT-2's Conv1D; peft corrects it by itself
        warnings.filterwarnings("ignore", category=FutureWarning)  # peft asks transformers by an older name
        model = PeftModel.from_pretrained(base, str(adapter)).merge_and_unload()
    assert isinstance(model, PreTrainedModel), "an adapter of ours sits in a model of transformers"
    model.to(dtype=dtype)  # type: ignore[call-arg]  # transformers hides torch's signature
    model.name_or_path = str(adapter)  # an adapter that is trained on top names this as its base
    return model


@torch.no_grad()
def _check_finite(model: PreTrainedModel, path: Path) -> None:
    spoilt = [name for name, weight in model.named_parameters() if not torch.isfinite(weight).all()]
    if spoilt:
        raise ModelNotSupported(
            f"{len(spoilt)} tensors of the weights in {path} hold NaN or infinity, the first is {spoilt[0]}",
            hint="take an earlier checkpoint: these weights are damaged, or were written by a training that diverged",
        )

"""The weights that a program leaves: checked against those that it was given, and read under our parameters' names."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import get_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from nat.backend.checkpoint_folder import ADAPTER_WEIGHTS
from nat.backend.export import write_adapter, write_model
from nat.backend.model import LoadedModel
from nat.backend.model_loader import load_model
from nat.errors import UpdateRejected
from nat.secrets import excerpt
from nat.wire.model_folder import ADAPTER_CONFIG, MODEL_CONFIG, WEIGHTS_INDEX

_ADAPTS = ("peft_type", "r", "lora_alpha", "use_rslora", "use_dora", "fan_in_fan_out", "rank_pattern", "alpha_pattern")
"""What decides how an adapter's weights are used, besides their names and shapes."""
_FORM = "end with model.save_pretrained(NAT_OUTPUT), of the model at NAT_MODEL, with the adapter at NAT_ADAPTER if set"
_SHOWN, _NAME_CHARS = 3, 200


def write_start(loaded: LoadedModel, folder: Path) -> dict[str, str]:
    """Write the weights that the program begins with; gives the variables that name them."""
    if loaded.peft is None:
        write_model(loaded, folder)
        return {"NAT_MODEL": str(folder)}
    write_adapter(loaded, folder)
    return {"NAT_MODEL": str(loaded.path.resolve()), "NAT_ADAPTER": str(folder)}


def read_output(loaded: LoadedModel, start: Path, output: Path) -> dict[str, Tensor]:
    """Give the new weights by our parameters' names; `start` is the folder that the program began with."""
    wanted = ADAPTER_CONFIG if loaded.peft is not None else MODEL_CONFIG
    found = [name for name in (ADAPTER_CONFIG, MODEL_CONFIG) if (output / name).is_file()]
    if wanted not in found:
        what = "an adapter, because the LLM has `lora`" if loaded.peft is not None else "a whole model, without `lora`"
        raise _wrong(f"has {' and '.join(found) or 'no config'} where {wanted} was expected: {what}")
    new = _weights(output)
    _check_equal_shapes(_weights(start), new)
    if bad := [name for name, tensor in new.items() if not (tensor.is_floating_point() and tensor.isfinite().all())]:
        raise UpdateRejected(
            f"the trainer program left weights that are not finite numbers: {_some(bad)}",
            kind="gradient_not_finite",
            hint="lower its learning rate, or clip its gradient",
        )
    if loaded.peft is None:
        return _model_weights(loaded, start, output)
    return _adapter_weights(loaded, start, output, new)


def _weights(folder: Path) -> dict[str, Tensor]:
    listing = folder / WEIGHTS_INDEX
    try:
        names = set(json.loads(listing.read_bytes())["weight_map"].values()) if listing.is_file() else set()
        adapter = (folder / ADAPTER_CONFIG).is_file()
        files = [folder / ADAPTER_WEIGHTS] if adapter else [folder / name for name in names or {"model.safetensors"}]
        if absent := [str(file) for file in files if file.parent != folder or not file.is_file()]:
            raise FileNotFoundError(f"no file of the folder is {_some(absent)}")
        return {name: tensor for file in files for name, tensor in load_file(file).items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError, SafetensorError) as error:
        raise _wrong(f"has no readable weights: {type(error).__name__}: {error}") from error


def _check_equal_shapes(old: Mapping[str, Tensor], new: Mapping[str, Tensor]) -> None:
    if missing := sorted(old.keys() - new.keys()):
        raise _wrong(f"lacks {_some(missing)}")
    # A tied tensor may be there under both of its names; transformers writes it once.
    more = {name: new[name] for name in new.keys() - old.keys()}
    if added := sorted(name for name, each in more.items() if not any(torch.equal(each, new[n]) for n in old)):
        raise _wrong(f"has weights that the model does not have: {_some(added)}")
    if other := [f"{n} {tuple(new[n].shape)}, not {tuple(old[n].shape)}" for n in old if new[n].shape != old[n].shape]:
        raise _wrong(f"has other shapes: {_some(other)}")


def _model_weights(loaded: LoadedModel, start: Path, output: Path) -> dict[str, Tensor]:
    for file in start.glob("*.safetensors*"):
        file.unlink()
    for file in output.glob("*.safetensors*"):
        shutil.move(file, start / file.name)
    # At full precision: rounding them to the model's is the optimizer's task.
    model = load_model(start, dtype="float32", device="cpu", max_seq_length=loaded.max_seq_length, verified=True)
    return {name: p.detach() for name, p in model.trainable_parameters().items()}


def _adapter_weights(loaded: LoadedModel, start: Path, output: Path, new: Mapping[str, Tensor]) -> dict[str, Tensor]:
    own, given = _read(start / ADAPTER_CONFIG), _read(output / ADAPTER_CONFIG)
    if other := [name for name in _ADAPTS if (own.get(name) or None) != (given.get(name) or None)]:
        seen = ", ".join(f"{name} {given.get(name)}, not {own.get(name)}" for name in other)
        raise _wrong(f"has another adapter: {seen}")
    bases = {str(own.get("base_model_name_or_path")), str(loaded.path), str(loaded.path.resolve())}
    if (base := str(given.get("base_model_name_or_path"))) not in bases:
        raise _wrong(f"has an adapter of the base model {base}, not of {loaded.path}")
    places = {p.data_ptr(): name for name, p in loaded.trainable_parameters().items()}
    named = get_peft_model_state_dict(loaded.peft, adapter_name=loaded.adapter, save_embedding_layers=False)
    return {places[tensor.data_ptr()]: new[key] for key, tensor in named.items()}


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise _wrong(f"has no readable {file.name}: {error}") from error
    return found if isinstance(found, dict) else {}


def _wrong(what: str) -> UpdateRejected:
    return UpdateRejected(f"the trainer program's output {what}", kind="program_failed", hint=_FORM)


def _some(names: list[str]) -> str:
    shown = ", ".join(excerpt(name, _NAME_CHARS) for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")

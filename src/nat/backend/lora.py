"""LoRA adapters: their settings, their place in a model, and several of them on one base model.

`Adapters` is for the model thread only, and at most one adapter is active at a time. Switching walks through all
layers, so the active one is remembered.
"""

import logging
import warnings
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import torch
from peft import LoraConfig, LoraModel, PeftModel, get_peft_model, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedModel

from nat.backend.checkpoint_folder import ADAPTER_WEIGHTS
from nat.backend.decoder_parts import decoder_linears, expert_weights
from nat.backend.model import LoadedModel
from nat.errors import BackendError, ModelNotSupported
from nat.wire.model_folder import hub_model

logger = logging.getLogger(__name__)

_DECODER_LINEARS = "all-linear"
"""peft's word, which would also adapt routers and towers for images."""
_NAMES_OF_EXPERTS = frozenset({"gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"})


@dataclass(frozen=True)
class LoraSettings:
    """A low-rank adapter on every linear layer of the decoder; of a mixture of experts, on those of its attention."""

    rank: int
    alpha: int = 32


def lora_config(lora: LoraSettings, base: Path) -> LoraConfig:
    """The settings as peft's config, with the commit of a base model of the Hub."""
    named = hub_model(base)
    return LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=_DECODER_LINEARS,
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
        revision=None if named is None else named.revision,
    )


def add_adapter(model: PreTrainedModel | PeftModel, config: LoraConfig, key: str, *, seed: int) -> PeftModel:
    """Add an adapter to `model`, initialised from `seed`; the base weights stop requiring gradients."""
    width: int = model.config.get_text_config().hidden_size
    if config.r > width:
        raise ModelNotSupported(
            f"a LoRA rank of {config.r} is more than this model's hidden size of {width}",
            hint=f"set a rank of at most {width}",
        )
    if config.target_modules == _DECODER_LINEARS:
        base = model.base_model.model if isinstance(model, PeftModel) else model
        assert isinstance(base, PreTrainedModel), "our adapters wrap models of transformers"
        config.target_modules = _targets(base)
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="fan_in_fan_out")  # GPT-2's Conv1D; peft corrects it by itself
        warnings.filterwarnings("ignore", category=FutureWarning)  # peft uses a deprecated name of transformers
        torch.manual_seed(seed)
        if isinstance(model, PeftModel):
            model.add_adapter(key, config)
            wrapped = model
        else:
            wrapped = get_peft_model(model, config, adapter_name=key)
    wrapped.train(mode=False)
    return wrapped


def _targets(model: PreTrainedModel) -> list[str]:
    """The layers to adapt: of a mixture of experts, those of its attention.

    For most of these, peft takes the names of shared experts for those of experts, which are no linear layers.
    """
    names = decoder_linears(model)
    if not (experts := expert_weights(model)):
        return names
    logger.info(
        "LoRA adapts the attention of %s; its routers and experts (%d weights) stay as they are",
        *(type(model).__name__, experts),
    )
    return [name for name in names if name.rpartition(".")[2] not in _NAMES_OF_EXPERTS]


@dataclass(frozen=True, eq=False)
class Adapter:
    """One adapter; `loaded` is the model with this adapter active."""

    loaded: LoadedModel
    settings: LoraSettings


class Adapters:
    """The adapters of one base model; with none active, it computes what the base computes."""

    def __init__(self, base: LoadedModel) -> None:
        self.base = base
        self._peft: PeftModel | None = None
        self._keys = (f"adapter_{number}" for number in count())
        self._active: Adapter | None = None

    def create(self, lora: LoraSettings, *, seed: int) -> Adapter:
        """Create an adapter that does not change the model's outputs yet."""
        return self._add(lora_config(lora, self.base.path), lora, seed)

    def load(self, folder: Path) -> Adapter:
        """Load an adapter in peft's format."""
        try:
            config = LoraConfig.from_pretrained(str(folder))
            weights = load_file(folder / ADAPTER_WEIGHTS)
        except (OSError, ValueError, SafetensorError) as error:
            raise BackendError(f"{folder} has no readable LoRA adapter: {error}") from error
        base, name = self.base.path.resolve(), str(self.base.model.name_or_path)
        trained_on = config.base_model_name_or_path or name
        if trained_on != name and Path(trained_on).resolve() != base:
            logger.warning("the adapter in %s was trained on %s and is now used on %s", folder, trained_on, base)
        config.base_model_name_or_path = None  # peft sets the base model that it is loaded on
        config.inference_mode = False  # peft saves true; these weights may be trained again
        adapter = self._add(config, LoraSettings(config.r, config.lora_alpha), seed=0)
        try:
            set_peft_model_state_dict(self._peft, weights, adapter_name=adapter.loaded.adapter)
        except RuntimeError as error:
            self.remove(adapter)
            raise BackendError(
                f"the adapter in {folder} does not fit {self.base.path}: {error}",
                hint="serve the base model that it was trained on, or choose another output folder",
            ) from error
        return adapter

    def remove(self, adapter: Adapter) -> None:
        """Free an adapter's memory; it cannot be used afterwards."""
        self.activate(None)
        assert self._peft is not None, "a model with adapters is wrapped"
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Adapter .* was active which is now deleted")  # none is
            self._peft.delete_adapter(adapter.loaded.adapter)
        self.base.linears.forget()  # the sampler keeps copies of its matrices

    def activate(self, adapter: Adapter | None) -> None:
        """Activate this adapter; None means the base alone."""
        if adapter is not self._active and self._peft is not None:
            self._switch(self._peft, adapter)

    def _add(self, config: LoraConfig, settings: LoraSettings, seed: int) -> Adapter:
        key = next(self._keys)
        self._peft = add_adapter(self._peft or self.base.model, config, key, seed=seed)
        adapter = Adapter(replace(self.base, peft=self._peft, adapter=key), settings)
        self._switch(self._peft, adapter)  # peft has activated the adapter that was active before
        return adapter

    def _switch(self, peft: PeftModel, adapter: Adapter | None) -> None:
        layers = peft.base_model
        assert isinstance(layers, LoraModel), "our adapters are LoRA"
        if adapter is None:
            layers.disable_adapter_layers()
        else:
            layers.enable_adapter_layers()
            peft.set_adapter(adapter.loaded.adapter)
        self._active = adapter

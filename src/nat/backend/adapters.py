"""Several LoRA adapters side by side on one base model, of which at most one computes at a time.

For the model thread only. Switching walks through all layers, so what is active is remembered.
"""

import logging
import warnings
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from peft import LoraConfig, LoraModel, PeftModel, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file

from nat.backend.checkpoint_folder import ADAPTER_WEIGHTS
from nat.backend.model import LoadedModel, LoraSettings, add_adapter, lora_config
from nat.errors import BackendError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Adapter:
    """One adapter; `loaded` is the model as it computes while this adapter is active."""

    loaded: LoadedModel
    settings: LoraSettings


class Adapters:
    """The adapters in one base model; with none active it computes what the base computes."""

    def __init__(self, base: LoadedModel) -> None:
        self.base = base
        self._peft: PeftModel | None = None
        self._keys = (f"adapter_{number}" for number in count())
        self._active: Adapter | None = None

    def create(self, lora: LoraSettings, *, seed: int) -> Adapter:
        """Make an adapter that changes nothing yet."""
        return self._add(lora_config(lora), lora, seed)

    def load(self, folder: Path) -> Adapter:
        """Take in an adapter that peft's format holds.

        Raises:
            BackendError: the folder holds none, or one for another base model.

        """
        try:
            config = LoraConfig.from_pretrained(str(folder))
            weights = load_file(folder / ADAPTER_WEIGHTS)
        except (OSError, ValueError, SafetensorError) as error:
            raise BackendError(f"{folder} holds no LoRA adapter that can be read: {error}") from error
        made_on, base = Path(config.base_model_name_or_path or self.base.path).resolve(), self.base.path.resolve()
        if made_on != base:
            logger.warning("the adapter in %s was made on %s and is now used on %s", folder, made_on, base)
        config.base_model_name_or_path = None  # peft fills in the base that it sits on
        config.inference_mode = False  # peft writes it as true; these weights may be trained again
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
        """Free an adapter's memory; it cannot be used any more."""
        self.activate(None)
        assert self._peft is not None, "an adapter sits in a wrapped model"
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Adapter .* was active which is now deleted")  # none is active
            self._peft.delete_adapter(adapter.loaded.adapter)

    def activate(self, adapter: Adapter | None) -> None:
        """Let this adapter compute, or with None the base alone."""
        if adapter is not self._active and self._peft is not None:
            self._switch(self._peft, adapter)

    def _add(self, config: LoraConfig, settings: LoraSettings, seed: int) -> Adapter:
        key = next(self._keys)
        self._peft = add_adapter(self._peft or self.base.model, config, key, seed=seed)
        adapter = Adapter(replace(self.base, peft=self._peft, adapter=key), settings)
        self._switch(self._peft, adapter)  # at once, because peft has just shown the new layers what was active before
        return adapter

    def _switch(self, peft: PeftModel, adapter: Adapter | None) -> None:
        layers = peft.base_model
        assert isinstance(layers, LoraModel), "adapters of ours are LoRA"
        if adapter is None:
            layers.disable_adapter_layers()
        else:
            layers.enable_adapter_layers()
            peft.set_adapter(adapter.loaded.adapter)
        self._active = adapter

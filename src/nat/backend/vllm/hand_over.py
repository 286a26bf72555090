"""How vLLM gets the learner's weights: a LoRA adapter under a new name, or all weights in place.

The learner writes the weights to a folder of their own, and vLLM reads them. vLLM knows cached keys and values by an
adapter's name and path, so neither is used twice; after a reload in place the cache is emptied.

All methods are called on the thread that owns the learner's model, while vLLM answers no request.
"""

import logging
import shutil
from itertools import count
from pathlib import Path
from secrets import token_hex

from nat.backend.export import write_adapter
from nat.backend.model import LoadedModel
from nat.backend.vllm.client import LOOK, Control, refused
from nat.backend.vllm.wire import Served
from nat.errors import EngineFailed
from nat.http.client import json_of

logger = logging.getLogger(__name__)

LOAD_ADAPTER, UNLOAD_ADAPTER = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
PAUSE, RESUME, RPC, RESET_CACHE = "/pause", "/resume", "/collective_rpc", "/reset_prefix_cache"
STAMP = "/update_weight_version"


class AdapterHandOver:
    """Loads each version of the adapter beside the one before, from a new folder and under a new name."""

    def __init__(self, control: Control, loaded: LoadedModel, base: str, folder: Path) -> None:
        self.model = base
        self._control = control
        self._loaded = loaded
        self._base = base
        self._folder = folder
        self._names = (f"{loaded.path.name}-{token_hex(4)}-{number}" for number in count(1))
        self._kept = base

    @property
    def served(self) -> Served:
        """The weights that were loaded last."""
        return Served(self.model)

    def load(self) -> None:
        """Load the learner's weights; `keep` or `undo` follows."""
        name = next(self._names)
        folder = self._folder / name
        folder.mkdir(parents=True)
        write_adapter(self._loaded, folder)
        response = self._control.post(LOAD_ADAPTER, {"lora_name": name, "lora_path": str(folder.resolve())})
        if not response.is_success:
            shutil.rmtree(folder)
            raise EngineFailed(
                f"vLLM did not load the adapter: {refused(response).message}",
                hint="start vLLM with --enable-lora and a --max-lora-rank of at least the adapter's, and let it read "
                f"{self._folder}",
            )
        self.model = name

    def keep(self) -> None:
        """Answer with these weights from now on."""
        before, self._kept = self._kept, self.model
        self._unload(before)

    def undo(self) -> None:
        """Answer with the weights before; the learner has them again."""
        failed, self.model = self.model, self._kept
        self._unload(failed)

    def reset(self) -> None:
        """Forget what was loaded, since vLLM has been started again."""
        self.model = self._kept = self._base

    def _unload(self, name: str) -> None:
        if name not in {self._base, self.model}:
            response = self._control.post(UNLOAD_ADAPTER, {"lora_name": name})
            if response.is_error:
                logger.warning("%s", refused(response).message)
            shutil.rmtree(self._folder / name, ignore_errors=True)


class WeightsHandOver:
    """Reloads all weights in place, from a folder, and has vLLM name them in its answers.

    Its methods are those of `AdapterHandOver`.
    """

    def __init__(self, control: Control, loaded: LoadedModel, base: str, folder: Path) -> None:
        self.served = Served(base)
        self._control = control
        self._loaded = loaded
        self._folder = folder
        self._numbers = count(1)
        self._begun = False
        """True if vLLM may have weights that nobody has kept."""

    def load(self) -> None:
        target = self._folder / f"weights-{next(self._numbers)}"
        target.mkdir(parents=True)
        stamp = token_hex(8)
        try:
            self._loaded.model.save_pretrained(target)  # as the model that vLLM started with
            self._begun = True
            self._call(PAUSE, mode="wait")
            self._call(RPC, {"method": "reload_weights", "kwargs": {"weights_path": str(target.resolve())}})
            if not self._call(RESET_CACHE).get("success"):
                raise _reload_failed("its prefix cache was not emptied")
            self._call(STAMP, {"new_version": stamp})
            self._call(RESUME)
            self.served = self.served._replace(stamp=stamp)
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def keep(self) -> None:
        """They are the only ones."""
        self._begun = False

    def undo(self) -> None:
        if self._begun:  # otherwise they could not even be written
            self.load()
            self.keep()

    def reset(self) -> None:
        """The next load replaces whatever there is."""

    def _call(self, path: str, body: object = None, **query: str) -> dict[str, object]:
        response = self._control.post(path, body, **query)
        if not response.is_success:
            raise _reload_failed(refused(response).message)
        content = json_of(response)
        return content if isinstance(content, dict) else {}


HandOver = AdapterHandOver | WeightsHandOver


def _reload_failed(reason: str) -> EngineFailed:
    return EngineFailed(
        f"vLLM did not take over the weights of the update: {reason}",
        hint=f"{LOOK}; a server of yours needs VLLM_SERVER_DEV_MODE=1 and must read the folder of the weights",
    )

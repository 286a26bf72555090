"""Write all weights for vLLM, with the output layer beside the embeddings where vLLM must not tie them.

On a CPU, vLLM 0.32 packs a copy of a tied output layer when it starts, and a reload does not reach it. So vLLM starts
from a folder in which the two are separate, and every reload brings both.
"""

import json
from pathlib import Path

from safetensors.torch import save_file

from nat.backend.model import LoadedModel
from nat.wire.model_folder import MODEL_CONFIG, WEIGHTS_INDEX

HEAD = "lm_head.weight"
_HEAD_FILE = "lm_head.safetensors"


def is_tied(loaded: LoadedModel) -> bool:
    """True if the output layer is the embedding table."""
    return bool(loaded.model.config.get_text_config().tie_word_embeddings)


def must_untie(loaded: LoadedModel) -> bool:
    """True if vLLM has to serve tied weights as separate ones, to take updates of all weights."""
    return loaded.peft is None and loaded.device.type == "cpu" and is_tied(loaded)


def write_weights(loaded: LoadedModel, folder: Path) -> None:
    """Write configuration and weights, untied where `must_untie` says so."""
    loaded.model.save_pretrained(folder)
    if not must_untie(loaded):
        return
    head = loaded.model.get_output_embeddings().weight  # type: ignore[no-untyped-call]  # no types in transformers
    save_file({HEAD: head.detach().clone().contiguous()}, folder / _HEAD_FILE)
    config = json.loads((folder / MODEL_CONFIG).read_text())
    (folder / MODEL_CONFIG).write_text(json.dumps({**config, "tie_word_embeddings": False}))
    if (folder / WEIGHTS_INDEX).exists():
        index = json.loads((folder / WEIGHTS_INDEX).read_text())
        index["weight_map"][HEAD] = _HEAD_FILE
        (folder / WEIGHTS_INDEX).write_text(json.dumps(index))

"""Convert a GGUF file into a folder that transformers loads: `python -m nat.backend.gguf_reading FILE FOLDER`.

transformers reads configuration, weights and tokenizer. It leaves out what it does not know without a word, so that is
found here and refused: a model that computes something else would be trained.
"""

import json
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
import transformers
from gguf import GGUFReader
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerFast
from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

from nat.backend.gguf_names import ROPE_FACTORS, SPLITS, llama3_positions, rope_factors
from nat.errors import ModelUnavailable, NatError, describe_error
from nat.files import replacing_folder

_ORIGINAL = "use the original model in Hugging Face's format, as a folder or by its name on the Hub"
_AGAIN = "download or copy the file again"
_PROBE = "a  12 3\n\n 45x don't 3.14,\t\n é  "


def convert(file: Path, target: Path) -> str:
    """Write the folder, whole or not at all; returns what was done to the weights."""
    try:
        gguf = _Metadata(file)
    except Exception as error:  # the library checks little of what it reads
        problem = f"{file} is no GGUF file, or is cut off: {describe_error(error)}"
        raise ModelUnavailable(problem, hint=_AGAIN) from error
    try:
        gguf.check()
        with tempfile.TemporaryDirectory() as place:
            alone = Path(place) / "model.gguf"  # transformers also reads what lies beside the file
            alone.symlink_to(file)
            config = _config(gguf, alone)
            weights = _weights(gguf, alone, config)
            tokenizer = _tokenizer(gguf, alone)
    except ModelUnavailable as error:
        raise ModelUnavailable(f"{file} {error.message}", hint=error.hint) from error
    except Exception as error:  # it checks little, too
        problem = f"{file} has the architecture '{gguf.architecture}'; transformers {transformers.__version__} cannot"
        raise ModelUnavailable(f"{problem} read it: {describe_error(error)}", hint=_ORIGINAL) from error
    config.dtype = exact_dtype(weights.values())
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call] # it has few types
    model.load_state_dict({name: weight.to(config.dtype) for name, weight in weights.items()}, assign=True)
    model.tie_weights()
    model.generation_config.eos_token_id = gguf.ends
    with replacing_folder(target) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        if AutoTokenizer.from_pretrained(folder)(_PROBE)["input_ids"] != tokenizer(_PROBE)["input_ids"]:
            raise ModelUnavailable(f"{file} has a tokenizer that transformers changes when it loads it", hint=_ORIGINAL)
    done = "read" if gguf.types <= {"F32", "F16", "BF16"} else "dequantized"
    return f"{done} from {' and '.join(sorted(gguf.types))} to {str(config.dtype).removeprefix('torch.')}"


class _Metadata:
    """What the file says about the model."""

    def __init__(self, file: Path) -> None:
        self._reader = GGUFReader(file)
        self.tensors = {each.name: each for each in self._reader.tensors}
        self.types = {each.tensor_type.name for each in self._reader.tensors if len(each.shape) > 1}
        self.architecture = str(self["general.architecture"])
        ends = (self[f"tokenizer.ggml.{name}_token_id"] for name in ("eos", "eot", "eom"))
        self.ends = sorted({int(each) for each in ends if each is not None})

    def __getitem__(self, key: str) -> Any:
        """A value; None if the file does not have it."""
        found = self._reader.get_field(key)
        return None if found is None else found.contents()

    def check(self) -> None:
        """Raise if something is missing, or would be left out."""
        if (count := self["split.count"] or 0) > 1:
            raise ModelUnavailable(
                f"is one of {count} parts of a model", hint="join them with `llama-gguf-split --merge`"
            )
        if (scaling := self[f"{self.architecture}.rope.scaling.type"]) not in (None, "none"):
            raise ModelUnavailable(
                f"scales its positions by '{scaling}', which transformers does not read", hint=_ORIGINAL
            )
        if self["tokenizer.ggml.tokens"] is None:
            raise ModelUnavailable("has no tokenizer", hint=_ORIGINAL)
        if self["tokenizer.chat_template"] is None:
            raise ModelUnavailable(
                "has no chat template (tokenizer.chat_template)", hint="use the instruct version of the model"
            )


def exact_dtype(weights: Collection[torch.Tensor]) -> torch.dtype:
    """The smallest type that holds every weight exactly."""
    for dtype in (torch.bfloat16, torch.float16):
        if all(torch.equal(weight.to(dtype).to(weight.dtype), weight) for weight in weights):
            return dtype
    return torch.float32


def _config(gguf: _Metadata, alone: Path) -> PreTrainedConfig:
    config: PreTrainedConfig = AutoConfig.from_pretrained(alone.parent, gguf_file=alone.name)
    size = gguf[f"{gguf.architecture}.attention.key_length"]
    if size is not None and gguf.architecture in {"llama", "qwen2", "qwen3"}:  # transformers leaves it out
        config.head_dim = int(size)
    if ROPE_FACTORS in gguf.tensors:
        wanted = torch.tensor(gguf.tensors[ROPE_FACTORS].data)
        for rope in llama3_positions(config.rope_parameters["rope_theta"]):
            config.rope_parameters = rope
            if wanted.shape == (found := rope_factors(config)).shape and torch.allclose(found, wanted, rtol=1e-4):
                break
        else:
            raise ModelUnavailable(
                f"scales its positions ({ROPE_FACTORS}) in a way that Llama 3 does not", hint=_ORIGINAL
            )
    config.bos_token_id, config.pad_token_id = (gguf[f"tokenizer.ggml.{name}_token_id"] for name in ("bos", "padding"))
    config.eos_token_id = gguf.ends or None
    return config


def _weights(gguf: _Metadata, alone: Path, config: PreTrainedConfig) -> dict[str, torch.Tensor]:
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        alone.parent, gguf_file=alone.name, config=config, dtype=torch.float32, output_loading_info=True
    )
    model, found = loaded
    if found["missing_keys"]:
        raise ModelUnavailable(f"lacks weights of the model: {', '.join(sorted(found['missing_keys']))}", hint=_AGAIN)
    processor: Any = TENSOR_PROCESSORS.get(gguf.architecture, TensorProcessor)
    known = get_gguf_hf_weights_map(model, processor(config=config.to_dict())).keys() | {ROPE_FACTORS}
    if unread := sorted(gguf.tensors.keys() - known):
        raise ModelUnavailable(f"has weights that transformers does not read: {', '.join(unread)}", hint=_ORIGINAL)
    return dict(model.state_dict())


def _tokenizer(gguf: _Metadata, alone: Path) -> PreTrainedTokenizerFast:
    found = AutoTokenizer.from_pretrained(alone.parent, gguf_file=alone.name)
    core = found.backend_tokenizer
    if gguf["tokenizer.ggml.model"] == "gpt2":
        if (split := gguf["tokenizer.ggml.pre"]) not in SPLITS:
            known = ", ".join(sorted(SPLITS))
            raise ModelUnavailable(
                f"splits text by the rules '{split}' (tokenizer.ggml.pre); known are {known}", hint=_ORIGINAL
            )
        core = Tokenizer.from_str(json.dumps({**json.loads(core.to_str()), "pre_tokenizer": SPLITS[split]}))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **found.special_tokens_map)  # type: ignore[no-untyped-call] # likewise
    tokenizer.chat_template = found.chat_template
    return tokenizer


def main(arguments: list[str]) -> int:
    """Convert; print what was done, or the error, and return the exit code."""
    file, target = map(Path, arguments)
    try:
        print(convert(file, target), end="")  # noqa: T201 - read by the process that asked for it
    except NatError as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201 - the last word of a command line
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

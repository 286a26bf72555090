"""Write a model's folder as one GGUF file, for llama.cpp, Ollama and LM Studio.

Few architectures, whose every weight and setting has a counterpart; llama.cpp's own converter knows many more. The
weights keep their type, vectors are float32, as llama.cpp wants them.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import gguf
import torch
from safetensors import safe_open
from transformers import AutoConfig, AutoTokenizer, GenerationConfig, PreTrainedConfig

from nat.backend.gguf_names import ROPE_FACTORS, SCALED_ROPE, name_of_split, rope_factors
from nat.errors import ExportRefused
from nat.files import UNFINISHED

_ARCHITECTURES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2, "qwen3": gguf.MODEL_ARCH.QWEN3}
_TYPES = {
    torch.float32: gguf.GGMLQuantizationType.F32,
    torch.float16: gguf.GGMLQuantizationType.F16,
    torch.bfloat16: gguf.GGMLQuantizationType.BF16,
}
_OTHER_CONVERTER = "export with `--format hf`, and use convert_hf_to_gguf.py of llama.cpp on that folder"


def write_gguf(folder: Path, target: Path) -> None:
    """Write the file, whole or not at all."""
    config = AutoConfig.from_pretrained(folder)
    _check(config)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=UNFINISHED) as place:
        draft = Path(place) / target.name
        writer = gguf.GGUFWriter(draft, gguf.MODEL_ARCH_NAMES[_ARCHITECTURES[config.model_type]])
        _add_settings(writer, config, target.stem)
        _add_tokenizer(writer, folder, config.vocab_size)
        _add_weights(writer, folder, config)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        draft.chmod(0o600)
        draft.rename(target)


def _check(config: PreTrainedConfig) -> None:
    kind = config.model_type
    if kind not in _ARCHITECTURES:
        raise ExportRefused(f"GGUF is written for {', '.join(_ARCHITECTURES)}, not for {kind}", hint=_OTHER_CONVERTER)
    rope = config.rope_parameters["rope_type"]
    found = [name for name in ("attention_bias", "mlp_bias", "use_sliding_window") if getattr(config, name, False)]
    if rope != "default" and (kind, rope) != ("llama", SCALED_ROPE):
        found.append(f"rope_type {rope}")
    if found:
        raise ExportRefused(f"this {kind} model has {', '.join(found)}, which is not written", hint=_OTHER_CONVERTER)


def _add_settings(writer: gguf.GGUFWriter, config: PreTrainedConfig, name: str) -> None:
    head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_name(name)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(head_size)
    writer.add_value_length(head_size)
    writer.add_rope_dimension_count(head_size)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)


def _add_tokenizer(writer: gguf.GGUFWriter, folder: Path, size: int) -> None:
    """All ids of the model's vocabulary; those that the tokenizer has beyond it cannot be in a prompt."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    core = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    split = name_of_split(tokenizer.backend_tokenizer)
    if core["type"] != "BPE" or split is None:
        raise ExportRefused("its tokenizer splits text in a way that is not written", hint=_OTHER_CONVERTER)
    names = {index: token for token, index in tokenizer.get_vocab().items()}
    added = tokenizer.added_tokens_decoder
    tokens, kinds = [], []
    for index in range(size):
        tokens.append(names.get(index, f"[PAD{index}]"))
        if index not in names:
            kinds.append(gguf.TokenType.UNUSED)
        elif index not in added:
            kinds.append(gguf.TokenType.NORMAL)
        else:
            kinds.append(gguf.TokenType.CONTROL if added[index].special else gguf.TokenType.USER_DEFINED)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in core["merges"]])
    begin, ends = tokenizer.bos_token_id, GenerationConfig.from_pretrained(folder).eos_token_id
    ends = dict.fromkeys([tokenizer.eos_token_id, *(ends if isinstance(ends, list) else [ends])])
    ids = [
        (writer.add_bos_token_id, begin),
        (writer.add_unk_token_id, tokenizer.unk_token_id),
        (writer.add_pad_token_id, tokenizer.pad_token_id),
        *zip((writer.add_eos_token_id, writer.add_eot_token_id, writer.add_eom_token_id), ends, strict=False),
    ]
    for add, index in ids:
        if index is not None and index < size:
            add(index)
    writer.add_add_bos_token(begin is not None and tokenizer("a")["input_ids"][0] == begin)
    if tokenizer.chat_template is not None:
        writer.add_chat_template(tokenizer.chat_template)


def _add_weights(writer: gguf.GGUFWriter, folder: Path, config: PreTrainedConfig) -> None:
    names = gguf.get_tensor_name_map(_ARCHITECTURES[config.model_type], config.num_hidden_layers)
    for name, stored in _stored(folder):
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if (translated := names.get_name(name, try_suffixes=(".weight", ".bias"))) is None:
            raise ExportRefused(f"GGUF has no name for the weights {name}", hint=_OTHER_CONVERTER)
        if stored.dim() == 1:
            writer.add_tensor(translated, stored.float().numpy())
            continue
        weight = _reordered(name, stored, config) if config.model_type == "llama" else stored
        values = weight.contiguous().view(torch.uint8) if weight.dtype == torch.bfloat16 else weight.contiguous()
        writer.add_tensor(translated, values.numpy(), raw_dtype=_TYPES[weight.dtype])
    if config.rope_parameters["rope_type"] == SCALED_ROPE:
        writer.add_tensor(ROPE_FACTORS, rope_factors(config).numpy())


def _stored(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - not a dictionary
                yield name, file.get_tensor(name)


def _reordered(name: str, weight: torch.Tensor, config: PreTrainedConfig) -> torch.Tensor:
    """Llama's queries and keys: llama.cpp rotates neighbours, transformers the halves of a head."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return weight
    heads = config.num_attention_heads if name.endswith("q_proj.weight") else config.num_key_value_heads
    return weight.reshape(heads, 2, -1, weight.shape[-1]).transpose(1, 2).reshape(weight.shape)

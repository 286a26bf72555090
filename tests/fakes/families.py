"""Tiny models of many families: transformers' own classes with random weights.

A shape that fits most of them, and what each family calls otherwise.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from fakes.tiny_model import EOS, tiny_tokenizer

WINDOW = 6
_SHAPE = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
_EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "n_group": 1,
    "topk_group": 1,
    "decoder_sparse_step": 1,
}
_LATENT = {
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "head_dim": 4,
    "num_key_value_heads": 4,
}
_WINDOWED = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
_SHARING = {
    "num_hidden_layers": 4,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 300,
}
_LINEAR = {
    "linear_num_value_heads": 2,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
}
_GPT = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64, "n_inner": 32}
_UNDROPPED = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
_WHOLE_HEADS = {"head_dim": 4}

FAMILIES: dict[str, dict[str, Any]] = {
    "afmoe": {**_EXPERTS, "num_dense_layers": 1, "num_shared_experts": 1, **_WINDOWED},
    "apertus": {},
    "arcee": {},
    "bamba": {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_expand": 2, "attn_layer_indices": [1]},
    "bitnet": _WHOLE_HEADS,
    "bloom": {"n_layer": 2, "n_head": 4, "hidden_size": 16},
    "codegen": {**_GPT, **_UNDROPPED, "rotary_dim": 4, "n_head": 4},
    "cohere": {},
    "cohere2": _WINDOWED,
    "cohere2_moe": {**_EXPERTS, **_WINDOWED},
    "deepseek_v2": {**_EXPERTS, **_LATENT, "first_k_dense_replace": 1, "n_shared_experts": 1},
    "deepseek_v3": {**_EXPERTS, **_LATENT, "first_k_dense_replace": 1, "n_shared_experts": 1},
    "deepseek_v32": {**_EXPERTS, **_LATENT, "first_k_dense_replace": 1, "n_shared_experts": 1},
    "diffllama": {},
    "doge": {},
    "dots1": {**_EXPERTS, "first_k_dense_replace": 1, "n_shared_experts": 1},
    "ernie4_5": {},
    "ernie4_5_moe": {
        **_EXPERTS,
        "moe_num_experts": 4,
        "moe_k": 2,
        "moe_layer_start_index": 1,
        "moe_num_shared_experts": 1,
    },
    "exaone4": _WINDOWED,
    "exaone_moe": {**_EXPERTS, **_WINDOWED},
    "falcon": {"head_dim": None, "ffn_hidden_size": 32, "num_kv_heads": 2, "new_decoder_architecture": True},
    "falcon_h1": {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_ssm": 32, "mamba_d_state": 8},
    "falcon_mamba": {"state_size": 8},
    "flex_olmo": _EXPERTS,
    "gemma": {},
    "gemma2": _WINDOWED,
    "gemma3": {},
    "gemma3_text": _WINDOWED,
    "gemma3n_text": {
        **_SHARING,
        "laurel_rank": 4,
        "intermediate_size": [32] * 4,
        "activation_sparsity_pattern": [0.0] * 4,
    },
    "gemma4": {},
    "gemma4_text": {**_SHARING, "global_head_dim": 16},
    "glm": {},
    "glm4": {},
    "glm4_moe": {**_EXPERTS, "first_k_dense_replace": 1, "n_shared_experts": 1},
    "glm4_moe_lite": {**_EXPERTS, **_LATENT, "n_shared_experts": 1},
    "gpt2": {**_GPT, **_UNDROPPED},
    "gpt_bigcode": {**_GPT, **_UNDROPPED},
    "gpt_neo": {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": WINDOW},
    "gpt_neox": {},
    "gpt_oss": {**_EXPERTS, **_WINDOWED},
    "gptj": {**_GPT, **_UNDROPPED, "rotary_dim": 4},
    "granite": {},
    "granite_swa": {},
    "granitemoe": _EXPERTS,
    "granitemoehybrid": {
        **_EXPERTS,
        "layer_types": ["mamba", "attention"],
        "mamba_n_heads": 4,
        "mamba_d_head": 8,
        "mamba_d_state": 8,
    },
    "granitemoeshared": {**_EXPERTS, "shared_intermediate_size": 16},
    "helium": _WHOLE_HEADS,
    "hunyuan_v1_dense": {},
    "hunyuan_v1_moe": {**_EXPERTS, "moe_topk": [2, 2]},
    "jamba": {
        **_EXPERTS,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
        "use_mamba_kernels": False,
    },
    "jetmoe": {**_EXPERTS, "kv_channels": 8},
    "kimi_linear": {
        **_EXPERTS,
        **_LATENT,
        "linear_head_dim": 8,
        "linear_num_heads": 2,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "lfm2_moe": {**_EXPERTS, "layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "llama": {},
    "llama4_text": {**_EXPERTS, "intermediate_size_mlp": 32},
    "mamba": {"state_size": 8},
    "mamba2": {"num_heads": 4, "head_dim": 8, "state_size": 8, "n_groups": 1, "expand": 2},
    "mimo_v2_flash": _EXPERTS,
    "minimax": {**_EXPERTS, "layer_types": ["linear_attention", "full_attention"]},
    "minimax_m2": {**_EXPERTS, "rotary_dim": 4},
    "ministral": _WINDOWED,
    "ministral3": {},
    "mistral": {"sliding_window": WINDOW},
    "mixtral": {**_EXPERTS, "sliding_window": WINDOW},
    "mpt": {"d_model": 16, "n_heads": 4, "n_layers": 2, "max_seq_len": 64},
    "nanochat": {},
    "nemotron": {},
    "nemotron_h": {
        "layers_block_type": ["mamba", "attention"],
        "mamba_num_heads": 4,
        "mamba_head_dim": 8,
        "ssm_state_size": 8,
        "n_groups": 1,
    },
    "olmo": {},
    "olmo2": {},
    "olmo3": _WINDOWED,
    "olmo_hybrid": {},
    "olmoe": {**_EXPERTS, **_WHOLE_HEADS},
    "opt": {"ffn_dim": 32, "word_embed_proj_dim": 16, "dropout": 0.0},
    "persimmon": {"head_dim": 4, "num_key_value_heads": 4},
    "phi": {},
    "phi3": {"pad_token_id": 0, "sliding_window": WINDOW},
    "phimoe": {**_EXPERTS, "sliding_window": None},
    "qwen2": {"use_sliding_window": True, "max_window_layers": 1, "sliding_window": WINDOW},
    "qwen2_moe": {**_EXPERTS, "shared_expert_intermediate_size": 16},
    "qwen3": {},
    "qwen3_5_text": _LINEAR,
    "qwen3_5_moe_text": {**_EXPERTS, **_LINEAR, "shared_expert_intermediate_size": 16},
    "qwen3_moe": _EXPERTS,
    "qwen3_next": {**_EXPERTS, **_LINEAR, "shared_expert_intermediate_size": 16},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"], "attention_window_size": 64},
    "seed_oss": {},
    "smollm3": {"no_rope_layers": [1, 0]},
    "solar_open": {**_EXPERTS, "n_shared_experts": 1},
    "stablelm": {},
    "starcoder2": {"sliding_window": WINDOW},
    "vaultgemma": _WINDOWED,
    "xglm": {"d_model": 16, "ffn_dim": 32, "attention_heads": 4, "num_layers": 2, "dropout": 0.0},
}


_WRAPPED = {"gemma3": "gemma3_text", "gemma4": "gemma4_text"}
"""Classes with a tower for images around the text model of a family."""
_TOWER = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def _config(family: str, changes: dict[str, Any]) -> PreTrainedConfig:
    size = len(tiny_tokenizer())
    if family not in _WRAPPED:
        shape = {**_SHAPE, **FAMILIES[family], **changes}
        given = {key: value for key, value in shape.items() if value is not None}
        return AutoConfig.for_model(family, vocab_size=size, **given)
    tower = {**_TOWER, "num_key_value_heads": 2, "head_dim": 8, "image_size": 28, "patch_size": 14}
    text = {**_SHAPE, **FAMILIES[_WRAPPED[family]], **changes, "vocab_size": size}
    return AutoConfig.for_model(family, text_config=text, vision_config=tower, mm_tokens_per_image=4)


def tiny_family(family: str, *, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """A small model of transformers' class for `family` with random weights; None takes a value out of its shape."""
    config = _config(family, changes)
    for each in (config, config.get_text_config()):
        each.bos_token_id = None
        each.pad_token_id = 0 if family == "gemma4" else None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=1 / parameter.shape[-1] ** 0.5)
    return model


def make_tiny_family(path: Path, family: str, **changes: Any) -> Path:
    """Write such a model and a tokenizer to `path`."""
    tokenizer = tiny_tokenizer()
    model = tiny_family(family, **changes)
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(EOS)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


_OTHER_STATE = "layers of kind linear_attention"
_OWN_ATTENTION = "does not let its attention be replaced"
_SINKS = "'s_aux' (attention sinks)"
_SOFT_CAP = "'softcap' (a cap on attention scores)"
_NO_ARGUMENTS = "its attention gets no packed batch"
PLAIN = {
    "bamba": _OTHER_STATE,
    "bloom": _OWN_ATTENTION,
    "codegen": _OWN_ATTENTION,
    "deepseek_v32": "layers of kind indexed_attention",
    "diffllama": "other log probabilities in the sampler",
    "doge": _NO_ARGUMENTS,
    "falcon": _OWN_ATTENTION,
    "falcon_h1": "layers of kind hybrid",
    "falcon_mamba": _OTHER_STATE,
    "gemma2": _SOFT_CAP,
    "gpt_neo": _OWN_ATTENTION,
    "gpt_oss": _SINKS,
    "gptj": _OWN_ATTENTION,
    "granite_swa": _SINKS,
    "granitemoehybrid": _OTHER_STATE,
    "jamba": _OTHER_STATE,
    "kimi_linear": _OTHER_STATE,
    "lfm2": "layers of kind conv",
    "lfm2_moe": "layers of kind conv",
    "llama4_text": "layers of kind chunked_attention",
    "mamba": _OTHER_STATE,
    "mamba2": _OTHER_STATE,
    "mimo_v2_flash": _SINKS,
    "minimax": _OTHER_STATE,
    "mpt": _OWN_ATTENTION,
    "nemotron": _NO_ARGUMENTS,
    "nemotron_h": _OTHER_STATE,
    "olmo_hybrid": _OTHER_STATE,
    "qwen3_5_moe_text": _OTHER_STATE,
    "qwen3_5_text": _OTHER_STATE,
    "qwen3_next": _OTHER_STATE,
    "recurrent_gemma": _OTHER_STATE,
    "stablelm": _NO_ARGUMENTS,
    "vaultgemma": _SOFT_CAP,
    "xglm": _OWN_ATTENTION,
}
"""Families that take the plain path, and what the warning says of the reason."""
KNOWN = [family for family in FAMILIES if family in CONFIG_MAPPING]
"""Families that the installed transformers has."""

"""GGUF files become folders of safetensors; what would be read wrongly is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize
from transformers import AutoModelForCausalLM, AutoTokenizer

from fakes.gguf_files import make_gguf, rewritten
from nat.backend.gguf_names import SPLITS, name_of_split
from nat.backend.gguf_reading import convert, main
from nat.errors import ModelUnavailable


@pytest.fixture(scope="module")
def gguf(tmp_path_factory) -> Path:
    return make_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def test_quantized_weights_become_floats(tmp_path, gguf):
    """They are the values that llama.cpp computes with, in float32."""
    kind = GGMLQuantizationType.Q8_0
    file = rewritten(gguf, tmp_path / "small.gguf", quantized=kind)
    assert convert(file, tmp_path / "back") == "dequantized from Q8_0 to float32"
    stored = {each.name: each for each in GGUFReader(file).tensors}["token_embd.weight"]
    found = AutoModelForCausalLM.from_pretrained(tmp_path / "back").get_input_embeddings().weight
    np.testing.assert_array_equal(found.detach().numpy(), dequantize(stored.data, kind))


@pytest.mark.parametrize("name", sorted(set(SPLITS) - {"gpt-2"}))
def test_text_is_split_as_the_file_says(tmp_path, gguf, name):
    """Of these names transformers knows a part; all others it splits as GPT-2 does."""
    file = rewritten(gguf, tmp_path / "named.gguf", values={"tokenizer.ggml.pre": name})
    convert(file, tmp_path / "back")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "back")
    assert name_of_split(tokenizer.backend_tokenizer) in {"smollm", "llama-bpe", "qwen2"}
    assert json.loads(tokenizer.backend_tokenizer.to_str())["pre_tokenizer"]["type"] == "Sequence"


ROPE, BIAS = np.ones(4, dtype=np.float32), np.ones(32, dtype=np.float32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"values": {"general.architecture": "unheard-of"}},
            "has the architecture 'unheard-of'; transformers .* cannot read it",
        ),
        ({"without": ["tokenizer.chat_template"]}, "has no chat template"),
        ({"without": ["tokenizer.ggml.tokens"]}, "has no tokenizer"),
        ({"values": {"tokenizer.ggml.pre": "default"}}, r"splits text by the rules 'default'.*gpt-2.*smollm"),
        ({"values": {"llama.rope.scaling.type": "yarn"}}, "scales its positions by 'yarn'"),
        ({"more": {"rope_freqs.weight": ROPE}}, "in a way that Llama 3 does not"),
        (
            {"more": {"blk.0.attn_q.bias": BIAS}},
            "weights that transformers does not read: blk.0.attn_q.bias",
        ),
        ({"without": ["blk.1.ffn_up.weight"]}, "lacks weights of the model: model.layers.1.mlp.up_proj.weight"),
        ({"values": {"split.count": 3}}, "is one of 3 parts of a model"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_would_be_read_wrongly_is_refused(tmp_path, gguf, changes, message, capsys):
    """The error names the file and what is in it; nothing is written."""
    file = rewritten(gguf, tmp_path / "other.gguf", **changes)
    with pytest.raises(ModelUnavailable, match=message) as raised:
        convert(file, tmp_path / "back")
    assert str(file) in raised.value.message
    assert raised.value.hint
    assert not (tmp_path / "back").exists()
    assert main([str(file), str(tmp_path / "back")]) == 1
    assert capsys.readouterr().err.endswith(f"Error: {raised.value}\n")

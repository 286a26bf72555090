"""GGUF files of tiny models, and copies of them that are changed as the files of other people are."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import quantize

from fakes.tiny_model import make_tiny_model
from nat.backend.gguf_writing import write_gguf


def make_gguf(path: Path, kind: str = "llama") -> Path:
    """A model of random weights in float32; its folder lies beside it."""
    write_gguf(make_tiny_model(path.with_suffix(".folder"), kind), path)
    return path


def rewritten(
    source: Path,
    target: Path,
    *,
    values: Mapping[str, Any] = {},
    without: Collection[str] = (),
    more: Mapping[str, np.ndarray] = {},
    quantized: GGMLQuantizationType | None = None,
) -> Path:
    """A copy with other values, without keys and tensors, with more tensors, or with quantized matrices."""
    reader = GGUFReader(source)
    architecture = values.get("general.architecture", reader.get_field("general.architecture").contents())
    writer = GGUFWriter(target, architecture)
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture" or key in {*values, *without}:
            continue
        of_items = field.types[-1] if field.types[0] is GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), field.types[0], of_items)
    for key, value in values.items():
        if key != "general.architecture":
            writer.add_key_value(key, value, GGUFValueType.get_type(value))
    for tensor in reader.tensors:
        if tensor.name in without:
            continue
        if quantized is not None and len(tensor.shape) > 1:
            writer.add_tensor(tensor.name, quantize(tensor.data, quantized), raw_dtype=quantized)
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    for name, tensor in more.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target

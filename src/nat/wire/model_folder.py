"""What makes a folder a model: a whole Hugging Face checkpoint, or a LoRA adapter that names the model it sits on."""

from pathlib import Path

MODEL_CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"


def is_model(folder: Path) -> bool:
    """Whether the folder can be loaded as a model, its weights aside."""
    return (folder / MODEL_CONFIG).is_file() or is_adapter(folder)


def is_adapter(folder: Path) -> bool:
    """Whether the folder holds an adapter and no model of its own."""
    return (folder / ADAPTER_CONFIG).is_file() and not (folder / MODEL_CONFIG).is_file()

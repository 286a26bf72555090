"""Start the Tinker server of SkyRL 0.4.0 with its JAX backend, without uv and without torch, under Python 3.12.

    python skyrl_server.py api --base-model FOLDER --backend jax --host 127.0.0.1 --port 8011 …

SkyRL starts its engine by `uv run`; here it is this file again, with `engine` as its first argument. Its JAX backend
imports torch and peft, but uses only the names that stand in for them here.
"""

import argparse
import importlib.machinery
import json
import os
import sys
import types
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")


class LoraConfig:
    """Peft's, as far as SkyRL writes it beside weights."""

    def __init__(self, **given):
        self.given = given

    def save_pretrained(self, folder):
        known = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "bias": "none"}
        Path(folder, "adapter_config.json").write_text(json.dumps(known | self.given))


def stand_in(name, **members):
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    vars(module).update(members)
    sys.modules[name] = module


def main():
    role = sys.argv.pop(1)
    import transformers  # decides for itself, before the stand-ins, that torch is absent

    assert transformers.AutoConfig
    assert transformers.AutoTokenizer
    stand_in("torch", Tensor=type("Tensor", (), {}))
    stand_in("peft", LoraConfig=LoraConfig)
    if role == "engine":
        from skyrl.tinker import engine

        engine.main()
        return
    import uvicorn
    from skyrl.tinker import api
    from skyrl.tinker.config import EngineConfig, add_model, config_to_argv

    api._build_uv_run_cmd_engine = lambda _, config: [
        *(sys.executable, str(Path(__file__).resolve()), "engine"),
        *config_to_argv(config),
    ]
    parser = argparse.ArgumentParser()
    add_model(parser, EngineConfig)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    known = {name: value for name, value in vars(given).items() if name in EngineConfig.model_fields}
    api.app.state.engine_config = EngineConfig.model_validate(known)
    uvicorn.run(api.app, host=given.host, port=given.port, timeout_keep_alive=75)


if __name__ == "__main__":
    main()

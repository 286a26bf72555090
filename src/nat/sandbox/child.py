"""The child process: answers requests on its stdin, a socket, until that is closed or memory runs out.

Started as `python -P -m nat.sandbox.child MEMORY_BYTES`. It imports no torch and takes 30 MB. The kernel ends it at the
limit of processor time, whatever it computes, so it ends without its parent as well.
"""

import os
import re
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nat.errors import describe_error
from nat.sandbox.frames import OUT_OF_MEMORY, frame, receive
from nat.sandbox.template import render
from nat.sandbox.tokens import check_tokenizer, encode, open_tokenizer, pieces

_LONGEST_ERROR = 4000
_PEFT_FORMS = ("{}", r"(.*\.)?({})$", r"(^|.*\.){}($|\..*)", r"(?:^|.*?\.){}\.(?P<idx>\d+)\.")
"""How peft matches target modules, keys of ranks, modules to save, and layers."""


class Tasks:
    """What the child does, by name; an opened tokenizer stays."""

    def __init__(self) -> None:
        self._tokenizer: Any = None

    def render(self, template: str, variables: dict[str, Any], now: str | None = None) -> str:
        return render(template, variables, now)

    def open(self, tokenizer: str, *, split_special: bool) -> None:
        self._tokenizer = open_tokenizer(tokenizer, split_special=split_special)

    def encode(self, text: str, *, special: bool) -> list[int]:
        return encode(self._tokenizer, text, special=special)

    def decode(self, ids: list[int]) -> str:
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def pieces(self, ids: list[int]) -> list[str | None]:
        return pieces(self._tokenizer, ids)

    def check_tokenizer(self, folder: str) -> str | None:
        return check_tokenizer(Path(folder))

    def match(self, patterns: Sequence[str], names: Sequence[str]) -> None:
        """Match patterns of an adapter as peft does, to see that they end; those that are none are left to peft."""
        for form in (form.format(pattern) for pattern in patterns for form in _PEFT_FORMS):
            try:
                compiled = re.compile(form)
            except re.error:
                continue
            for name in names:
                compiled.match(name)
                compiled.fullmatch(name)


def main() -> None:
    """Limit this process, then answer."""
    memory = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # macOS counts what is reserved, not what is used
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # a crash in Rust prints what it worked on
    tasks = Tasks()
    with socket.socket(fileno=sys.stdin.fileno()) as link:
        while (request := receive(link)) is not None:
            signal.setitimer(signal.ITIMER_PROF, request["seconds"])  # its signal ends the process
            try:
                link.sendall(frame({"result": getattr(tasks, request["task"])(**request["arguments"])}))
            except MemoryError:
                os._exit(OUT_OF_MEMORY)
            except BaseException as error:  # noqa: BLE001 - panics of Rust, too; it belongs to the caller
                link.sendall(frame({"raised": describe_error(error)[:_LONGEST_ERROR]}))
            signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    main()

"""The engines behind the names that requests ask for: one engine per set of weights."""

from collections.abc import Sequence
from typing import Protocol

from nat.backend.inference.engine import Engine


class Pool(Protocol):
    """Finds the engine of a name; the model thread calls what gives engines, anyone may call the rest."""

    def names(self) -> list[str]:
        """All names that are answered; the first means the weights with which the backend started."""
        ...

    def knows(self, name: str) -> bool:
        """True if a request may ask for this name."""
        ...

    def engine(self, name: str) -> Engine:
        """The engine of the weights that a name means now; may load them.

        Raises:
            ModelNotServed: no weights answer to it.

        """
        ...

    def engines(self) -> Sequence[Engine]:
        """All engines that hold requests or may get one."""
        ...


class SinglePool:
    """One set of weights, which answers to every name."""

    def __init__(self, engine: Engine) -> None:
        self._engines = (engine,)

    def names(self) -> list[str]:
        """The model's plain name, which always means the newest weights, and `name@step`."""
        version = self._engines[0].policy_version
        return [version.rpartition("@")[0], version]

    def knows(self, name: str) -> bool:
        return name in self.names()

    def engine(self, name: str) -> Engine:
        """The sole one, even for `name@step` of a step that was over while the request waited."""
        del name
        return self._engines[0]

    def engines(self) -> Sequence[Engine]:
        return self._engines

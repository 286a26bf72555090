"""Named things: one generic registry, from which all kinds of components are made."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from nat.errors import RegistryError
from nat.registry.suggest import did_you_mean, one_of

T = TypeVar("T")


class Registry(Generic[T]):
    """Entries by full name, `package/name`; the short name finds an entry as long as only one package uses it."""

    def __init__(self, noun: str, *, explain: Callable[[], str] = str) -> None:
        """`noun` says in messages what is registered; `explain` adds to the message for an unknown name."""
        self.noun = noun
        self._explain = explain
        self._entries: dict[str, T] = {}

    def add(self, name: str, entry: T) -> None:
        """Register `entry`; a name that is taken raises RegistryError."""
        if name in self._entries:
            raise RegistryError(
                f"the {self.noun} '{name}' is already registered",
                hint="give one of the two another name=, or uninstall one of the two packages",
            )
        self._entries[name] = entry

    def get(self, name: str) -> T:
        """The entry of a full or short name; unknown or ambiguous raises RegistryError."""
        if name in self._entries:
            return self._entries[name]
        candidates = [full for full in self._entries if short_name(full) == name]
        if len(candidates) == 1:
            return self._entries[candidates[0]]
        if candidates:
            raise RegistryError(
                f"'{name}' is the {self.noun} of several packages", hint=f"write one of: {one_of(candidates)}"
            )
        raise RegistryError(
            f"'{name}' is not registered as {self.noun}.{did_you_mean(name, self.names())}"
            f" Registered: {one_of(self.names())}.{self._explain()}"
        )

    def names(self) -> list[str]:
        """What a YAML may write: the short name where it is unique, the full name otherwise."""
        shorts = [short_name(full) for full in self._entries]
        return sorted(s if shorts.count(s) == 1 else full for s, full in zip(shorts, self._entries, strict=True))

    def copy(self) -> "Registry[T]":
        """A registry with the same entries, which can grow on its own."""
        twin = Registry[T](self.noun, explain=self._explain)
        twin._entries = dict(self._entries)
        return twin

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[T]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)


def short_name(full: str) -> str:
    """`package/name` without its package."""
    return full.rpartition("/")[2]

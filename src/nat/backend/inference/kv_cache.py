"""Keys and values of the running sequences: one slot each, in slots 0 to B-1, so that decoding reads a view.

The tensors grow in slots and in length as needed. Shapes: S slots, G key/value heads, L positions, D head size.
"""

from collections.abc import Iterable

from torch import Tensor

_LENGTH_STEP = 64


class SlotCache:
    """Keys and values of all slots; each layer is allocated when the model first passes its keys and values."""

    def __init__(self, max_slots: int | None = None) -> None:
        """Grows to `max_slots` and no further; None: as far as asked."""
        self._max_slots = max_slots
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}
        self._slots = 0
        self._length = 0

    @property
    def num_bytes(self) -> int:
        return sum(t.numel() * t.element_size() for pair in self._layers.values() for t in pair)

    def reserve(self, slots: int, length: int) -> None:
        """Grow before a step if needed, by half at least; stored keys and values are kept."""
        if slots <= self._slots and length <= self._length:
            return
        if slots > self._slots:
            half_more = self._slots + self._slots // 2
            self._slots = max(slots, half_more if self._max_slots is None else min(half_more, self._max_slots))
        if length > self._length:
            wanted = max(length, self._length + self._length // 2)
            self._length = -(-wanted // _LENGTH_STEP) * _LENGTH_STEP
        for layer, (keys, values) in self._layers.items():
            self._layers[layer] = (self._grown(keys), self._grown(values))

    def layer(self, layer: int, key_GTD: Tensor, value_GTD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [S, G, L, D] of one layer, shaped like the given new ones."""
        if layer not in self._layers:
            self._layers[layer] = (self._zeros(key_GTD), self._zeros(value_GTD))
        return self._layers[layer]

    def layers(self) -> Iterable[tuple[int, tuple[Tensor, Tensor]]]:
        """Keys and values [S, G, L, D] of each allocated layer."""
        return self._layers.items()

    def part(self, slot: int, start: int, end: int) -> dict[int, tuple[Tensor, Tensor]]:
        """Copy keys and values [G, N, D] of some positions of a slot, by layer."""
        return {
            layer: (keys[slot, :, start:end].clone(), values[slot, :, start:end].clone())
            for layer, (keys, values) in self._layers.items()
        }

    def move(self, source: int, target: int, length: int) -> None:
        """Copy a sequence to another slot."""
        for pair in self._layers.values():
            for tensor in pair:
                tensor[target, :, :length] = tensor[source, :, :length]

    def _zeros(self, like_GTD: Tensor) -> Tensor:
        heads, _, size = like_GTD.shape
        return like_GTD.new_zeros(self._slots, heads, self._length, size)

    def _grown(self, old: Tensor) -> Tensor:
        slots, heads, length, size = old.shape
        new = old.new_zeros(max(slots, self._slots), heads, max(length, self._length), size)
        new[:slots, :, :length] = old
        return new

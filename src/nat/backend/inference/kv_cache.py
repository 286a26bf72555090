"""Keys and values of the running sequences: one slot each, in slots 0 to B-1, so that decoding reads a view.

The tensors grow in slots and in length as needed. Shapes: S slots, G key/value heads, L positions, D head size.
"""

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
        self.state = object()
        """Another one after the tensors were exchanged for larger ones."""

    def reserve(self, slots: int, length: int) -> None:
        """Make room for a step's slots and for the longest of them, and keep what is in them.

        The tensors grow by half at least. As they grow, they shrink in the other direction if less than half is needed.
        """
        if slots <= self._slots and length <= self._length:
            return
        most = self._max_slots or self._slots + slots
        self._slots = max(slots, min(most, _enough(self._slots, slots)))
        self._length = -(-_enough(self._length, length) // _LENGTH_STEP) * _LENGTH_STEP
        self.state = object()
        for layer, (keys, values) in self._layers.items():
            self._layers[layer] = (self._resized(keys), self._resized(values))

    def layer(self, layer: int, key_GTD: Tensor, value_GTD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [S, G, L, D] of one layer, shaped like the given new ones."""
        if layer not in self._layers:
            self._layers[layer] = (self._resized(key_GTD[None, :, :0]), self._resized(value_GTD[None, :, :0]))
        return self._layers[layer]

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

    def _resized(self, old: Tensor) -> Tensor:
        _, heads, _, size = old.shape
        new = old.new_zeros(self._slots, heads, self._length, size)
        kept = old[: self._slots, :, : self._length]
        new[: kept.shape[0], :, : kept.shape[2]] = kept
        return new


def _enough(held: int, needed: int) -> int:
    if held < needed:
        return max(needed, held + held // 2)
    return held if held <= 2 * needed else needed

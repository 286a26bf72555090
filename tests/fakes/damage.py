"""Damage files as a failing disk or a crash does."""

from pathlib import Path


def flip_a_bit(path: Path) -> None:
    """Change the last byte of the file, but not its size or its header."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    """Remove the second half of the file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

"""What happens to files that nobody wrote to."""

from pathlib import Path


def flip_a_bit(path: Path) -> None:
    """Change the file's last byte, and neither its size nor its header."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def cut_short(path: Path) -> None:
    """Lose the file's second half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

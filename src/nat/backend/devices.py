"""The kinds of devices: CPUs, CUDA GPUs and Apple's GPU (MPS); which one `auto` means, and which numbers each has."""

import torch

from nat.errors import ModelNotSupported


def chosen_device(name: str) -> torch.device:
    """The device of the option: `auto` means CUDA if there is CUDA, else Apple's GPU, else the CPU.

    Raises:
        ModelNotSupported: torch does not find it here.

    """
    if name == "auto":
        found = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        return torch.device(found)
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        raise ModelNotSupported(
            f"device {name}: there is no CUDA device here that this torch {torch.__version__} ({built}) can use",
            hint="set device to cpu or auto; or check the driver (nvidia-smi) and install a CUDA build of torch",
        )
    if device.type == "cuda" and (device.index or 0) >= (count := torch.cuda.device_count()):
        raise ModelNotSupported(
            f"device {name}: torch sees {count} CUDA devices here, from cuda:0 to cuda:{count - 1}",
            hint="set device to one of these, or check CUDA_VISIBLE_DEVICES",
        )
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ModelNotSupported(
            f"device {name}: this torch {torch.__version__} finds no GPU of Apple's here",
            hint="set device to cpu or auto; MPS needs a Mac with Apple silicon, and torch for it",
        )
    return device


def has_bfloat16(device: torch.device) -> bool:
    """Whether torch computes in bfloat16 there: not on Apple's GPU before macOS 14."""
    if device.type != "mps":
        return True
    return torch.backends.mps.is_available() and torch.backends.mps.is_macos_or_newer(14, 0)


def widest_dtype(device: torch.device) -> torch.dtype:
    """The precision of sums over tokens: float64, which Apple's GPU does not have."""
    return torch.float32 if device.type == "mps" else torch.float64

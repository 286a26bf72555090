"""The kinds of devices, CPUs and CUDA GPUs, and which one `auto` means."""

import torch

from nat.errors import ModelNotSupported


def chosen_device(name: str) -> torch.device:
    """The device of the option: `auto` means CUDA if there is CUDA, else the CPU.

    Raises:
        ModelNotSupported: torch does not find it here.

    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
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
    return device

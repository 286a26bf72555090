"""Alias for plug-ins: the code is in `nat.art.client.trainer_adapter`."""

from nat.art.client.trainer_adapter import ARTTrainerAdapter

__all__ = ["ARTTrainerAdapter"]

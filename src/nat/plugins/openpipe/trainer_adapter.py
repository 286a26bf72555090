"""`ARTTrainerAdapter` under the toolkit's path."""

from nat.art.client.trainer_adapter import ARTTrainerAdapter

__all__ = ["ARTTrainerAdapter"]

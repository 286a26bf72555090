"""`ARTTrainer` under the toolkit's path."""

from nat.art.client.trainer import ARTTrainer

__all__ = ["ARTTrainer"]

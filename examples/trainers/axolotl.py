"""A trainer for `command_trainer_adapter` with Axolotl: it imitates the answers that did better than their group.

Needs the program `axolotl` on PATH, and nothing else but the standard library.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

NOT_TRAINED = -100


def labelled(row: dict[str, Any]) -> dict[str, list[int]]:
    """A row as Axolotl reads tokens: only those with a positive advantage are learned."""
    tokens = row["input_ids"]
    better = [advantage > 0 for advantage in row["advantages"]]
    labels = [token if learned else NOT_TRAINED for token, learned in zip(tokens, better, strict=True)]
    return {"input_ids": tokens, "attention_mask": [1] * len(tokens), "labels": labels}


def main() -> None:
    """Write the data and the configuration beside the output folder, and run Axolotl."""
    output = Path(os.environ["NAT_OUTPUT"])
    rows = (json.loads(line) for line in (Path(os.environ["NAT_BATCH"]) / "rows.jsonl").open())
    better = [row for row in map(labelled, rows) if set(row["labels"]) != {NOT_TRAINED}]
    if not better:
        sys.exit("no answer did better than its group")
    data = output.with_name("better.jsonl")
    data.write_text("".join(json.dumps(row) + "\n" for row in better))
    settings = {
        "base_model": os.environ["NAT_MODEL"],
        "datasets": [{"path": str(data), "ds_type": "json", "type": None}],
        "output_dir": str(output),
        "learning_rate": float(os.environ.get("LEARNING_RATE", "1e-5")),
        "num_epochs": 1,
        "micro_batch_size": 1,
        "gradient_accumulation_steps": 8,
        "optimizer": "adamw_torch",
        "lr_scheduler": "constant",
        "sequence_len": max(len(row["input_ids"]) for row in better),
    }
    if adapter := os.environ.get("NAT_ADAPTER"):
        settings |= {"adapter": "lora", "lora_model_dir": adapter}
    config = output.with_name("axolotl.yml")
    config.write_text(json.dumps(settings))  # JSON is YAML
    os.execvp("axolotl", ["axolotl", "train", str(config)])


if __name__ == "__main__":
    main()

"""The page `reference/models_and_machines.md`: which model can be trained on which machine, by the code of the plan."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nat.sizing.memory import DEFAULT_RANK, Setup, Workload, longest_row
from nat.sizing.shape import ModelShape

MODELS: Mapping[str, ModelShape] = {
    "Qwen2.5 0.5B": ModelShape(151936, 896, 4864, 24, 14, 2, 64, tied=True),
    "Llama 3.2 1B": ModelShape(128256, 2048, 8192, 16, 32, 8, 64, tied=True),
    "Qwen2.5 1.5B": ModelShape(151936, 1536, 8960, 28, 12, 2, 128, tied=True),
    "Qwen2.5 3B": ModelShape(151936, 2048, 11008, 36, 16, 2, 128, tied=True),
    "Qwen2.5 7B": ModelShape(152064, 3584, 18944, 28, 28, 4, 128, tied=False),
    "Llama 3.1 8B": ModelShape(128256, 4096, 14336, 32, 32, 8, 128, tied=False),
}
GPUS = {
    16: "16 GB: RTX 4080, A4000",
    24: "24 GB: L4, A10, RTX 4090",
    40: "40 GB: A100",
    48: "48 GB: L40S, A6000",
    80: "80 GB: A100, H100",
    141: "141 GB: H200",
}
CPUS = {size: f"{size} GB" for size in (16, 32, 64, 128)}
SHARE = 0.95
"""Share of the memory that a run may take."""
CHATS, MOST, STEP = 16, 32768, 256
"""Chats at the same time, the longest row that is looked for, and what lengths are rounded down to; tokens."""
FRUGAL = {"gradient_checkpointing": True}

HEAD = f"""\
# Which model on which machine

`make docs` generates this page with the code that predicts the memory in `nat finetune --dry_run`. The tables of
GPUs are **computed**: only [on an H200](../recipes/memory.md#how-good-the-prediction-is) were predictions compared
with measurements. On CPUs, they were compared for models up to
0.5 billion weights; [Performance](../evidence/speed.md#memory) has them. Larger models on CPUs are computed, too.

A cell is the longest row (a conversation with its answers, in tokens) with which training fits into {SHARE:.0%} of the
memory, of at most {MOST:,}; "no" means that not even {STEP} tokens fit. {CHATS} chats run at the same time, each as
long as a row, in the embedded engine; `gradient_checkpointing` is `auto`. With another engine, more is needed.

For your own model, dataset and machine, ask `nat finetune --dry_run`. If training does not fit, it fails with the
settings that do.
"""
CPU_HEAD = """
## CPU

In 16, 32, 64 and 128 GB of memory. How fast a CPU is decides sooner than its memory: `--dry_run` measures it.
"""


def machines_page() -> str:
    """Tables for GPUs, then for CPUs."""
    gpu, cpu = Setup("cuda", "bfloat16"), Setup("cpu", "float32")
    lora = {"lora_rank": DEFAULT_RANK}
    parts = [HEAD, "\n## GPU\n\nIn bfloat16.\n"]
    parts += _table("All weights", gpu, GPUS)
    parts += _table("All weights, `gradient_checkpointing: true`", replace(gpu, **FRUGAL), GPUS)
    parts += _table(f"LoRA, rank {DEFAULT_RANK}", replace(gpu, **lora), GPUS)
    parts += _table(f"QLoRA, rank {DEFAULT_RANK}", replace(gpu, **lora, load_in_4bit=True), GPUS)
    parts.append(CPU_HEAD)
    parts += _table("All weights, float32", cpu, CPUS)
    parts += _table(f"LoRA, rank {DEFAULT_RANK}, float32", replace(cpu, **lora), CPUS)
    parts += _table(f"LoRA, rank {DEFAULT_RANK}, bfloat16", replace(cpu, **lora, dtype="bfloat16"), CPUS)
    return "".join(parts)


def _table(title: str, setup: Setup, machines: Mapping[int, str]) -> list[str]:
    head = f"\n### {title}\n\n| model | {' | '.join(machines.values())} |\n|---|{'---:|' * len(machines)}\n"
    rows = [_row(name, [_cell(shape, setup, size) for size in machines]) for name, shape in MODELS.items()]
    return [head, *rows]


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | {' | '.join(cells)} |\n"


def _cell(shape: ModelShape, setup: Setup, gigabytes: int) -> str:
    workload = Workload(CHATS, MOST, MOST, step_tokens=CHATS * MOST)
    found = longest_row(shape, setup, workload, room=int(SHARE * gigabytes * 1e9), most=MOST)
    return "no" if found is None else f"{found // STEP * STEP:,}"

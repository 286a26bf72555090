"""Run in TRL's environment: train with GRPO on the data of a task, and print the held-out scores before and after.

`python grpo.py MODEL DATA --max_tokens N --steps N [--rate R] [--ignore_case]`; prints one JSON object. A step plays 16
prompts eight times, as an epoch of `nat finetune` does, and makes one update. The score is that of `exact_match`.
What is not named here is TRL's default.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

PROMPTS, GENERATIONS, AT_A_TIME = 16, 8, 16


def rows(file: Path) -> Dataset:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return Dataset.from_list(
        [{"prompt": [{"role": "user", "content": row["question"]}], "answer": row["answer"]} for row in lines]
    )


class Score:
    """1 for the expected answer, else 0."""

    def __init__(self, *, ignore_case: bool) -> None:
        self.__name__ = "right"  # TRL names a reward by it
        self._ignore_case = ignore_case

    def __call__(self, completions: list, answer: list[str], **columns: list) -> list[float]:
        texts = [completion[0]["content"] for completion in completions]
        return [float(self._plain(text) == self._plain(each)) for text, each in zip(texts, answer, strict=True)]

    def _plain(self, text: str) -> str:
        return text.strip().casefold() if self._ignore_case else text.strip()


def held_out_scores(model, tokenizer, data: Dataset, score: Score, max_tokens: int) -> list[float]:
    """One answer to each held-out prompt, at the temperature of training."""
    model.eval()  # TRL leaves checkpointing on, which in training mode drops the keys and values of earlier tokens
    found = []
    for start in range(0, len(data), AT_A_TIME):
        part = data[start : start + AT_A_TIME]
        encoded = tokenizer.apply_chat_template(
            part["prompt"], add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
        )
        with torch.no_grad():
            sampled = model.generate(**encoded, max_new_tokens=max_tokens, do_sample=True, temperature=1.0, top_k=0)
        texts = tokenizer.batch_decode(sampled[:, encoded["input_ids"].shape[1] :], skip_special_tokens=True)
        found += score([[{"content": text}] for text in texts], part["answer"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("data", type=Path)
    parser.add_argument("--max_tokens", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num_held_out", type=int)
    parser.add_argument("--ignore_case", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    tokenizer = AutoTokenizer.from_pretrained(options.model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32)
    score = Score(ignore_case=options.ignore_case)
    held_out = rows(options.data / "held_out.jsonl")
    held_out = held_out.select(range(options.num_held_out or len(held_out)))
    with tempfile.TemporaryDirectory() as output:
        config = GRPOConfig(
            output,
            max_steps=options.steps,
            num_generations=GENERATIONS,
            per_device_train_batch_size=AT_A_TIME,
            gradient_accumulation_steps=PROMPTS * GENERATIONS // AT_A_TIME,
            max_completion_length=options.max_tokens,
            seed=options.seed,
            report_to="none",
            save_strategy="no",
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
            **({} if options.rate is None else {"learning_rate": options.rate}),
        )
        train = rows(options.data / "train.jsonl")
        trainer = GRPOTrainer(
            model=model, processing_class=tokenizer, train_dataset=train, reward_funcs=score, args=config
        )
        before = held_out_scores(model, tokenizer, held_out, score, options.max_tokens)
        began = time.monotonic()
        trainer.train()
        seconds = time.monotonic() - began
        after = held_out_scores(model, tokenizer, held_out, score, options.max_tokens)
    rollouts = options.steps * PROMPTS * GENERATIONS
    sys.stdout.write(f"{json.dumps({'before': before, 'after': after, 'seconds': seconds, 'rollouts': rollouts})}\n")


if __name__ == "__main__":
    main()

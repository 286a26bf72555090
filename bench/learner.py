"""Tokens per second and peak memory of an update: 192 rows of 86 tokens, a model of 1 M parameters.

The first line uses transformers alone: a padded batch, all logits, forward and backward.
The last two lines have prompts of 256 tokens, one per row or one per group; they show row tokens per second, and the
maximum by which shared prefixes could reduce the computed tokens. Each line runs in its own process, so that peak
memory is separate.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import torch
from tokenizers import Tokenizer, models
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from nat.backend.algorithms.registry import resolve
from nat.backend.lora import LoraSettings
from nat.backend.model import LoadedModel
from nat.backend.model_loader import load_model
from nat.backend.training.learner import Learner
from nat.backend.training.reference import Reference
from nat.backend.tree_attention import unique_tokens
from nat.wire.training import Span, TrainingConfig, TrainingGroup, TrainingRollout, TrainingRow

GROUPS, ROLLOUTS, MEAN_LENGTH, PROMPT, VOCABULARY = 24, 8, 86, 30, 512
LONG_PROMPT = 256
REPETITIONS = 3
CASES = ("transformers, padded", "update", "update, 2048", "update, 4096", "update, 8192", "update, LoRA 16")
PROMPTS = ("long prompts, apart", "long prompts, shared")


def main() -> None:
    """Print one line per case: the best of a few repetitions."""
    print("| case | row tokens/s | peak memory, MB | of which added, MB |\n|---|---:|---:|---:|")
    ceilings = {}
    for case in (*CASES, *PROMPTS):
        command = [sys.executable, "-m", "bench.learner", case]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        result = json.loads(output.splitlines()[-1])
        figures = f"{result['tokens_per_second']:,.0f} | {result['peak_mb']:,.0f} | {result['added_mb']:,.0f}"
        print(f"| {case} | {figures} |", flush=True)
        ceilings[case] = f"{result['ceiling']:.2f}"
    print("\nShared prefixes could save: " + ", ".join(f"{case}: {ceilings[case]} times" for case in PROMPTS))


def measure(case: str) -> None:
    """Run one case and print its figures as JSON."""
    groups = groups_of(Random(0), case)
    rows = [row.token_ids for group in groups for rollout in group.rollouts for row in rollout.rows]
    tokens = sum(map(len, rows))
    with tempfile.TemporaryDirectory() as folder:
        path = model_of(Path(folder))
        run = _padded(path, groups) if case.startswith("transformers") else _update(path, groups, case)
        start_mb = _peak_mb()
        seconds = []
        for _ in range(REPETITIONS):
            began = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - began)
    peak_mb = _peak_mb()
    memory = {"peak_mb": peak_mb, "added_mb": peak_mb - start_mb}
    print(json.dumps({"tokens_per_second": tokens / min(seconds), **memory, "ceiling": tokens / unique_tokens(rows)}))


def _padded(path: Path, groups: list[TrainingGroup]) -> Callable[[], object]:
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    rows = [row.token_ids for group in groups for rollout in group.rollouts for row in rollout.rows]
    longest = max(map(len, rows))
    token_ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])

    def run() -> None:
        model.zero_grad()
        logits = model(input_ids=token_ids, attention_mask=mask).logits[:, :-1]
        logprobs = logits.float().log_softmax(-1).gather(-1, token_ids[:, 1:, None]).squeeze(-1)
        (logprobs * mask[:, 1:]).sum().backward()

    return run


def _update(path: Path, groups: list[TrainingGroup], case: str) -> Callable[[], object]:
    loaded: LoadedModel = load_model(path, device="cpu", lora=LoraSettings(16) if "LoRA" in case else None)
    learner = Learner(loaded, Reference(loaded, lambda: load_model(path).model))
    size = case.rpartition(", ")[2]
    config = TrainingConfig(max_logprob_difference=1e9)
    if size.isdigit():
        config = config.model_copy(update={"micro_batch_tokens": int(size)})
    return lambda: learner.update(groups, resolve(config))


def groups_of(random: Random, case: str, vocabulary: int = VOCABULARY) -> list[TrainingGroup]:
    """Rows of 60 to 112 tokens: a prompt and alternating sampled and other tokens, as in a game of several turns."""
    groups = []
    for number in range(GROUPS):
        prompts = [_tokens(random, LONG_PROMPT if case in PROMPTS else 0, vocabulary) for _ in range(ROLLOUTS)]
        if case.endswith("shared"):
            prompts = [prompts[0]] * ROLLOUTS
        rollouts = [_rollout(random, index, prompt, vocabulary) for index, prompt in enumerate(prompts)]
        groups.append(TrainingGroup(id=str(number), rollouts=rollouts))
    return groups


def _rollout(random: Random, index: int, prompt: list[int], vocabulary: int) -> TrainingRollout:
    length = MEAN_LENGTH + random.randint(-26, 26)
    sampled = [at for at in range(length - 1) if at >= PROMPT and at % 4 == 0] + [length - 1]
    spans = [Span(start=len(prompt) + at, stop=len(prompt) + at + 1, logprobs=[-1.0]) for at in sampled]
    row = TrainingRow(token_ids=prompt + _tokens(random, length, vocabulary), spans=spans)
    return TrainingRollout(reward=index % 2, rows=[row])


def _tokens(random: Random, count: int, vocabulary: int) -> list[int]:
    return [random.randrange(vocabulary) for _ in range(count)]


def model_of(path: Path) -> Path:
    """Write a model of two layers and a tokenizer."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=576,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=6,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
    )
    Qwen2ForCausalLM(config).save_pretrained(path)
    vocabulary = {f"t{number}": number for number in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="t0"))
    fast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers has no type for it
        tokenizer_object=tokenizer,
        eos_token="t0",
    )
    fast.save_pretrained(path)
    return path


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    measure(sys.argv[1]) if len(sys.argv) > 1 else main()

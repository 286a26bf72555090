"""Whether the sampler and the learner compute what a loaded model computes, before a rollout is paid."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from nat.backend.inference.engine import Engine
from nat.backend.model import LoadedModel
from nat.backend.model_checks import OTHER_KIND, failing_as, probe_rows, relative_difference, tolerance_of
from nat.backend.model_loader import load_model
from nat.backend.packed_linear import PackedLinears
from nat.backend.training.batch import Row
from nat.backend.training.loss import joined
from nat.backend.training.micro_batch import make_micro_batch
from nat.backend.training.mismatch import served_logprobs
from nat.errors import ModelCodeStopped, ModelNotSupported


def load_checked_model(path: Path | str, **options: Any) -> LoadedModel:
    """Load a model with the options of `load_model`, and refuse it unless sampler and learner agree."""
    loaded = load_model(path, **options)
    check_paths(loaded)
    if loaded.tokenizer.hf.chat_template is not None:
        with suppress(ModelNotSupported, ModelCodeStopped):  # a request says so
            _ = loaded.tokenizer.words  # found once, not by the first requests at the same time
    return loaded


@torch.no_grad()
def check_paths(loaded: LoadedModel) -> None:
    """Raise unless the learner, with shared prefixes, and the sampler, in three kinds of step, score rows alike.

    What one of them lacks would else be found when the first rollouts are paid.
    """
    name, rows = type(loaded.model).__name__, _rows_of(probe_rows(loaded.model))
    plain = replace(loaded, linears=PackedLinears(nn.Module()))  # nothing is reordered for a few tokens
    with failing_as(f"{name} cannot be trained"):
        trained = make_micro_batch(rows, {}, loaded.device).scores(loaded.model).logprobs_K
    with failing_as(f"{name} cannot be sampled"):
        Engine(plain, policy_version="")
        sampled = joined(served_logprobs(plain, rows), rows)
    difference, tolerance = relative_difference(sampled, trained), tolerance_of(loaded.model)
    if not difference <= tolerance:
        raise ModelNotSupported(
            f"{name} gives other log probabilities in the sampler than in the learner: they differ by {difference:.1e} "
            f"of the largest; rounding explains at most {tolerance:.0e}",
            hint=OTHER_KIND,
        )


def _rows_of(ids: Sequence[list[int]]) -> list[Row]:
    """Rows in which every token after the first counts as sampled; one of a single token has none."""
    return [
        Row(n, n, n, row[:-1], list(range(len(row) - 1)), row[1:], [0.0] * (len(row) - 1), [0.0] * (len(row) - 1))
        for n, row in enumerate(ids)
        if len(row) > 1
    ]

"""Whether the sampler and the learner compute what a loaded model computes, before a rollout is paid."""

import logging
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn

from nat.backend.decoder_parts import decoder
from nat.backend.inference.engine import Engine
from nat.backend.inference.plain import cache_of, forward
from nat.backend.model import Continues, LoadedModel
from nat.backend.model_checks import OTHER_KIND, Windows, failing_as, probe_rows, relative_difference, tolerance_of
from nat.backend.model_loader import load_model
from nat.backend.packed_linear import PackedLinears
from nat.backend.training.batch import Row
from nat.backend.training.loss import joined
from nat.backend.training.micro_batch import make_micro_batch
from nat.backend.training.mismatch import served_logprobs
from nat.errors import ModelNotSupported
from nat.wire.serving import NOTICES

logger = logging.getLogger(__name__)
notices = logging.getLogger(NOTICES)

_LONG = 300
"""Tokens of a row on the plain path: more than linear attention computes at a time."""
_DECODED = 3
"""Tokens of each row that are decoded, one by one."""
_MEASURED = 8, 40
"""Tokens of two rows whose caches are measured."""
_ALIKE, _ROUNDED = 4, 1e-4
"""A cache that continues chunks differs by no more than this factor from one that continues tokens, or by rounding. One
that forgets what came before is off by some 0.1, which in bfloat16 rounding alone might explain."""


def load_checked_model(path: Path | str, **options: Any) -> LoadedModel:
    """Load a model with the options of `load_model`, and refuse it unless sampler and learner agree.

    If they do with rows computed one by one alone, the model takes that plain path. Warnings tell what is to be known.
    """
    # OpenMP keeps helpers for each thread that computed until it ends. With more of them than cores, all would sleep
    # between two operations, those of the thread that will sample, too.
    with ThreadPoolExecutor(1, "load") as thread:
        load = partial(load_model, path, **options)
        loaded = thread.submit(proven, lambda why: load(plain_because=why)).result()
    if loaded.plain is not None:
        notices.warning(
            "%s takes the plain path, because %s. Each row is computed alone, by transformers' own code: several chats "
            "or rows take several times as long, and prompts are not shared%s",
            *(type(loaded.model).__name__, loaded.plain.why),
            ", and each token computes its whole sequence again" if loaded.plain.continues == "nothing" else "",
        )
    with suppress(ModelNotSupported):  # a request says so
        words = loaded.tokenizer.words  # found here, and not by the first requests at the same time
        if words.refusal is not None and words.proof.shows_tools:  # else the first request with tools is told
            notices.warning("tool calls may be lost: %s", words.refusal)
    return loaded


def proven(load: Callable[[str | None], LoadedModel]) -> LoadedModel:
    """The model that `load` gives, checked; on the plain path if it fails there: `load` is then told why."""
    loaded, why = load(None), None
    try:
        return _checked(loaded)
    except ModelNotSupported as error:
        if loaded.plain is not None:
            raise
        why = error.message
    del loaded  # two copies may not fit
    return _checked(load(why))


def _checked(loaded: LoadedModel) -> LoadedModel:
    if loaded.plain is None:
        check_paths(loaded)
        return loaded
    name = type(loaded.model).__name__
    found: list[tuple[float, LoadedModel]] = []
    for continues in get_args(Continues):
        if found and continues == "nothing":
            break
        try:
            with failing_as(f"the cache of {name} cannot be measured"):
                each, state = _cache_bytes(loaded, continues)
            measured = replace(loaded.plain, continues=continues, token_bytes=each, state_bytes=state)
            tried = replace(loaded, plain=measured)
            with Windows(loaded.model, loaded.max_seq_length).shifted_to():
                found.append((check_paths(tried), tried))
        except ModelNotSupported as error:
            if continues == "nothing":  # the last way
                raise
            logger.info("the cache of %s does not continue %s: %s", name, continues, error)
    least = min(difference for difference, _ in found)
    return next(tried for difference, tried in found if difference <= max(_ROUNDED, _ALIKE * least))


@torch.no_grad()
def _cache_bytes(loaded: LoadedModel, continues: Continues) -> tuple[int, int]:
    sizes = []
    for length in _MEASURED:
        ids_1L = torch.zeros(1, length, dtype=torch.long, device=loaded.device)
        outputs = forward(decoder(loaded.model), ids_1L, 0, None, continues)
        if (cache := cache_of(outputs)) is None and continues != "nothing":
            raise ModelNotSupported(f"{type(loaded.model).__name__} gives no cache")
        sizes.append(len(pickle.dumps(cache)))
    each = max(1, (sizes[1] - sizes[0]) // (_MEASURED[1] - _MEASURED[0]))
    return each, max(0, sizes[0] - each * _MEASURED[0])


@torch.no_grad()
def check_paths(loaded: LoadedModel) -> float:
    """Raise unless the learner, with shared prefixes, and the sampler, in three kinds of step, score rows alike.

    What one of them lacks would else be found when the first rollouts are paid. Gives their relative difference.
    """
    name = type(loaded.model).__name__
    more = () if loaded.plain is None else (min(_LONG, loaded.max_seq_length),)
    probes = [row for row in probe_rows(loaded.model, *more) if len(row) > 1]
    rows = [
        Row(n, n, n, row[:-1], list(range(len(row) - 1)), row[1:], [0.0] * (len(row) - 1), [0.0] * (len(row) - 1))
        for n, row in enumerate(probes)
    ]
    usual = replace(loaded, linears=PackedLinears(nn.Module()))  # nothing is reordered for a few tokens
    with failing_as(f"{name} cannot be trained"):
        trained = make_micro_batch(rows, {}, loaded.device).scores(loaded.model).logprobs_K
    with failing_as(f"{name} cannot be sampled"):
        Engine(usual, policy_version="")
        sampled = joined(served_logprobs(usual, rows, _DECODED), rows)
    difference, tolerance = relative_difference(sampled, trained), tolerance_of(loaded.model)
    if not difference <= tolerance:
        raise ModelNotSupported(
            f"{name} gives other log probabilities in the sampler than in the learner: they differ by {difference:.1e} "
            f"of the largest; rounding explains at most {tolerance:.0e}",
            hint=OTHER_KIND,
        )
    return difference

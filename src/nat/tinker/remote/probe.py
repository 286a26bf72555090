"""What a Tinker server makes of a batch, measured on an adapter that is thrown away, or on weights that are reopened.

Tinker's losses are sums over tokens. SkyRL's JAX backend takes the mean over a row's tokens, and over the rows of a
step. Two rows whose only advantage is at the same token of the same beginning have the same gradient g. With T and T'
tokens, the norms of the first alone and of both together are g and 2g for sums, g/T and (g/T + g/T')/2 for those means.
"""

from collections.abc import Mapping
from math import ceil, isclose
from typing import NamedTuple

from nat.errors import EngineFailed
from nat.tinker.remote.service import Datum, Trained

LOSS = "importance_sampling"
SHORT, LONG = 4, 12
"""Tokens of the two rows."""
_TOLERANCE = 0.02
_ROWS = 64
_CLIPPED = 1e-3
"""Share of the gradient that clipping leaves."""
_NATS, _FAR = 0.1, 5
"""How far a step moves the token's log probability, at most, and how many times as far it does not."""


class Normalization(NamedTuple):
    """How a server combines the tokens of a step."""

    row_means: bool = False
    """True for the mean over rows of the means over their tokens; false for the sum over all tokens."""
    clips: bool = True
    """True if it obeys `grad_clip_norm`; some servers ignore it in silence."""
    has_adam: bool = True
    """True if it obeys AdamW's betas and epsilon, which are fixed on some."""

    def filled(self, rows: int) -> int:
        """Rows of a request: servers that take means compile a program for each number, so there are few of them."""
        return ceil(rows / _ROWS) * _ROWS if self.row_means else rows

    def scale(self, tokens: int, rows: int) -> float:
        """Factor of the advantages of one of these rows, which makes the gradient that of the sum."""
        return float(tokens * self.filled(rows)) if self.row_means else 1.0


def probed(trained: Trained, vocab_size: int) -> Normalization:
    """Measure it, with ten requests of one or two short rows; EngineFailed if it is neither of the two."""
    with trained.trial(rank=trained.rank) as trial:
        return _measured(trial, vocab_size)


def _measured(trial: Trained, vocab_size: int) -> Normalization:
    before = _scored(trial, vocab_size)
    short, long = (_row(vocab_size, size, before) for size in (SHORT, LONG))
    # A step without a rate shows the norm and changes nothing.
    one, both = (_norm(trial, *data, learning_rate=0.0, beta1=0.9) for data in ([short], [short, long]))
    found, means = both / one if one > 0 else 0.0, (1 + SHORT / LONG) / 2
    row_means = isclose(found, means, rel_tol=_TOLERANCE)
    if not (row_means or isclose(found, 2.0, rel_tol=_TOLERANCE)):
        raise EngineFailed(
            f"the Tinker server's normalisation is unknown: two rows of {SHORT} and {LONG} tokens have a gradient of "
            f"{found:.4g} times that of the first alone; sums over tokens give 2, means over rows {means:.3g}",
            hint="use a server that sums, as Tinker's losses are defined, or SkyRL's JAX backend",
        )
    moved = []
    for clip in (_CLIPPED * one, 0.0):
        # Without memory, and with an epsilon as large as the gradient, AdamW's step is proportional to it; with a small
        # one it has the same size in each weight, and goes much farther.
        adam = {"learning_rate": _NATS / one, "beta1": 0.0, "beta2": 0.0, "eps": one, "grad_clip_norm": clip}
        _norm(trial, short, **adam)
        after = _scored(trial, vocab_size)
        moved.append(abs(after - before))
        before = after
    clips, has_adam = moved[0] < moved[1] / 10, moved[1] < _FAR * _NATS
    return Normalization(row_means=row_means, clips=clips, has_adam=has_adam)


def supports(trained: Trained, loss: str, config: Mapping[str, float], vocab_size: int) -> bool:
    """True if the server computes this loss, on a row with the inputs of all named losses."""
    row = _row(vocab_size, SHORT, -1.0)
    masked = row._replace(inputs={**row.inputs, "sequence_ratio_mask": row.inputs["advantages"]})
    try:
        with trained.trial(rank=1) as trial:
            trial.forward_backward([masked], loss, config)
    except EngineFailed:
        return False
    return True


def _row(vocab_size: int, tokens: int, logprob: float) -> Datum:
    """A row whose second target alone has an advantage; longer rows begin with the shorter ones."""
    ids = [1 + number % (vocab_size - 1) for number in range(tokens + 1)]
    only = [float(at == 1) for at in range(tokens)]
    logprobs = [logprob * each for each in only]
    return Datum(ids[:-1], {"target_tokens": ids[1:], "logprobs": logprobs, "advantages": only})


def _scored(trial: Trained, vocab_size: int) -> float:
    """The log probability of the token that has the advantage."""
    [logprobs] = trial.forward_backward([_row(vocab_size, SHORT, -1.0)], LOSS, {}, gradient=False)
    return logprobs[1]


def _norm(trial: Trained, *data: Datum, **adam: float) -> float:
    trial.forward_backward(data, LOSS, {})
    return trial.step(**adam)

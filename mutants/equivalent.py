"""Changes that no test can notice, by module and changed line, each with the reason."""

_SAME_LENGTH = "both lists have one entry for each group, a few lines above; `strict` guards against mistakes there"
_EXACT_END = "matters only if an end of the interval is exactly 0.0, where both answers are right"

EQUIVALENT: dict[str, dict[str, str]] = {
    "art/server/algorithm.py": {
        "ratio_K = torch.where(advantages_K <= 0, ratio_K.clamp(max=cap), ratio_K)": (
            "an advantage of exactly 0 makes the objective 0, whatever the ratio"
        ),
    },
    "backend/algorithms/advantages.py": {
        "lse group for group, keep in zip(groups, has_signal, strict=False)]": _SAME_LENGTH,
        "roup.counts) for part_C, group in zip(parts, groups, strict=False)]": _SAME_LENGTH,
        "group for group, keep in zip(advantages, has_signal, strict=False) if keep]": _SAME_LENGTH,
        "es_C) for group, keep in zip(advantages, has_signal, strict=False)], has_signal=has_signal)": _SAME_LENGTH,
        "return difference_C.where(difference_C.abs() >= allowed, 0.0)": (
            "a value exactly at the rounding bound may count as equal or not"
        ),
    },
    "backend/training/loss.py": {
        "n {row.index: part for row, part in zip(rows, parts, strict=False)}": "`split` gives one part for each row",
    },
    "capture/policy.py": {
        "capture = RolloutCapture(policy, session=secrets.token_hex(9))": "a longer name is as unique",
    },
    "preferences/parting.py": {
        "within = not whole and at >= 0 and a[at - 1][1]": "no row begins with a sampled token",
        "within = not whole and at > 1 and a[at - 1][1]": "likewise",
    },
    "preferences/pairs.py": {
        "return SkipCause.SCORE_DIFF if better - worse <= self.margin - rewards.rounding(scores) else None": (
            "a difference exactly at the rounding bound may count as enough or not"
        ),
        "seen[score] -= 1": "answers of one score are numbered downwards, and each is in as many of the first pairs",
    },
    "finetuning/curriculum.py": {
        "return max(1, math.ceil(round(count * fraction, 10)))": (
            "it forgives rounding errors, which are near 1e-16, and 10 digits do that as well as 9"
        ),
    },
    "finetuning/verdict.py": {
        "elif low < 0 <= high:": _EXACT_END,
        "elif low <= 0 < high:": _EXACT_END,
        "low, high = (lowest if lowest >= 0 else low, highest if highest < 0 else high)": _EXACT_END,
        " high = (lowest if lowest > 0 else low, highest if highest <= 0 else high)": _EXACT_END,
        "if abs(skew) <= _NO_SKEW:": "a skew of exactly that limit changes the interval in its ninth digit",
        "_DIGITS = 13": "rounding errors of scores are near 1e-16, and 13 digits hide them as well as 12",
    },
}

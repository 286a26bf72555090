"""Changes that no test can notice, by module and changed line, each with the reason."""

EQUIVALENT: dict[str, dict[str, str]] = {
    "finetuning/curriculum.py": {
        "return max(1, math.ceil(round(count * fraction, 10)))": (
            "it forgives rounding errors, which are near 1e-16, and 10 digits do that as well as 9"
        ),
    },
    "finetuning/verdict.py": {
        "_DIGITS = 13": "rounding errors of scores are near 1e-16, and 13 digits hide them as well as 12",
    },
}

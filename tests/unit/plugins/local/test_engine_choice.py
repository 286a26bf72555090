"""The table of engines, and what `--dry_run` says with it."""

from pathlib import Path

import pytest

from nat.plugins.local.engine_choice import CHOICES, engine_advice, engine_choice, size_text

PAGE = Path(__file__).parents[4] / "docs" / "guides" / "vllm.md"


def row_text(choice):
    """A row of the table in the guide."""
    size = "any" if choice.num_parameters == 0 else f"from {size_text(choice.num_parameters)}"
    basis = "yes" if choice.measured else "no"
    dtypes = ", ".join(choice.dtypes)
    return f"| {choice.device} | {dtypes} | {size} | `{choice.engine}` | {choice.reason} | {basis} |"


def test_the_guide_has_the_table():
    """Rows of the guide are those of the code, in their order."""
    _, _, section = PAGE.read_text().partition("## Which engine")
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith(("| cpu", "| cuda"))]
    assert rows == [row_text(choice) for choice in CHOICES]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_model_of_a_known_device_has_a_row(device, dtype):
    """Rows begin at 0 and grow, so the last one that fits is the model's."""
    sizes = [row.num_parameters for row in CHOICES if row.device == device and dtype in row.dtypes]
    assert sizes[0] == 0
    assert sizes == sorted(set(sizes))
    assert [engine_choice(device, dtype, size).num_parameters for size in sizes] == sizes
    assert engine_choice(device, dtype, 10**12).num_parameters == sizes[-1]


@pytest.mark.parametrize(("device", "dtype"), [("mps", "float32"), ("cpu", "float16")])
def test_nothing_is_said_of_what_the_table_lacks(device, dtype):
    """An unknown device or dtype has no row."""
    assert engine_choice(device, dtype, 10**9) is None


def test_advice_names_the_better_engine_and_says_if_it_was_measured():
    """The engine that is set is confirmed, or the other one is named with its key."""
    small, large = engine_choice("cpu", "float32", 134_515_008), engine_choice("cuda", "bfloat16", 494_032_768)
    confirmed = engine_advice("embedded", small, dtype="float32", num_parameters=134_515_008)
    assert confirmed.startswith("embedded is the better engine for 135 million weights in float32 on cpu: ")
    assert confirmed.endswith("(measured, see docs/performance.md in the project's repository)")
    other = engine_advice("embedded", large, dtype="bfloat16", num_parameters=494_032_768)
    assert other.startswith(
        "embedded samples, but `engine: vllm` is better for 494 million weights in bfloat16 on cuda: "
    )
    assert other.endswith("(not measured)")


@pytest.mark.parametrize(
    ("count", "text"), [(396_000, "0.396 million"), (134_515_008, "135 million"), (7_615_616_512, "7.6 billion")]
)
def test_sizes_are_short(count, text):
    """A number of weights has at most three significant digits."""
    assert size_text(count) == text

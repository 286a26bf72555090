"""The losses and gradients that our tests expect of DPO, KTO and SFT are what TRL computes."""

import json
from pathlib import Path

import pytest
from conformance.trl.golden import GOLDEN, computed_by_trl

TOLERANCE = 1e-5
"""In float32 processors add in other orders; 2.4e-6 was seen between two of them."""


def test_trl_computes_what_our_tests_expect(tmp_path: Path) -> None:
    """`python -m conformance.trl.golden` would write the same numbers again."""
    found, expected = computed_by_trl(tmp_path), json.loads(GOLDEN.read_text())
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=TOLERANCE)
        assert one["gradients"].keys() == other["gradients"].keys()
        for name, numbers in one["gradients"].items():
            assert numbers == pytest.approx(other["gradients"][name], rel=TOLERANCE, abs=TOLERANCE), name

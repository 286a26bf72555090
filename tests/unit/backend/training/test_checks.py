"""The remedies of an update's errors depend on its numbers."""

import pytest

from nat.backend.training.checks import check_gradient
from nat.errors import UpdateRejected


@pytest.mark.parametrize(
    ("numbers", "remedy"),
    [
        ({"with_advantage": 0.0, "clipped": 0.0, "entropy": 1.2}, "name a teacher that answers otherwise"),
        ({"with_advantage": 0.5, "clipped": 0.5, "entropy": 2.0}, "or raise epsilon"),
        ({"with_advantage": 1.0, "clipped": 0.0, "entropy": 1e-9}, "an earlier checkpoint with a lower learning rate"),
        ({"with_advantage": 1.0, "clipped": 0.4, "entropy": 2.0}, "rollouts with the same tokens get the same reward"),
    ],
    ids=["nothing to learn", "all clipped", "certain", "neither"],
)
def test_the_remedy_for_a_zero_gradient_depends_on_its_cause(numbers, remedy):
    """The clip range is named only if it masks every token with an advantage; a collapsed model needs no epsilon."""
    with pytest.raises(UpdateRejected) as error:
        check_gradient(0, rows=12, **numbers)
    assert remedy in error.value.hint
    assert f"the entropy per token is {numbers['entropy']:.3g}" in str(error.value)
    check_gradient(1, rows=12, **numbers)

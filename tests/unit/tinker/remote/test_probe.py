"""What a probe finds out about a server."""

import pytest

from nat.errors import EngineFailed
from nat.tinker.remote.probe import Normalization, probed, supports


@pytest.mark.parametrize("divides", ["", "rows"])
@pytest.mark.parametrize("clips", [True, False])
def test_both_normalisations_and_clipping_are_measured(start, divides, clips):
    """Sums and means of row means are told apart, and whether clipping has an effect."""
    service = start(divides=divides, clips=clips)
    assert probed(service, 250, 4) == Normalization(row_means=divides == "rows", clips=clips)


def test_an_unknown_normalisation_is_refused(start):
    """The mean over all tokens is neither of the two; the error has what was seen."""
    with pytest.raises(EngineFailed, match=r"a gradient of 0\.5 times that of the first alone"):
        probed(start(divides="tokens"), 250, 4)


def test_rows_are_filled_up_only_where_programs_are_compiled():
    """The scale counts the rows that are sent."""
    assert (Normalization().filled(5), Normalization().scale(7, 5)) == (5, 1.0)
    assert (Normalization(row_means=True).filled(65), Normalization(row_means=True).scale(7, 65)) == (128, 7 * 128)


def test_a_loss_is_supported_if_the_server_computes_it(start):
    """A server of ours has gspo, and no loss of another name."""
    service, bounds = start(), {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}
    assert supports(service, "gspo", bounds, 250)
    assert not supports(service, "other", bounds, 250)

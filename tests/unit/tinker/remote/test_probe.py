"""What a probe finds out about a server."""

import pytest

from nat.errors import EngineFailed
from nat.tinker.remote import probe as probe_module
from nat.tinker.remote.probe import Normalization, probed, supports
from nat.tinker.remote.service import Trained


@pytest.mark.parametrize("rank", [4, 0])
@pytest.mark.parametrize("divides", ["", "rows"])
@pytest.mark.parametrize("clips", [True, False])
def test_both_normalisations_and_clipping_are_measured(start, divides, clips, rank):
    """Sums and means of row means are told apart, and whether clipping has an effect."""
    service = start(divides=divides, clips=clips, all_weights=rank == 0)
    assert probed(Trained(service, rank=rank), 250) == Normalization(row_means=divides == "rows", clips=clips)


@pytest.mark.parametrize("rank", [4, 0])
@pytest.mark.parametrize("clips", [True, False])
def test_fixed_settings_of_adam_are_found(start, rank, clips):
    """A step with the usual epsilon has one size in all weights, and moves far more than one along the gradient."""
    service = start(has_adam=False, clips=clips, all_weights=rank == 0)
    assert not probed(Trained(service, rank=rank), 250).has_adam


def test_an_unknown_normalisation_is_refused(start):
    """The mean over all tokens is neither of the two; the error has what was seen."""
    with pytest.raises(EngineFailed, match=r"a gradient of 0\.5 times that of the first alone"):
        probed(Trained(start(divides="tokens"), rank=4), 250)


def test_rows_are_filled_up_only_where_programs_are_compiled():
    """The scale counts the rows that are sent."""
    assert (Normalization().filled(5), Normalization().scale(7, 5)) == (5, 1.0)
    assert (Normalization(row_means=True).filled(65), Normalization(row_means=True).scale(7, 65)) == (128, 7 * 128)


def test_a_loss_is_supported_if_the_server_computes_it(start):
    """A server of ours has gspo, and no loss of another name."""
    trained, bounds = Trained(start(), rank=4), {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}
    assert supports(trained, "gspo", bounds, 250)
    assert not supports(trained, "other", bounds, 250)


@pytest.mark.slow
def test_a_trial_of_all_weights_leaves_no_trace(start):
    """They are trained in it and reopened then, and what samples from them is told."""
    trained, told = Trained(start(all_weights=True), rank=0).begin(), []
    trained.on_reopened = lambda: told.append(trained.state)
    before, state = trained.sampler().score([5, 6, 7]), trained.state
    with trained.trial(rank=1) as trial:
        assert trial is trained
        probe_module._norm(trial, probe_module._row(250, 4, -1.0), learning_rate=0.1)
        assert trained.sampler().score([5, 6, 7]) != before
    assert trained.sampler().score([5, 6, 7]) == before
    assert told == [state]

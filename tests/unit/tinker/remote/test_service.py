"""The official client, as this module calls it."""

import sys
from types import SimpleNamespace

import pytest

from fakes.tinker_service import TYPES, FakeTinker
from nat.errors import EngineFailed
from nat.tinker.remote.service import Datum, Trained, connect

DATUM = Datum([5, 6], {"target_tokens": [6, 7], "logprobs": [0.0, -1.0], "advantages": [0.0, 1.0]})


@pytest.fixture
def installed(monkeypatch):
    """A package `tinker` whose server has these base models; gives what its client was made with."""
    made = {}

    def client(**given):
        made.update(given)
        models = [SimpleNamespace(model_name=name) for name in ("owner/tiny", "owner/other")]
        return SimpleNamespace(get_server_capabilities=lambda: SimpleNamespace(supported_models=models))

    monkeypatch.setitem(sys.modules, "tinker", SimpleNamespace(ServiceClient=client, types=TYPES))
    return made


def test_the_base_model_must_be_one_of_the_server_s(installed, remote_options):
    """The error names those that it has; some servers would take any name."""
    service = connect(remote_options(tinker_url="http://127.0.0.1:9/", tinker_api_key="tml-key"))
    assert service.options.base_model == "owner/tiny"
    assert installed == {"base_url": "http://127.0.0.1:9", "api_key": "tml-key"}
    with pytest.raises(EngineFailed, match=r"no base model 'tiny'; it has owner/tiny, owner/other"):
        connect(remote_options(base_model="tiny"))


@pytest.mark.parametrize(
    "state", ["tinker://../../v1/weights/x", "tinker://run/weights/..", "tinker://run/weights/a/../../b", "", "x?y=1"]
)
def test_a_folder_of_others_cannot_have_anything_else_deleted(start, state):
    """The state of a pruned checkpoint is read from a file, and the request has the user's key."""
    adapter = Trained(service := start(), rank=4).begin()
    adapter.saved |= {state, "tinker://run:train:0/weights/step-1"}
    adapter.keep_only(set())
    assert service.client.deleted == [("run:train:0", "weights/step-1")]


def test_errors_of_the_client_become_ours(start):
    """With what was called; nothing of the client's own classes reaches a user."""
    adapter = Trained(start(fails=["optim_step"]), rank=4).begin()
    adapter.forward_backward([DATUM], "importance_sampling", {})
    with pytest.raises(EngineFailed, match=r"the Tinker server failed at optim_step: .*the planted failure"):
        adapter.step(learning_rate=1e-3)


@pytest.mark.parametrize("rank", [4, 0])
@pytest.mark.slow
def test_a_state_is_reopened_with_or_without_its_optimizer(start, rank):
    """Weights are the same, an adapter's or all; those of the base are others."""
    service = start(all_weights=rank == 0)
    first = Trained(service, rank=rank).begin()
    first.forward_backward([DATUM], "importance_sampling", {})
    assert first.step(learning_rate=0.1) > 0
    first.save()
    trained = first.sampler().score([5, 6, 7])
    first.close()
    other = Trained(service, rank=rank)
    other.resume(first.state)
    assert other.state == first.state
    assert other.sampler().score([5, 6, 7]) == pytest.approx(trained, abs=1e-5)
    other.close()
    fresh = Trained(service, rank=rank).begin(first.state)
    assert fresh.sampler().score([5, 6, 7]) == pytest.approx(trained, abs=1e-5)
    assert service.base().score([5, 6, 7]) != pytest.approx(trained, abs=1e-3)
    assert isinstance(service.client, FakeTinker)


@pytest.mark.parametrize("again", ["resume", "begin"])
@pytest.mark.parametrize(("rank", "seen"), [(0, "trains an adapter, where all"), (4, "trains all weights, where an")])
def test_a_state_of_the_other_kind_is_refused(start, rank, seen, again):
    """It would be trained without a word: servers open whatever a state has."""
    service = start(all_weights=True)
    other = Trained(service, rank=4 - rank).begin()
    other.close()
    with pytest.raises(EngineFailed, match=seen):
        getattr(Trained(service, rank=rank), again)(other.state)

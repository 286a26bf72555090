"""Several engines: where calls go, and what follows when one fails, or two do; the servers are scripted."""

import math
import sys
import time
from collections import Counter

import pytest
from fastapi.responses import JSONResponse, RedirectResponse, Response

from fakes.vllm_requests import DEADLINE, answered, ask, learner_of, train
from nat.backend.training.mismatch import served_logprobs
from nat.backend.vllm import fleet
from nat.backend.vllm.checks import probe_row
from nat.errors import BackendError, EngineFailed, EngineNotStarted, EngineStopped, HandOverFailed, UpdateRejected

GENERATE, HEALTH = "/inference/v1/generate", "/health"


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch):
    monkeypatch.setattr(fleet, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(fleet, "_LONGEST_PAUSE", 0.1)


def await_live(served, *numbers):
    """Wait until these engines, and no others, get calls."""
    deadline = time.monotonic() + DEADLINE
    while [each.number for each in served.engine._fleet.live] != list(numbers):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def assert_exact(served, sequence):
    """The log probabilities are those of the learner's weights, whichever engines sampled."""
    ids, first = sequence.prompt_ids + sequence.token_ids, len(sequence.prompt_ids)
    count = len(sequence.token_ids)
    row = type(probe_row(served.loaded))(
        0, 0, 0, ids[:-1], list(range(first - 1, len(ids) - 1)), ids[first:], [], [0.0] * count
    )
    assert served_logprobs(served.loaded, [row])[0].tolist() == pytest.approx(sequence.logprobs, abs=1e-4)


def home_of(served, session):
    (sequence,) = answered(ask(served.engine, session=session))
    return sequence.engines[-1]


def test_a_session_stays_at_its_engine(opened):
    """All turns of 48 conversations go to the engine of the first one, and each engine has half of them."""
    served = opened(count=2)
    assert served.engine.places == [vllm.url for vllm in served.vllms]
    turns = [[ask(served.engine, session=f"s{number}", max_tokens=1) for number in range(48)] for _ in range(3)]
    homes = [[answered(request)[0].engines for request in turn] for turn in turns]
    assert homes[0] == homes[1] == homes[2]
    assert Counter(engine for (engine,) in homes[0]) == {0: 24, 1: 24}
    assert home_of(served, "s" * 60_000) == home_of(served, "s" * 60_000)
    assert {sys.getsizeof(key) < 64 for key in served.engine._fleet._homes} == {True}  # a header may be long


@pytest.mark.parametrize("lora", [True, False])
def test_calls_of_an_engine_that_dies_are_sent_to_another(opened, lora):
    """None is lost; each says which engines it was sent to. The engine returns with the weights of its absence."""
    served = opened(count=2, lora=lora)
    learner = learner_of(served.engine)
    train(served.engine, learner)
    dying = served.vllms[home_of(served, "a")]
    number, other = served.vllms.index(dying), 1 - served.vllms.index(dying)
    dying.may_answer.clear()
    dying.entered.clear()
    requests = [ask(served.engine, session="a", seed=seed) for seed in range(6)]
    assert dying.entered.wait(DEADLINE)
    dying.die()
    for request in requests:
        (sequence,) = answered(request)
        assert (sequence.engines, request.policy_version) == ([number, other], "m@1")
        assert_exact(served, sequence)
    assert train(served.engine, learner)["served_diff_max"] < 1e-4
    dying.start_again()
    dying.may_answer.set()
    sampled = len(dying.models)
    dying.listen()
    await_live(served, 0, 1)
    row = probe_row(served.loaded)
    assert len(dying.models) == sampled + len(row.targets) + (not lora)  # the proof; no request came before
    homes = {home_of(served, f"new {at}") for at in range(4)}
    assert homes == {0, 1}
    for at in range(4):
        request = ask(served.engine, session=f"new {at}")
        assert_exact(served, answered(request)[0])
        assert request.policy_version == "m@2"
    assert served.failures == []


def test_a_sick_engine_leaves_after_a_call_and_returns_when_it_is_well(opened):
    """Its health says nothing; that another engine answers what it fails does."""
    served = opened(count=2)
    sick = home_of(served, "a")
    served.vllms[sick].failing.add(GENERATE)
    assert [answered(ask(served.engine, session="a"))[0].engines for _ in range(3)] == [
        [sick, 1 - sick],
        [1 - sick],
        [1 - sick],
    ]
    served.vllms[sick].failing.clear()
    await_live(served, 0, 1)
    assert served.failures == []


def test_an_engine_that_hangs_leaves(opened, monkeypatch):
    """Its calls are sent to another one, though their connections stay open."""
    monkeypatch.setattr(fleet, "_HEALTH_SECONDS", 0.5)
    served = opened(count=2)
    hanging = home_of(served, "a")
    served.vllms[hanging].hangs = True
    (sequence,) = answered(ask(served.engine, session="a"))
    assert sequence.engines == [hanging, 1 - hanging]
    served.vllms[hanging].hangs = False
    await_live(served, 0, 1)


def test_a_call_that_all_engines_fail_is_to_blame_itself(opened):
    """It fails alone, and both engines stay."""
    served = opened(count=2)
    for vllm in served.vllms:
        vllm.failing.add(GENERATE)
    with pytest.raises(EngineFailed, match="generate with 500"):
        answered(ask(served.engine))
    for vllm in served.vllms:
        vllm.failing.clear()
    await_live(served, 0, 1)
    assert answered(ask(served.engine))


def test_a_stream_goes_on_where_another_engine_has_ended(opened):
    """The tokens that have come stay; those that follow are sampled after them, with the same weights."""
    served = opened(count=2)
    cut = served.vllms[home_of(served, "a")]
    cut.cut = 1
    request = ask(served.engine, session="a", stream=True, max_tokens=8)
    (sequence,) = answered(request)
    assert len(sequence.engines) == 2
    assert [token for delta in request.listener.deltas for token in delta.token_ids] == sequence.token_ids
    assert len(sequence.token_ids) == 8
    assert_exact(served, sequence)


@pytest.mark.parametrize("lora", [True, False])
def test_an_engine_that_was_started_again_gets_its_weights_back(opened, lora):
    """It has answered with other weights, which the name or the stamp tells: the call is repeated elsewhere."""
    served = opened(count=2, lora=lora)
    train(served.engine)
    lost = home_of(served, "a")
    served.vllms[lost].start_again()
    (sequence,) = answered(ask(served.engine, session="a"))
    assert sequence.engines == [lost, 1 - lost]
    assert_exact(served, sequence)
    await_live(served, 0, 1)
    assert_exact(served, answered(ask(served.engine, session="b"))[0])
    assert served.failures == []


def test_no_engine_goes_on_with_tokens_of_other_weights(opened):
    """A stream names its weights at the end: what came of others cannot be taken back, so the request fails."""
    served = opened(count=2, lora=False)
    train(served.engine)
    lost = home_of(served, "a")
    served.vllms[lost].start_again()
    with pytest.raises(BackendError, match="an answer has tokens of other weights: vLLM does not have the weights of"):
        answered(ask(served.engine, session="a", stream=True))
    await_live(served, 0, 1)
    assert_exact(served, answered(ask(served.engine, session="a", stream=True))[0])
    assert served.failures == []


def spoiled(**changes):
    """Answers whose choice, or each of its log probabilities, has other values."""

    def spoil(answer):
        own = answer["choices"][0]
        own |= {name: value for name, value in changes.items() if name in own}
        for entry in own["logprobs"]["content"]:
            entry |= {name: value for name, value in changes.items() if name in entry}
        return answer

    return spoil


SPOILS = (
    lambda _: "",
    lambda _: {"error": {"message": "overloaded"}},
    lambda answer: {**answer, "choices": []},
    spoiled(finish_reason=None, token_ids=[], logprobs={"content": []}),
    spoiled(logprobs={"content": []}),
    spoiled(token_id=3),
    spoiled(token_ids=[10**9], logprobs={"content": [{"token_id": 10**9, "logprob": -1.0}]}),
    spoiled(token_ids=[-1], logprobs={"content": [{"token_id": -1, "logprob": -1.0}]}),
    spoiled(logprob=math.nan),
    spoiled(logprob=-math.inf),
    spoiled(logprob=5.0),
    spoiled(logprob=None),
    spoiled(top_logprobs=[{"token_id": 10**30, "logprob": -1.0}]),
    spoiled(top_logprobs=[{"token_id": 3, "logprob": math.nan}]),
)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_is_none_is_sampled_elsewhere(opened, stream):
    """No id outside the vocabulary, no number that is no log probability, and no answer without an end counts."""
    served = opened(count=2, output=None)
    for spoil in SPOILS:
        home = home_of(served, "a")
        served.vllms[home].spoils = spoil
        (sequence,) = answered(ask(served.engine, session="a", stream=stream))
        assert sequence.engines == [home, 1 - home]
        assert_exact(served, sequence)
        served.vllms[1 - home].spoils = spoil
        with pytest.raises(EngineFailed):
            answered(ask(served.engine, session="a", stream=stream))
        for vllm in served.vllms:
            vllm.spoils = dict
        await_live(served, 0, 1)


def test_without_an_engine_the_backend_ends(opened):
    """The failure names each engine, is reported once, and later calls get it, too."""
    served = opened(count=2)
    for vllm in served.vllms:
        vllm.may_answer.clear()
    requests = [ask(served.engine, session=str(at)) for at in range(4)]
    for vllm in served.vllms:
        assert vllm.entered.wait(DEADLINE)
        vllm.die()
    for request in requests:
        with pytest.raises(EngineStopped, match=r"no vLLM engine is left: engine 0: .*; engine 1: "):
            answered(request)
    assert len(served.failures) == 1
    with pytest.raises(EngineStopped, match="no vLLM engine is left"):
        ask(served.engine)


def test_servers_that_are_not_trained_may_all_come_back(opened):
    """Calls fail meanwhile."""
    served = opened(count=2, lora=False, output=None)
    for vllm in served.vllms:
        vllm.die()
    with pytest.raises(EngineStopped, match="does not answer"):
        answered(ask(served.engine))
    for vllm in served.vllms:
        vllm.listen()
    await_live(served, 0, 1)
    assert answered(ask(served.engine))


@pytest.mark.parametrize("lora", [True, False])
def test_an_engine_that_fails_the_hand_over_gets_no_call_before_it_has_the_weights(opened, lora):
    """The update is proven on the others; then all have one version."""
    served = opened(count=3, lora=lora)
    route = "/v1/load_lora_adapter" if lora else "/collective_rpc"
    served.vllms[1].failing.add(route)
    learner = learner_of(served.engine)
    assert train(served.engine, learner)["served_diff_max"] < 1e-4
    await_live(served, 0, 2)
    assert train(served.engine, learner)["served_diff_max"] < 1e-4
    served.vllms[1].failing.clear()
    await_live(served, 0, 1, 2)
    for session in "abc":
        (sequence,) = answered(ask(served.engine, session=session))
        assert_exact(served, sequence)
    assert len({vllm.stamp for vllm in served.vllms}) == 1
    assert served.failures == []


def test_an_engine_that_dies_in_the_hand_over_leaves(opened):
    """Its connection ends while it loads the weights."""
    served = opened(count=2, lora=False)
    served.vllms[1].hangs = True
    served.engine._loop.call_later(0.5, served.vllms[1].die)
    assert train(served.engine)["served_diff_max"] < 1e-4
    await_live(served, 0)
    served.vllms[1].hangs = False
    served.vllms[1].start_again()
    served.vllms[1].listen()
    await_live(served, 0, 1)


@pytest.mark.parametrize("lora", [True, False])
def test_a_hand_over_that_all_engines_fail_fails_the_update(opened, lora):
    """With adapters, they answer with the old weights; after a reload that failed everywhere, none answers."""
    served = opened(count=2, lora=lora)
    for vllm in served.vllms:
        vllm.failing.add("/v1/load_lora_adapter" if lora else "/collective_rpc")
    with pytest.raises(HandOverFailed):
        train(served.engine)
    if lora:
        assert served.failures == []
        assert answered(ask(served.engine))
    else:
        assert [type(failure) for failure in served.failures] == [EngineStopped]


def test_an_engine_that_hangs_in_a_proof_is_given_up(opened):
    """It says that it is well; no update waits for it, and it returns once it answers."""
    served = opened(count=2)
    hanging = home_of(served, "a")
    vllm, engine = served.vllms[hanging], served.engine
    vllm.failing.add(GENERATE)
    answered(ask(engine, session="a"))
    vllm.may_answer.clear()
    vllm.entered.clear()
    vllm.failing.clear()
    assert vllm.entered.wait(DEADLINE)
    proof = engine._caller.score([probe_row(served.loaded)], engine._served, engine._fleet.replicas[hanging], seconds=0)
    with pytest.raises(EngineStopped, match="vLLM did not score 11 tokens within 0 s"):
        engine._await(proof)
    assert train(engine)["served_diff_max"] < 1e-4
    await_live(served, 1 - hanging)
    vllm.may_answer.set()
    await_live(served, 0, 1)
    for session in "abc":
        assert_exact(served, answered(ask(engine, session=session))[0])


@pytest.mark.parametrize("answer", [Response("<html>"), RedirectResponse("http://127.0.0.1:1"), JSONResponse([1])])
def test_what_is_no_vllms_answer_is_no_hand_over(opened, answer):
    """A proxy's page or redirect instead of a control route's answer: the engine leaves, and returns later."""
    served = opened(count=2, lora=False)
    served.vllms[1].instead["/reset_prefix_cache"] = answer
    assert train(served.engine)["served_diff_max"] < 1e-4
    await_live(served, 0)
    served.vllms[1].instead.clear()
    await_live(served, 0, 1)
    assert served.failures == []


def test_a_redirected_adapter_is_no_hand_over(opened):
    """The error says what the server answered."""
    served = opened()
    served.vllm.instead["/v1/load_lora_adapter"] = RedirectResponse("http://127.0.0.1:1")
    with pytest.raises(HandOverFailed, match="vLLM answered POST /v1/load_lora_adapter with 307"):
        train(served.engine)


def test_two_engines_that_die_in_the_hand_over_end_the_backend(opened):
    """The update fails, and so does each later call."""
    served = opened(count=2)
    for vllm in served.vllms:
        vllm.hangs = True
        served.engine._loop.call_later(0.3, vllm.die)
    with pytest.raises(EngineStopped):
        train(served.engine)
    deadline = time.monotonic() + DEADLINE
    while not served.failures and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(EngineStopped, match="no vLLM engine is left"):
        ask(served.engine)
    for vllm in served.vllms:
        vllm.hangs = False


def test_each_engine_is_proven(opened):
    """One that loads and changes nothing fails the update, however many others have the new weights."""
    served = opened(count=3, prepare=lambda last: setattr(last, "ignores_weights", True))
    with pytest.raises(UpdateRejected, match="the sampler disagrees with the learner"):
        train(served.engine)
    assert served.engine.policy_version == "m@0"
    assert_exact(served, answered(ask(served.engine))[0])


def test_a_rejected_update_is_taken_back_everywhere(opened):
    """All engines answer with the restored weights."""
    served = opened(count=2, lora=False)
    with pytest.raises(UpdateRejected):
        train(served.engine, max_served_difference=1e-12)
    for session in "abcd":
        assert_exact(served, answered(ask(served.engine, session=session))[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda vllm: vllm.absent.add("/v1/load_lora_adapter"), "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"),
        (lambda vllm: setattr(vllm, "base", "other"), "name their model differently"),
        (lambda vllm: vllm.die(), "no vLLM answers at http://127.0.0.1"),
        (lambda vllm: setattr(vllm, "raw_logprobs", True), "--logprobs-mode processed_logprobs"),
    ],
)
def test_at_the_start_all_engines_must_be_usable(opened, change, message):
    """One that is not is an error, not an engine that is away."""
    with pytest.raises(EngineNotStarted) as caught:
        opened(count=2, prepare=change)
    assert message in str(caught.value)


def test_closing_does_not_wait_for_an_engine_that_is_away(opened):
    """Nothing is looked after any more."""
    served = opened(count=2)
    served.vllms[0].die()
    await_live(served, 1)
    served.engine.close()

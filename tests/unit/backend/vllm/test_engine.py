"""Requests over vLLM, and the order of an update; the server is scripted and its numbers are a model's own."""

import threading

import pytest

from fakes.vllm_requests import DEADLINE, answered, ask, learner_of, train
from nat.backend.training.mismatch import served_logprobs
from nat.backend.vllm.checks import probe_row
from nat.errors import EngineFailed, UpdateRejected, WeightsReplaced


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_answers_carry_the_models_log_probabilities(opened, temperature):
    """Token ids, log probabilities, alternatives, reason and version are vLLM's and the model's."""
    served = opened()
    request = ask(served.engine, count=2, temperature=temperature, top_logprobs=2)
    for sequence in answered(request):
        ids = sequence.prompt_ids + sequence.token_ids
        row = probe_row(served.loaded)
        row = type(row)(0, 0, 0, ids[:-1], list(range(2, 10)), ids[3:], [], [0.0] * 8, temperatures=[temperature] * 8)
        assert served_logprobs(served.loaded, [row])[0].tolist() == pytest.approx(sequence.logprobs, abs=1e-5)
        assert [len(top) for top in sequence.top_logprobs] == [2] * 8
        assert all(top[0][1] >= top[1][1] for top in sequence.top_logprobs)
        assert (sequence.finish_reason, sequence.num_reused) == ("length", 2)
    assert request.policy_version == "m@0"


def test_a_stream_and_a_stop_text_give_the_same_tokens(opened):
    """A seed decides the tokens; a stream delivers them in parts, and a stop text ends them."""
    served = opened()
    (whole,) = answered(ask(served.engine, seed=3))
    streamed = ask(served.engine, seed=3, stream=True)
    (sequence,) = answered(streamed)
    assert sequence.token_ids == whole.token_ids
    deltas = streamed.listener.deltas
    assert [token for delta in deltas for token in delta.token_ids] == whole.token_ids
    assert "".join(delta.text for delta in deltas) == served.loaded.tokenizer.decode(whole.token_ids)
    text = served.loaded.tokenizer.decode(whole.token_ids[:5])
    (stopped,) = answered(ask(served.engine, seed=3, stop=(text[-1],)))
    assert stopped.finish_reason == "stop"
    assert stopped.token_ids == whole.token_ids[: len(stopped.token_ids)]
    assert len(stopped.token_ids) <= 5


@pytest.mark.parametrize("lora", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_an_update_is_handed_over_and_proven(opened, lora):
    """The probe agrees, the next answer has the new version, and its log probabilities are the new weights'."""
    served = opened(lora=lora)
    learner = learner_of(served.engine)
    for step in (1, 2):
        metrics = train(served.engine, learner)
        assert metrics["served_diff_max"] < 1e-4
        request = ask(served.engine, seed=1)
        assert len(answered(request)[0].token_ids) == 8
        assert request.policy_version == served.engine.policy_version == f"m@{step}"
        assert served.engine.names() == ["m", f"m@{step}"]
    if lora:
        assert served.vllm.calls == ["load 1", "load 2", "unload 1", "load 3", "unload 2"]
    else:
        once = ["/pause", "reload_weights", "/reset_prefix_cache", "/resume"]
        assert served.vllm.calls == once * 3


@pytest.mark.slow
def test_a_hand_over_waits_for_begun_requests(opened):
    """A request that began before the update is answered by the old weights, and the update ends after it."""
    served = opened()
    served.vllm.may_answer.clear()
    served.vllm.entered.clear()
    begun = ask(served.engine)
    assert served.vllm.entered.wait(DEADLINE)
    loads = served.vllm.calls.copy()
    finished_first = []
    learner = learner_of(served.engine)
    training = threading.Thread(target=lambda: (train(served.engine, learner), finished_first.append(begun.finished)))
    training.start()
    training.join(1)
    assert served.vllm.calls == loads
    served.vllm.may_answer.set()
    training.join(DEADLINE)
    assert finished_first == [True]
    assert begun.policy_version == "m@0"


def test_a_server_that_ignores_new_weights_is_found(opened):
    """A load that succeeds and changes nothing fails the update; the weights before are served on."""
    served = opened(prepare=lambda vllm: setattr(vllm, "ignores_weights", True))
    before = answered(ask(served.engine, seed=1))[0].logprobs
    with pytest.raises(UpdateRejected, match="the sampler disagrees with the learner"):
        train(served.engine)
    assert served.engine.policy_version == "m@0"
    assert served.vllm.calls == ["load 1", "load 2", "unload 2"]
    request = ask(served.engine, seed=1)
    assert answered(request)[0].logprobs == before
    assert request.policy_version == "m@0"


def test_a_rejected_update_gives_full_weights_back(opened):
    """The restored weights are loaded, so answers are those of before."""
    served = opened(lora=False)
    before = answered(ask(served.engine, seed=1))[0].logprobs
    with pytest.raises(UpdateRejected):
        train(served.engine, max_served_difference=1e-12)
    assert served.vllm.calls.count("reload_weights") == 3
    assert answered(ask(served.engine, seed=1))[0].logprobs == pytest.approx(before, abs=1e-6)


def test_after_a_failed_reload_no_request_is_sent(opened):
    """A server of the user's cannot be restarted from here: requests get a named error, and the failure is reported."""
    served = opened(lora=False)
    served.vllm.failing.add("/collective_rpc")
    sent = len(served.vllm.models)
    with pytest.raises(EngineFailed, match="collective_rpc with 500"):
        train(served.engine)
    assert [type(failure) for failure in served.failures] == [EngineFailed]
    with pytest.raises(EngineFailed, match="failed half-way"):
        ask(served.engine)
    assert len(served.vllm.models) == sent


@pytest.mark.slow
@pytest.mark.parametrize("lora", [True, False])
@pytest.mark.parametrize("stream", [True, False])
def test_a_server_that_was_started_again_is_found_at_the_next_answer(opened, lora, stream):
    """It has lost the weights of the update: the request fails, the failure is reported, and no other is sent."""
    served = opened(lora=lora)
    train(served.engine)
    assert answered(ask(served.engine, stream=stream))
    served.vllm.start_again()
    with pytest.raises(WeightsReplaced, match="does not have the weights of the last update"):
        answered(ask(served.engine, stream=stream))
    assert [type(failure) for failure in served.failures] == [WeightsReplaced]
    with pytest.raises(WeightsReplaced):
        ask(served.engine)


def test_all_calls_of_a_dead_vllm_fail_for_one_reason(opened):
    """Whatever it answers meanwhile, its health decides; the failure is reported once, and no other call is sent."""
    served = opened()
    served.vllm.may_answer.clear()
    requests = [ask(served.engine) for _ in range(3)]
    assert served.vllm.entered.wait(DEADLINE)
    served.vllm.failing |= {"/inference/v1/generate", "/health"}
    served.vllm.finish = "error"
    served.vllm.may_answer.set()
    reasons = set()
    for request in requests:
        with pytest.raises(EngineFailed) as caught:
            answered(request)
        reasons.add(str(caught.value))
    assert [str(failure) for failure in served.failures] == list(reasons)
    with pytest.raises(EngineFailed):
        ask(served.engine)


def test_a_canceled_request_is_dropped_and_others_go_on(opened):
    """Cancelling closes the connection; no event follows."""
    served = opened()
    served.vllm.may_answer.clear()
    request = ask(served.engine)
    assert served.vllm.entered.wait(DEADLINE)
    served.engine.cancel(request)
    served.vllm.may_answer.set()
    assert answered(ask(served.engine))
    assert not request.listener.done.is_set()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda vllm: setattr(vllm, "version", "0.29.1"), "vLLM '0.29.1'; versions 0.32 to 0.33"),
        (lambda vllm: vllm.absent.add("/inference/v1/generate"), "--enable-scale-out"),
        (lambda vllm: vllm.absent.add("/v1/load_lora_adapter"), "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"),
        (lambda vllm: setattr(vllm, "raw_logprobs", True), "--logprobs-mode processed_logprobs"),
        (lambda vllm: vllm.absent.add("/health"), "no vLLM answers at http://127.0.0.1"),
        (lambda vllm: setattr(vllm, "version", ""), "says that it is vLLM ''"),
        (lambda vllm: setattr(vllm, "context", 100), "set max_seq_length to 100, or start vLLM with --max-model-len"),
        (lambda vllm: vllm.adapters.clear(), "names no model at /v1/models"),
        (lambda vllm: setattr(vllm, "key", "key-of-vllm-1"), "set vllm_api_key, or VLLM_API_KEY"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_at_the_start(opened, change, message):
    """Each cause has its message and remedy."""
    with pytest.raises(EngineFailed) as caught:
        opened(prepare=change)
    assert message in str(caught.value)


def test_full_weights_need_the_control_routes(opened):
    """Without the development mode, weights cannot be reloaded."""
    with pytest.raises(EngineFailed) as caught:
        opened(lora=False, prepare=lambda vllm: vllm.absent.add("/collective_rpc"))
    assert "VLLM_SERVER_DEV_MODE=1" in str(caught.value)

from hypothesis import given
from hypothesis import strategies as st

from fakes.listeners import Recorder
from nat.backend.inference.scheduler import Scheduler
from nat.backend.inference.sequence import Request, SamplingParams, Sequence


def request(*prompt_lengths):
    params = SamplingParams(max_tokens=5)
    return Request([Sequence(i, [1] * n, params) for i, n in enumerate(prompt_lengths)], Recorder())


def advance(scheduler):
    """Apply a plan to the sequences as the engine would; gives the plan."""
    plan = scheduler.plan()
    for chunk in (*plan.decoding, *plan.prefill):
        sequence = scheduler.running[chunk.slot]
        sequence.num_cached = chunk.end
        if sequence.prefilled:
            sequence.token_ids.append(7)
    return plan


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(1, 4), st.integers(1, 20), st.data())
def test_slots_and_chunks_keep_their_invariants(prompts, slots, room, data):
    """Decoding comes first, at most one prompt is partial, cache slots follow their sequences, and all finish."""
    scheduler = Scheduler(slots, room)
    for n in prompts:
        scheduler.add(request(n))
    cache = {}  # slot -> the sequence whose keys lie there
    finished = 0
    while scheduler.running or scheduler.waiting:
        scheduler.admit("m@0", draining=False)
        plan = advance(scheduler)
        assert [c.slot for c in plan.decoding] == list(range(len(plan.decoding)))
        assert sum(len(c.token_ids) for c in plan.prefill) <= max(room, 1)
        assert all(c.start == 0 or cache[c.slot] is scheduler.running[c.slot] for c in (*plan.decoding, *plan.prefill))
        assert sum(0 < s.num_cached < len(s.prompt_ids) for s in scheduler.running) <= 1
        cache.update({c.slot: scheduler.running[c.slot] for c in plan.prefill})
        leaving = {
            id(s) for s in scheduler.running if len(s.token_ids) >= 5 or (s.token_ids and data.draw(st.booleans()))
        }
        finished += len(leaving)
        for move in scheduler.remove(leaving):
            cache[move.target] = cache[move.source]
    assert finished == len(prompts)


def test_while_draining_only_started_requests_continue():
    """A second choice of a started request still runs; the next request waits."""
    scheduler = Scheduler(max_num_seqs=1, max_step_tokens=100)
    first, second = request(3, 3), request(3)
    scheduler.add(first)
    scheduler.add(second)
    scheduler.admit("m@0", draining=False)
    scheduler.remove({id(first.sequences[0])})
    scheduler.admit("m@0", draining=True)
    assert scheduler.running == [first.sequences[1]]
    scheduler.remove({id(first.sequences[1])})
    scheduler.admit("m@0", draining=True)
    assert scheduler.running == []
    scheduler.admit("m@1", draining=False)
    assert (first.policy_version, second.policy_version) == ("m@0", "m@1")

from contextvars import ContextVar

from nat.builder.threads import ContextThreadPool

rollout: ContextVar[str] = ContextVar("rollout", default="none")


def test_a_call_sees_the_context_that_it_was_submitted_in() -> None:
    """A thread that is used again sees the next one's."""
    with ContextThreadPool(max_workers=1) as pool:
        seen = []
        for name in ("first", "second"):
            rollout.set(name)
            seen.append(pool.submit(rollout.get).result())
    assert seen == ["first", "second"]


def test_what_a_call_sets_stays_its_own() -> None:
    """Each call has a copy."""
    rollout.set("mine")
    with ContextThreadPool(max_workers=1) as pool:
        pool.submit(rollout.set, "its own").result()
        assert pool.submit(rollout.get).result() == "mine"
    assert rollout.get() == "mine"

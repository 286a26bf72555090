from contextvars import ContextVar

from nat.builder.threads import ContextThreadPool

rollout: ContextVar[str] = ContextVar("rollout", default="none")


def test_a_call_sees_the_context_of_its_submission() -> None:
    """A thread that is used again sees the context of the next call."""
    with ContextThreadPool(max_workers=1) as pool:
        seen = []
        for name in ("first", "second"):
            rollout.set(name)
            seen.append(pool.submit(rollout.get).result())
    assert seen == ["first", "second"]

"""The tap reads, completes and records the calls of one LLM, whatever library or process sends them.

Before sending, `Tap.open` returns an `Attempt` with the `body` and `headers` to send. After an error status,
`body_without_refused` returns what to send instead, if that helps. A response goes through `begin`, `feed` and `end`,
which return what the agent gets of it. Other ends are `left`, `lost`, `failed` and `canceled`; what comes
after an end is ignored.
"""

import contextvars
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from nat.capture.context import CapturePolicy, RolloutCapture, address_of, capture_context, served_name, stable_seed
from nat.capture.request import (
    CallRequest,
    missing_defaults,
    read_request,
    recording_fields,
    with_fields,
    with_model,
    with_system_text,
)
from nat.capture.response import HiddenFields, ResponseReader, UnreadableAnswer, read_choices
from nat.capture.steps import FailedCall, call_steps, failure_steps
from nat.data_models.intermediate_step import IntermediateStepPayload
from nat.data_models.llm import LLMFrameworkEnum
from nat.data_models.rollout_failure import one_line
from nat.errors import describe_error
from nat.secrets import excerpt
from nat.wire.openai_api import SESSION_HEADER
from nat.wire.sampling import read_sampling, replaced

logger = logging.getLogger(__name__)

Push = Callable[[IntermediateStepPayload], None]
"""Receives the steps of a call, in the context variables of the call."""

_REFUSAL_STATUS = frozenset({400, 422})
_ERROR_CHARS = 500


class Tap:
    """The calls of one LLM."""

    def __init__(
        self,
        push: Push,
        *,
        llm_name: str | None = None,
        framework: LLMFrameworkEnum | None = None,
        base_url: str | None = None,
        defaults: Mapping[str, Any] | None = None,
        system_text: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`base_url` is the server's; `defaults` are fields for requests that set none.

        `system_text` is added to the system message of each chat that does not have it.
        """
        self.push = push
        self.llm_name = llm_name
        self.framework = framework
        self.server = None if base_url is None else address_of(base_url)
        self.defaults = {key: value for key, value in (defaults or {}).items() if value is not None}
        self.system_text = system_text
        self.clock = clock
        self.server_knows_token_ids = True
        self.last_failure: str | None = None
        """The error of the last call, which is logged once for all calls in a row that end with it."""

    def open(self, path: str, body: bytes) -> "Attempt | None":
        """An attempt at a call; None if the body is malformed, which the server will report."""
        request = read_request(path, body)
        if request is None:
            return None
        if self.system_text is not None and request.chat:
            request, body = with_system_text(request, body, self.system_text)
        requested, served = request.model, served_name(self.server, request.model, self.llm_name)
        if served != requested:
            body = with_model(body, request.fields, served)
            request = replace(request, fields={**request.fields, "model": served})
        capture = capture_context().rollout or RolloutCapture(CapturePolicy())
        return Attempt(self, request, body, capture, requested_model=requested)


class Attempt:
    """One request; it ends as a recorded call or as a failure."""

    def __init__(
        self, tap: Tap, request: CallRequest, body: bytes, capture: RolloutCapture, *, requested_model: str
    ) -> None:
        self._tap = tap
        self._request = request
        self._requested_model = requested_model
        self._author_body = body
        self._capture = capture
        self._llm = tap.llm_name or request.model
        self.server = f"LLM '{self._llm}'" + ("" if tap.server is None else f" at {tap.server}")
        """For people."""
        self.headers = {SESSION_HEADER: capture.session} if capture.session and capture.policy.token_ids else {}
        """To add to the request."""
        self._context = contextvars.copy_context()
        self._started = tap.clock()
        self._number = capture.begin(self)
        self._reader: ResponseReader | None = None
        self.close: Callable[[], Awaitable[None]] | None = None
        """Closes the stream; None unless the agent has a piece of it, and may have left."""
        self.hidden = HiddenFields()
        """The fields that are removed from the response before the agent gets it."""
        self.body = self._complete(token_ids=tap.server_knows_token_ids)

    def body_without_refused(self, status: int, content: bytes) -> bytes | None:
        """The body to send after the server refused `return_token_ids`; None if it refused something else."""
        if not self.hidden.token_ids or status not in _REFUSAL_STATUS or b"return_token_ids" not in content:
            return None
        logger.warning(
            "the server of LLM %r refuses return_token_ids, so later requests leave it out; "
            "its answers have no exact token ids",
            self._llm,
        )
        self._tap.server_knows_token_ids = False
        self.body = self._complete(token_ids=False)
        return self.body

    def begin(self, *, events: bool) -> None:
        """The server answers with a success status; `events` is True for a stream."""
        self._reader = ResponseReader(self._request, self.hidden, events=events)

    def feed(self, chunk: bytes) -> bytes:
        """What the agent gets after a part of the response."""
        assert self._reader is not None, "the response has begun"
        return self._reader.feed(chunk)

    def end(self) -> bytes:
        """What the agent gets at the end of the response."""
        assert self._reader is not None, "the response has begun"
        visible = self._reader.end()
        self._settle()
        return visible

    def left(self) -> None:
        """The agent, or its rollout, reads no further: the answer is what has come."""
        if self._reader is None:
            self.canceled("the rollout ended before the answer came")
        self._settle(left=True)

    def lost(self, error: str) -> bytes:
        """The connection broke; returns the rest of an answer that was complete."""
        if self._reader is not None and self._reader.is_finished:
            return self.end()
        self.failed(error)
        return b""

    def failed(self, error: str, *, status: int | None = None) -> None:
        """There was no answer: an error status or a lost connection."""
        error = excerpt(error, _ERROR_CHARS)
        if self in self._capture.open and error != self._tap.last_failure:
            logger.info("a call of LLM %r failed: %s", self._llm, one_line(error))
        self._tap.last_failure = error
        self.canceled(error, status)

    def canceled(self, error: str, status: int | None = None) -> None:
        """There was no answer, and no log needs to say it: after Ctrl-C, all calls end so."""
        failed = FailedCall(model=self._request.model, llm_name=self._tap.llm_name, status=status, error=error)
        self._end(failure_steps(failed, (self._started, self._tap.clock()), self._tap.framework), failed=True)

    def _settle(self, *, left: bool = False) -> None:
        """The call with its answer, or that it has none."""
        if self._reader is None or self not in self._capture.open:
            return
        try:
            steps = self._steps(self._reader.completion(left=left))
        except UnreadableAnswer as error:
            self.failed(str(error))
        except (ValueError, TypeError, AttributeError, LookupError, RuntimeError) as error:
            # JSON of any other shape, or a thread that still reads after the rollout's end
            self.failed(f"the answer is not a completion: {describe_error(error)}")
        else:
            self._tap.last_failure = None
            self._end(steps, failed=False)

    def _end(self, steps: Iterable[IntermediateStepPayload], *, failed: bool) -> None:
        if self._capture.end(self, failed=failed):
            for step in steps:
                self._context.run(self._tap.push, step)

    def _complete(self, *, token_ids: bool) -> bytes:
        policy = self._capture.policy
        if policy.token_ids and not token_ids:
            policy = replace(policy, token_ids=False)
        fields, chat = self._request.fields, self._request.chat
        seed = policy.seed  # the config's alone would make all generations equal
        if seed is not None:
            seed = stable_seed(seed, self._tap.defaults.get("seed", 0), self._number)
        own = missing_defaults(fields, chat=chat, defaults=self._tap.defaults, seed=seed)
        names = {self._tap.llm_name, self._request.model, self._requested_model}  # of the call's LLM
        if policy.replaced is not None and (names & policy.replaced.names or not policy.replaced.names):
            own |= replaced({**fields, **own}, policy.replaced.temperature)
        self._sampling = read_sampling({**fields, **own})
        ours = recording_fields({**fields, **own}, chat=chat, policy=policy)
        self.hidden = HiddenFields(logprobs="logprobs" in ours, token_ids="return_token_ids" in ours)
        return with_fields(self._author_body, fields, {**own, **ours})

    def _steps(self, completion: dict[str, Any]) -> list[IntermediateStepPayload]:
        interner, times = self._capture.interner, (self._started, self._tap.clock())
        tools = interner.tools(self._request.tools)
        conversations = [interner.messages(messages) for messages in self._request.conversations]
        usage, steps = completion.get("usage") or {}, list[IntermediateStepPayload]()
        for choice in read_choices(completion, self._request):
            call = choice.call
            call.llm_name, call.requested_model = self._tap.llm_name, self._requested_model
            call.temperature = self._sampling.temperature
            call.untrainable_by = list(self._sampling.untrainable_by)
            call.messages, call.tools = conversations[choice.conversation], tools
            call.message = interner.message(call.message)
            if call.prompt_token_ids is not None:
                call.prompt_token_ids = interner.prompt_ids(call.prompt_token_ids)
                interner.sampled(call.prompt_token_ids, call.token_ids or [])
            steps += call_steps(choice, usage, times, self._tap.framework)
            usage = {}
        return steps

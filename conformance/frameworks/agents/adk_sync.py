"""The scripted agent in Google ADK's blocking API, which runs each turn in a thread with its own event loop."""

import asyncio

from conformance.frameworks.agents.adk import user_message
from conformance.frameworks.talks import Talk
from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.models import BaseLlm
from google.adk.runners import InMemoryRunner
from google.adk.tools import BaseTool

WRAPPER = "adk"
PACKAGES = ("google-adk", "litellm")
CANNOT: dict[str, str] = {}


def talk(llm: BaseLlm, tools: list[BaseTool], talk: Talk) -> list[str]:
    """One run of the agent per user message, all in one session."""
    agent = LlmAgent(name="assistant", model=llm, instruction=talk.system, tools=[*tools])
    runner = InMemoryRunner(agent, app_name="talk")
    session = asyncio.run(runner.session_service.create_session(app_name="talk", user_id="user"))
    streaming = RunConfig(streaming_mode=StreamingMode.SSE if talk.stream else StreamingMode.NONE)
    answers = []
    for said in talk.says:
        answer = ""
        for event in runner.run(
            user_id="user", session_id=session.id, new_message=user_message(said), run_config=streaming
        ):
            if event.is_final_response() and event.content is not None:
                answer = "".join(part.text or "" for part in event.content.parts or ())
        answers.append(answer)
    return answers

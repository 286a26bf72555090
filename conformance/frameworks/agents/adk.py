"""The scripted agent in Google ADK: an LlmAgent under a Runner, whose session remembers the conversation."""

from conformance.frameworks.talks import Said, Talk
from google.adk.agents import LlmAgent, RunConfig
from google.adk.agents.run_config import StreamingMode
from google.adk.models import BaseLlm
from google.adk.runners import InMemoryRunner
from google.adk.tools import BaseTool
from google.genai.types import Content, Part

WRAPPER = "adk"
PACKAGES = ("google-adk", "litellm")
CANNOT: dict[str, str] = {}


async def talk(llm: BaseLlm, tools: list[BaseTool], talk: Talk) -> list[str]:
    """One run of the agent per user message, all in one session."""
    agent = LlmAgent(name="assistant", model=llm, instruction=talk.system, tools=[*tools])
    runner = InMemoryRunner(agent, app_name="talk")
    session = await runner.session_service.create_session(app_name="talk", user_id="user")
    streaming = RunConfig(streaming_mode=StreamingMode.SSE if talk.stream else StreamingMode.NONE)
    answers = []
    for said in talk.says:
        answer = ""
        async for event in runner.run_async(
            user_id="user", session_id=session.id, new_message=user_message(said), run_config=streaming
        ):
            if event.is_final_response() and event.content is not None:
                answer = "".join(part.text or "" for part in event.content.parts or ())
        answers.append(answer)
    return answers


def user_message(said: Said) -> Content:
    parts = [Part(text=said.text)]
    if said.image_url is not None:
        parts.append(Part.from_bytes(data=said.picture, mime_type="image/png"))
    return Content(role="user", parts=parts)

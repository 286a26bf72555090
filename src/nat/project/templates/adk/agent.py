"""The agent, with Google ADK. Put yours in `make_agent`."""

from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.genai.types import Content, Part

FRAMEWORK = "adk"
INSTRUCTION = "Use your tools, then answer with the number alone."


def make_agent(llm, tools):
    """Return the function that answers a question; `llm` is a LiteLlm."""
    agent = LlmAgent(name="assistant", model=llm, instruction=INSTRUCTION, tools=tools)

    async def answer(question: str) -> str:
        runner = InMemoryRunner(agent, app_name="agent")  # it keeps its sessions
        session = await runner.session_service.create_session(
            app_name="agent", user_id="user"
        )
        said = ""
        async for event in runner.run_async(
            user_id="user",
            session_id=session.id,
            new_message=Content(role="user", parts=[Part(text=question)]),
        ):
            if event.is_final_response() and event.content:
                said = "".join(part.text or "" for part in event.content.parts or [])
        return said

    return answer

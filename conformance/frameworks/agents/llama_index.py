"""The scripted agent in LlamaIndex: a FunctionAgent, and a memory of its conversation."""

from conformance.frameworks.talks import Said, Talk
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import LLM, ChatMessage, ImageBlock, TextBlock
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.tools import FunctionTool

WRAPPER = "llama_index"
PACKAGES = ("llama-index-core", "llama-index-llms-openai-like")
CANNOT: dict[str, str] = {}


async def talk(llm: LLM, tools: list[FunctionTool], talk: Talk) -> list[str]:
    """One run of the agent per user message, all with one memory."""
    agent = FunctionAgent(llm=llm, tools=[*tools], system_prompt=talk.system, streaming=talk.stream)
    memory = ChatMemoryBuffer.from_defaults(llm=llm)
    answers = []
    for said in talk.says:
        run = agent.run(user_msg=user_message(said), memory=memory)
        if talk.stream:
            async for _event in run.stream_events():
                pass
        output = await run
        answers.append(output.response.content or "")
    return answers


def user_message(said: Said) -> ChatMessage:
    blocks: list[TextBlock | ImageBlock] = [TextBlock(text=said.text)]
    if said.image_url is not None:
        blocks.append(ImageBlock(url=said.image_url))
    return ChatMessage(role="user", blocks=blocks)

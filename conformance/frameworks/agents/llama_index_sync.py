"""The scripted agent with LlamaIndex's blocking calls; its agents have no blocking API, so the loop is ours."""

from conformance.frameworks.agents.llama_index import user_message
from conformance.frameworks.talks import Talk
from llama_index.core.base.llms.types import ChatResponse
from llama_index.core.llms import ChatMessage
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.tools import FunctionTool
from llama_index.core.tools.calling import call_tool_with_selection

WRAPPER = "llama_index"
PACKAGES = ("llama-index-core", "llama-index-llms-openai-like")
CANNOT: dict[str, str] = {}


def talk(llm: FunctionCallingLLM, tools: list[FunctionTool], talk: Talk) -> list[str]:
    """Ask, run the tools that were called, ask again, until there is an answer."""
    history = [ChatMessage(role="system", content=talk.system)]
    answers = []
    for said in talk.says:
        history.append(user_message(said))
        while True:
            response = _asked(llm, tools, history, stream=talk.stream)
            history.append(response.message)
            calls = llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
            if not calls:
                answers.append(response.message.content or "")
                break
            for call in calls:
                result = call_tool_with_selection(call, tools)
                told = {"tool_call_id": call.tool_id}
                history.append(ChatMessage(role="tool", content=result.content, additional_kwargs=told))
    return answers


def _asked(
    llm: FunctionCallingLLM, tools: list[FunctionTool], history: list[ChatMessage], *, stream: bool
) -> ChatResponse:
    if not stream:
        return llm.chat_with_tools(tools, chat_history=history, allow_parallel_tool_calls=True)
    *_, last = llm.stream_chat_with_tools(tools, chat_history=history, allow_parallel_tool_calls=True)
    return last

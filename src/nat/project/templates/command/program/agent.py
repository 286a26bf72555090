"""The agent: a program that reads a question and prints its answer, in any language.

Its environment names the model's server: OPENAI_BASE_URL and OPENAI_API_KEY.
"""

import json
import os
import sys
from urllib.request import Request, urlopen

INSTRUCTION = "Use your tools, then answer with the number alone."
MOST_CALLS = 8
NUMBER = {"type": "integer"}
ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "parameters": {
        "type": "object",
        "properties": {"a": NUMBER, "b": NUMBER},
        "required": ["a", "b"],
    },
}


def ask_model(messages):
    tools = [{"type": "function", "function": ADD}]
    body = {"model": "any name", "messages": messages, "tools": tools}
    request = Request(
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        json.dumps(body).encode(),
        {
            "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
            "Content-Type": "application/json",
        },
    )
    with urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]


def result_of(call):
    try:
        arguments = json.loads(call["function"]["arguments"])
        return str(arguments["a"] + arguments["b"])
    except (ValueError, KeyError, TypeError) as error:
        return f"Error: {error}"  # for the model to read


def answer(question):
    messages = [
        {"role": "system", "content": INSTRUCTION},
        {"role": "user", "content": question},
    ]
    for _ in range(MOST_CALLS):
        message = ask_model(messages)
        if not message.get("tool_calls"):
            return message["content"] or ""
        messages.append(message)
        for call in message["tool_calls"]:
            said = {"role": "tool", "tool_call_id": call["id"]}
            messages.append({**said, "content": result_of(call)})
    return ""


print(answer(sys.stdin.read()))

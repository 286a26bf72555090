"""A program as workflow: it asks the gateway what its task says, and writes its answer and its score to files."""

import sys
from collections.abc import Mapping
from typing import Any

WORKFLOW: Mapping[str, Any] = {
    "_type": "command",
    "llm": "student",
    "command": [sys.executable, "agent.py"],
    "folder": "agent",
    "input": "file",
    "input_file": "task.json",
    "output": "file",
    "output_file": "answer.txt",
    "reward_file": "score",
}


def agent(score: str) -> str:
    """The source of `agent.py`; `score` is a Python expression over `said`, the answer."""
    return f"""
import json, os, pathlib, sys, urllib.request

def ask(text):
    body = {{"model": "claude", "max_tokens": 9, "messages": [{{"role": "user", "content": text}}]}}
    headers = {{"x-api-key": os.environ["ANTHROPIC_API_KEY"], "content-type": "application/json"}}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    answer = urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers))
    return json.load(answer)["content"][0]["text"]

said = ask(json.loads(pathlib.Path("task.json").read_text())["ask"])
if said == "crash":
    sys.exit("the agent crashed")
pathlib.Path("answer.txt").write_text(said + "\\n")
pathlib.Path("score").write_text(str({score}))
print("a log line that is no answer")
"""

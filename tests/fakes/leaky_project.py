"""`nat finetune` in its own process, with an agent that prints everything that it knows.

python leaky_project.py FOLDER BASE_URL ENDING ARGUMENTS…     ENDING: good, or raises in the second job
"""

import json
import logging
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import yaml

from fakes.finetuning_project import Ask, FinetuningProject
from nat.cli.main import run_cli

IN_YAML = {
    "llms": {
        "judge": {
            "_type": "openai",
            "model_name": "${PLAIN_MODEL}",
            "base_url": "http://someone:url-password-1@SERVER/v1?sig=url-signature-1&v=2",
            "api_key": "yaml-api-key-1",
            "extra_body": {"default_headers": {"x-api-key": "header-key-1", "X-Other": "header-other-1"}},
        }
    },
    "functions": {
        "helper": {
            "_type": "command",
            "llm": "judge",
            "command": "true --api-key literal-option-1 --odd ${TOKEN_IN_COMMAND} # SERVICE_TOKEN=literal-assigned-1",
            "env": {"WEATHER_KEY": "literal-env-1", "MODE": "${SECRET_IN_ENV}"},
        }
    },
    "trainer_adapters": {
        "art": {
            "_type": "openpipe_art_trainer_adapter",
            "backend": {
                "ip": "127.0.0.1",
                "port": 9,
                "name": "n",
                "project": "p",
                "base_model": "m",
                "api_key": "art-key-1",
            },
        }
    },
}
IN_ENVIRONMENT = {
    "TOKEN_IN_COMMAND": "command-value-1",
    "SECRET_IN_ENV": 'env value "quoted" ümlaut-1',
    "STUDENT_KEY": "student-key-1",
    "SOME_TOKEN": "unmentioned-token-1",
    "PEM_SECRET": "-----BEGIN KEY-----\nfirst-line-of-key-1\nsecond-line-of-key-1\n-----END KEY-----",
}
OVERRIDE = ("llms.judge.api_key", "override-key-1")
SECRETS = [
    "yaml-api-key-1", "url-password-1", "url-signature-1", "header-key-1", "header-other-1", "literal-option-1",
    "literal-assigned-1", "literal-env-1", "command-value-1", "ümlaut-1", "student-key-1", "unmentioned-token-1",
    "first-line-of-key-1", "second-line-of-key-1", "art-key-1", "override-key-1",
]  # fmt: skip
"""Parts of the planted secrets, contained in every encoding of them; no output may contain them."""
PLAIN = {"PLAIN_MODEL": "some-model-2.5-with-a-long-name"}
"""Texts that the output must contain."""


def everything() -> str:
    """Everything that the agent knows, as a careless agent would print it."""
    return f"{yaml.safe_dump(IN_YAML)} {OVERRIDE} {IN_ENVIRONMENT}"


async def tell_all(question: str, ask: Ask) -> str:
    """Fail at every third example, with an exception or with the server's message about the key."""
    print(everything())
    print(everything(), file=sys.stderr)
    logging.getLogger("agent").info("I know %s", everything())
    if question.endswith("1"):
        raise ValueError(everything())
    return await ask(question)


def main(folder: str, base_url: str, ending: str, *arguments: str) -> None:
    warnings.simplefilter("ignore")
    server: Any = SimpleNamespace(base_url=base_url)
    project = FinetuningProject(Path(folder), server, tell_all)
    planted = json.loads(json.dumps(IN_YAML).replace("SERVER", urlsplit(base_url).netloc))  # where somebody listens
    for section, components in planted.items():
        project.config[section] = {**components, **project.config.get(section, {})}
    project.config["llms"]["student"]["api_key"] = "${STUDENT_KEY}"
    project.config["finetuning"]["max_failure_rate"] = 1.0
    if ending == "raises":
        project.adapter.outcomes = [{}, {"status": "failed", "message": everything()}]
    project.given()
    with project.registered():
        sys.argv = ["nat", *arguments]
        run_cli()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A server for ART's clients in its own process: sample, reward, train, restart and continue over HTTP."""

import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from fakes.art_clients import ArtClient
from fakes.processes import DEADLINE, NAT, Processes, environment_without, first_line, stop
from fakes.tiny_model import make_tiny_model

ART = ArtClient("0.5.0")
PROMPT = [{"role": "user", "content": "the"}]


@dataclass
class Server:
    """A running process and clients of its two ports; the control client waits 5 seconds, as ART's does."""

    process: subprocess.Popen[str]
    control: httpx.Client
    inference: httpx.Client

    def tell(self, path: str, body: object = None) -> object:
        answer = self.control.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def prepare(self) -> list[str]:
        self.tell("/register", ART.model(registered=False))
        body = ART.prepare(config=None)
        return self.control.post("/_prepare_backend_for_training", json=body, timeout=DEADLINE).json()

    def sample(self, model: str) -> list[dict]:
        """Sample 64 answers of one token with fixed seeds."""
        body = {"model": model, "messages": PROMPT, "n": 64, "max_completion_tokens": 1, "seed": 7}
        answer = self.inference.post("/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"]

    def train(self, choices: list[dict], good: str) -> list[dict]:
        """Make one training call; gives its lines."""
        body = ART.train(trajectory_groups=rewarded(choices, good), config={"learning_rate": 5e-3, "beta": 0.0})
        with self.control.stream("POST", "/_train_model", json=body, timeout=DEADLINE) as answer:
            assert answer.status_code == 200, answer.read()
            return [json.loads(line) for line in answer.iter_lines()]

    def stop(self) -> None:
        stop(self.process)


def token_of(choice: dict) -> str:
    return choice["logprobs"]["content"][0]["token"]


def by_frequency(choices: list[dict]) -> list[str]:
    return [token for token, _ in Counter(map(token_of, choices)).most_common()]


def rewarded(choices: list[dict], good: str) -> list[dict]:
    """One group in which the answers with the good token have the reward."""
    return [{"trajectories": [ART.trajectory(float(token_of(c) == good), c) for c in choices], "exceptions": []}]


def logprob_of(choices: list[dict], token: str) -> float:
    """The log probability of the token, read from an answer with that token."""
    return next(c["logprobs"]["content"][0]["logprob"] for c in choices if token_of(c) == token)


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@contextmanager
def servers(model_dir: Path, output_dir: Path, variables: dict[str, str]) -> Iterator[Callable[[], Server]]:
    """Start servers without a key of their own, one after the other; those that still run at the end are killed."""
    options = {"model": model_dir, "port": 0, "inference_port": 0, "output_dir": output_dir, "threads": 1}
    command = ["-c", NAT, "backend", "serve", *(f"--{name}={value}" for name, value in options.items())]
    with Processes() as processes:

        def start_one() -> Server:
            process = processes.start(*command, env=environment_without("NAT_BACKEND_API_KEY") | variables)
            ready = json.loads(first_line(process))
            control = processes.enter_context(
                httpx.Client(base_url=f"http://127.0.0.1:{ready['port']}", trust_env=False)
            )
            inference = processes.enter_context(
                httpx.Client(
                    base_url=f"http://127.0.0.1:{ready['inference_port']}/v1",
                    headers={"authorization": "Bearer default"},
                    timeout=DEADLINE,
                    trust_env=False,
                )
            )
            return Server(process, control, inference)

        yield start_one


@pytest.fixture(scope="module")
def server(model_dir, tmp_path_factory, forked_processes_of_this_run) -> Iterator[Server]:
    """A server that several tests share."""
    with servers(model_dir, tmp_path_factory.mktemp("served"), forked_processes_of_this_run) as start:
        server = start()
        yield server
        server.stop()


@pytest.fixture
def start(model_dir, tmp_path, forked_processes_of_this_run) -> Iterator[Callable[[], Server]]:
    with servers(model_dir, tmp_path, forked_processes_of_this_run) as start:
        yield start


def test_a_client_trains_and_continues_after_a_restart(start):
    """The rewarded answer gets likelier with each call; steps, names and weights survive a restart."""
    server = start()
    url, key = server.prepare()
    assert (url, key) == (str(server.inference.base_url).rstrip("/"), "default")
    assert server.tell("/_get_step", ART.model()) == 0

    choices = server.sample(ART.name)
    good = by_frequency(choices)[1]
    likely = [logprob_of(choices, good)]
    for step in (1, 2):
        lines = server.train(choices, good)
        assert {line["num_gradient_steps"] for line in lines} == {len(lines)}
        assert lines[0]["data/step_num_retokenized_answers"] == 0
        assert server.tell("/_get_step", ART.model()) == step
        choices = server.sample(ART.name)
        likely.append(logprob_of(choices, good))
    assert likely[0] < likely[1] < likely[2]
    assert logprob_of(server.sample(f"{ART.name}@0"), good) == pytest.approx(likely[0], abs=1e-4)

    server.stop()
    server = start()
    server.prepare()
    assert server.tell("/_get_step", ART.model()) == 2
    names = [card["id"] for card in server.inference.get("/models").json()["data"]]
    assert {"tiny", ART.name, *(f"{ART.name}@{step}" for step in range(3))} <= set(names)
    again = server.sample(ART.name)
    assert logprob_of(again, good) == pytest.approx(likely[2], abs=1e-4)
    assert server.train(again, good)[0]["data/step_num_retokenized_answers"] == 0
    assert server.tell("/_get_step", ART.model()) == 3
    assert logprob_of(server.sample(ART.name), good) > likely[2]
    server.stop()


@pytest.mark.slow
def test_the_control_plane_answers_while_a_model_is_trained(server):
    """Control routes answer within the 5 seconds of ART's clients; sampling requests wait for the new weights."""
    server.prepare()
    before = server.tell("/_get_step", ART.model())
    choices = server.sample(ART.name)
    good = by_frequency(choices)[0]
    training = threading.Thread(target=server.train, args=(choices * 15, good))
    training.start()
    while training.is_alive():
        server.tell("/register", ART.model())
        assert server.tell("/_get_step", ART.model()) in (before, before + 1)
        assert server.control.get("/healthcheck").status_code == 200
    assert server.tell("/_get_step", ART.model()) == before + 1

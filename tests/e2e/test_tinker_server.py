"""A server for Tinker's clients in its own process: sample, reward, train, kill, start again and go on over HTTP."""

import json
import signal

import httpx
import pytest

from fakes.processes import DEADLINE, NAT, Processes, environment_without, first_line
from fakes.tiny_model import make_tiny_model
from nat.wire.serving import API_KEY_VARIABLE

pytestmark = pytest.mark.slow

KEY = "tml-key-of-this-test"
PROMPT, SAMPLES = [5, 6, 7, 8], 32


class Server:
    """A running process, and what its clients ask."""

    def __init__(self, processes, model, folder):
        command = ["-c", NAT, "backend", "serve", "--protocol", "tinker", "--model", str(model), "--port", "0"]
        environment = environment_without(API_KEY_VARIABLE) | {API_KEY_VARIABLE: KEY}
        self.process = processes.start(*command, f"--output_dir={folder}", "--threads=1", env=environment)
        port = json.loads(first_line(self.process))["port"]
        url = f"http://127.0.0.1:{port}/api/v1"
        self.http = processes.enter_context(httpx.Client(base_url=url, headers={"X-API-Key": KEY}, timeout=DEADLINE))

    def tell(self, path, /, **body):
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        return (
            self.tell("/retrieve_future", request_id=found["request_id"]) if found.keys() == {"request_id"} else found
        )

    def session(self):
        return self.tell("/create_session")["session_id"]

    def sample(self, path, seed):
        prompt = {"chunks": [{"tokens": PROMPT}]}
        settings = {"max_tokens": 1, "seed": seed}
        body = {"model_path": path, "prompt": prompt, "num_samples": SAMPLES, "sampling_params": settings}
        promise = self.tell("/asample", **body)
        return self.tell("/retrieve_future", request_id=promise["request_id"])["sequences"]


def datum(sequence, advantage):
    values = {"target_tokens": [*PROMPT[1:], *sequence["tokens"]], "logprobs": [0.0, 0.0, 0.0, *sequence["logprobs"]]}
    tensors = {**values, "advantages": [0.0, 0.0, 0.0, advantage]}
    inputs = {name: {"data": own, "dtype": "float32", "shape": [4]} for name, own in tensors.items()}
    return {"model_input": {"chunks": [{"tokens": PROMPT}]}, "loss_fn_inputs": inputs}


@pytest.fixture
def processes():
    with Processes() as running:
        yield running


def test_training_goes_on_after_a_kill(processes, tmp_path):
    """A rewarded token becomes likely; after SIGKILL the saved state is trained on, and its sampler weights answer."""
    model = make_tiny_model(tmp_path / "tiny", spread=2.0)
    server = Server(processes, model, tmp_path / "out")
    new = {"session_id": server.session(), "model_seq_id": 0, "base_model": "tiny"}
    trained = server.tell("/create_model", **new, lora_config={"rank": 8, "seed": 1})["model_id"]
    rewarded, shares, path = None, [], None
    for update in range(5):
        path = server.tell("/save_weights_for_sampler", model_id=trained, path=f"w{update}")["path"]
        answers = server.sample(path, seed=update)
        firsts = [answer["tokens"][0] for answer in answers]
        rewarded = rewarded or min(set(firsts), key=lambda token: (abs(firsts.count(token) - 4), token))
        shares.append(firsts.count(rewarded) / SAMPLES)
        data = [datum(each, float(each["tokens"][0] == rewarded) - shares[-1]) for each in answers]
        server.tell("/forward_backward", model_id=trained, forward_backward_input={"data": data, "loss_fn": "ppo"})
        server.tell("/optim_step", model_id=trained, adam_params={"learning_rate": 1e-2, "grad_clip_norm": 1.0})
    assert shares[-1] > shares[0] + 0.3
    state = server.tell("/save_weights", model_id=trained, path="s")["path"]
    server.process.send_signal(signal.SIGKILL)
    server = Server(processes, model, tmp_path / "out")
    assert [each["tokens"] for each in server.sample(path, seed=4)] == [each["tokens"] for each in answers]
    load = {"session_id": server.session(), "model_seq_id": 0, "path": state, "optimizer": True}
    resumed = server.tell("/load_weights", **load)["model_id"]
    server.tell("/forward_backward", model_id=resumed, forward_backward_input={"data": data, "loss_fn": "ppo"})
    assert server.tell("/optim_step", model_id=resumed, adam_params={})["metrics"]["grad_norm"] >= 0
    assert server.http.post("/create_session", json={}, headers={"X-API-Key": "tml-other"}).status_code == 401

"""Updates through the official client of Tinker, timed; in an environment with that client.

`python tinker_client.py ROUNDS < rows.json`: the seconds of each update, and of each hand-over, as JSON. Address and
key of the server are in the environment.
"""

import json
import sys
import time

import tinker
from tinker import types


def main() -> None:
    """Each row is [token ids, positions that were sampled]; its log probabilities are -1, its advantage 1 or -1."""
    training = tinker.ServiceClient().create_lora_training_client(base_model="model", rank=16, seed=1)
    training = training.result() if hasattr(training, "result") else training
    data = [datum(ids, set(sampled), 2.0 * (at % 2) - 1) for at, (ids, sampled) in enumerate(json.load(sys.stdin))]
    marks = []
    for _ in range(int(sys.argv[1])):
        began = time.perf_counter()
        passed = training.forward_backward(data, "ppo")
        stepped = training.optim_step(types.AdamParams(learning_rate=1e-4))
        passed.result(), stepped.result()
        trained = time.perf_counter()
        sampler = training.save_weights_and_get_sampling_client()
        sampler = sampler.result() if hasattr(sampler, "result") else sampler
        prompt, one = types.ModelInput.from_ints([5, 6]), types.SamplingParams(max_tokens=1)
        sampler.sample(prompt=prompt, num_samples=1, sampling_params=one).result()
        marks.append((trained - began, time.perf_counter() - trained))
    print(json.dumps(marks))


def datum(ids: list[int], sampled: set[int], advantage: float) -> types.Datum:
    """Targets are the inputs shifted by one."""
    own = [float(at in sampled) for at in range(1, len(ids))]
    floats = {"logprobs": [-each for each in own], "advantages": [advantage * each for each in own]}
    tensors = {name: types.TensorData(data=each, dtype="float32", shape=[len(own)]) for name, each in floats.items()}
    tensors["target_tokens"] = types.TensorData(data=ids[1:], dtype="int64", shape=[len(own)])
    return types.Datum(model_input=types.ModelInput.from_ints(ids[:-1]), loss_fn_inputs=tensors)


if __name__ == "__main__":
    main()

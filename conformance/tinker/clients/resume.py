"""Go on from a saved state and from saved sampler weights, after a restart of the server, and print what was seen.

`python resume.py STATE WEIGHTS`.
"""

import json
import sys

import tinker
from tinker import types


def made(value):
    return value.result() if hasattr(value, "result") else value


def main(state, weights):
    service = tinker.ServiceClient()
    training = made(service.create_training_client_from_state_with_optimizer(state))
    tensors = {
        "target_tokens": types.TensorData(data=[6, 7, 8, 9], dtype="int64", shape=[4]),
        "weights": types.TensorData(data=[0.0, 0.0, 1.0, 1.0], dtype="float32", shape=[4]),
    }
    text = types.Datum(model_input=types.ModelInput.from_ints([5, 6, 7, 8]), loss_fn_inputs=tensors)
    training.forward_backward([text], "cross_entropy")
    training.optim_step(types.AdamParams(learning_rate=1e-2)).result()
    after = training.forward([text], "cross_entropy").result().metrics["loss:sum"]
    sampler = made(service.create_sampling_client(model_path=weights))
    settings = types.SamplingParams(max_tokens=4, temperature=0.0, stop=[])
    answer = sampler.sample(types.ModelInput.from_ints([5, 6, 7, 8]), 1, settings).result()
    print(json.dumps({"after": after, "tokens": list(answer.sequences[0].tokens)}))


main(*sys.argv[1:])

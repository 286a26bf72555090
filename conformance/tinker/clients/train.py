"""Train a LoRA with the official client on the rewarded first token, and print what was seen as JSON.

`python train.py BASE_MODEL`; the server and its key are in the environment. Written for the clients 0.20 to 0.38.
"""

import json
import sys

import tinker
from tinker import types

PROMPT, UPDATES, SAMPLES = [5, 6, 7, 8], 6, 32


def made(value):
    """What a `create_…` method gives: a future from 0.38 on, the client itself before."""
    return value.result() if hasattr(value, "result") else value


def floats(name, values):
    dtype = "int64" if name == "target_tokens" else "float32"
    return types.TensorData(data=list(values), dtype=dtype, shape=[len(values)])


def datum(tokens, **inputs):
    named = {"target_tokens": tokens[1:], **inputs}
    tensors = {name: floats(name, values) for name, values in named.items()}
    return types.Datum(model_input=types.ModelInput.from_ints(tokens[:-1]), loss_fn_inputs=tensors)


def refusal(call):
    try:
        made(call())
    except Exception as error:  # noqa: BLE001 - each release has its own classes
        return str(error)
    return "accepted"


def main(base_model):
    service = tinker.ServiceClient()
    training = made(service.create_lora_training_client(base_model=base_model, rank=8, seed=1))
    prompt, pad = types.ModelInput.from_ints(PROMPT), [0.0] * (len(PROMPT) - 1)
    rewarded, chances, gap, kinds = None, [], 0.0, []
    for update in range(UPDATES + 1):
        sampler = made(training.save_weights_and_get_sampling_client())
        settings = types.SamplingParams(max_tokens=4, seed=update, stop=[])
        answer = sampler.sample(prompt=prompt, num_samples=SAMPLES, sampling_params=settings).result()
        if rewarded is None:
            firsts = [sequence.tokens[0] for sequence in answer.sequences]
            rewarded = min(firsts, key=lambda token: (abs(firsts.count(token) - SAMPLES // 8), token))
            kinds = [getattr(sequence, "sequence_id", None) for sequence in answer.sequences]
        chances.append(sum(sequence.tokens[0] == rewarded for sequence in answer.sequences) / SAMPLES)
        scored = sampler.compute_logprobs(types.ModelInput.from_ints([*PROMPT, *answer.sequences[0].tokens])).result()
        data = []
        for sequence in answer.sequences:
            tokens, advantage = [*PROMPT, *sequence.tokens], (sequence.tokens[0] == rewarded) - chances[-1]
            rest = [0.0] * (len(sequence.tokens) - 1)
            logprobs, advantages = [*pad, *sequence.logprobs], [*pad, advantage, *rest]
            data.append(datum(tokens, logprobs=logprobs, advantages=advantages))
        found = training.forward(data, "importance_sampling").result()
        for sequence, output in zip(answer.sequences, found.loss_fn_outputs, strict=True):
            own = list(output["logprobs"].data)[len(pad) :]
            gap = max(gap, *(abs(a - b) for a, b in zip(own, sequence.logprobs, strict=True)))
        gap = max(gap, *(abs(a - b) for a, b in zip(scored[4:], answer.sequences[0].logprobs, strict=True)))
        if update < UPDATES:
            passed = training.forward_backward(data, "ppo")
            stepped = training.optim_step(types.AdamParams(learning_rate=1e-2, grad_clip_norm=1.0))
            passed.result()
            metrics = stepped.result().metrics
    state = training.save_state("state").result().path
    weights = training.save_weights_for_sampler("weights").result().path
    text = datum([*PROMPT, 9], weights=[0.0, 0.0, 1.0, 1.0])
    training.forward_backward([text], "cross_entropy")
    training.optim_step(types.AdamParams(learning_rate=1e-2)).result()
    after = training.forward([text], "cross_entropy").result().metrics["loss:sum"]
    refused = {
        "loss": refusal(lambda: training.forward_backward([text], "stable_reinforce")),
        "setting": refusal(lambda: training.forward_backward([text], "cross_entropy", {"temperature": 2.0})),
        "base": refusal(lambda: service.create_lora_training_client(base_model="other/model", rank=8)),
    }
    seen = {"version": tinker.__version__, "chances": chances, "gap": gap, "metrics": metrics, "state": state}
    print(json.dumps({**seen, "weights": weights, "after": after, "refused": refused, "ids": len(set(kinds))}))


main(sys.argv[1])

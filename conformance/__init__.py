"""Compatibility tests with unmodified releases of other projects; `make conformance PART=interop` runs one folder.

| folder | proves |
|---|---|
| `interop/` | clients and servers of OpenPipe ART and of the upstream toolkit train with ours |
| `frameworks/` | the calls of each framework's agent are captured exactly, and its new project trains |
| `toolkit/` | an agent of the upstream toolkit, in its own environment, gets better |
| `coding_agents/` | released coding agents do a task through the gateway; each gives one training row |
| `trl/` | exported trajectories load with `datasets` and train a step with TRL |
| `trackers/` | W&B, MLflow, Trackio, TensorBoard and Comet have all of a run that was killed and went on |
| `customizer/` | released clients of NeMo Customizer work with the server of our tests |
| `engines/` | vLLM samples for training runs, and the faults that they survive |
| `dashboard/` | the pages of `nat ui` work in Chromium, and no rollout takes effect in them |
| `installs/` | `nat` trains after a plain `pip install` |

Each release lives in an environment of its own below `.tmp/`, which `environments.py` makes from `requirements/`:
`FOLDER/NAME.txt` says what is wanted, `FOLDER/NAME.lock` which version of everything was there when all tests passed,
and `agents/NAME.npm` names an npm release. The tests make missing environments.

```bash
python -m conformance.environments interop             # make what a folder of requirements/ names …
python -m conformance.environments langchain codex     # … or single environments
python -m conformance.environments --renew langchain   # take the newest releases that are allowed, and lock them
pytest conformance/frameworks --framework langchain    # the proofs with one framework
CONFORMANCE_PYTHON=3.12 pytest conformance/interop     # the environments have another Python than `.venv`
pytest conformance/interop -m ""                       # also the tests that download several gigabytes
```
"""

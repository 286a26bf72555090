"""Proofs with other people's releases: what works with ours, shown by running theirs, unmodified.

| folder | proves | `make` |
|---|---|---|
| `interop/` | clients and servers of OpenPipe ART and of the upstream toolkit train with ours | `interop` |
| `frameworks/` | what an agent of each framework says is captured as it was on the wire | `frameworks` |
| `coding_agents/` | released coding agents do their task through the gateway, each as one training row | `agents` |
| `installs/` | `pip install`, as people do it, gives a `nat` that trains | `installs` |

Each release lives in an environment of its own below `.tmp/`, which `environments.py` makes from `requirements/`:
`FOLDER/NAME.txt` says what is wanted, `FOLDER/NAME.lock` which version of everything was there when all tests passed,
and `agents/NAME.npm` names an npm release. The tests make what they miss.

```bash
python -m conformance.environments interop             # make what a folder of requirements/ names …
python -m conformance.environments langchain codex     # … or single environments
python -m conformance.environments --renew langchain   # take the newest releases that are allowed, and lock them
pytest conformance/frameworks --framework langchain    # the proofs with one framework
pytest conformance/interop -m large                    # and with what downloads several gigabytes
```
"""

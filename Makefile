PYTHON ?= python3.11
BIN := .venv/bin

# Install the project, its extras and the examples into .venv (again only when the project files change).
.venv/.installed: pyproject.toml constraints.txt $(wildcard examples/*/pyproject.toml)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[local,parquet,dev]' $(foreach e,$(wildcard examples/*/pyproject.toml),--editable $(dir $(e)))
	touch $@

.PHONY: install demo test lint docs bench clean
install: .venv/.installed

# Watch a small language model learn tic-tac-toe, from install to verdict.
demo: install
	$(BIN)/nat finetune --config_file=examples/tic_tac_toe/configs/finetune.yml

# All tests.
test: install
	$(BIN)/pytest

# Style, types, layers.
lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The reference pages that are made from the code.
docs: install
	$(BIN)/python docs/make_reference.py

# Speed figures for docs/performance.md; needs a quiet machine.
bench: install
	$(BIN)/python -m bench

clean:
	rm -rf .venv .tmp

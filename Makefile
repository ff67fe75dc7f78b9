# `make demo` and `make test` need nothing but Python (3.11 or newer), pip and make: the environment is made on first use.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test lint format bench clean

# An interrupted demo goes on where it was; a finished one is only evaluated again.
demo: .venv/installed
	if [ -e runs/demo/checkpoints/latest.pt ]; then $(BIN)/manyview resume runs/demo; \
	else rm -rf runs/demo && $(BIN)/manyview pretrain jcl --data scenes --epochs 7 --out runs/demo; fi
	$(BIN)/manyview evaluate knn runs/demo --data scenes
	$(BIN)/manyview evaluate linear runs/demo --data scenes
	$(BIN)/manyview report runs/demo

test: lint
	$(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

lint: .venv/installed
	$(BIN)/ruff check src tests bench
	$(BIN)/ruff format --check src tests bench
	$(BIN)/mypy

format: .venv/installed
	$(BIN)/ruff check --fix src tests bench
	$(BIN)/ruff format src tests bench

bench: .venv/bench-installed
	$(BIN)/python -m bench

clean:
	rm -rf .venv build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache

.venv/installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "manyview needs Python 3.11 or newer: make PYTHON=python3.11 ..."; exit 1; }
	@echo "installing the locked versions into .venv (some minutes; about 5 GB on Linux, mostly CUDA libraries)"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Without their dependencies, which would move locked versions: the parts that race need no trainer.
.venv/bench-installed: .venv/installed requirements-bench.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -r requirements-bench.lock
	@touch $@

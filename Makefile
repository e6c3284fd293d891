# `make demo` and `make test` set up all they need in .venv and can be run again at any time.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
LINT_PATHS := daemon client launchd tests proto
# Processes that share the tests; 0 runs them in one, one after the other.
WORKERS ?= auto

.PHONY: demo test setup setup-dev openblas lint proto-check real-pack macos-resolve head clean

demo: setup
	@$(BIN)/mtplx quickstart --stop-after

test: setup-dev lint macos-resolve real-pack
	$(BIN)/python -m pytest -n $(WORKERS) --maxprocesses 4 --dist worksteal

lint: setup-dev proto-check
	$(BIN)/ruff check $(LINT_PATHS)
	$(BIN)/ruff format --check $(LINT_PATHS)
	$(BIN)/mypy
	$(BIN)/lint-imports

# The generated code must be what the .proto files give.
proto-check: setup-dev
	@rm -rf $(VENV)/proto && mkdir -p $(VENV)/proto
	@PYTHON="$(abspath $(BIN))/python" proto/generate.sh "$(abspath $(VENV))/proto"
	@for f in proto/mtplx_proto/v1/*_pb2*; do cmp "$$f" "$(VENV)/$$f" || exit 1; done

# Tests of the real model pull it into a home of their own, through the command a user would type.
real-pack: setup-dev
	@MTPLXD_HOME="$(abspath $(VENV))/home" $(BIN)/python tests/support/real_pack.py

# The distribution must resolve for macOS on Apple silicon; pip's --platform still evaluates this machine's markers.
macos-resolve: setup-dev
	@MACOSX_DEPLOYMENT_TARGET=14.0 $(BIN)/uv pip compile --quiet --python-platform aarch64-apple-darwin \
	  --only-binary :all: --extra dev pyproject.toml > $(VENV)/macos.txt
	@echo "macOS arm64: $$(grep -c == $(VENV)/macos.txt) packages resolve"

# Full counts of the proofs; each command can be interrupted and goes on where it stopped.
proof-%: setup-dev
	$(BIN)/python tests/bench/proof_$*.py

# Trains the head that ships for smollm2-135m from the recorded tokens: two hours, resumable, the same bytes each time on
# one machine. Two processes read the rows, each with one core; what one leaves undone the last command does.
TRAIN_HEAD := $(BIN)/python -m mtplxd.forge.worker train smollm2-135m \
  --recorded tests/data/training_tokens.npz --steps 1200 --deep-every 3 --chain-share 4 --decay 0.05
head: setup
	OPENBLAS_NUM_THREADS=1 $(TRAIN_HEAD) --share 1/2 & OPENBLAS_NUM_THREADS=1 $(TRAIN_HEAD) --share 2/2; wait
	$(TRAIN_HEAD)

setup: $(STAMP)-run openblas
setup-dev: $(STAMP)-dev openblas

$(STAMP)-venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: Python too old ($$($(PYTHON) -V)): set PYTHON to 3.11 or newer" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(STAMP)-run: $(STAMP)-venv pyproject.toml
	$(BIN)/python -m pip install -q -e .
	@touch $@

$(STAMP)-dev: $(STAMP)-venv pyproject.toml
	$(BIN)/python -m pip install -q -e '.[dev]'
	@touch $@ $(STAMP)-run

# MLX's Linux wheel bundles a reference BLAS, thirty times slower than OpenBLAS: the system's, else the wheel's.
openblas: $(STAMP)-venv
	@[ "$$(uname -s)" = Linux ] || exit 0; \
	$(BIN)/python -c 'import ctypes; ctypes.CDLL("libopenblas.so.0")' 2>/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo "installing libopenblas0"; \
	  { apt-get install -y -qq libopenblas0 || { apt-get update -qq && apt-get install -y -qq libopenblas0; }; } >/dev/null; \
	else \
	  echo "installing the OpenBLAS wheel"; $(BIN)/python -m pip install -q 'cmeel-openblas>=0.3,<0.4'; \
	fi

clean:
	rm -rf $(VENV)

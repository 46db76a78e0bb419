# Every target sets up what it needs in .venv. PYTHON chooses the interpreter that .venv is made with.
PYTHON ?= python3
SANITIZE ?= address

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check install --quiet
# As in pyproject.toml's [build-system]; pip compares the two.
BUILD_REQUIRES := "setuptools>=77" "pybind11>=3" "numpy>=2"
INSTALL := $(PIP) --no-build-isolation --check-build-dependencies --editable
CPP_FILES := find csrc tests -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh'
# Ends a run that hangs outside any test; ABRT prints the stack of every thread.
PYTEST = timeout --foreground --signal=ABRT --kill-after=10 $(1) $(PY) -m pytest
CORE := -m "not slow and not faults and not cluster and not torch and not cuda"

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help build bench bench-peers gpu-check test test-all sanitize lint format hooks clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

bench: build ## measure all-reduce on two ranks of this host: a short table
	$(PY) -m pycollectives bench -n 2 --sizes 8:16M:x8

bench-peers: build ## measure pycollectives beside MPICH, Open MPI, Intel MPI, gloo ...: QUICK=1, or ARGS='run ...'
	$(PY) -m bench.peers $(if $(ARGS),$(ARGS),run $(if $(QUICK),$(QUICK_PEERS)))
QUICK_PEERS := -n 2 -c all_reduce --sizes 8,4K,32K,256K,2M,16M --rounds 5

gpu-check: ## on a machine with a GPU: build, test and measure the CUDA kernels; installs nothing (PYTHON=..., ARGS='--emulated')
	PYTHONPATH=. $(PYTHON) -m bench.gpu $(ARGS)

test: build $(VENV)/installed-test ## run the core tests
	$(call PYTEST,1500) -n 2 --dist worksteal $(CORE)

test-all: build $(VENV)/installed-test ## run every test; what this machine cannot run is skipped
	$(call PYTEST,5400)

sanitize: $(VENV)/installed-test ## run the core tests under SANITIZE=address, thread or undefined
	@echo "==> building with -fsanitize=$(SANITIZE)"
	PYCOLLECTIVES_SANITIZE=$(SANITIZE) $(PY) setup.py -q build_ext --inplace
	LD_PRELOAD="$$($(CXX) -print-file-name=$(RUNTIME_$(SANITIZE))) $$($(CXX) -print-file-name=libstdc++.so.6)" \
	  ASAN_OPTIONS=detect_leaks=0 $(call PYTEST,3600) $(CORE) -o timeout=600 -o faulthandler_timeout=900
RUNTIME_address := libasan.so
RUNTIME_thread := libtsan.so
RUNTIME_undefined := libubsan.so

lint: $(VENV)/installed-dev ## Ruff, mypy --strict, clang-format: check only
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(CPP_FILES) | xargs $(VENV)/bin/clang-format --dry-run -Werror
	@echo "==> lint passed"

format: $(VENV)/installed-dev ## format Python and C++ and apply Ruff's safe fixes
	$(VENV)/bin/ruff check --fix-only .
	$(VENV)/bin/ruff format .
	$(CPP_FILES) | xargs $(VENV)/bin/clang-format -i

hooks: $(VENV)/installed-dev ## check each commit (pre-commit)
	$(VENV)/bin/pre-commit install

build: $(VENV)/installed-base ## build or update the native extension in place
	@$(PY) setup.py -q build_ext --inplace

clean: ## remove everything that was built, .venv included
	rm -rf $(VENV) build dist *.egg-info .hypothesis .pytest_cache .mypy_cache .ruff_cache
	find pycollectives tests bench examples -name '__pycache__' -prune -exec rm -rf {} + 2>/dev/null || true
	rm -f pycollectives/*.so

$(VENV)/created:
	@echo "==> creating $(VENV) with $$($(PYTHON) --version)"
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed-base: $(VENV)/created pyproject.toml setup.py
	@echo "==> installing what the build needs"
	$(PIP) $(BUILD_REQUIRES)
	@echo "==> compiling the native extension"
	$(PY) setup.py -q build_ext --inplace
	@echo "==> installing pycollectives in editable mode"
	$(INSTALL) .
	@touch $@

$(VENV)/installed-test: $(VENV)/installed-base
	@echo "==> installing what the tests need (the first time takes a minute or two)"
	$(INSTALL) '.[test]'
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed-test
	@echo "==> installing the linters and formatters"
	$(INSTALL) '.[dev]'
	@touch $@

# `make bench` and `make test` do all of their own set-up in .venv; nothing outside this folder is
# touched but the caches of pip, Triton and matplotlib. `make PYTHON=python3 bench` uses that
# interpreter as it is: no venv, no pip, no network.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON0 ?= python3
export MAX_JOBS ?= $(shell nproc 2>/dev/null || echo 2)

# Arguments of the targets.
ARGS ?=
RUN ?=
BASE ?=
NEW ?=
OP ?=

# A PYTHON from the environment is ignored: only `make PYTHON=...` asks for a given interpreter.
ifeq ($(origin PYTHON),command line)
  PY := $(PYTHON)
  RUN_DEPS :=
  DEV_DEPS :=
  READ_DEPS :=
else
  VENV := .venv
  PY := $(VENV)/bin/python
  RUN_DEPS := $(VENV)/.stamp-bench
  DEV_DEPS := $(VENV)/.stamp-dev
  # compare, plots, report and readme read files: any installed stage will do, and the smallest is enough.
  READ_DEPS := $(VENV)/.stamp-read
endif
# For doctor, which must work before anything is installed.
ANY_PY := $(if $(wildcard $(PY)),$(PY),$(if $(VENV),$(PYTHON0),$(PY)))

PIP := $(PY) -m pip --disable-pip-version-check --require-virtualenv
EXT_SOURCES := setup.py $(wildcard csrc/* csrc/*/* csrc/*/*/*)
README_RUN := $(firstword $(RUN) $(wildcard results/*/reference))

.PHONY: needs-run needs-base help bench test test-gpu check sanitize explain effort compare plots report readme tune doctor lint build ext clean

help: ## list the targets
	@printf 'usage: make TARGET [PYTHON=python3]   (with PYTHON: that interpreter as it is, offline)\n\n'
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-10s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

bench: $(RUN_DEPS) ext ## check and time every kernel, draw the plots, write the report: ARGS='--quick --op softmax'
	$(PY) -m harness bench $(ARGS)

test: $(RUN_DEPS) $(DEV_DEPS) ext ## run all tests; those that need a GPU are skipped without one
	$(PY) -m pytest $(ARGS)

test-gpu: $(RUN_DEPS) $(DEV_DEPS) ext ## run only the tests that need a GPU
	$(PY) -m pytest -m gpu $(ARGS)

check: $(RUN_DEPS) ext ## check every implementation against float64, without timing
	$(PY) -m harness check $(ARGS)

sanitize: $(RUN_DEPS) ext ## run compute-sanitizer over both sides of every op: ARGS='--tool memcheck'
	$(PY) -m harness sanitize $(ARGS)

explain: $(RUN_DEPS) ext ## show what the compilers made of both sides, no GPU needed: ARGS='softmax --arch 80'
	$(PY) -m harness explain $(ARGS)

effort: $(READ_DEPS) ## count what both sides cost to write: ARGS='softmax'
	$(PY) -m harness effort $(ARGS)

# What a command reads is looked for first: nothing is installed for a run that is not there.
needs-run:
	@test -n '$(RUN)' || { echo 'usage: make $(MAKECMDGOALS) RUN=results/...' >&2; exit 2; }
	@test -e '$(RUN)' || { echo "RUN=$(RUN) does not exist; want a run's folder, such as results/<gpu>/<time>" >&2; exit 2; }

needs-base:
	@test -n '$(BASE)$(findstring --base,$(ARGS))' || { echo 'usage: make compare BASE=results/... NEW=results/...' >&2; exit 2; }
	@for run in $(if $(BASE),'$(BASE)') $(if $(NEW),'$(NEW)'); do test -e "$$run" || \
	  { echo "$$run does not exist; want a run's folder, such as results/<gpu>/<time>" >&2; exit 2; }; done

compare: needs-base $(READ_DEPS) ## judge a run against another: BASE=results/... NEW=results/...
	$(PY) -m harness compare $(if $(BASE),'$(BASE)') $(if $(NEW),'$(NEW)') $(ARGS)

plots: needs-run $(READ_DEPS) ## draw the plots of a run again: RUN=results/...
	$(PY) -m harness plot '$(RUN)' $(ARGS)

report: needs-run $(READ_DEPS) ## write a run's report, one HTML page: RUN=results/... [BASE=results/...]
	$(PY) -m harness report '$(RUN)' $(if $(BASE),--base '$(BASE)') $(ARGS)

readme: $(READ_DEPS) ## write the README's results table from a run (the committed reference, or RUN=)
	@test -n '$(README_RUN)' || { echo 'no committed reference run: make readme RUN=results/...' >&2; exit 2; }
	$(PY) -m harness readme '$(README_RUN)' $(ARGS)

tune: $(RUN_DEPS) ext ## search configurations for one op on this GPU: OP=softmax
	@test -n '$(OP)' || { echo 'usage: make tune OP=softmax' >&2; exit 2; }
	$(PY) -m harness tune --op $(OP) $(ARGS)

doctor: ## say what works on this machine, and why the rest does not
	@$(ANY_PY) -m harness.doctor

lint: $(RUN_DEPS) $(DEV_DEPS) ## ruff, mypy and clang-format, changing nothing
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy harness
	@files=$$(find csrc -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' -o -name '*.h' 2>/dev/null | sort); \
	echo "clang-format --dry-run -Werror: $$(wc -w <<< "$$files") files"; \
	test -z "$$files" || $(PY) -c 'import clang_format; clang_format.clang_format()' --dry-run -Werror $$files

build: $(RUN_DEPS) ## compile the CUDA side in place; fails when it cannot
	$(PY) setup.py build_ext --inplace
	@$(if $(VENV),touch $(VENV)/.stamp-ext)

clean: ## remove build outputs and caches; never results
	rm -rf build dist ./*.egg-info harness/_cuda*.so .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f .venv/.stamp-ext
	find harness triton_kernels tests -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# --- set-up -------------------------------------------------------------------------------------

# The CUDA side for bench, check and test. Where preflight says that it cannot be built, the rest still
# runs and the cuda rows say why. Where it could be built and was not, that is an error: an old
# binary must never be timed in place of new source.
define BUILD_OR_GO_ON
if [ "$${CVT_SKIP_CUDA:-0}" = 1 ]; then \
  echo 'CUDA side: not built, CVT_SKIP_CUDA=1'; \
elif $(PY) setup.py build_ext --inplace; then \
  $(if $(VENV),touch $(VENV)/.stamp-ext,true); \
elif ! $(PY) -m harness.preflight >/dev/null 2>&1; then \
  echo 'CUDA side: not built, for the reason above; going on with Triton and torch'; \
else \
  echo 'CUDA side: the build failed (above). CVT_SKIP_CUDA=1 goes on without it.' >&2; exit 1; \
fi
endef

ifdef VENV

ext: $(VENV)/.stamp-ext

$(VENV)/.stamp-ext: $(EXT_SOURCES) $(RUN_DEPS)
	@$(BUILD_OR_GO_ON)

$(VENV)/bin/python:
	@$(PYTHON0) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo '$(PYTHON0) is older than 3.10: make PYTHON0=/path/to/python3.12 ...' >&2; exit 1; }
	@$(PYTHON0) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo 'no venv module: apt-get install python3-venv, or make PYTHON=... with an interpreter that has torch' >&2; exit 1; }

# Stamps, not packages, say what is installed: an edit of pyproject.toml installs again.
# CVT_SKIP_CUDA: this step brings the dependencies; the extension is built in place, afterwards.
$(VENV)/.stamp-read: pyproject.toml | $(VENV)/bin/python
	@if [ -e $(VENV)/.stamp-bench ] && [ ! pyproject.toml -nt $(VENV)/.stamp-bench ]; then :; else \
	  echo 'installing what reads results into $(VENV)'; CVT_SKIP_CUDA=1 $(PIP) install -q -e '.[effort,report]'; fi
	@touch $@

$(VENV)/.stamp-bench: pyproject.toml | $(VENV)/bin/python
	@echo 'installing torch, triton and the rest into $(VENV) (a few minutes, once)'
	@CVT_SKIP_CUDA=1 $(PIP) install -q -e '.[bench,effort,report]' || \
	  { echo 'no package index here? `make PYTHON=python3 ...` uses an interpreter that has torch' >&2; exit 1; }
	@if $(PY) -m harness.preflight --needs-nvcc >/dev/null 2>&1; then \
	  cuda=$$($(PY) -c 'import torch; print(torch.version.cuda)'); \
	  echo "no nvcc for CUDA $$cuda on this machine: installing NVIDIA's wheels"; \
	  $(PIP) install -q "cuda-toolkit[nvcc,cudart,cccl,crt]==$$cuda.*" || \
	    echo 'the compiler wheels could not be installed; going on without them'; \
	fi
	@touch $@

# After stamp-bench: mypy reads torch's types, and two pips at once would corrupt the venv.
$(VENV)/.stamp-dev: pyproject.toml $(VENV)/.stamp-bench
	@echo 'installing the developer tools into $(VENV)'
	@CVT_SKIP_CUDA=1 $(PIP) install -q -e '.[dev]'
	@touch $@

else

ext:
	@$(BUILD_OR_GO_ON)

endif

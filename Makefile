# The two commands that a stranger needs are `make demo` and `make test`.
# Everything lives in .venv; a stamp per extra says what is installed, and re-installs when
# pyproject.toml or constraints.txt changes.

VENV      ?= .venv
OUT       ?= demo
SEED      ?= 0
WORKERS   ?= 2
DIST      ?= dist
BUILD     ?= build/release
# Passed to every pip install, e.g. PIP_FLAGS="--find-links /folder/with/wheels" for a CPU build of torch.
PIP_FLAGS ?=
# The first Python that is new enough and can make environments; name another with PYTHON=...
PYTHON    ?= $(firstword $(foreach p,python3.11 python3 python3.12 python3.13 python,\
             $(shell $(p) -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $(p))))

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt
# Two test workers on two cores: one thread each, or they fight. What one process has compiled, the others read.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

.PHONY: demo test slow site lint format release clean
.DEFAULT_GOAL := help

.PHONY: help
help:
	@echo "make demo    see a leak on real Cora, see it stop, and what that costs; a page in $(OUT)/"
	@echo "make test    the fast test suite"
	@echo "make slow    the tests that train to the papers' accuracy"
	@echo "make site    the documentation as a site, in site/"
	@echo "make lint    ruff and mypy, changing nothing"
	@echo "make format  ruff, in place"
	@echo "make release wheel, source archive, hashes and bill of materials in $(DIST)/"
	@echo "make clean   removes .venv, caches and the demo's output"

$(BIN)/python:
	@test -n "$(strip $(PYTHON))" || { \
	  echo "No Python 3.11 or newer with venv was found: install one, or name it with PYTHON=/path/to/python." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

# torch first and alone: its constraint is met by a CPU build wherever pip's configuration offers one.
$(VENV)/.with-torch: constraints.txt | $(BIN)/python
	$(PIP) torch
	@touch $@

$(VENV)/.with-data: pyproject.toml constraints.txt $(VENV)/.with-torch
	$(PIP) -e '.[data]'
	@touch $@

$(VENV)/.with-test: pyproject.toml constraints.txt $(VENV)/.with-torch
	$(PIP) -e '.[data,molecules,test]'
	@touch $(VENV)/.with-data $@

$(VENV)/.with-dev: pyproject.toml constraints.txt $(VENV)/.with-torch
	$(PIP) -e '.[data,molecules,test,dev]'
	@touch $(VENV)/.with-data $(VENV)/.with-test $@

$(VENV)/.with-docs: pyproject.toml constraints.txt $(VENV)/.with-torch
	$(PIP) -e '.[docs]'
	@touch $@

$(VENV)/.with-ray: $(VENV)/.with-test
	$(PIP) -e '.[ray]'
	@touch $@

demo: $(VENV)/.with-data
	$(BIN)/secure-fedgraph demo --seed $(SEED) --out $(OUT) --overwrite

test: $(VENV)/.with-test
	$(ONE_THREAD) $(BIN)/python -m pytest -q -n $(WORKERS) -m "not slow"

slow: $(VENV)/.with-ray
	$(BIN)/python -m pytest -q -m slow

lint: $(VENV)/.with-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.with-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The bill of materials is of an environment that holds the wheel and what it needs, and nothing else. The tool that
# writes it has an environment of its own.
release: $(VENV)/.with-test
	rm -rf $(DIST) $(BUILD)
	$(BIN)/python -m build --no-isolation --outdir $(DIST) .
	$(PYTHON) -m venv $(BUILD)/clean
	$(BUILD)/clean/bin/python -m pip install --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt $(DIST)/*.whl
	cd $(BUILD) && clean/bin/secure-fedgraph --version && clean/bin/secure-fedgraph doctor
	$(PYTHON) -m venv $(BUILD)/bom
	$(BUILD)/bom/bin/python -m pip install --disable-pip-version-check $(PIP_FLAGS) cyclonedx-bom
	$(BUILD)/bom/bin/cyclonedx-py environment --output-format JSON --output-file $(DIST)/sbom.json $(BUILD)/clean/bin/python
	cd $(DIST) && sha256sum *.whl *.tar.gz sbom.json > SHA256SUMS
	@cat $(DIST)/SHA256SUMS

# The variable silences a notice of the theme's about versions of MkDocs that are not used here.
site: $(VENV)/.with-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) demo site build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

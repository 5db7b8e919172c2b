# make demo: the whole workflow on a synthetic slide.   make test: lint, types and tests.
# make bench: the speed tables.   make docs: the site, in site/.   Each installs what it needs in .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYTHONUTF8 := 1

.PHONY: demo test lint types unit bench docs clean

test: $(VENV)/.installed-all
	$(MAKE) --jobs 3 lint types unit  # at once: some of the tests wait for a browser or a process

demo: $(VENV)/.installed
	$(BIN)/sparseshot demo --out demo

$(VENV)/.installed: pyproject.toml Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch==2.13.0  # first and pinned, so that no later requirement installs another build
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/.installed-all: $(VENV)/.installed
	$(BIN)/pip install --quiet --editable ".[dev,docs,studio,cluster,onnx,openvino,anndata,dicom,zarr]"
	$(BIN)/pip install --quiet --no-deps ece_loss  # the authors' package, the reference for our preset in the tests
	touch $@

lint: $(VENV)/.installed-all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-all
	$(BIN)/mypy

unit: $(VENV)/.installed-all
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadgroup

bench: $(VENV)/.installed-all
	$(BIN)/python -m benchmarks

docs: $(VENV)/.installed-all
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache

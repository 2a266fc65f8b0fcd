# Two commands do all set-up: `make demo` and `make test`. `make help` lists the rest.
# Looked for once, when a recipe first names it.
PYTHON ?= $(eval PYTHON := $(or $(shell python3 requirements/interpreter.py),python3))$(PYTHON)
CONTROL := .venv/bin
TRAINER := .venv-trainer/bin
PEERS := .venv-peers/bin
# pip would compile every module to bytecode, two thirds of which nothing ever imports.
PIP := -m pip install --quiet --disable-pip-version-check --no-compile
export HILLCLIMB_HOME ?= $(CURDIR)
DEMO_ARGS ?=
, := ,
# Tests that import the trainer; all others run in the control plane's environment.
TRAINER_TESTS := tests/trainer tests/assets
CONTROL_TESTS := tests $(addprefix --ignore=,$(TRAINER_TESTS))
# Some environments forbid bytecode. The tests and the stack start hundreds of processes, and without
# it each compiles our code anew: the API takes 4.5 instead of 3.3 s of CPU until it answers.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: gpu-less docs mutants sbom help setup lock lock-gpu demo up down status test test-long check check-tree check-control check-trainer bench e2e fuzz chaos rent search-environment screenshots

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/.ready .venv-trainer/.ready ## make both virtual environments (quick when nothing changed)

CONTROL_LOCKS := $(addprefix requirements/,service.txt build.txt clouds.txt development.txt)
.venv/.ready: $(CONTROL_LOCKS) pyproject.toml
	@test -x $(CONTROL)/python || $(PYTHON) -m venv .venv
	@echo "setup: installing the control plane into .venv"
	@$(CONTROL)/python $(PIP) --require-hashes --no-deps $(addprefix -r ,$(CONTROL_LOCKS)) 2>.venv/pip.log || { cat .venv/pip.log; exit 1; }
	@$(CONTROL)/python $(PIP) --no-deps --no-build-isolation -e . 2>>.venv/pip.log || { cat .venv/pip.log; exit 1; }
	@$(CONTROL)/python -c "import gc; gc.disable(); import api.app, worker.tasks, hillclimb.cli.commands as cli; cli.complete()" # stores their bytecode
	@touch $@

.venv-trainer/.ready: requirements/trainer.txt requirements/torch.txt pyproject.toml
	@test -x $(TRAINER)/python || $(PYTHON) -m venv .venv-trainer
	@echo "setup: installing the data plane into .venv-trainer (torch is the large one)"
	@# torch last, with what it needs on this machine beside the locked (a CUDA wheel wants CUDA libraries).
	@$(TRAINER)/python $(PIP) --require-hashes --no-deps -r requirements/trainer.txt 2>.venv-trainer/pip.log || { cat .venv-trainer/pip.log; exit 1; }
	@$(TRAINER)/python $(PIP) --no-warn-conflicts -r requirements/torch.txt 2>>.venv-trainer/pip.log || { cat .venv-trainer/pip.log; exit 1; }
	@$(TRAINER)/python $(PIP) --no-deps --no-build-isolation -e . 2>>.venv-trainer/pip.log || { cat .venv-trainer/pip.log; exit 1; }
	@$(TRAINER)/python -c "import gc; gc.disable(); import ray, torch, transformers.models.qwen3, trainer.jobs.process" # stores their bytecode
	@touch $@

# What stands at the other end of a wire in tests: it cannot share an environment with vLLM.
.venv-peers/.ready: requirements/peers.txt
	@test -x $(PEERS)/python || $(PYTHON) -m venv .venv-peers
	@echo "setup: installing the peers of the tests into .venv-peers"
	@$(PEERS)/python $(PIP) --require-hashes --no-deps -r requirements/peers.txt 2>.venv-peers/pip.log || { cat .venv-peers/pip.log; exit 1; }
	@touch $@

# mutmut brings its own click and rich; the code under test comes from the other environments.
.venv-mutants/.ready: requirements/mutants.txt
	@test -x .venv-mutants/bin/python || $(PYTHON) -m venv .venv-mutants
	@.venv-mutants/bin/python $(PIP) --require-hashes --no-deps -r requirements/mutants.txt 2>.venv-mutants/pip.log || { cat .venv-mutants/pip.log; exit 1; }
	@touch $@

mutants: setup .venv-mutants/.ready ## change one expression at a time where numbers and decisions are made; tests must notice (an hour)
	@.venv-mutants/bin/python .ci/mutants.py $(MUTANTS_ARGS)

# The wheels of a machine with GPUs, 8.5 GB. Three signs ask for the index's torch, which is CUDA's.
.venv-gpu/.ready: requirements/trainer-gpu.txt
	@test -x .venv-gpu/bin/python || $(PYTHON) -m venv .venv-gpu
	@echo "setup: installing torch and vLLM for CUDA into .venv-gpu (4 GB to fetch)"
	@sed 's/^torch==/torch===/' $< > .venv-gpu/lock.txt
	@.venv-gpu/bin/python $(PIP) --no-cache-dir --require-hashes --no-deps -r .venv-gpu/lock.txt 2>.venv-gpu/pip.log || { cat .venv-gpu/pip.log; exit 1; }
	@touch $@

GPULESS := tests/trainer/engines/cuda/wheels
.venv-gpu/driver/libcuda.so.1: $(GPULESS)/pretended_driver.c .venv-gpu/.ready
	@mkdir -p $(@D)
	@cc -O1 -fPIC -shared -Wl,-soname,libcuda.so.1 -I$$(echo .venv-gpu/lib/python3*/site-packages/nvidia/cu13/include) -o $@ $<

# Of targets with tests that take longer than the limit in pyproject.toml: an hour for each.
LONG := -o faulthandler_timeout=3600

GPULESS_ARGS ?=
gpu-less: .venv-gpu/driver/libcuda.so.1 ## what CUDA's wheels say of the trainer on a machine without a GPU (8.5 GB once; minutes)
	@OMP_NUM_THREADS=1 .venv-gpu/bin/python -m pytest $(LONG) $(GPULESS) -rs $(GPULESS_ARGS)

# The site's generator: Markdown as GitHub reads it, and a theme without scripts of other sites.
.venv-docs/.ready: requirements/docs.txt
	@test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	@echo "setup: installing the generator of the documentation into .venv-docs"
	@.venv-docs/bin/python $(PIP) --require-hashes --no-deps -r requirements/docs.txt 2>.venv-docs/pip.log || { cat .venv-docs/pip.log; exit 1; }
	@touch $@

docs: .venv-docs/.ready ## build the documentation as a site that works offline: build/docs/index.html
	@.venv-docs/bin/python -m sphinx -q -E -W --keep-going -c docs/site -d build/doctrees . build/docs
	@.venv-docs/bin/python docs/site/offline.py build/docs

.venv-sbom/.ready: requirements/sbom.txt
	@test -x .venv-sbom/bin/python || $(PYTHON) -m venv .venv-sbom
	@.venv-sbom/bin/python $(PIP) --require-hashes --no-deps -r requirements/sbom.txt 2>.venv-sbom/pip.log || { cat .venv-sbom/pip.log; exit 1; }
	@touch $@

# The locks of what is installed on machines other than a developer's.
SHIPPED_LOCKS := service clouds trainer torch trainer-gpu
sbom: .venv-sbom/.ready ## write a bill of materials of each shipped lock as CycloneDX: build/sbom/*.cdx.json
	@mkdir -p build/sbom
	@for lock in $(SHIPPED_LOCKS); do \
		.venv-sbom/bin/python -W ignore -m cyclonedx_py requirements --output-reproducible \
			--pyproject pyproject.toml -o build/sbom/$$lock.cdx.json requirements/$$lock.txt || exit 1; \
	done

lock: ## write requirements/*.txt from what the environments hold
	@$(CONTROL)/python requirements/control_lock.py
	@$(CONTROL)/python requirements/lock.py $(TRAINER)/python requirements/trainer.txt
	@$(CONTROL)/python requirements/lock.py $(PEERS)/python requirements/peers.txt
	@$(CONTROL)/python requirements/lock.py .venv-docs/bin/python requirements/docs.txt
	@for each in sbom mutants; do test ! -x .venv-$$each/bin/python || \
		$(CONTROL)/python requirements/lock.py .venv-$$each/bin/python requirements/$$each.txt || exit 1; done
	@$(CONTROL)/python requirements/lock.py requirements/browser.txt # the version of the machine's Chromium: by hand

lock-gpu: ## write requirements/trainer-gpu.txt from trainer.txt and what vLLM's CUDA build needs (minutes)
	@$(CONTROL)/python requirements/gpu_lock.py

demo: setup ## the main job: start the stack, train the example run, print the verdict table
	@$(CONTROL)/hillclimb demo $(DEMO_ARGS)

up: setup ## start the embedded stack and stay in the foreground (Ctrl-C stops it)
	@$(CONTROL)/hillclimb up

down: ## stop the embedded stack; running trainers checkpoint first
	@$(CONTROL)/hillclimb down

status: ## what of the stack runs
	@$(CONTROL)/hillclimb status

search-environment: .venv-peers/.ready ## serve the OpenEnv environment of examples/search.yaml
	@$(PEERS)/python -m uvicorn --app-dir examples/openenv_search environment:app --port 8765

# make test RECORD=FOLDER: durations and coverage of both suites, which .ci/record.py reads.
record = $(if $(RECORD),-m slipcover --branch --source $(2) --json --out $(RECORD)/$(1).json)
junit = $(if $(RECORD),--junitxml $(RECORD)/$(1).xml)

test: setup .venv-peers/.ready ## the default test suite, both environments
	@$(if $(RECORD),mkdir -p $(RECORD))
	@.ci/side_by_side \
		'$(CONTROL)/python $(call record,control,api$(,)hillclimb$(,)worker) -m pytest $(CONTROL_TESTS) -m "not long" -n 3 --dist loadfile --no-loadscope-reorder $(call junit,control)' \
		'OMP_NUM_THREADS=1 $(TRAINER)/python $(call record,trainer,hillclimb$(,)trainer) -m pytest $(TRAINER_TESTS) -m "not long" -n 2 --dist worksteal --no-loadscope-reorder $(call junit,trainer)'

# make test-long UNPASSED=1 leaves out the parts of which every long test passed on the tree as it is.
LONG_RUN := -m long --no-loadscope-reorder
LONG_RECORD := build/long
passed = $(if $(UNPASSED),$(shell python3 .ci/passed.py $(1) && echo yes))

test-long: setup .venv-peers/.ready ## what takes longest: whole stacks, services and Ray's workers that are killed part by part
	@rm -rf $(LONG_RECORD) && mkdir -p $(LONG_RECORD)
	@.ci/side_by_side \
		'$(CONTROL)/python -m pytest $(CONTROL_TESTS) $(if $(call passed,api),--ignore=tests/api) $(LONG_RUN) -n 3 --dist loadfile --junitxml $(LONG_RECORD)/api.xml' \
		'$(if $(call passed,trainer),echo "the long tests of the trainer passed on this tree before",OMP_NUM_THREADS=1 $(TRAINER)/python -m pytest $(TRAINER_TESTS) $(LONG_RUN) -n 2 --junitxml $(LONG_RECORD)/trainer.xml)'
	@$(if $(call passed,api),,$(CONTROL)/python .ci/passed.py api --store $(LONG_RECORD)/api.xml)
	@test ! -e $(LONG_RECORD)/trainer.xml || $(CONTROL)/python .ci/passed.py trainer --store $(LONG_RECORD)/trainer.xml

screenshots: setup ## take the pictures of docs/images anew from a stack of its own that trains the demo (a quarter of an hour)
	@bash tests/e2e/browser/install.sh $(CONTROL)/python
	@PYTHONPATH=$(CURDIR):$(CURDIR)/.playwright $(CONTROL)/python -m docs.screenshots

fuzz: setup ## thousands of inputs per claim about what agents write, hundreds of histories of clusters
	@OMP_NUM_THREADS=1 $(TRAINER)/python -m pytest $(LONG) tests/trainer/rollouts/chat/test_parsing_fuzz.py --hypothesis-profile=fuzz --hypothesis-show-statistics
	@$(CONTROL)/python -m pytest $(LONG) tests/worker/clusters/decisions/test_machine.py --hypothesis-profile=fuzz --hypothesis-show-statistics

CHAOS_ROUNDS ?= 1
CHAOS_ARGS ?=
chaos: setup ## kill and stop each part of a running stack in each phase of a run (docs/chaos.md); CHAOS_ROUNDS=3 repeats it, CHAOS_ARGS="-k trainer" takes some
	@HILLCLIMB_CHAOS=1 HILLCLIMB_CHAOS_ROUNDS=$(CHAOS_ROUNDS) $(CONTROL)/python -m pytest $(LONG) tests/e2e/chaos -vv --durations 0 $(CHAOS_ARGS)

check: check-trainer check-control check-tree ## lint, types, import contracts, structure, words (`make -j2 check` uses two cores)

check-tree: .venv/.ready
	@$(CONTROL)/ruff check .
	@$(CONTROL)/ruff format --check .
	@$(CONTROL)/lint-imports
	@$(CONTROL)/python .ci/structure.py --check
	@$(CONTROL)/python .ci/words.py
	@$(CONTROL)/python .ci/image_pins.py

check-control: .venv/.ready
	@$(CONTROL)/mypy --cache-dir .mypy_cache/control -p api -p worker -p hillclimb

check-trainer: .venv-trainer/.ready
	@$(TRAINER)/mypy --cache-dir .mypy_cache/trainer trainer benchmarks/trainer/agent_loop.py benchmarks/engine_throughput.py benchmarks/learner_step.py benchmarks/gpu/checklist.py benchmarks/gpu/carry.py benchmarks/envs/collection.py benchmarks/envs/overhead.py

bench: setup ## three training seeds, two warm starts, the shuffled-reward control (long)
	@$(CONTROL)/python benchmarks/experiments/learning.py
	@$(TRAINER)/python benchmarks/engine_throughput.py

rent: setup ## one run on two rented nodes: SkyPilot on a Slurm of this machine, from nothing (the core of e2e-slurm)
	@bash tests/e2e/slurm/install_slurm.sh
	@HILLCLIMB_E2E=1 $(CONTROL)/python -m pytest $(LONG) tests/e2e/slurm/test_whole_path.py -rs

E2E := HILLCLIMB_E2E=1 $(CONTROL)/python -m pytest $(LONG) -rs
E2E_TRAINER := HILLCLIMB_E2E=1 OMP_NUM_THREADS=1 $(TRAINER)/python -m pytest $(LONG) -rs
E2E_PARTS := $(addprefix e2e-,service browser compose slack slurm tinker mlflow)
.PHONY: $(E2E_PARTS)
e2e: setup ## every backend, browser, SkyPilot on a Slurm of this machine, SkyRL's Tinker server (.venv-skyrl, 2.2 GB), MLflow's (.venv-mlflow, 0.7 GB), the services as docker-compose.yml starts them (.venv-image); installs what is missing where root may; `make e2e-browser` is one part of it
	@$(MAKE) --no-print-directory --keep-going --jobs=1 $(E2E_PARTS) # all of them, whatever fails

e2e-service: setup
	@echo "e2e: every backend, backups, kills, secrets"
	@$(E2E) tests/conformance $(wildcard tests/e2e/test_*.py)

e2e-browser: setup
	@echo "e2e: the dashboard in a browser"
	@bash tests/e2e/browser/install.sh $(CONTROL)/python
	@PYTHONPATH=$(CURDIR)/.playwright $(E2E) tests/e2e/browser

e2e-compose: setup
	@echo "e2e: the services of docker-compose.yml"
	@PYTHON=$(PYTHON) sh tests/e2e/compose/install_image.sh
	@$(E2E) tests/e2e/compose

e2e-slack: setup
	@echo "e2e: a conversation in Slack"
	@$(E2E) tests/e2e/slack

e2e-slurm: setup
	@echo "e2e: SkyPilot on a Slurm of this machine"
	@bash tests/e2e/slurm/install_slurm.sh
	@$(E2E) tests/e2e/slurm

e2e-tinker: setup
	@echo "e2e: SkyRL's Tinker server"
	@PYTHON=$(PYTHON) sh tests/e2e/tinker/install_skyrl.sh
	@$(E2E_TRAINER) tests/e2e/tinker

e2e-mlflow: setup
	@echo "e2e: MLflow's server"
	@PYTHON=$(PYTHON) sh tests/e2e/mlflow/install_mlflow.sh
	@$(E2E_TRAINER) tests/e2e/mlflow

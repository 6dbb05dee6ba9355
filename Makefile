PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TASK ?= tasks/conv3d_leakyrelu_sum_clamp_gelu
# A machine's setting may be that every process compiles all that it imports: 10 s for each that collects tests.
# And what tests run is none of this make's jobs.
unexport PYTHONDONTWRITEBYTECODE MAKEFLAGS

.PHONY: judge test nightly quick lint prepared fuzz gpu-test clean
WORKERS ?= 4
ON_GPU := -m pytest -p no:cacheprovider
ALL := -m pytest -n auto --ignore=tests/gpu --durations=30 --durations-min=5

judge: $(VENV)/ready  ## the main job: judge a task's candidates
	$(BIN)/crucible judge $(TASK)

test nightly: export OMP_NUM_THREADS = 1  # two workers on two cores: threads of each would spin, waiting for the other's
test: $(VENV)/ready lint prepared  ## everything that needs no GPU, of wide sweeps a part
	$(BIN)/python $(ALL)

nightly: export CRUCIBLE_NIGHTLY = 1
nightly: $(VENV)/ready lint prepared  ## the same with every sweep to its wide end; the judge's own tests run 90 % of its lines
	$(BIN)/python $(ALL) --cov=crucible.judge --cov-report=term:skip-covered --cov-fail-under=90

quick: $(VENV)/ready lint  ## what builds nothing and judges nobody: 3 minutes of processor time, half of them on two cores
	$(BIN)/python -m pytest -n auto -m "not slow" $(addprefix --ignore=tests/explain/test_,smallest.py faults.py gradients.py mutants_table.py) tests/plan tests/explain tests/report tests/cli tests/interchange tests/write/test_kernel_*.py tests/write/test_cuda.py tests/write/test_operations.py tests/write/test_interval.py tests/write/test_polynomials.py tests/write/test_rewrites.py tests/write/test_tidy.py tests/write/test_programs.py tests/test_layers.py tests/emission/test_fuse_command.py::test_written_files_are_golden_text

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy

prepared: $(VENV)/ready  ## what the emulator compiles against, once a checkout; mypy leaves a core to it with `make -j2 test`
	-CRUCIBLE_EMULATOR_HOME=$(CURDIR)/build/emulator $(BIN)/python -c "from crucible.emulator import toolchain; toolchain.prepare(whole=True)"

fuzz: $(VENV)/ready  ## for nights: hours of mutated tasks, candidates, options and records, by a seed that it prints
	$(BIN)/python tests/fuzz.py --count 10000 --judged 100 --answered 1000

gpu-test: export PYTHONPATH = src
gpu-test:  ## on a machine with a GPU, with that machine's own torch: side by side, then by itself what compares runtimes
	$(PYTHON) $(ON_GPU) -m "not alone" -n $(WORKERS) $(ARGS) tests/gpu; shared=$$?; \
	$(PYTHON) $(ON_GPU) -m alone $(ARGS) tests/gpu && exit $$shared

# torch goes first and exactly: this version's Linux wheels include a CPU build, where a looser requirement may
# bring gigabytes of CUDA libraries along.
$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV) || { \
		echo "python3 has no venv module; trying to install it" && \
		apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); }
	$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install -q --no-compile --disable-pip-version-check -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .coverage*

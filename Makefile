# moetuned: see it run (demo), check it (test), put it on this machine (install) and take it off again (uninstall).
# demo and test need only python3 (3.11 or newer), python3-venv and make; they set up .venv themselves.

VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
FUZZ_SECONDS ?= 600
RELIEF ?= stand-in
MINUTES ?= 30
export PYTHON PREFIX DESTDIR

.PHONY: help demo test test-system lint bench fuzz relief-matrix soak docs install uninstall deb dist clean

help:
	@echo "make demo        show the main job in two to three minutes (best as root: sudo make demo)"
	@echo "make test        linters, type checker, layer contracts and tests"
	@echo "make test-system as root: the package in a virtual machine (QEMU without KVM): service, backend, reboot, upgrade, removal; TESTS=name, FULL=1"
	@echo "make lint        all of that but the tests"
	@echo "make bench       the benchmarks behind every figure in the docs"
	@echo "make fuzz        coverage-guided fuzzing, ten minutes (FUZZ_SECONDS) each: the header reader, what a tick reads"
	@echo "make relief-matrix  as root: relief with injected faults, RUNS=20 times each of a child and of a unit or script; RELIEF=real: the scenarios on a real llama.cpp"
	@echo "make soak        as root: the daemon beside a busy backend for MINUTES=30, and what it leaks"
	@echo "make docs        write the generated files again: sample config, reference and man pages, completion"
	@echo "make install     as root: /opt/moetuned, links in /usr/local/bin, unit, sample config"
	@echo "make uninstall   as root: settings rolled back, then all of that removed"
	@echo "make deb         dist/moetuned_VERSION_ARCH.deb for the Debian or Ubuntu that this is (WHEELS=dir: without network)"
	@echo "make dist        wheel and sdist in dist/"
	@echo "make clean       remove what make made in this directory"
	@echo "Variables: PYTHON (interpreter), PREFIX (/usr/local), DESTDIR (for packagers), PYTEST_ARGS, FUZZ_SECONDS, RUNS, RELIEF, MINUTES"

# One stamp a set of extras: set up again only when what is needed has changed.
$(VENV)/ready-demo: pyproject.toml scripts/venv.sh scripts/python.sh
	@sh scripts/venv.sh
	@touch $@

$(VENV)/ready-test: pyproject.toml scripts/venv.sh scripts/python.sh
	@sh scripts/venv.sh test
	@touch $@ $(VENV)/ready-demo

$(VENV)/ready-fuzz: pyproject.toml scripts/venv.sh scripts/python.sh
	@sh scripts/venv.sh test,fuzz
	@touch $@ $(VENV)/ready-test $(VENV)/ready-demo

demo: $(VENV)/ready-demo
	@PYTHONDONTWRITEBYTECODE=1 $(BIN)/python -m moetuned.demo

lint: $(VENV)/ready-test
	@echo "== ruff check" && $(BIN)/ruff check .
	@echo "== ruff format" && $(BIN)/ruff format --check .
	@echo "== mypy" && $(BIN)/mypy
	@echo "== import-linter" && $(BIN)/lint-imports --no-cache
	@if command -v shellcheck >/dev/null; then echo "== shellcheck" && shellcheck -x scripts/*.sh scripts/debian/pre* scripts/debian/post* etc/hooks.d/* .ci/run tests/system/*.sh; \
	else echo "== shellcheck is not installed; shell scripts are not checked"; fi

test: lint
	@echo "== pytest" && $(BIN)/pytest $(PYTEST_ARGS)

# TESTS=name chooses, RELEASE=bookworm, KERNEL=6.1 (without cachestat) and MGLRU=off change the guest, FULL=1 adds what takes longer (the
# other kernels, a real llama.cpp, RUNS=30 disasters drawn from SEED). LANES=1: one guest at a time. What a failure leaves is in build/vm/out.
test-system: $(VENV)/ready-test
	@$(BIN)/python tests/system/lanes.py $(if $(TESTS),-k "$(TESTS)") $(PYTEST_ARGS)

bench: $(VENV)/ready-test
	@$(BIN)/pytest -m bench tests/bench $(PYTEST_ARGS)

# Inputs that break a target are kept as build/fuzz/<target>-crash-*; give one as the only argument to see it again.
fuzz: $(VENV)/ready-fuzz
	@set -e; for target in gguf_header tick; do mkdir -p build/fuzz/$$target; \
	    $(BIN)/python tests/fuzz/fuzz_$$target.py build/fuzz/$$target -artifact_prefix=build/fuzz/$$target- \
	    -max_total_time=$(FUZZ_SECONDS) -timeout=5 -rss_limit_mb=512 -max_len=65536 -print_final_stats=1; done

relief-matrix: $(VENV)/ready-test
	@PYTHONPATH=.:tests $(BIN)/python tests/relief_matrix/relief_matrix.py $(RELIEF) --runs $(or $(RUNS),20)

soak: $(VENV)/ready-test
	@PYTHONPATH=.:tests/relief_matrix $(BIN)/python tests/soak/soak_minutes.py --minutes $(MINUTES)

docs: $(VENV)/ready-test
	@$(BIN)/python scripts/generate_docs.py

install:
	@sh scripts/install.sh

uninstall:
	@sh scripts/uninstall.sh

deb:
	@sh scripts/build_deb.sh

dist: $(VENV)/ready-test
	@sh scripts/build_dist.sh $(BIN)/python

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find moetuned tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

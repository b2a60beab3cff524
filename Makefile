# SPDX-License-Identifier: GPL-2.0-or-later
#
# Every target does the set-up that it needs on a fresh Debian 12 (root or sudo), and is safe to
# run again.
#
#   demo      packs a small real Debian, mounts it through the kernel, compares every file, boots it
#             in QEMU, lays it out in the order of that boot, and boots it again
#   test      the test suite, kernel mounts and one boot included
#   test-vm   the tests that boot virtual machines
#   lint      ruff, mypy, layers, clang-format, clang-tidy, shellcheck, codespell
#   sanitize  the native tests under address, undefined and thread sanitizers
#   fuzz      the reader under libFuzzer for FUZZ_SECONDS
#   bench     the table of speed, size and memory against the packers of others: hours for all
#             of it; ROWS=gzip-128K,lz4-128K WORKERS=2 PAIRS=1 narrow it down
#   bench-boot  what the order is worth to the boots of two systems; half an hour
#   native    the native core and its tests alone

PYTHON ?= python3
VENV ?= .venv
BUILD ?= build
FUZZ_SECONDS ?= 90
JOBS ?= $(shell nproc)
# clang-tidy takes what it takes; lint checks these files only, e.g. TIDY=ext/base/error.cpp
TIDY ?= $(wildcard ext/*/*.cpp ext/*.cpp)

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo test test-vm lint bench bench-boot fuzz sanitize native install clean

# A static pattern: make looks for no implicit rule where a target is phony.
PACKAGES := $(addprefix packages-,build demo test vm lint sanitize bench)
.PHONY: $(PACKAGES)
$(PACKAGES): packages-%:
	@tools/install_packages.sh $*

# --- the Python package, with the native module in it -------------------------------------------

PYTHON_SOURCES := $(shell find src ext -type f -not -name '*.pyc') pyproject.toml README.md

# The package is installed, not linked to: what is tested is what a user gets.
LIST_DEPENDENCIES = import tomllib; \
  print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], sep="\n")
$(VENV)/installed: $(PYTHON_SOURCES) | packages-build
	test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet "scikit-build-core>=0.10" "pybind11>=3.0,<4"
	$(VENV)/bin/python -c '$(LIST_DEPENDENCIES)' > $(VENV)/dependencies.txt
	$(VENV)/bin/pip install --quiet -r $(VENV)/dependencies.txt
	$(VENV)/bin/pip install --quiet --no-build-isolation --force-reinstall --no-deps \
	  --config-settings=build-dir=$(abspath $(BUILD))/python .
	touch $@

# The tools of tests and linters. Their versions are in pyproject.toml.
LIST_TOOLS = import tomllib; \
  groups = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
  print(*{r for g in groups.values() for r in g if not r.startswith("bootpress")}, sep="\n")
$(VENV)/developed: pyproject.toml | $(VENV)/installed
	$(VENV)/bin/python -c '$(LIST_TOOLS)' > $(VENV)/tools.txt
	$(VENV)/bin/pip install --quiet -r $(VENV)/tools.txt
	touch $@

install: $(VENV)/installed

# --- the native core alone ----------------------------------------------------------------------

NATIVE_FLAGS = -S ext -G Ninja -DBOOTPRESS_PYTHON=OFF

native: packages-build packages-test
	cmake $(NATIVE_FLAGS) -B $(BUILD)/native -DBOOTPRESS_TESTS=ON
	cmake --build $(BUILD)/native
	ctest --test-dir $(BUILD)/native --output-on-failure --no-tests=error -j $(JOBS)

# --- what people and CI call --------------------------------------------------------------------

demo: packages-demo packages-vm $(VENV)/installed
	BOOTPRESS=$(VENV)/bin/bootpress PYTHON=$(VENV)/bin/python BUILD=$(BUILD) examples/demo.sh

# Boots take half a minute each without KVM: here is one, the others have a target of their own.
test: native packages-vm $(VENV)/installed $(VENV)/developed
	$(VENV)/bin/python -m pytest -m "not vm or smoke"

test-vm: packages-test packages-vm $(VENV)/installed $(VENV)/developed
	$(VENV)/bin/python -m pytest -m vm

sanitize: packages-build packages-sanitize
	for kind in address,undefined thread; do \
	  build=$(BUILD)/sanitize-$${kind%%,*}; \
	  CXX=clang++-19 cmake $(NATIVE_FLAGS) -B $$build -DBOOTPRESS_TESTS=ON \
	    -DBOOTPRESS_SANITIZE=$$kind; \
	  cmake --build $$build --target native_tests; \
	  ctest --test-dir $$build --output-on-failure --no-tests=error -j $(JOBS); \
	done

fuzz: packages-build packages-sanitize
	CXX=clang++-19 cmake $(NATIVE_FLAGS) -B $(BUILD)/fuzz -DBOOTPRESS_FUZZ=ON
	cmake --build $(BUILD)/fuzz
	tools/run_fuzzers.sh $(BUILD)/fuzz $(FUZZ_SECONDS)

bench: packages-build packages-bench $(VENV)/installed
	tools/make_rootfs.sh $(BUILD)/bench-rootfs desktop
	cmake $(NATIVE_FLAGS) -B $(BUILD)/bench -DBOOTPRESS_TESTS=ON -DCMAKE_BUILD_TYPE=Release
	cmake --build $(BUILD)/bench
	BUILD=$(BUILD) PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/python tests/bench/bench.py

bench-boot: packages-bench packages-vm $(VENV)/installed
	tools/make_rootfs.sh $(BUILD)/rootfs/boot boot
	tools/make_rootfs.sh $(BUILD)/bench-rootfs desktop
	PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/python tests/bench/boot_bench.py \
	  --tree $(BUILD)/rootfs/boot --work $(BUILD)/bench-boot/boot
	PATH="$(abspath $(VENV))/bin:$$PATH" $(VENV)/bin/python tests/bench/boot_bench.py \
	  --tree $(BUILD)/bench-rootfs --work $(BUILD)/bench-boot/desktop --until graphical.target

lint: packages-build packages-test packages-lint $(VENV)/installed $(VENV)/developed
	$(VENV)/bin/ruff format --check src tests tools
	$(VENV)/bin/ruff check src tests tools
	$(VENV)/bin/mypy
	PYTHONPATH=src $(VENV)/bin/lint-imports
	$(VENV)/bin/python tools/check_layers.py ext
	$(VENV)/bin/codespell
	shellcheck $$(git ls-files | xargs grep -lE '^#!/bin/(ba)?sh' --)
	clang-format-19 --dry-run -Werror $$(git ls-files 'ext/*.[ch]pp' 'tests/**/*.[ch]pp')
	cmake $(NATIVE_FLAGS) -B $(BUILD)/native -DBOOTPRESS_TESTS=ON
	printf '%s\n' $(filter-out ext/bindings.cpp,$(TIDY)) | \
	  xargs -P $(JOBS) -n 1 clang-tidy-19 --quiet -p $(BUILD)/native

clean:
	rm -rf $(BUILD) $(VENV)

# `make demo` and `make test` do all their own set-up; everything lives in .venv and build/.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
EXTRAS := data,demo,train,tensorboard,baselines,evaluate,serve,bench,pyterrier,langchain,llamaindex,hub,mcp,scale,dev
NATIVE := CMakeLists.txt $(shell find native -name '*.cpp' -o -name '*.hpp' -o -name '*.inc')
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export CMAKE_BUILD_PARALLEL_LEVEL = 2

.PHONY: help setup demo test lint types native-test browser python-test bench bench-scale fuzz sanitize soak clean

help:
	@echo "make demo         a real corpus, an index trained on it, figures beside BM25 and dense retrieval: some six minutes"
	@echo "make test         lint, types, native unit tests, Python tests"
	@echo "make bench        the benchmarks on small generated corpora (see benchmarks/README.md for the real ones)"
	@echo "make bench-scale  past one process: the same losses, bytes and answers, at what cost, and while workers are killed"
	@echo "make fuzz         libFuzzer with AddressSanitizer on loader, encoder and docid table, a minute each (needs clang)"
	@echo "make sanitize     native unit tests under Address-, UndefinedBehaviour- and ThreadSanitizer"
	@echo "make soak         ten minutes of twice what the machine can serve, and thousands of generated requests"
	@echo "make clean        remove .venv, build and demo"

setup: $(READY)

$(READY): pyproject.toml constraints.txt $(NATIVE)
	@command -v c++ >/dev/null || { echo "a C++20 compiler is missing: apt-get install g++" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than Python 3.11: make PYTHON=python3.11" >&2; exit 2; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || { echo "python venv is missing: apt-get install python3-venv" >&2; exit 2; }
	$(BIN)/pip install -q -c constraints.txt scikit-build-core nanobind cmake ninja
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/pip install -q -c constraints.txt --no-build-isolation -e '.[$(EXTRAS)]'
	@touch $@

demo: $(READY)
	@$(BIN)/pixnar demo -o demo

test: lint types native-test python-test

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

build/native-tests/.configured: $(READY)
	$(BIN)/cmake -S . -B build/native-tests -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DPIXNAR_MODULE=OFF -DPIXNAR_TESTS=ON >/dev/null
	@touch $@

native-test: build/native-tests/.configured
	$(BIN)/cmake --build build/native-tests
	$(BIN)/ctest --test-dir build/native-tests --output-on-failure

# The page is tested in a real browser; where none can be installed those tests say so and are left out.
browser:
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core || \
	    { apt-get update -q && apt-get install -y -q --no-install-recommends chromium fonts-dejavu-core; }; } >/dev/null 2>&1; } || \
	  echo "chromium is missing, the page is not tested in a browser: apt-get install chromium"

# A file of tests at a time on every core, up to four; each computes on one thread unless a test says otherwise.
python-test: $(READY) browser
	OMP_NUM_THREADS=1 $(BIN)/pytest -q --numprocesses logical --maxprocesses 4 --dist loadfile

bench: $(READY)
	$(BIN)/pixnar bench vocab --generated 200000 --generated-size 32768 --json build/bench-vocab.json
	$(BIN)/pixnar bench decode --docids 1e6 --queries 50 --json build/bench-decode.json

bench-scale: $(READY) demo
	$(BIN)/pixnar bench ray-build --docids 400000 --workers 1,2,4 --kills 24 --json build/bench-ray-build.json
	$(BIN)/python -m pixnar.benchmarks.ray_search demo/index demo/corpus --json build/ray_search.json
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.distributed --json build/bench-distributed.json
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.plan --json build/bench-plan.json

sanitize: $(READY)
	@for set in address,undefined thread; do \
	  dir=build/sanitize-$$(echo $$set | tr , -); \
	  $(BIN)/cmake -S . -B $$dir -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DPIXNAR_MODULE=OFF -DPIXNAR_TESTS=ON -DPIXNAR_SANITIZE=$$set >/dev/null && \
	  $(BIN)/cmake --build $$dir && $(BIN)/ctest --test-dir $$dir --output-on-failure || exit 1; \
	done

SOAK_SECONDS ?= 600
soak: $(READY) demo
	$(BIN)/pixnar bench serve demo/index demo/corpus --soak $(SOAK_SECONDS) --json build/bench-serve.json
	PIXNAR_SCHEMA_EXAMPLES=500 $(BIN)/pytest -q -s --timeout 1800 tests/serve/test_schema.py

FUZZ_SECONDS ?= 60
fuzz: $(READY)
	@command -v clang++ >/dev/null || { echo "libFuzzer needs clang: apt-get install clang" >&2; exit 2; }
	$(BIN)/cmake -S . -B build/fuzz -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DCMAKE_CXX_COMPILER=clang++ -DCMAKE_BUILD_TYPE=RelWithDebInfo -DPIXNAR_MODULE=OFF -DPIXNAR_FUZZ=ON -DPIXNAR_SANITIZE=address,undefined >/dev/null
	$(BIN)/cmake --build build/fuzz
	mkdir -p build/fuzz/corpus-encode build/fuzz/corpus-load build/fuzz/corpus-table
	build/fuzz/fuzz_encode -max_total_time=$(FUZZ_SECONDS) -max_len=512 -len_control=0 -print_final_stats=1 build/fuzz/corpus-encode
	build/fuzz/fuzz_load -max_total_time=$(FUZZ_SECONDS) -max_len=65536 -len_control=0 -print_final_stats=1 build/fuzz/corpus-load
	build/fuzz/fuzz_table -max_total_time=$(FUZZ_SECONDS) -max_len=1024 -len_control=0 -print_final_stats=1 build/fuzz/corpus-table

clean:
	rm -rf $(VENV) build demo

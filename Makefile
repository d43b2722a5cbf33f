# For those who develop nnc; CMake does the work. `make` builds build/nnc, `make test` runs the tests. Warnings are errors, as in `make lint`,
# which looks at this build.
JOBS ?= $(shell nproc)
.PHONY: all bench gpu-bundle test asan tsan lint format bless clean

all:
	@cmake -S . -B build -DBUILD_TESTING=ON -DNNC_WERROR=ON >/dev/null
	@cmake --build build -j $(JOBS)

test: all
	@scripts/ctest.sh build -j $(JOBS)

# AddressSanitizer and UndefinedBehaviorSanitizer: build-asan/. intercept_tls_get_addr=0: gcc 12's LeakSanitizer takes what lies before a
# plug-in's thread-local block for its size and reads there ("Tracer caught signal 11"). -O1 and line tables only: compiled in half the time,
# and less is optimised away before it is checked. Without the benchmarks and libraries, which no test runs here. Freed memory is kept
# (allocator_release_to_os_interval_ms=-1): a third of the system time of suites was giving it back; 64 MiB of it are kept from use (the
# default of 256 MiB cost each process 0.3 s of system time, as all of it is touched).
# malloc_context_size=12: leaks of CUDA's libraries are told by their name in it (tests/test.c), which may lie behind the C++ library's.
asan:
	@cmake -S . -B build-asan -DCMAKE_BUILD_TYPE=RelWithDebInfo "-DCMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -g1 -DNDEBUG" \
		-DNNC_SANITIZE=address,undefined -DNNC_WERROR=ON >/dev/null
	@cmake --build build-asan -j $(JOBS) | tail -n 1
	@ASAN_OPTIONS=detect_stack_use_after_return=0:intercept_tls_get_addr=0:malloc_context_size=12:quarantine_size_mb=64:allocator_release_to_os_interval_ms=-1 scripts/ctest.sh build-asan -j $(JOBS)

# ThreadSanitizer, at fixed addresses (gcc 12's wants them): build-tsan/
tsan:
	@cmake -S . -B build-tsan -DCMAKE_BUILD_TYPE=RelWithDebInfo -DNNC_SANITIZE=thread >/dev/null
	@cmake --build build-tsan -j $(JOBS) | tail -n 1
	@setarch -R scripts/ctest.sh build-tsan -j $(JOBS) -R '^(base|data|runtime|plan|llvm|api|cuda_fake)$$'

# Builds the benchmarks and runs the one over models; results are tables on stdout (bench/results/ keeps some).
bench: all
	@cmake --build build -j $(JOBS) --target bench_models bench_kernels | tail -n 1
	@sh bench/run.sh build

# nnc-gpu.tar.xz: nnc and bench/gpu.sh for a GPU machine without a compiler or packages. GPU_TARGETS="cuda:sm_80 cuda:sm_90" compiles kernels
# beforehand for those.
gpu-bundle:
	@JOBS=$(JOBS) sh scripts/gpu-bundle.sh

lint:
	@sh scripts/lint.sh

format:
	@git ls-files '*.c' | xargs clang-format -i

# Rewrites the expected lines of the golden tests.
bless: all
	@NNC_BLESS=1 ctest --test-dir build -R 'passes|golden' --output-on-failure

clean:
	@rm -rf build build-asan build-tsan

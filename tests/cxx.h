/* tests/cxx.h -- kernels as CUDA C, built for this machine by the C++ compiler over cudac/shim.h and loaded. Who includes it defines
 * NNC_TEST_CXX (the compiler, "" where there is none), NNC_TEST_CXX_FLAGS, NNC_TEST_SHIM and NNC_TEST_SHIM_OBJECT (shim.cpp, compiled) for
 * cxx.c, and NNC_TEST_CXX_TRAPS for cudac/ct.c. */
#ifndef TESTS_CXX_H
#define TESTS_CXX_H

#include "base/base.h"

/* Builds `source` (n bytes) and opens it: dlclose. NULL: what went wrong is on stderr. flags: for the compiler, besides those that make a
 * library whose arithmetic is that of the kernels.
 * FAKE_CUDA_KERNELS in the environment names a folder that keeps what was built, under the hash of source and flags. Other processes, or
 * a machine without a compiler, use it. Whoever changes shim.h, shim.cpp or the compiler takes an empty one. */
void *cxx_build(const char *source, size_t n, const char *flags);

#endif

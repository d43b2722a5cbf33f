/* target/internal.h -- shared by the files of target/ only. */
#ifndef NNC_TARGET_INTERNAL_H
#define NNC_TARGET_INTERNAL_H

#include "base/fields.h"
#include "target/target.h"

/* Sets the vector width and the instructions that generated code may use. */
void target_instructions(nnc_target *t);
/* Appends what identifies this machine's instruction set (CPU model and feature words). */
void target_host_signature(nnc_text *t);
/* host.c: launches and engines of a CPU; the first bytes of a small system file, "" when it cannot be read. */
void target_cpu_numbers(nnc_target *t);
/* engines.c: gives t all engines of its kind. */
void target_engines(nnc_target *t);
const char *target_slurp(const char *path, char *buf, size_t cap);
/* aarch64.c: instructions of kernels for a core; peak FLOP/s of n of them; this machine's core, where it is an AArch64 one. */
void target_core(nnc_target *t, const nnc_core *c);
int64_t target_core_flops(const nnc_core *c, int64_t clock_hz, int n);
const nnc_core *target_host_core(void);
/* libraries.c. Sets the versions that the architecture has by default; a CPU has none. */
void target_default_libraries(nnc_target *t);
/* Reads the member "libraries" of a machine file, which may be missing, and takes away the engines of libraries that are null. */
nnc_status target_read_libraries(const nnc_field_reader *r, const nnc_item *machine, nnc_target *t) NNC_MUST;

#endif

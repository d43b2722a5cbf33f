/* cuda/internal.h -- shared by the files of cuda/, and by bench/cubin_work.c. */
#ifndef NNC_CUDA_INTERNAL_H
#define NNC_CUDA_INTERNAL_H

#include "cuda/cuda.h"

/* search.c: finds a library's file without opening it. It skips the first `skip` matches, so that a caller can continue
 * after one that does not load. False: no more. *place is static text. A path without a slash is left to the loader. */
typedef struct cuda_file {
    char path[512];
    const char *place;
} cuda_file;
bool cuda_search(const char *const *soname, bool of_driver, int skip, cuda_file *out);

/* load.c: the file of `lib`: the open one, or the first found; false: none, or the table is overridden. */
bool cuda_file_of(nnc_cuda_lib lib, cuda_file *out);
/* loader.c: the file of `lib`, searched on the loader's path too, not opened. */
struct stat;
bool cuda_file_stat(nnc_cuda_lib lib, char path[512], struct stat *st);
/* doctor.c: gets the version of an open library. */
void cuda_version(nnc_cuda_lib lib, nnc_cuda_found *out);

/* nvrtc_log.c: reports NVRTC's log as located messages; `unit` and `source` are the compiled translation unit.
 * Returns the number of errors. */
int nvrtc_report_log(const char *unit, const char *source, const char *log, nnc_sink *sink);

/* Machine code: 16 bytes per instruction, as two words. */
enum { INSTRUCTION = 16 };

/* cubin.c: the class of an opcode (its low nine bits). */
nnc_cubin_class cubin_class(int sm, int bits);
/* Width of a global access, from the upper word of the instruction: 0 = 8 bits to 4 = 128. */
int cubin_width(uint64_t high);

#endif

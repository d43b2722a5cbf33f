/* cuda/internal.h -- shared by the files of cuda/ only. */
#ifndef NNC_CUDA_INTERNAL_H
#define NNC_CUDA_INTERNAL_H

#include "cuda/cuda.h"

/* search.c: finds the file of a library without opening it; the `skip` first finds are passed over, so that a caller can go on where
 * one does not load. False: no more. *place is static text. A path without a slash is left to the loader. */
typedef struct cuda_file {
    char path[512];
    const char *place;
} cuda_file;
bool cuda_search(const char *const *soname, bool of_driver, int skip, cuda_file *out);

/* load.c: the file that stands for `lib`: the open one, or the first that there is; false: none, or the table was replaced. */
bool cuda_file_of(nnc_cuda_lib lib, cuda_file *out);
/* identity.c: the file that stands for `lib`, on the loader's path too, unopened. */
struct stat;
bool cuda_file_stat(nnc_cuda_lib lib, char path[512], struct stat *st);
/* doctor.c: asks an open library for its version. */
void cuda_version(nnc_cuda_lib lib, nnc_cuda_found *out);

/* nvrtc_log.c: NVRTC's log as located messages in `sink`; `unit` and `source` are what was compiled. Returns the errors found. */
int nvrtc_report_log(const char *unit, const char *source, const char *log, nnc_sink *sink);

#endif

/* base/codes.h -- types that nnc and its users share: status codes, and base/'s opaque objects that are part of nnc.h. Installed with
 * nnc.h: it includes no other header of nnc, and is valid C11 and C++. */
#ifndef NNC_CODES_H
#define NNC_CODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks functions that libnnc exports. */
#define NNC_API __attribute__((visibility("default")))
#define NNC_MUST __attribute__((warn_unused_result))

/* Status codes, in the order of their exit codes (nnc_exit_code). Later versions append. */
typedef enum nnc_status {
    NNC_OK = 0,
    NNC_E_DIFFERS, /* compared, and different                 exit 1 */
    NNC_E_USAGE,   /* flags or arguments of the caller     exit 2 */
    NNC_E_MODEL,   /* the model, IR text or artifact is rejected   exit 3 */
    NNC_E_FIT,     /* does not fit in device memory        exit 4 */
    NNC_E_DEVICE,  /* device or library missing or failed  exit 5 */
    NNC_E_PEER,    /* a peer was lost, a deadline passed   exit 6 */
    NNC_E_IO,      /* a file could not be read or written  exit 5 */
    NNC_E_NOMEM,   /* host memory ran out                  exit 4 */
    NNC_E_BUG      /* an internal contradiction                  exit 70 */
} nnc_status;

/* Process exit code of a status. */
NNC_API int nnc_exit_code(nnc_status s);
/* Short lower-case name of a status ("model rejected", ...). Never NULL. */
NNC_API const char *nnc_status_name(nnc_status s);

/* A tensor's type. Users see row-major types only. */
typedef struct nnc_type nnc_type;
NNC_API const char *nnc_type_dtype(const nnc_type *t); /* "f32", "f16", "i64", ... */
NNC_API int nnc_type_rank(const nnc_type *t);
NNC_API int64_t nnc_type_dim(const nnc_type *t, int i); /* 0 past the last */
NNC_API int64_t nnc_type_numel(const nnc_type *t);      /* elements; 1 for rank 0 */
NNC_API int64_t nnc_type_bytes(const nnc_type *t);

/* Diagnostics in order: errors, warnings, notes. Owns its strings. Used by one thread. The first 200 are kept, later ones counted.
 * When a message cannot be stored for lack of memory, a static text replaces it. */
typedef struct nnc_sink nnc_sink;
NNC_API nnc_sink *nnc_sink_create(void); /* NULL: out of memory */
NNC_API void nnc_sink_destroy(nnc_sink *s);
NNC_API void nnc_sink_clear(nnc_sink *s);
NNC_API size_t nnc_sink_count(const nnc_sink *s);  /* stored diagnostics */
NNC_API size_t nnc_sink_errors(const nnc_sink *s); /* errors reported, stored or not */

/* A growable string; reports are appended to it. */
typedef struct nnc_text nnc_text;
NNC_API nnc_text *nnc_text_create(void); /* NULL: out of memory */
NNC_API void nnc_text_destroy(nnc_text *t);
NNC_API void nnc_text_clear(nnc_text *t);           /* keeps the memory */
NNC_API const char *nnc_text_str(const nnc_text *t); /* NUL-terminated, never NULL; valid until t changes */
NNC_API size_t nnc_text_size(const nnc_text *t);     /* bytes without the NUL */

/* Prints each diagnostic as a line "file:line:col: path: error: message", parts omitted where unknown. */
NNC_API void nnc_sink_print(const nnc_sink *s, FILE *out);
NNC_API void nnc_sink_put(const nnc_sink *s, nnc_text *out);

/* Frees memory that a function of nnc returned for the caller to free. */
NNC_API void nnc_free(void *p);

#ifdef __cplusplus
}
#endif

#endif

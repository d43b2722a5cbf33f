/* api/report_text.h -- formatting of reports: abbreviated layer lists, columns, CSV fields. Internal to api/. */
#ifndef NNC_API_REPORT_TEXT_H
#define NNC_API_REPORT_TEXT_H

#include "base/base.h"

enum { REPORT_WIDTH = 118 }; /* columns of text reports */

/* Appends a union of layer paths joined by '+', abbreviated: layers with the same parent share it, repeats become a range:
 * "/layers/0/conv1[0..1]/{0/conv,3/relu} + /layers/1/flatten". Longer than `width` (0: unlimited): first ones + ... N more ... + last. */
void nnc_put_layers(nnc_text *t, const char *joined, int width);
/* The same, padded with blanks to at least `width`. */
void nnc_put_layers_column(nnc_text *t, const char *joined, int width);
/* Bytes right-aligned in `width` columns; signed: with + or -. */
void nnc_put_bytes_column(nnc_text *t, int64_t bytes, int width, bool with_sign);
/* Removes trailing blanks. */
void nnc_trim(nnc_text *t);
/* Appends the words of `s`, wrapped at `width` columns; the first line starts at column `at`, the others at `indent`. No final
 * newline. */
void nnc_put_wrapped(nnc_text *t, const char *s, int at, int indent, int width);
/* Appends a CSV field, quoted where necessary. */
/* The plural ending: "1 launch", "2 launches". */
static inline const char *nnc_plural(int64_t n, const char *ending)
{
    return n == 1 || n == -1 ? "" : ending;
}
/* Orders layer paths as in the file: digits as numbers. */
int nnc_compare_paths(const char *a, const char *b);

#endif

/* base/fields.h -- JSON objects as C structs: a table of fields serves reading, with mistakes reported at their position and the nearest
 * key, and writing. Machine files and hardware files are read by it. */
#ifndef NNC_FIELDS_H
#define NNC_FIELDS_H

#include "base/json.h"
#include "base/text.h"

typedef enum nnc_field_kind { NNC_F_string, NNC_F_int, NNC_F_int64, NNC_F_bool, NNC_F_double, NNC_F_word } nnc_field_kind;
typedef struct nnc_field {
    const char *name;
    nnc_field_kind kind;
    size_t at;     /* offset in the struct: const char *, int, int64_t, bool, double, int (of a word) */
    bool required;
    double lo, hi; /* range of a number; hi: of words their number */
    const char *const *words;
} nnc_field;

typedef struct nnc_field_reader {
    const nnc_json *json;
    const char *what;  /* "machine file": begins each message */
    nnc_arena *arena;  /* of strings */
    nnc_sink *sink;
} nnc_field_reader;

/* Reads the members of `obj` that `fields` names into `base`. Any other key must be a word of `also` (read by the caller; "$schema", a
 * string, is for editors); required ones must be present. At most 40 names in all. */
nnc_status nnc_fields_read(const nnc_field_reader *r, const nnc_item *obj, const nnc_field *fields, size_t n, const char *also,
    void *base) NNC_MUST;
#define NNC_FIELDS(r, obj, fields, also, base) nnc_fields_read(r, obj, fields, NNC_COUNT(fields), also, base)
/* Reports "WHAT: NAME: expected EXPECTED" at the item; code NNC_E_USAGE. */
nnc_status nnc_fields_bad(const nnc_field_reader *r, const nnc_item *at, const char *name, const char *expected);
/* Reports a required member that is missing in obj. */
nnc_status nnc_fields_missing(const nnc_field_reader *r, const nnc_item *obj, const char *name);
/* Appends `"name": value`. */
void nnc_fields_put(nnc_text *out, const nnc_field *f, const void *base);

#endif

/* base/json.h -- JSON as a tree of items with their positions. Rejects duplicate keys, invalid escapes, invalid UTF-8, trailing text and
 * integer literals from 2^53 on; nesting is limited (64). */
#ifndef NNC_JSON_H
#define NNC_JSON_H

#include "base/arena.h"

typedef enum nnc_json_kind { NNC_JSON_null, NNC_JSON_bool, NNC_JSON_number, NNC_JSON_string, NNC_JSON_list, NNC_JSON_object } nnc_json_kind;

typedef struct nnc_item {
    nnc_json_kind kind;
    int n;             /* elements or members */
    int line, col;     /* of the first character, from 1 */
    int key_line, key_col;
    const char *key;   /* of a member; otherwise NULL */
    const char *text;  /* of a string; otherwise NULL */
    double number;     /* of a number; a bool: 1 or 0 */
    struct nnc_item *child, *next; /* the first element or member; the next one of the same list or object */
} nnc_item;

typedef struct nnc_json {
    const char *file; /* borrowed */
    nnc_item *root;
    nnc_arena arena;
} nnc_json;

/* Parses `text`, which may be freed then. Errors state file, line and column; code NNC_E_MODEL. */
nnc_status nnc_json_parse(nnc_json *j, const char *file, const char *text, size_t n, nnc_sink *sink) NNC_MUST;
/* Reads a file (limit 64 MiB; NNC_E_IO when unreadable) and parses it. "-" is stdin. */
nnc_status nnc_json_load(nnc_json *j, const char *file, nnc_sink *sink) NNC_MUST;
void nnc_json_deinit(nnc_json *j);
/* Position of an item of this document (of a member's key when `key` is true); item NULL: line 0. loc.path = NULL. */
nnc_loc nnc_json_loc(const nnc_json *j, const nnc_item *item, bool key);

/* NULL is an item of no kind. */
static inline bool nnc_is_kind(const nnc_item *v, nnc_json_kind kind) { return v && v->kind == kind; }
static inline bool nnc_is_bool(const nnc_item *v) { return nnc_is_kind(v, NNC_JSON_bool); }
static inline bool nnc_is_number(const nnc_item *v) { return nnc_is_kind(v, NNC_JSON_number); }
static inline bool nnc_is_string(const nnc_item *v) { return nnc_is_kind(v, NNC_JSON_string); }
static inline bool nnc_is_list(const nnc_item *v) { return nnc_is_kind(v, NNC_JSON_list); }
static inline bool nnc_is_object(const nnc_item *v) { return nnc_is_kind(v, NNC_JSON_object); }
/* The first element of a list, the first member of an object. */
static inline const nnc_item *nnc_json_first(const nnc_item *v) { return v ? v->child : NULL; }
/* A member of an object, and the text of one that is a string; NULL where there is none. */
const nnc_item *nnc_json_get(const nnc_item *o, const char *key);
const char *nnc_json_text(const nnc_item *o, const char *key);

#endif

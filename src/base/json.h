/* base/json.h -- JSON through cJSON, with positions; rejects duplicate keys, invalid escapes, invalid UTF-8, trailing text and integer
 * literals from 2^53 on; nesting is limited (64). The text is kept: a position is found by scanning it again along the path of a
 * value, only when an error is reported. */
#ifndef NNC_JSON_H
#define NNC_JSON_H

#include "base/arena.h"
#include <cjson/cJSON.h>

typedef struct nnc_json {
    char *text; /* owned */
    size_t n;
    const char *file; /* borrowed */
    cJSON *root;      /* owned */
} nnc_json;

/* Parses `text` (copied). Errors state file, line and column; code NNC_E_MODEL. */
nnc_status nnc_json_parse(nnc_json *j, const char *file, const char *text, size_t n, nnc_sink *sink) NNC_MUST;
/* Reads a file (limit 64 MiB; NNC_E_IO when unreadable) and parses it. "-" is stdin. */
nnc_status nnc_json_load(nnc_json *j, const char *file, nnc_sink *sink) NNC_MUST;
void nnc_json_deinit(nnc_json *j);
/* Position of an item of this document (its first character; a member's key when `key` is true).
 * Unknown item: line 0. loc.file = j->file, loc.path = NULL. O(text): for errors. */
nnc_loc nnc_json_loc(const nnc_json *j, const cJSON *item, bool key);
/* A member of an object, and the text of one that is a string; NULL where there is none. */
static inline const cJSON *nnc_json_get(const cJSON *o, const char *key) { return cJSON_GetObjectItemCaseSensitive(o, key); }
static inline const char *nnc_json_text(const cJSON *o, const char *key) { return cJSON_GetStringValue(nnc_json_get(o, key)); }

#endif

/* base/json_writer.h -- writes JSON into a text: commas between members, escaped strings, null for non-finite numbers; or, of the same
 * report, its rows as CSV. */
#ifndef NNC_JSON_WRITER_H
#define NNC_JSON_WRITER_H

#include "base/text.h"

typedef struct nnc_json_writer {
    nnc_text *out;
    bool csv;  /* rows (nnc_json_row) become lines of CSV, and nothing else is written */
    bool empty; /* CSV: a row stands for a table without rows and only its keys are written */
    bool more; /* another item precedes */
    int line;  /* the next item starts a line, indented by `line - 1` blanks; 0: it does not */
} nnc_json_writer;

/* Each writes one item: a member of an object or, with key NULL, an element of an array. bracket: '{' or '['. */
void nnc_json_open(nnc_json_writer *w, const char *key, char bracket);
void nnc_json_close(nnc_json_writer *w, char bracket); /* '}' or ']' */
void nnc_json_end(nnc_json_writer *w, char bracket);   /* the same for the outermost, with a newline */
/* Several members: NNC_JSON(w, J_STRING("name", n), J_INT("level", l)); with their object, as a member (key) or an element (NULL):
 * NNC_JSON_OBJECT(w, key, ...). Reals: the shortest decimal that reads back as the same double. */
typedef struct nnc_json_member {
    const char *key;
    enum { NNC_J_STRING, NNC_J_INT, NNC_J_BOOL, NNC_J_REAL, NNC_J_WORDS } kind;
    union {
        const char *s;
        struct { const char *const *at; int n; } words;
        int64_t i;
        bool b;
        double r;
    };
} nnc_json_member;
#define J_STRING(key, v) {key, NNC_J_STRING, {.s = (v)}}
#define J_INT(key, v) {key, NNC_J_INT, {.i = (v)}}
#define J_BOOL(key, v) {key, NNC_J_BOOL, {.b = (v)}}
#define J_REAL(key, v) {key, NNC_J_REAL, {.r = (v)}}
#define J_WORDS(key, v, count) {key, NNC_J_WORDS, {.words = {(v), (count)}}} /* a list; in CSV joined by + */
#define J_MS(key, v) J_REAL(key, nnc_decimals(v, 6)) /* measured in nanoseconds */
#define J_NS(key, ns) J_MS(key, (double)(ns) * 1e-6) /* as milliseconds */
#define J_ARRAY_(...) \
    (const nnc_json_member[]){__VA_ARGS__}, sizeof((const nnc_json_member[]){__VA_ARGS__}) / sizeof(nnc_json_member)
#define NNC_JSON(w, ...) nnc_json_members(w, J_ARRAY_(__VA_ARGS__))
#define NNC_JSON_OBJECT(w, key, ...) \
    (nnc_json_open(w, key, '{'), nnc_json_members(w, J_ARRAY_(__VA_ARGS__)), nnc_json_close(w, '}'))
void nnc_json_members(nnc_json_writer *w, const nnc_json_member *m, size_t n);
/* Writes an object of these members as the next element of a list, on its own line, indented by `indent` blanks. In CSV it is a line, the
 * first one after a line of the keys. */
void nnc_json_row(nnc_json_writer *w, int indent, const nnc_json_member *m, size_t n);
#define NNC_JSON_ROW(w, indent, ...) nnc_json_row(w, indent, J_ARRAY_(__VA_ARGS__))
double nnc_decimals(double v, int digits); /* rounded to `digits` decimals */
/* Starts an item whose value, valid JSON, the caller appends to `out`. */
void nnc_json_item(nnc_json_writer *w, const char *key);
/* Puts the next item on a new line, indented by `indent` blanks. */
static inline void nnc_json_line(nnc_json_writer *w, int indent)
{
    w->line = indent + 1;
}
/* nnc_json_open on a line of its own. */
static inline void nnc_json_open_at(nnc_json_writer *w, int indent, const char *key, char bracket)
{
    nnc_json_line(w, indent);
    nnc_json_open(w, key, bracket);
}

#endif

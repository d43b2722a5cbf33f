/* plan/rows.h -- the plan's text form (docs/plan.md) as tables, with one entry per field of each kind of row. Used by the printer, the
 * parser and the verifier's range checks. Internal to plan/. */
#ifndef NNC_PLAN_ROWS_H
#define NNC_PLAN_ROWS_H

#include "plan/plan.h"

typedef enum plan_field_kind {
    FK_int,    /* ` key=17`: uint8_t, int16_t, int32_t or int64_t, between lo and hi */
    FK_some,   /* the same; omitted when it is 0 */
    FK_float,  /* ` key=0.5` */
    FK_string, /* ` "text"`; with a key ` key="text"`, omitted when it is NULL */
    FK_word,   /* ` word`: index of a word, 0..hi */
    FK_flag,   /* ` key` when true */
    FK_type,   /* ` key f32[2,3]`; key may be NULL */
    FK_dims,   /* ` key=3,3`: int64_t values, their number in the uint8_t at `count`; omitted when that is 0 */
    FK_args,   /* ` (0 1 2)`: int32_t *, their number in the int at `count` */
    FK_each,   /* ` key` and the fields `each`, repeated as often as the int at `count`, at most hi */
    FK_bytes,  /* ` "00ff"`: const void *, bytes in the int64_t at `count` */
    FK_lines,  /* text after the row, each line after "| ", a last line without newline after "|-": const char * */
} plan_field_kind;

typedef struct plan_field {
    plan_field_kind kind;
    const char *key;          /* FK_word: description for messages */
    uint16_t at, size, count; /* offsets in the row, and the size of one element */
    int64_t lo, hi;
    const char *const *words;
    const struct plan_field *each; /* terminated by an entry of size 0 */
    unsigned when;                 /* bit i: present when the row's first field is i; 0: always */
} plan_field;

/* Rows of one kind: an array of the plan. */
typedef struct plan_row {
    const char *word;
    uint16_t n_at, at; /* in nnc_plan: number, and pointer */
    uint16_t size;
    const plan_field *field; /* terminated by an entry of size 0 */
} plan_row;

extern const plan_field plan_head[]; /* of nnc_plan itself, after "plan" */
extern const plan_row plan_rows[];   /* terminated by an entry of size 0, in the order of the text */

static inline bool plan_field_stands(const plan_field *of, const plan_field *f, const void *row)
{
    return !f->when || f->when >> *((const uint8_t *)row + of->at) & 1;
}
int64_t plan_field_get(const plan_field *f, const void *at);
void plan_field_set(const plan_field *f, void *at, int64_t v);

/* Checks that all numbers of the plan are in range; reports the first that is not. */
nnc_status plan_check_ranges(const nnc_plan *p, nnc_sink *sink) NNC_MUST;

#endif

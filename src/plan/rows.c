/* plan/rows.c -- the tables of the plan's text form, and range checks by them. */
#include "plan/rows.h"
#include <string.h>

#define MOST (INT64_C(1) << 48) /* maximum bytes of anything: sums of two do not overflow */

/* Offset and size of a member of the row type T; keys in the text mostly differ from the member's name. */
#define AT(m) .at = offsetof(T, m), .size = sizeof(((T *)0)->m)
#define COUNT(m) .count = offsetof(T, m)
#define INT(k, m, l, h) \
    { \
        FK_int, k, AT(m), .lo = l, .hi = h \
    }
#define FLAG(k, m) \
    { \
        FK_flag, k, AT(m) \
    }
#define STRING(m) \
    { \
        FK_string, AT(m) \
    }
#define WORD(what, m, w) \
    { \
        FK_word, what, AT(m), .hi = NNC_COUNT(w) - 1, .words = w \
    }
#define TYPE(k, m) \
    { \
        FK_type, k, AT(m) \
    }
#define DIMS(k, m) \
    { \
        FK_dims, k, AT(m), COUNT(spatial), .hi = INT64_C(1) << 31 \
    }

static const char *const precision_word[] = {"default", "f32", "tf32", "f16", "bf16"};
static const char *const space_word[] = {"arena", "persist", "init"};
static const char *const cmd_word[] = {
    "weight", "kernel", "call", "copy", "record", "wait", "collective"};
static const char *const collective_word[] = {"allreduce", "allgather", "reduce_scatter"};
static const char *const reduction_word[] = {"add", "min", "max"};
static const char *const call_word[] = {"conv", "conv_transpose", "conv_wgrad", "matmul"};
static const char *const post_word[] = {
#define POST(name, op) #name,
#include "base/post.def"
};
static const char *const weight_word[] = {"inline", "file", "gen"};
_Static_assert(NNC_COUNT(post_word) == PO__COUNT, "a word for each post-operation");

#define T nnc_plan
const plan_field plan_head[] = {
    WORD("a precision", precision, precision_word),
    INT("events", n_event, 0, INT32_MAX),
    INT("objects", n_object, 0, 1 << 20),
    INT("init", end[SEC_init], 0, INT32_MAX),
    INT("main", end[SEC_main], 0, INT32_MAX),
    INT("accumulate", end[SEC_accumulate], 0, INT32_MAX),
    INT("step", end[SEC_step], 0, INT32_MAX),
    {0},
};
#undef T

static const plan_field engine_field[] = {
    {FK_string, .at = 0, .size = sizeof(const char *)},
    {0},
};

#define T nnc_plan_device
static const plan_field device_field[] = {
    STRING(name),
    STRING(target),
    INT("threads", threads, 1, 1024),
    INT("arena", arena_bytes, 0, MOST),
    INT("persist", persist_bytes, 0, MOST),
    INT("init", init_bytes, 0, MOST),
    INT("workspace", workspace_bytes, 0, MOST),
    INT("bound", lower_bound, 0, MOST),
    INT("peak", peak_cmd, 0, INT32_MAX),
    INT("streams", streams, 1, 1024),
    {FK_string, "libraries", AT(libraries)},
    {0},
};
#undef T

#define T nnc_ptensor
static const plan_field tensor_field[] = {
    STRING(name),
    TYPE(NULL, type),
    WORD("arena, persist or init", space, space_word),
    INT("device", device, 0, INT16_MAX),
    INT("at", offset, 0, MOST),
    INT("bytes", bytes, 0, MOST),
    INT("alias", alias_of, -1, INT32_MAX),
    INT("first", first, -1, INT32_MAX),
    INT("last", last, -1, INT32_MAX),
    FLAG("input", is_input),
    FLAG("output", is_output),
    {0},
};
#undef T

#define T nnc_pkernel
static const plan_field kernel_field[] = {
    STRING(symbol),
    INT("args", n_args, 1, 4096),
    INT("out", n_out, 1, 4096),
    INT("domain", domain, 1, MOST),
    INT("grain", grain, 0, MOST),
    INT("scratch", scratch_bytes, 0, MOST),
    INT("threads", threads, 1, 1024),
    INT("object", object, -1, INT32_MAX),
    {FK_string, "code", AT(code)},
    {FK_lines, AT(ir)},
    {0},
};
#undef T

#define T nnc_post
static const plan_field post_field[] = {
    WORD("a post-operation", kind, post_word),
    FLAG("in_place", in_place),
    {0},
};
#undef T

#define T nnc_call
static const plan_field call_field[] = {
    WORD("the name of a call", kind, call_word),
    INT("work", work_bytes, 0, MOST),
    INT("groups", groups, 0, MOST),
    INT("spatial", spatial, 0, 3),
    DIMS("kernel", kernel),
    DIMS("stride", stride),
    DIMS("dilation", dilation),
    DIMS("lo", pad_lo),
    DIMS("hi", pad_hi),
    TYPE("src", src),
    TYPE("wei", wei),
    TYPE("bias", bias),
    TYPE("dst", dst),
    FLAG("has_bias", has_bias),
    FLAG("trans_a", trans_a),
    FLAG("trans_b", trans_b),
    FLAG("tf32", tf32),
    FLAG("exact", exact),
    {FK_each, "post", .at = offsetof(T, post), .size = sizeof(nnc_post), COUNT(n_post),
        .hi = NNC_MAX_POST, .each = post_field},
    {0},
};
#undef T

#define T nnc_collective
static const plan_field collective_field[] = {
    WORD("the name of a collective", kind, collective_word),
    WORD("add, min or max", reduction, reduction_word),
    INT("devices", n, 1, INT16_MAX),
    INT("rows", outer, 1, MOST),
    {0},
};
#undef T

#define T nnc_weight_part
static const plan_field part_field[] = {
    INT("first", first, 0, MOST),
    INT("run", run, 1, MOST),
    INT("stride", stride, 1, MOST),
    {0},
};
#undef T

#define T nnc_weight
#define INLINE .when = 1 << NNC_W_inline
#define FILE_ .when = 1 << NNC_W_file
#define GEN .when = 1 << NNC_W_gen
static const plan_field weight_field[] = {
    WORD("inline, file or gen", kind, weight_word),
    STRING(name),
    {FK_string, AT(file), FILE_},
    {FK_int, "at", AT(offset), .hi = INT64_MAX, FILE_},
    {FK_int, "size", AT(size), .hi = INT64_MAX / 4, INLINE | 1 << NNC_W_file},
    {FK_bytes, AT(data), COUNT(size), INLINE},
    {FK_int, "hash", AT(header_hash), .lo = INT64_MIN, .hi = INT64_MAX, FILE_},
    {FK_int, "seed", AT(seed), .lo = INT64_MIN, .hi = INT64_MAX, GEN},
    {FK_float, "scale", AT(scale), GEN},
    {FK_float, "shift", AT(shift), GEN},
    {FK_each, "part", AT(part), COUNT(n_part), .hi = 1, .each = part_field, GEN | 1 << NNC_W_file},
    {0},
};
#undef T

#define T nnc_cmd
static const plan_field cmd_field[] = {
    WORD("the name of a command", kind, cmd_word),
    INT("item", item, -1, INT32_MAX),
    INT("device", device, 0, INT16_MAX),
    INT("stream", stream, 0, INT16_MAX),
    INT("engine", engine, -1, INT16_MAX),
    INT("work", work, -1, INT32_MAX),
    INT("flops", flops, 0, INT64_MAX),
    INT("bytes", bytes, 0, INT64_MAX),
    {FK_some, "micro", AT(micro), .hi = INT32_MAX},
    {FK_args, AT(arg), COUNT(n_arg)},
    STRING(op_class),
    STRING(layers),
    STRING(reason),
    {0},
};
#undef T

#define T nnc_plan_update
static const plan_field update_field[] = {
    INT("state", state, 0, INT32_MAX),
    INT("value", value, 0, INT32_MAX),
    {0},
};
#undef T

#define ROW(word, n, array, fields) \
    { \
        word, offsetof(nnc_plan, n), offsetof(nnc_plan, array), sizeof *((nnc_plan *)0)->array, \
            fields \
    }
const plan_row plan_rows[] = {
    ROW("engine", n_engine, engine, engine_field),
    ROW("device", n_device, device, device_field),
    ROW("tensor", n_tensor, tensor, tensor_field),
    ROW("kernel", n_kernel, kernel, kernel_field),
    ROW("call", n_call, call, call_field),
    ROW("collective", n_collective, collective, collective_field),
    ROW("weight", n_weight, weight, weight_field),
    ROW("cmd", n_cmd, cmd, cmd_field),
    ROW("update", n_update, update, update_field),
    {0},
};

int64_t plan_field_get(const plan_field *f, const void *at)
{
    int16_t i16;
    int32_t i32;
    int64_t i64;
    switch (f->size) {
    case 1: return *(const uint8_t *)at;
    case 2: return memcpy(&i16, at, 2), i16;
    case 4: return memcpy(&i32, at, 4), i32;
    default: return memcpy(&i64, at, 8), i64;
    }
}

void plan_field_set(const plan_field *f, void *at, int64_t v)
{
    if (f->size == 1)
        *(uint8_t *)at = (uint8_t)v;
    else if (f->size == 2)
        memcpy(at, &(int16_t){(int16_t)v}, 2);
    else if (f->size == 4)
        memcpy(at, &(int32_t){(int32_t)v}, 4);
    else
        memcpy(at, &v, 8);
}

static nnc_status check_fields(
    const plan_field *fields, const char *row, const char *word, int i, nnc_sink *sink)
{
    for (const plan_field *f = fields; f->size; f++) {
        const char *at = row + f->at;
        bool number = f->kind == FK_int || f->kind == FK_some || f->kind == FK_word;
        if (!plan_field_stands(fields, f, row))
            continue;
        int64_t v = number ? plan_field_get(f, at) : 0;
        if (f->kind == FK_each) {
            int n;
            memcpy(&n, row + f->count, sizeof n);
            number = n < 0 || n > f->hi;
            v = n;
            for (int k = 0; k < n && !number; k++)
                NNC_TRY(check_fields(f->each, at + (size_t)k * f->size, word, i, sink));
        }
        if (f->kind == FK_string && !f->key && !*(const char *const *)(const void *)at &&
            strcmp(word, "weight"))
            return nnc_fail0(sink, NNC_E_MODEL, "plan: %s %d: a text is missing", word, i);
        if (number && (v < f->lo || v > f->hi))
            return nnc_fail0(sink, NNC_E_MODEL,
                "plan: %s %d: %s: %lld is out of range (%lld to %lld)", word, i, f->key,
                (long long)v, (long long)f->lo, (long long)f->hi);
    }
    return NNC_OK;
}

nnc_status plan_check_ranges(const nnc_plan *p, nnc_sink *sink)
{
    NNC_TRY(check_fields(plan_head, (const char *)p, "head", 0, sink));
    for (const plan_row *r = plan_rows; r->size; r++) {
        const char *rows;
        int n;
        memcpy(&n, (const char *)p + r->n_at, sizeof n);
        memcpy(&rows, (const char *)p + r->at, sizeof rows);
        for (int i = 0; i < n; i++)
            NNC_TRY(check_fields(r->field, rows + (size_t)i * r->size, r->word, i, sink));
    }
    return NNC_OK;
}

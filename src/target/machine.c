/* target/machine.c -- reads and writes the machine file, JSON (mistakes are reported with their position and the nearest key). One
 * table of fields serves both; docs/schema/machine.schema.json describes the same format for editors. */
#include "target/internal.h"
#include <math.h>
#include <string.h>

typedef enum fkind { F_string, F_int, F_int64, F_bool, F_double } fkind;
typedef struct field {
    const char *name;
    fkind kind;
    size_t at;
    bool required;
    double lo, hi; /* numbers */
} field;

#define T(f) offsetof(nnc_target, f)
static const field target_fields[] = {
    {"name", F_string, T(name), true, 0, 0},
    {"cpu", F_string, T(cpu), false, 0, 0},
    {"features", F_string, T(features), false, 0, 0},
    {"core", F_string, T(core), false, 0, 0},
    {"vector_bits", F_int, T(vector_bits), true, 128, 512},
    {"fma", F_bool, T(fma), false, 0, 0},
    {"f16c", F_bool, T(f16c), false, 0, 0},
    {"avx512_bf16", F_bool, T(avx512_bf16), false, 0, 0},
    {"cores", F_int, T(cores), true, 1, 65536},
    {"threads", F_int, T(threads), false, 1, 1024},
    {"memory_bytes", F_int64, T(memory_bytes), true, 1, 1125899906842624.0},
    {"l1_bytes", F_int64, T(l1_bytes), true, 0, 1125899906842624.0},
    {"l2_bytes", F_int64, T(l2_bytes), true, 0, 1125899906842624.0},
    {"l3_bytes", F_int64, T(l3_bytes), true, 0, 1125899906842624.0},
    {"flops_f32", F_int64, T(flops_f32), true, 1, 9007199254740991.0},
    {"copy_bytes_s", F_int64, T(copy_bytes_s), true, 1, 9007199254740991.0},
    {"cache_bytes_s", F_int64, T(cache_bytes_s), true, 1, 9007199254740991.0},
    {"launch_ns", F_int64, T(launch_ns), true, 0, 1e9},
    {"measured", F_bool, T(measured), false, 0, 0},
};
static const field gpu_fields[] = {
    {"card", F_string, T(card), false, 0, 0},
    {"sm", F_int, T(sm), true, 50, 999},
    {"sms", F_int, T(sms), true, 1, 65536},
    {"sm_threads", F_int, T(sm_threads), true, 32, 65536},
    {"shared_bytes", F_int64, T(shared_bytes), true, 16384, 1 << 30},
    {"clock_hz", F_int64, T(clock_hz), true, 1, 1e12},
    {"flops_tf32", F_int64, T(flops_tf32), false, 0, 9007199254740991.0},
    {"flops_f16", F_int64, T(flops_f16), false, 0, 9007199254740991.0},
    {"asked", F_bool, T(asked), false, 0, 0},
};
#undef T
#define E(f) offsetof(nnc_target_engine, f)
static const field engine_fields[] = {
    {"name", F_string, E(name), true, 0, 0},
    {"efficiency", F_double, E(efficiency), false, 0, 1},
    {"compiled_efficiency", F_double, E(compiled_efficiency), false, 0, 1},
};
#undef E

static const char *const kind_names[] = {"cpu", "cuda"};

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void put_field(nnc_text *out, const field *f, const void *base)
{
    const void *p = (const char *)base + f->at;
    nnc_put_json_string(out, f->name);
    nnc_puts(out, ": ");
    switch (f->kind) {
    case F_string: {
        const char *s = *(const char *const *)p;
        nnc_put_json_string(out, s ? s : "");
        break;
    }
    case F_int: nnc_printf(out, "%d", *(const int *)p); break;
    case F_int64: nnc_printf(out, "%lld", (long long)*(const int64_t *)p); break;
    case F_bool: nnc_puts(out, *(const bool *)p ? "true" : "false"); break;
    case F_double: nnc_put_double(out, *(const double *)p); break;
    }
}

void nnc_target_print_json(nnc_text *out, const nnc_target *t)
{
    nnc_printf(out, "{\n  \"kind\": \"%s\",\n", kind_names[t->kind]);
    for (size_t i = 0; i < NNC_COUNT(target_fields); i++) {
        nnc_puts(out, "  ");
        put_field(out, &target_fields[i], t);
        nnc_puts(out, ",\n");
    }
    for (size_t i = 0; i < NNC_COUNT(gpu_fields) && t->kind == NNC_T_cuda; i++) {
        nnc_puts(out, i ? ", " : "  \"gpu\": {");
        put_field(out, &gpu_fields[i], t);
    }
    nnc_puts(out, t->kind == NNC_T_cuda ? "},\n  \"engines\": [" : "  \"engines\": [");
    for (int e = 0; e < t->n_engines; e++) {
        nnc_puts(out, e ? ",\n    {" : "\n    {");
        for (size_t i = 0; i < NNC_COUNT(engine_fields); i++) {
            nnc_puts(out, i ? ", " : "");
            put_field(out, &engine_fields[i], &t->engine[e]);
        }
        nnc_puts(out, "}");
    }
    nnc_puts(out, t->n_engines ? "\n  ]\n}\n" : "]\n}\n");
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct reader {
    nnc_json json;
    nnc_target *t;
    nnc_sink *sink;
} reader;

static nnc_status bad(reader *r, const nnc_item *at, const char *what, const char *expected)
{
    return nnc_fail(r->sink, NNC_E_USAGE, nnc_json_loc(&r->json, at, false),
        "machine file: %s: expected %s", what, expected);
}

static nnc_status read_number(reader *r, const field *f, const nnc_item *v, void *p)
{
    double x = v->number;
    char range[96];
    nnc_snprintf(range, sizeof range, "%s from %.16g to %.16g",
        f->kind == F_double ? "a number" : "an integer", f->lo, f->hi);
    if (!nnc_is_number(v) || !(x >= f->lo && x <= f->hi) || (f->kind != F_double && x != floor(x)))
        return bad(r, v, f->name, range);
    if (f->kind == F_double)
        *(double *)p = x;
    else if (f->kind == F_int)
        *(int *)p = (int)x;
    else
        *(int64_t *)p = (int64_t)x;
    return NNC_OK;
}

static nnc_status read_field(reader *r, const field *f, const nnc_item *v, void *base)
{
    void *p = (char *)base + f->at;
    if (f->kind == F_bool) {
        if (!nnc_is_bool(v))
            return bad(r, v, f->name, "true or false");
        *(bool *)p = v->number != 0;
        return NNC_OK;
    }
    if (f->kind != F_string)
        return read_number(r, f, v, p);
    if (!nnc_is_string(v))
        return bad(r, v, f->name, "a string");
    char *s = nnc_arena_strdup(&r->t->arena, v->text);
    NNC_NEED(s, r->sink);
    *(char **)p = s;
    return NNC_OK;
}

/* Reads the members of `obj` that `fields` names into `base`; any other must be among `also`. */
static nnc_status read_object(reader *r, const nnc_item *obj, const field *fields, size_t n,
    const char *const *also, size_t n_also, void *base)
{
    const char *names[32];
    size_t n_names = 0;
    for (size_t i = 0; i < n; i++)
        names[n_names++] = fields[i].name;
    for (size_t i = 0; i < n_also; i++)
        names[n_names++] = also[i];
    for (const nnc_item *v = obj->child; v; v = v->next) {
        size_t k = 0;
        while (k < n_names && strcmp(v->key, names[k]) != 0)
            k++;
        if (k < n) {
            NNC_TRY(read_field(r, &fields[k], v, base));
        } else if (k == n_names) {
            const char *near = nnc_nearest(v->key, names, n_names);
            return nnc_fail(r->sink, NNC_E_USAGE, nnc_json_loc(&r->json, v, true),
                "machine file: unknown key \"%s\"%s%s%s", v->key, near ? "; did you mean \"" : "",
                near ? near : "", near ? "\"?" : "");
        }
    }
    for (size_t i = 0; i < n; i++)
        if (fields[i].required && !nnc_json_get(obj, fields[i].name))
            return nnc_fail(r->sink, NNC_E_USAGE, nnc_json_loc(&r->json, obj, false),
                "machine file: \"%s\" is missing", fields[i].name);
    return NNC_OK;
}

static nnc_status read_engines(reader *r, const nnc_item *list)
{
    nnc_target *t = r->t;
    if (!nnc_is_list(list))
        return bad(r, list ? list : r->json.root, "engines", "a list of objects");
    for (const nnc_item *v = list->child; v; v = v->next) {
        if (!nnc_is_object(v))
            return bad(r, v, "engines", "an object with a name");
        if (t->n_engines == NNC_T_ENGINES)
            return bad(r, v, "engines", "at most 8 entries");
        nnc_target_engine *e = &t->engine[t->n_engines];
        NNC_TRY(read_object(r, v, engine_fields, NNC_COUNT(engine_fields), NULL, 0, e));
        if (nnc_target_engine_named(t, e->name))
            return bad(r, v, e->name, "each engine once");
        t->n_engines++;
    }
    return NNC_OK;
}

/* Fields of a GPU: required for "cuda", not allowed otherwise. */
static nnc_status read_gpu(reader *r, const nnc_item *gpu)
{
    if (!gpu && r->t->kind == NNC_T_cpu)
        return NNC_OK;
    if (!gpu || !nnc_is_object(gpu))
        return bad(r, gpu ? gpu : r->json.root, "gpu",
            "an object with sm, sms, sm_threads, shared_bytes and clock_hz");
    if (r->t->kind == NNC_T_cpu)
        return bad(r, gpu, "gpu", "\"kind\": \"cuda\" where it is given");
    return read_object(r, gpu, gpu_fields, NNC_COUNT(gpu_fields), NULL, 0, r->t);
}

static nnc_status read_target(reader *r)
{
    static const char *const also[] = {"$schema", "kind", "gpu", "engines"};
    nnc_target *t = r->t;
    const nnc_item *root = r->json.root;
    if (!nnc_is_object(root))
        return bad(r, root, "the file", "an object");
    NNC_TRY(
        read_object(r, root, target_fields, NNC_COUNT(target_fields), also, NNC_COUNT(also), t));
    const nnc_item *schema = nnc_json_get(root, "$schema"); /* for editors */
    if (schema && !nnc_is_string(schema))
        return bad(r, schema, "$schema", "a string");
    const nnc_item *kind = nnc_json_get(root, "kind");
    if (!kind || !nnc_is_string(kind) || (strcmp(kind->text, "cpu") && strcmp(kind->text, "cuda")))
        return bad(r, kind ? kind : root, "kind", "\"cpu\" or \"cuda\"");
    t->kind = strcmp(kind->text, "cuda") ? NNC_T_cpu : NNC_T_cuda;
    NNC_TRY(read_gpu(r, nnc_json_get(root, "gpu")));
    if (t->vector_bits & (t->vector_bits - 1))
        return bad(r, nnc_json_get(root, "vector_bits"), "vector_bits", "128, 256 or 512");
    if (!t->threads)
        t->threads = t->cores < 1024 ? t->cores : 1024;
    return read_engines(r, nnc_json_get(root, "engines"));
}

nnc_status nnc_target_load(nnc_target *t, const char *file, nnc_sink *sink)
{
    *t = (nnc_target){.name = "", .cpu = "", .features = "", .core = "", .card = ""};
    nnc_arena_init(&t->arena, 0);
    reader r = {.t = t, .sink = sink};
    nnc_status status = nnc_json_load(&r.json, file, sink);
    if (status == NNC_OK)
        status = read_target(&r);
    nnc_json_deinit(&r.json);
    if (status != NNC_OK)
        nnc_target_deinit(t);
    return status;
}

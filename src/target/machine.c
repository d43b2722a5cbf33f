/* target/machine.c -- reads and writes the machine file, JSON (mistakes are reported with their position and the nearest key). One
 * table of fields serves both; docs/schema/machine.schema.json describes the same format for editors. */
#include "base/fields.h"
#include "target/internal.h"
#include <string.h>

#define T(f) offsetof(nnc_target, f)
static const nnc_field target_fields[] = {
    {"name", NNC_F_string, T(name), true, 0, 0},
    {"cpu", NNC_F_string, T(cpu), false, 0, 0},
    {"features", NNC_F_string, T(features), false, 0, 0},
    {"core", NNC_F_string, T(core), false, 0, 0},
    {"vector_bits", NNC_F_int, T(vector_bits), true, 128, 512},
    {"fma", NNC_F_bool, T(fma), false, 0, 0},
    {"f16c", NNC_F_bool, T(f16c), false, 0, 0},
    {"avx512_bf16", NNC_F_bool, T(avx512_bf16), false, 0, 0},
    {"cores", NNC_F_int, T(cores), true, 1, 65536},
    {"threads", NNC_F_int, T(threads), false, 1, 1024},
    {"memory_bytes", NNC_F_int64, T(memory_bytes), true, 1, 1125899906842624.0},
    {"l1_bytes", NNC_F_int64, T(l1_bytes), true, 0, 1125899906842624.0},
    {"l2_bytes", NNC_F_int64, T(l2_bytes), true, 0, 1125899906842624.0},
    {"l3_bytes", NNC_F_int64, T(l3_bytes), true, 0, 1125899906842624.0},
    {"flops_f32", NNC_F_int64, T(flops_f32), true, 1, 9007199254740991.0},
    {"copy_bytes_s", NNC_F_int64, T(copy_bytes_s), true, 1, 9007199254740991.0},
    {"cache_bytes_s", NNC_F_int64, T(cache_bytes_s), true, 1, 9007199254740991.0},
    {"launch_ns", NNC_F_int64, T(launch_ns), true, 0, 1e9},
    {"measured", NNC_F_bool, T(measured), false, 0, 0},
};
static const nnc_field gpu_fields[] = {
    {"card", NNC_F_string, T(card), false, 0, 0},
    {"sm", NNC_F_int, T(sm), true, 50, 999},
    {"sms", NNC_F_int, T(sms), true, 1, 65536},
    {"sm_threads", NNC_F_int, T(sm_threads), true, 32, 65536},
    {"shared_bytes", NNC_F_int64, T(shared_bytes), true, 16384, 1 << 30},
    {"clock_hz", NNC_F_int64, T(clock_hz), true, 1, 1e12},
    {"flops_tf32", NNC_F_int64, T(flops_tf32), false, 0, 9007199254740991.0},
    {"flops_f16", NNC_F_int64, T(flops_f16), false, 0, 9007199254740991.0},
    {"asked", NNC_F_bool, T(asked), false, 0, 0},
};
#undef T
#define E(f) offsetof(nnc_target_engine, f)
static const nnc_field engine_fields[] = {
    {"name", NNC_F_string, E(name), true, 0, 0},
    {"efficiency", NNC_F_double, E(efficiency), false, 0, 1},
};
#undef E

static const char *const kind_names[] = {"cpu", "cuda"};

/* ---- writing ----------------------------------------------------------------------------------------------------- */

void nnc_target_print_json(nnc_text *out, const nnc_target *t)
{
    nnc_printf(out, "{\n  \"kind\": \"%s\",\n", kind_names[t->kind]);
    for (size_t i = 0; i < NNC_COUNT(target_fields); i++) {
        nnc_puts(out, "  ");
        nnc_fields_put(out, &target_fields[i], t);
        nnc_puts(out, ",\n");
    }
    for (size_t i = 0; i < NNC_COUNT(gpu_fields) && t->kind == NNC_T_cuda; i++) {
        nnc_puts(out, i ? ", " : "  \"gpu\": {");
        nnc_fields_put(out, &gpu_fields[i], t);
    }
    nnc_puts(out, t->kind == NNC_T_cuda ? "},\n  " : "  ");
    if (t->kind == NNC_T_cuda) {
        nnc_puts(out, "\"libraries\": ");
        nnc_target_libraries_json(out, t);
        nnc_puts(out, ",\n  ");
    }
    nnc_puts(out, "\"engines\": [");
    for (int e = 0; e < t->n_engines; e++) {
        nnc_puts(out, e ? ",\n    {" : "\n    {");
        for (size_t i = 0; i < NNC_COUNT(engine_fields); i++) {
            nnc_puts(out, i ? ", " : "");
            nnc_fields_put(out, &engine_fields[i], &t->engine[e]);
        }
        nnc_puts(out, "}");
    }
    nnc_puts(out, t->n_engines ? "\n  ]\n}\n" : "]\n}\n");
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct reader {
    nnc_field_reader f;
    nnc_target *t;
} reader;

static nnc_status bad(reader *r, const nnc_item *at, const char *what, const char *expected)
{
    return nnc_fields_bad(&r->f, at, what, expected);
}

static nnc_status read_engines(reader *r, const nnc_item *machine)
{
    nnc_target *t = r->t;
    nnc_tkind kind;
    const nnc_item *list = nnc_json_get(machine, "engines");
    if (!nnc_is_list(list))
        return bad(r, list ? list : machine, "engines", "a list of objects");
    t->n_engines = 0;
    for (const nnc_item *v = list->child; v; v = v->next) {
        if (!nnc_is_object(v))
            return bad(r, v, "engines", "an object with a name");
        if (t->n_engines == NNC_T_ENGINES)
            return bad(r, v, "engines", "at most 8 entries");
        nnc_target_engine *e = &t->engine[t->n_engines];
        *e = (nnc_target_engine){0};
        NNC_TRY(NNC_FIELDS(&r->f, v, engine_fields, "", e));
        if (!nnc_target_engine_kind(e->name, &kind)) {
            nnc_warn(r->f.sink, nnc_json_loc(r->f.json, v, false),
                "%s: engine \"%s\" is unknown and ignored", r->f.what, e->name);
            continue;
        }
        if (nnc_target_engine_named(t, e->name))
            return bad(r, v, e->name, "each engine once");
        t->n_engines++;
    }
    return NNC_OK;
}

/* Fields of a GPU: required for "cuda", not allowed otherwise. */
static nnc_status read_gpu(reader *r, const nnc_item *machine)
{
    const nnc_item *gpu = nnc_json_get(machine, "gpu");
    if (!gpu && r->t->kind == NNC_T_cpu)
        return NNC_OK;
    if (!gpu || !nnc_is_object(gpu))
        return bad(r, gpu ? gpu : machine, "gpu",
            "an object with sm, sms, sm_threads, shared_bytes and clock_hz");
    if (r->t->kind == NNC_T_cpu)
        return bad(r, gpu, "gpu", "\"kind\": \"cuda\" where it is given");
    return NNC_FIELDS(&r->f, gpu, gpu_fields, "", r->t);
}

static nnc_status check_vectors(reader *r, const nnc_item *machine)
{
    if (r->t->vector_bits & (r->t->vector_bits - 1))
        return bad(r, nnc_json_get(machine, "vector_bits"), "vector_bits", "128, 256 or 512");
    if (r->t->vector_bits > 128 && nnc_target_core(r->t->core))
        return bad(
            r, nnc_json_get(machine, "vector_bits"), "vector_bits", "128 of an AArch64 core");
    return NNC_OK;
}

/* A CPU without a name is the generic one with its vectors and instructions, on every machine. */
static nnc_status name_cpu(reader *r)
{
    nnc_target *t = r->t;
    const int wide = t->vector_bits >= 512 ? 2 : t->vector_bits >= 256;
    static const char *const level[] = {"x86-64", "x86-64-v3", "x86-64-v4"};
    const char *more = wide == 2  ? "+avx512f,+avx512bw,+avx512dq,+avx512vl"
                       : wide > 0 ? "+avx2"
                                  : "+sse2";
    if (t->kind != NNC_T_cpu || *t->cpu)
        return NNC_OK;
    if (nnc_target_core(t->core)) {
        t->cpu = "generic";
        return NNC_OK;
    }
    t->cpu = level[wide];
    if (*t->features)
        return NNC_OK;
    t->features = nnc_arena_printf(&t->arena, "%s%s%s%s", more, !wide && t->fma ? ",+fma" : "",
        !wide && t->f16c ? ",+f16c" : "", t->avx512_bf16 ? ",+avx512bf16" : "");
    NNC_NEED(t->features, r->f.sink);
    return NNC_OK;
}

static nnc_status read_target(reader *r, const nnc_item *root)
{
    nnc_target *t = r->t;
    if (!nnc_is_object(root))
        return bad(r, root, "the file", "an object");
    NNC_TRY(NNC_FIELDS(&r->f, root, target_fields, "$schema kind gpu engines libraries", t));
    const nnc_item *kind = nnc_json_get(root, "kind");
    if (!kind || !nnc_is_string(kind) || (strcmp(kind->text, "cpu") && strcmp(kind->text, "cuda")))
        return bad(r, kind ? kind : root, "kind", "\"cpu\" or \"cuda\"");
    t->kind = strcmp(kind->text, "cuda") ? NNC_T_cpu : NNC_T_cuda;
    NNC_TRY(read_gpu(r, root));
    NNC_TRY(check_vectors(r, root));
    if (!t->threads)
        t->threads = t->cores < 1024 ? t->cores : 1024;
    NNC_TRY(name_cpu(r));
    NNC_TRY(read_engines(r, root));
    target_default_libraries(t);
    return target_read_libraries(&r->f, root, t);
}

nnc_status nnc_target_load(nnc_target *t, const char *file, nnc_sink *sink)
{
    nnc_json json;
    *t = (nnc_target){.name = "", .cpu = "", .features = "", .core = "", .card = ""};
    reader r = {.f = {&json, "machine file", &t->arena, sink}, .t = t};
    nnc_status status = nnc_json_load(&json, file, sink);
    if (status == NNC_OK)
        status = read_target(&r, json.root);
    nnc_json_deinit(&json);
    if (status != NNC_OK)
        nnc_target_deinit(t);
    return status;
}

/* Members that replace numbers of a described GPU; none is required, and what "target" says already is refused. */
static nnc_status read_changes(reader *r, const nnc_item *machine)
{
    nnc_field fields[NNC_COUNT(target_fields)], gpu[NNC_COUNT(gpu_fields)];
    size_t n = 0, n_gpu = 0;
    for (size_t i = 0; i < NNC_COUNT(target_fields); i++) {
        fields[n] = target_fields[i];
        fields[n].required = false;
        n += strcmp(fields[n].name, "name") != 0 && strcmp(fields[n].name, "cores") != 0;
    }
    for (size_t i = 0; i < NNC_COUNT(gpu_fields); i++) {
        gpu[n_gpu] = gpu_fields[i];
        gpu[n_gpu].required = false;
        n_gpu += strcmp(gpu[n_gpu].name, "sm") != 0;
    }
    const nnc_item *g = nnc_json_get(machine, "gpu");
    NNC_TRY(nnc_fields_read(&r->f, machine, fields, n, "gpu engines libraries", r->t));
    if (g && !nnc_is_object(g))
        return bad(r, g, "gpu", "an object");
    if (g)
        NNC_TRY(nnc_fields_read(&r->f, g, gpu, n_gpu, "", r->t));
    r->t->cores = r->t->sms;
    NNC_TRY(check_vectors(r, machine));
    if (nnc_json_get(machine, "engines"))
        NNC_TRY(read_engines(r, machine));
    return target_read_libraries(&r->f, machine, r->t);
}

nnc_status nnc_target_described(nnc_target *t, const char *name, const char *what,
    const nnc_json *json, const nnc_item *machine, nnc_sink *sink)
{
    const bool cpu = !strcmp(name, "cpu");
    nnc_status status = NNC_OK;
    *t = (nnc_target){.name = "", .cpu = "", .features = "", .core = "", .card = ""};
    if (!cpu)
        NNC_TRY(nnc_target_cuda(t, name, sink));
    reader r = {.f = {json, what, &t->arena, sink}, .t = t};
    if (machine && !nnc_is_object(machine))
        status = bad(&r, machine, "machine", "an object with members of a machine file");
    else if (cpu && machine)
        status = read_target(&r, machine);
    else if (machine)
        status = read_changes(&r, machine);
    if (!status && cpu && t->kind != NNC_T_cpu)
        status = bad(&r, nnc_json_get(machine, "kind"), "kind", "\"cpu\", as \"target\" says");
    if (status != NNC_OK)
        nnc_target_deinit(t);
    return status;
}

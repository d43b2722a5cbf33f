/* codegen/cuda_share.c -- kernels that differ only in extents and constants share their code, which gets these as arguments after its
 * pointers. NVRTC's time grows with the code, and a net has the same layer in many sizes.
 *
 * A kernel is written with a mark for each extent, stride and float constant, and the marks' values are listed. Kernels of the same text
 * are a group. A mark with one value in all of them becomes that value. The others become parameters, one for all marks that agree in each
 * kernel. Values that decide how code is written (elements of an access, unrolled loops, which guards are needed) are text, not marks. */
#include "codegen/cuda.h"

#include <stdlib.h>
#include <string.h>

enum {
    NAME = 1,
    PARAMS, /* marks of the function's name, and of the end of its parameters */
    INT,
    LONG,
    DIVISOR,
    POWER,
    FLOAT, /* kinds of sizes: two integer types for offsets; two kinds of divisors, since powers of two have shorter code */
    MOST_PARAMS = 32,
    MOST_POINTERS = 128,
};

static const char letter[] = {
    [INT] = 'i', [LONG] = 'l', [DIVISOR] = 'd', [POWER] = 'p', [FLOAT] = 'f'};

/* ---- writing with marks -------------------------------------------------------------------------------------------- */

static void mark(const cu *c, int kind, int64_t value)
{
    cu_sizes *s = c->sizes;
    if (s->n == s->cap) {
        const int cap = s->cap ? 2 * s->cap : 64;
        cu_size_at *at = nnc_realloc(s->at, (size_t)cap * sizeof *at);
        if (!at) {
            c->t->oom = true;
            return;
        }
        s->at = at;
        s->cap = cap;
    }
    s->at[s->n++] = (cu_size_at){.kind = (uint8_t)kind, .value = value};
    nnc_putc(c->t, (char)kind);
}

static bool marked(const cu *c, int64_t v)
{
    return c->sizes && v >= 0 && v <= INT32_MAX;
}

void cu_size(const cu *c, int64_t v)
{
    if (marked(c, v))
        mark(c, INT, v);
    else
        cu_int(c, v);
}

void cu_size_long(const cu *c, int64_t v)
{
    if (marked(c, v))
        mark(c, LONG, v);
    else
        nnc_printf(c->t, "%lldll", (long long)v);
}

void cu_divisor(const cu *c, int64_t v)
{
    if (marked(c, v) && v > 0)
        mark(c, v & (v - 1) ? DIVISOR : POWER, v);
    else
        cu_int(c, v);
}

void cu_float(const cu *c, double f)
{
    const float x = (float)f;
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (c->sizes && x - x == 0)
        mark(c, FLOAT, bits);
    else
        cu_number(c, DT_f32, f, 0);
}

void cu_mark_name(const cu *c)
{
    nnc_putc(c->t, NAME);
}

void cu_mark_params(const cu *c)
{
    nnc_putc(c->t, PARAMS);
}

/* ---- groups -------------------------------------------------------------------------------------------------------- */

/* A parameter: its first mark, and its use. */
typedef struct param {
    int at;
    uint8_t kind;
} param;

typedef struct cu_group {
    const cu_shared *s;
    const int *member; /* indices of its kernels */
    int n;
    param param[MOST_PARAMS];
    int n_param;
    int *param_of; /* by mark: its parameter; -1: written as a number */
} group;

static const cu_size_at *value_of(const group *g, int member, int i)
{
    return &g->s->kernel[g->member[member]].sizes.at[i];
}

static bool same_in_all(const group *g, int i)
{
    for (int m = 1; m < g->n; m++)
        if (value_of(g, m, i)->value != value_of(g, 0, i)->value)
            return false;
    return true;
}

static bool agree(const group *g, int i, int j)
{
    const bool number = value_of(g, 0, i)->kind == FLOAT;
    if (number != (value_of(g, 0, j)->kind == FLOAT))
        return false;
    for (int m = 0; m < g->n; m++)
        if (value_of(g, m, i)->value != value_of(g, m, j)->value)
            return false;
    return true;
}

/* False: too many parameters, or out of memory. */
static bool make_params(group *g, nnc_arena *a)
{
    const int n = g->s->kernel[g->member[0]].sizes.n;
    g->param_of = ARENA_NEW(a, int, n + 1);
    for (int i = 0; g->param_of && i < n; i++) {
        const uint8_t kind = value_of(g, 0, i)->kind;
        int p = 0;
        g->param_of[i] = -1;
        if (same_in_all(g, i))
            continue;
        while (p < g->n_param && !agree(g, g->param[p].at, i))
            p++;
        if (p == MOST_PARAMS)
            return false;
        if (p == g->n_param)
            g->param[g->n_param++] = (param){i, INT};
        if (kind != INT && kind != LONG)
            g->param[p].kind = kind;
        g->param_of[i] = p;
    }
    return g->param_of != NULL;
}

static void param_name(const group *g, int p, char out[16])
{
    snprintf(out, 16, "%c%d", g->param[p].kind == FLOAT ? 'f' : 'n', p);
}

static void put_float_bits(nnc_text *t, int64_t bits)
{
    const uint32_t word = (uint32_t)bits;
    float x;
    memcpy(&x, &word, sizeof x);
    cu_number(&(cu){.t = t}, DT_f32, (double)x, 0);
}

static void put_value(nnc_text *t, const cu_size_at *v)
{
    if (v->kind == FLOAT)
        put_float_bits(t, v->value);
    else
        nnc_printf(t, v->kind == LONG ? "%lldll" : "%lld", (long long)v->value);
}

static void put_params(nnc_text *t, const group *g)
{
    static const char *const type[] = {
        [INT] = "int", [DIVISOR] = "nnc_size", [POWER] = "nnc_power", [FLOAT] = "float"};
    char name[16];
    for (int p = 0; p < g->n_param; p++) {
        param_name(g, p, name);
        nnc_printf(t, p % 8 ? ", const %s %s" : ",\n    const %s %s", type[g->param[p].kind], name);
    }
}

/* The group's text with its name and parameters. */
static void put_group(nnc_text *t, const group *g, const char *name)
{
    int at = 0;
    char word[16];
    const nnc_text *text = &g->s->kernel[g->member[0]].text;
    for (const char *p = nnc_text_str(text), *end = p + text->n; p < end; p++)
        switch (*p) {
        case NAME: nnc_puts(t, name); break;
        case PARAMS: put_params(t, g); break;
        case INT:
        case LONG:
        case DIVISOR:
        case POWER:
        case FLOAT:
            if (g->param_of[at] < 0) {
                put_value(t, value_of(g, 0, at));
            } else {
                param_name(g, g->param_of[at], word);
                nnc_printf(t, *p == LONG ? "(long long)%s" : "%s", word);
            }
            at++;
            break;
        default: nnc_putc(t, *p);
        }
}

/* ---- arguments ----------------------------------------------------------------------------------------------------- */

/* For 0 <= x < 2^31, x / d is x mul >> 32 >> shift, with 2^shift < d <= 2^(shift + 1): mul d is at most d above 2^(32 + shift). */
static void magic(int64_t d, uint32_t *mul, int32_t *shift)
{
    *shift = 0;
    while ((int64_t)2 << *shift < d)
        ++*shift;
    const uint64_t power = (uint64_t)1 << (32 + *shift);
    *mul = (uint32_t)((power + (uint64_t)d - 1) / (uint64_t)d);
}

/* "i64 d12544 p64 f3f000000": decimal numbers, and the bits of floats. */
size_t nnc_cuda_argument(const char **code, void *out)
{
    char *end;
    const char kind = **code == ' ' ? (*code)[1] : 0;
    if (!kind || !strchr("idpf", kind))
        return 0;
    const long long v = strtoll(*code + 2, &end, kind == 'f' ? 16 : 10);
    if (end == *code + 2 || (*end && *end != ' ') || v < 0 ||
        v > (kind == 'f' ? (long long)UINT32_MAX : INT32_MAX) ||
        (kind == 'd' && (v < 3 || !(v & (v - 1)))) || (kind == 'p' && (v < 1 || v & (v - 1))))
        return 0;
    *code = end;
    const int32_t n = (int32_t)(uint32_t)v;
    memcpy(out, &n, 4);
    if (kind == 'd') {
        uint32_t mul;
        int32_t shift;
        magic(v, &mul, &shift);
        memcpy((char *)out + 4, &mul, 4);
        memcpy((char *)out + 8, &shift, 4);
    } else if (kind == 'p') {
        const int32_t shift = __builtin_ctzll((unsigned long long)v);
        memcpy((char *)out + 4, &shift, 4);
    }
    return kind == 'd' ? 12 : kind == 'p' ? 8 : 4;
}

/* Writes the value of parameter p in kernel `member`, as an argument of a call in C. */
static void put_constant(nnc_text *t, const group *g, int member, int p)
{
    const cu_size_at *v = value_of(g, member, g->param[p].at);
    uint32_t mul;
    int32_t shift;
    switch (g->param[p].kind) {
    case FLOAT: put_float_bits(t, v->value); break;
    case DIVISOR:
        magic(v->value, &mul, &shift);
        nnc_printf(t, "nnc_size{%lld, %uu, %d}", (long long)v->value, mul, shift);
        break;
    case POWER:
        nnc_printf(t, "nnc_power{%lld, %d}", (long long)v->value,
            __builtin_ctzll((unsigned long long)v->value));
        break;
    default: nnc_printf(t, "%lld", (long long)v->value);
    }
}

/* ---- all kernels --------------------------------------------------------------------------------------------------- */

static bool alike(const cu_shared *s, int i, int j)
{
    const nnc_text *a = &s->kernel[i].text, *b = &s->kernel[j].text;
    return s->kernel[i].hash.lo == s->kernel[j].hash.lo &&
           s->kernel[i].hash.hi == s->kernel[j].hash.hi && a->n == b->n &&
           !memcmp(a->s, b->s, a->n);
}

/* Finds the group that begins with kernel `first` in s->kernel[].like. NULL: out of memory, or it has too many parameters. */
static group *group_of(const cu_shared *s, int first, nnc_arena *a)
{
    group *g = ARENA_NEW(a, group, 1);
    int *member = ARENA_NEW(a, int, s->n), n = 0;
    if (!g || !member)
        return NULL;
    for (int i = first; i < s->n; i++)
        if (s->kernel[i].like == first)
            member[n++] = i;
    *g = (group){.s = s, .member = member, .n = n};
    return make_params(g, a) ? g : NULL;
}

static bool pointers_fit(const nnc_kernel *k)
{
    int n = 0;
    for (int b = 0; b < k->n_buf; b++)
        n += k->buf[b].role != KB_tmp;
    return n <= MOST_POINTERS;
}

/* The first kernel before i with the same text, or i itself. */
static int like(const cu_shared *s, const nnc_kernel *const *k, int i)
{
    for (int j = 0; j < i && pointers_fit(k[i]); j++)
        if (s->kernel[j].like == j && alike(s, j, i))
            return j;
    return i;
}

/* Gives kernel i a function of its own, with all extents written as numbers. */
static nnc_status alone(cu_shared *s, const nnc_kernel *k, int i, nnc_arena *a, nnc_sink *sink)
{
    s->kernel[i].like = i;
    NNC_TRY(cu_write(&s->kernel[i], k, false, sink));
    s->kernel[i].group = group_of(s, i, a);
    NNC_NEED(s->kernel[i].group, sink);
    return NNC_OK;
}

nnc_status cu_share(cu_shared *s, const nnc_kernel *const *k, int n, nnc_arena *a, nnc_sink *sink)
{
    s->kernel = ARENA_NEW(a, cu_one, n + 1);
    NNC_NEED(s->kernel, sink);
    for (int i = 0; i < n; i++) {
        s->n = i + 1; /* to be freed */
        NNC_TRY(cu_write(&s->kernel[i], k[i], true, sink));
        s->kernel[i].hash = nnc_hash(nnc_text_str(&s->kernel[i].text), s->kernel[i].text.n);
        s->kernel[i].like = like(s, k, i);
    }
    for (int i = 0; i < n; i++) {
        if (s->kernel[i].like != i)
            continue;
        s->kernel[i].group = group_of(s, i, a);
        if (s->kernel[i].group && s->kernel[i].group->n > 1)
            continue;
        for (int j = n - 1; j >= i; j--)
            if (s->kernel[j].like == i)
                NNC_TRY(alone(s, k[j], j, a, sink));
    }
    return NNC_OK;
}

void cu_shared_deinit(cu_shared *s)
{
    for (int i = 0; i < s->n; i++) {
        nnc_text_deinit(&s->kernel[i].text);
        nnc_free(s->kernel[i].sizes.at);
    }
}

/* The function's name: the kernel's if it is not shared, otherwise the first kernel's ops and the hash of the common text. */
static void function_name(
    const cu_shared *s, const nnc_kernel *const *k, int i, char out[NNC_CODE_NAME])
{
    const int first = s->kernel[i].like;
    const char *name = k[first]->name, *end = strrchr(name, '_');
    if (s->kernel[first].group->n == 1)
        snprintf(out, NNC_CODE_NAME, "%s", name);
    else
        snprintf(out, NNC_CODE_NAME, "%.*s_%016llx", end ? (int)(end - name) : 1, name,
            (unsigned long long)s->kernel[first].hash.lo);
}

void cu_put_function(nnc_text *t, const cu_shared *s, const nnc_kernel *const *k, int first)
{
    char name[NNC_CODE_NAME];
    function_name(s, k, first, name);
    put_group(t, s->kernel[first].group, name);
}

static int member_of(const cu_shared *s, int i)
{
    int m = 0;
    while (s->kernel[s->kernel[i].like].group->member[m] != i)
        m++;
    return m;
}

void cu_put_shared(nnc_text *t, const cu_shared *s, const nnc_kernel *const *k, int i)
{
    const group *g = s->kernel[s->kernel[i].like].group;
    char name[NNC_CODE_NAME], word[16];
    if (g->n == 1)
        return;
    function_name(s, k, i, name);
    nnc_printf(t, " *   code      %s", name);
    for (int p = 0; p < g->n_param; p++) {
        const cu_size_at *v = value_of(g, member_of(s, i), g->param[p].at);
        param_name(g, p, word);
        nnc_printf(t, "%s %s = ", p ? "," : ":", word);
        if (v->kind == FLOAT)
            put_float_bits(t, v->value);
        else
            nnc_printf(t, "%lld", (long long)v->value);
    }
    nnc_puts(t, "\n");
}

void cu_put_call(nnc_text *t, const cu_shared *s, const nnc_kernel *const *k, int i,
    const char *suffix, const char *pointers)
{
    const group *g = s->kernel[s->kernel[i].like].group;
    char name[NNC_CODE_NAME];
    function_name(s, k, i, name);
    nnc_printf(t, "%s%s(%s", name, suffix, pointers);
    for (int p = 0; p < g->n_param; p++) {
        nnc_puts(t, ", ");
        put_constant(t, g, member_of(s, i), p);
    }
    nnc_puts(t, ");\n");
}

bool cu_put_general_call(nnc_text *t, const cu_shared *s, const nnc_kernel *const *k, int first,
    const char *suffix, const char *pointers, int n_pointer)
{
    static const char *const type[] = {
        [INT] = "int", [DIVISOR] = "nnc_size", [POWER] = "nnc_power", [FLOAT] = "float"};
    const group *g = s->kernel[first].group;
    char name[NNC_CODE_NAME];
    if (g->n == 1)
        return false;
    function_name(s, k, first, name);
    nnc_printf(t, "extern \"C\" void %s%s_thunk(void *const *a)\n{\n    %s%s(%s", name, suffix,
        name, suffix, pointers);
    for (int p = 0; p < g->n_param; p++)
        nnc_printf(t, ", *(const %s *)a[%d]", type[g->param[p].kind], n_pointer + p);
    nnc_puts(t, ");\n}\n");
    return true;
}

nnc_status nnc_cuda_share(
    const nnc_kernel *const *k, int n, nnc_arena *a, const char **code, nnc_sink *sink)
{
    NNC_LOCAL(cu_shared) s = {0};
    NNC_TRY(cu_share(&s, k, n, a, sink));
    for (int i = 0; i < n; i++) {
        const group *g = s.kernel[s.kernel[i].like].group;
        NNC_LOCAL(nnc_text) t = {0};
        char name[NNC_CODE_NAME];
        code[i] = NULL;
        if (g->n == 1)
            continue;
        function_name(&s, k, i, name);
        nnc_puts(&t, name);
        for (int p = 0; p < g->n_param; p++) {
            const cu_size_at *v = value_of(g, member_of(&s, i), g->param[p].at);
            nnc_printf(&t, v->kind == FLOAT ? " %c%llx" : " %c%lld", letter[g->param[p].kind],
                (long long)v->value);
        }
        code[i] = t.oom ? NULL : nnc_arena_strdup(a, nnc_text_str(&t));
        NNC_NEED(code[i], sink);
    }
    return NNC_OK;
}

/* kernel/parse.c -- parses the text form of a kernel and verifies it (nnc_kernel_verify). A kernel from a file may be executed once its
 * schedule is verified, too (nnc_schedule_parse). */
#include "kernel/kernel.h"

#include <string.h>

typedef struct parser {
    nnc_scan *s;
    nnc_arena *a;
    nnc_sink *sink;
    nnc_kernel *k;
    size_t cap_buf, cap_ins, cap_stage;
    nnc_status status;
} parser;

static bool parse_fail(parser *p, const char *expected)
{
    if (p->status == NNC_OK)
        p->status = nnc_scan_fail(p->s, p->sink, expected);
    return false;
}

static bool nomem(parser *p)
{
    p->status = nnc_nomem(p->sink);
    return false;
}

static bool eat(parser *p, const char *lit)
{
    return nnc_scan_eat(p->s, lit) || parse_fail(p, lit);
}

static bool get_int(parser *p, int64_t lo, int64_t hi, int64_t *out)
{
    nnc_scan at = *p->s;
    if (nnc_scan_int(p->s, out) && *out >= lo && *out <= hi)
        return true;
    *p->s = at;
    return parse_fail(p, "a number in range");
}

static bool get_word(parser *p, char **out, const char *what)
{
    const char *w;
    size_t n;
    if (!nnc_scan_word(p->s, &w, &n))
        return parse_fail(p, what);
    *out = nnc_arena_strndup(p->a, w, n);
    return *out || nomem(p);
}

static int find_word(parser *p, const char *const *names, int n)
{
    for (int i = 0; i < n; i++)
        if (nnc_scan_eat(p->s, names[i]))
            return i;
    return -1;
}

static bool get_dtype(parser *p, uint8_t *out)
{
    const char *w;
    size_t n;
    nnc_dtype d;
    nnc_scan at = *p->s;
    if (nnc_scan_word(p->s, &w, &n) && nnc_dtype_parse(w, n, &d)) {
        *out = (uint8_t)d;
        return true;
    }
    *p->s = at;
    return parse_fail(p, "a type");
}

static bool get_axis(parser *p, int *out)
{
    for (int a = 0; a < p->k->n_axis; a++)
        if (nnc_scan_eat(p->s, p->k->axis[a].name)) {
            *out = a;
            return true;
        }
    return parse_fail(p, "an axis");
}

static bool is_axis(const parser *p)
{
    for (int a = 0; a < p->k->n_axis; a++)
        if (nnc_scan_is(p->s, p->k->axis[a].name))
            return true;
    return false;
}

static bool get_id(parser *p, int32_t *out)
{
    int64_t v;
    if (!eat(p, "%") || !get_int(p, 0, NNC_KMAX_INS, &v))
        return false;
    *out = (int32_t)v;
    return true;
}

/* axis[*n] + ... + c */
static bool get_affine(parser *p, nnc_affine *e)
{
    *e = (nnc_affine){0};
    do {
        int64_t v;
        int a;
        if (nnc_scan_int(p->s, &v)) {
            e->c = v;
            continue;
        }
        if (!get_axis(p, &a))
            return false;
        v = 1;
        if (nnc_scan_eat(p->s, "*") && !get_int(p, INT64_MIN, INT64_MAX, &v))
            return false;
        e->k[a] = v;
    } while (nnc_scan_eat(p->s, "+"));
    return true;
}

static bool get_buf(parser *p, int16_t *out)
{
    const char *w;
    size_t n;
    if (!nnc_scan_word(p->s, &w, &n))
        return parse_fail(p, "a buffer");
    *out = -1;
    for (int b = 0; b < p->k->n_buf && *out < 0; b++)
        if (strlen(p->k->buf[b].name) == n && memcmp(p->k->buf[b].name, w, n) == 0)
            *out = (int16_t)b;
    return *out >= 0 || parse_fail(p, "a buffer's name before this");
}

/* index: receives the computed index' argument */
static bool get_access(parser *p, nnc_kins *in, int32_t *index)
{
    if (!get_buf(p, &in->buf))
        return false;
    if (!eat(p, "[") || !get_affine(p, &in->at))
        return false;
    if (nnc_scan_eat(p->s, ":"))
        if (!get_id(p, index) || !eat(p, "*") || !get_int(p, INT64_MIN, INT64_MAX, &in->scale) ||
            !eat(p, "below") || !get_int(p, 1, INT64_MAX, &in->limit))
            return false;
    return eat(p, "]");
}

static bool get_guards(parser *p, nnc_kins *in)
{
    nnc_kguard g[NNC_KGUARDS];
    int n = 0;
    while (nnc_scan_eat(p->s, "if")) {
        if (n == NNC_KGUARDS)
            return parse_fail(p, "at most 8 guards");
        if (!get_int(p, INT64_MIN, INT64_MAX, &g[n].lo) || !eat(p, "<=") ||
            !get_affine(p, &g[n].e) || !eat(p, "<") || !get_int(p, INT64_MIN, INT64_MAX, &g[n].hi))
            return false;
        n++;
    }
    in->n_guard = (uint8_t)n;
    if (n > 0 && !(in->guard = nnc_arena_memdup(p->a, g, sizeof *g * (size_t)n)))
        return nomem(p);
    return true;
}

static bool get_facts(parser *p, nnc_kins *in)
{
    in->lo = 1;
    in->hi = 0;
    if (nnc_scan_eat(p->s, "range")) {
        if (!eat(p, "(") || !(nnc_scan_double(p->s, &in->lo) || parse_fail(p, "a number")) ||
            !eat(p, ",") || !(nnc_scan_double(p->s, &in->hi) || parse_fail(p, "a number")))
            return false;
        in->maybe_nan = nnc_scan_eat(p->s, ", nan");
        if (!eat(p, ")"))
            return false;
    }
    if (nnc_scan_eat(p->s, "hint")) {
        if (!eat(p, "("))
            return false;
        for (int b; (b = find_word(p, nnc_khint_names, NNC_KHINTS)) >= 0;)
            in->hint |= (uint8_t)(1 << b);
        return eat(p, ")");
    }
    return true;
}

static bool get_sop(parser *p, nnc_kins *in)
{
    const char *w;
    size_t n;
    nnc_sop sop;
    nnc_scan at = *p->s;
    if (!nnc_scan_word(p->s, &w, &n) || !nnc_sop_parse(w, n, &sop)) {
        *p->s = at;
        return parse_fail(p, "an instruction");
    }
    in->op = KO_sop;
    in->sop = (uint8_t)sop;
    if (!get_dtype(p, &in->dtype) || (sop == SC_cast && !get_dtype(p, &in->cast_to)))
        return false;
    for (int i = 0; i < nnc_sops[sop].arity; i++)
        if (!get_id(p, &in->arg[i]))
            return false;
    return true;
}

static bool get_op(parser *p, nnc_kins *in)
{
    int a;
    if (nnc_scan_eat(p->s, "const")) {
        in->op = KO_const;
        if (!get_dtype(p, &in->dtype))
            return false;
        if (nnc_is_float(in->dtype))
            return nnc_scan_double(p->s, &in->f) || parse_fail(p, "a number");
        return get_int(p, INT64_MIN, INT64_MAX, &in->i);
    }
    if (nnc_scan_eat(p->s, "index")) {
        in->op = KO_index;
        if (!get_dtype(p, &in->dtype) || !get_axis(p, &a))
            return false;
        in->i = a;
        return true;
    }
    if (nnc_scan_eat(p->s, "load")) {
        in->op = KO_load;
        if (!get_dtype(p, &in->dtype) || !get_access(p, in, &in->arg[0]) || !get_guards(p, in))
            return false;
        return !nnc_scan_eat(p->s, "else") || get_id(p, &in->arg[1]);
    }
    if (nnc_scan_eat(p->s, "store")) {
        in->op = KO_store;
        return get_dtype(p, &in->dtype) && get_access(p, in, &in->arg[1]) &&
               get_id(p, &in->arg[0]) && get_guards(p, in);
    }
    bool scan = nnc_scan_eat(p->s, "scan");
    if (scan || nnc_scan_eat(p->s, "reduce")) {
        int r = find_word(p, nnc_kred_names, 6);
        if (r < 0)
            return parse_fail(p, "sum, prod, max, min, argmax or argmin");
        in->op = KO_reduce;
        in->sop = (uint8_t)r;
        in->running = scan;
        if (!get_dtype(p, &in->dtype) || !get_id(p, &in->arg[0]))
            return false;
        return !nnc_scan_eat(p->s, "mask") || get_id(p, &in->arg[1]);
    }
    return get_sop(p, in);
}

/* Parses instructions up to something else. */
static bool get_block(parser *p, int32_t *first, int32_t *end)
{
    nnc_kernel *k = p->k;
    *first = k->n_ins;
    while (nnc_scan_is(p->s, "%")) {
        int32_t id;
        if (k->n_ins == NNC_KMAX_INS)
            return parse_fail(p, "fewer instructions");
        if (!ARENA_ROOM(p->a, k->ins, p->cap_ins, k->n_ins + 1))
            return nomem(p);
        nnc_kins *in = &k->ins[k->n_ins];
        *in = (nnc_kins){.buf = -1, .arg = {-1, -1, -1}};
        if (!get_id(p, &id) || (id != k->n_ins && !parse_fail(p, "instructions numbered from 0")))
            return false;
        if (!eat(p, "=") || !get_op(p, in) || !get_facts(p, in))
            return false;
        k->n_ins++;
    }
    *end = k->n_ins;
    return true;
}

static bool get_stage(parser *p)
{
    nnc_kernel *k = p->k;
    if (k->n_stage == NNC_KMAX_STAGE)
        return parse_fail(p, "fewer stages");
    if (!ARENA_ROOM(p->a, k->stage, p->cap_stage, k->n_stage + 1))
        return nomem(p);
    nnc_kstage *s = &k->stage[k->n_stage++];
    *s = (nnc_kstage){0};
    while (!nnc_scan_is(p->s, "{")) {
        int a;
        if (!get_axis(p, &a))
            return false;
        s->axes |= 1u << a;
    }
    if (!eat(p, "{") || !get_block(p, &s->body0, &s->body1))
        return false;
    s->post0 = s->post1 = k->n_ins;
    if (nnc_scan_eat(p->s, "post") && !get_block(p, &s->post0, &s->post1))
        return false;
    return eat(p, "}");
}

static bool name_taken(const nnc_kernel *k, const char *name)
{
    for (int a = 0; a < k->n_axis; a++)
        if (strcmp(k->axis[a].name, name) == 0)
            return true;
    for (int b = 0; b < k->n_buf; b++)
        if (strcmp(k->buf[b].name, name) == 0)
            return true;
    return false;
}

static bool get_axes(parser *p)
{
    nnc_kernel *k = p->k;
    while (nnc_scan_eat(p->s, "axis")) {
        nnc_kaxis x = {0};
        char *name;
        if (k->n_axis == NNC_KAXES)
            return parse_fail(p, "at most 16 axes");
        if (!get_word(p, &name, "the axis' name"))
            return false;
        int kind = find_word(p, nnc_kaxis_names, 3);
        if (kind < 0 || name_taken(k, name))
            return parse_fail(p, "a new name and outer, map or reduce");
        x.kind = (nnc_kaxis_kind)kind;
        x.name = name;
        if (!get_int(p, 1, INT64_MAX / 2, &x.extent))
            return false;
        x.seq = nnc_scan_eat(p->s, "seq");
        if (x.kind == KA_outer && k->n_outer++ != k->n_axis)
            return parse_fail(p, "outer axes first");
        k->axis[k->n_axis++] = x;
    }
    return true;
}

static bool get_bufs(parser *p)
{
    static const char *const role[3] = {"in", "out", "tmp"};
    nnc_kernel *k = p->k;
    while (nnc_scan_eat(p->s, "buf")) {
        if (k->n_buf == NNC_KMAX_BUF)
            return parse_fail(p, "fewer buffers");
        char *name;
        uint8_t d;
        if (!ARENA_ROOM(p->a, k->buf, p->cap_buf, k->n_buf + 1))
            return nomem(p);
        if (!get_word(p, &name, "the buffer's name"))
            return false;
        int r = find_word(p, role, 3);
        if (r < 0 || name_taken(k, name))
            return parse_fail(p, "a new name and in, out or tmp");
        nnc_kbuf *b = &k->buf[k->n_buf];
        *b = (nnc_kbuf){.role = (nnc_kbuf_role)r, .name = name};
        if (!get_dtype(p, &d) || !get_int(p, 1, (int64_t)1 << 46, &b->numel))
            return false;
        b->dtype = (nnc_dtype)d;
        k->n_buf++;
    }
    return true;
}

/* Parses a word and its number; the default when the word is missing. */
static bool get_choice(parser *p, const char *word, int64_t usual, int64_t hi, int64_t *out)
{
    *out = usual;
    return !nnc_scan_eat(p->s, word) || get_int(p, 0, hi, out);
}

static bool get_small(parser *p, const char *word, int64_t usual, int16_t *out)
{
    int64_t v;
    bool ok = get_choice(p, word, usual, 4096, &v);
    *out = (int16_t)(ok ? v : usual);
    return ok;
}

static bool get_grid(parser *p)
{
    nnc_kgrid *g = &p->k->grid;
    int axis = -1, across = -1, cls = find_word(p, nnc_kclass_names + 1, 8);
    if (cls < 0)
        return parse_fail(p, "point, tile, row, column, steps, scatter, attend or contract");
    if ((nnc_scan_eat(p->s, "along") && !get_axis(p, &axis)) ||
        (nnc_scan_eat(p->s, "across") && !get_axis(p, &across)))
        return false;
    *g = (nnc_kgrid){.cls = (uint8_t)(cls + 1), .axis = (int16_t)axis, .across = (int16_t)across};
    p->k->sched = nnc_cuda_sched(p->k);
    if (!nnc_scan_is(p->s, "threads"))
        return parse_fail(p, "threads");
    return get_small(p, "threads", 0, &g->threads) && get_small(p, "vec", 1, &g->vec) &&
           get_small(p, "flight", 1, &g->flight) && get_small(p, "group", 1, &g->group) &&
           get_small(p, "split", 1, &g->split) && get_small(p, "keep", 0, &g->keep) &&
           get_small(p, "park", 0, &g->park) && get_small(p, "spill", 0, &g->spill) &&
           get_small(p, "regs", 0, &g->regs) && get_small(p, "index", 32, &g->index) &&
           eat(p, "blocks") && get_int(p, 1, INT64_MAX / 4, &g->blocks) &&
           get_choice(p, "finish", 0, INT64_MAX / 4, &g->finish) &&
           get_choice(p, "shared", 0, INT64_MAX / 4, &g->shared) &&
           get_choice(p, "work", 0, INT64_MAX / 4, &g->work);
}

static bool get_ring(parser *p)
{
    int16_t buf;
    int axis;
    int64_t n;
    if (!get_buf(p, &buf) || !get_axis(p, &axis) || !get_int(p, 1, INT64_MAX / 4, &n))
        return false;
    return (!nnc_sched_has_ring(&p->k->sched, buf) &&
               nnc_sched_put_ring(&p->k->sched, buf, axis, n)) ||
           parse_fail(p, "one ring for a buffer");
}

/* Parses the arguments of directive `what`. */
static bool get_directive(parser *p, nnc_kdo what)
{
    int a = -1;
    int64_t n = 0;
    if (what == KD_ring)
        return get_ring(p);
    do {
        if (what <= KD_transpose && !get_axis(p, &a))
            return false;
        if ((what == KD_tile || what == KD_vector || what == KD_unroll || what == KD_prefetch ||
                what == KD_panel) &&
            !get_int(p, 1, INT64_MAX / 4, &n))
            return false;
        if (nnc_sched_has_for(&p->k->sched, what, a) || !nnc_sched_put(&p->k->sched, what, a, n))
            return parse_fail(p, "one directive of a kind for an axis");
    } while (what == KD_order && is_axis(p));
    return true;
}

static bool get_schedule(parser *p)
{
    nnc_kschedule *s = &p->k->sched;
    if (!nnc_scan_eat(p->s, "schedule"))
        return true;
    if (nnc_scan_eat(p->s, "cuda"))
        return get_grid(p);
    while (!nnc_scan_is(p->s, "parallel")) {
        int what = 0;
        while (what < KD__COUNT && !nnc_scan_eat(p->s, nnc_kdo_names[what]))
            what++;
        if (what == KD__COUNT)
            return parse_fail(p, "a directive, or parallel");
        if (!get_directive(p, (nnc_kdo)what))
            return false;
    }
    return eat(p, "parallel") && get_int(p, 1, INT64_MAX / 4, &s->domain) && eat(p, "grain") &&
           get_int(p, 1, INT64_MAX / 4, &s->grain);
}

static bool get_kernel(parser *p)
{
    char *name;
    if (!eat(p, "kernel") || !get_word(p, &name, "the kernel's name") || !eat(p, "{"))
        return false;
    p->k->name = name;
    if (!get_axes(p) || !get_bufs(p) || !get_schedule(p))
        return false;
    while (nnc_scan_eat(p->s, "stage"))
        if (!get_stage(p))
            return false;
    return eat(p, "}");
}

nnc_kernel *nnc_kernel_parse(nnc_scan *s, nnc_arena *a, nnc_sink *sink)
{
    parser p = {.s = s, .a = a, .sink = sink, .k = ARENA_NEW(a, nnc_kernel, 1)};
    if (!p.k) {
        nnc_status e = nnc_nomem(sink);
        return e == NNC_OK ? p.k : NULL;
    }
    if (!get_kernel(&p) || nnc_kernel_verify(p.k, sink) != NNC_OK)
        return NULL;
    p.k->scratch_bytes = nnc_kernel_scratch(p.k);
    return p.k;
}

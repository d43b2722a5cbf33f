/* codegen/cuda.c -- the emitter "cuda": kernels as one CUDA C translation unit without headers. */
#include "codegen/cuda.h"

#include <string.h>

/* Appends the extents of the axes of this kind, as "64 x 1000". */
static void extents(nnc_text *t, const nnc_kernel *k, nnc_kaxis_kind kind, const char *label)
{
    bool any = false;
    for (int a = 0; a < k->n_axis; a++)
        if (k->axis[a].kind == kind) {
            nnc_printf(t, "%s%s %lld", any ? " x" : label, "", (long long)k->axis[a].extent);
            any = true;
        }
}

static void buffers(const cu *c, nnc_kbuf_role role, const char *label)
{
    nnc_text *t = c->t;
    const nnc_kernel *k = c->k;
    bool any = false;
    for (int b = 0; b < k->n_buf; b++) {
        const nnc_kbuf *u = &k->buf[b];
        if (u->role != role)
            continue;
        nnc_printf(t, "%s %s %s[%lld], ", any ? "" : label, c->buf_name[b],
            nnc_dtype_name(u->dtype), (long long)u->numel);
        nnc_put_bytes(t, u->numel * nnc_dtype_size(u->dtype));
        nnc_puts(t, ";");
        any = true;
    }
    if (any) {
        t->s[--t->n] = 0; /* the last semicolon */
        nnc_puts(t, "\n");
    }
}

static void geometry(nnc_text *t, const nnc_kgrid *g)
{
    static const char *const how[8] = {"", "points", "tiles transposed in shared memory", "rows",
        "columns", "steps in order", "scattered rows", "rows against blocks of keys"};
    nnc_printf(t, " *   schedule  %s: %lld block%s of %d threads", how[g->cls],
        (long long)g->blocks, g->blocks == 1 ? "" : "s", g->threads);
    if (g->group > 1)
        nnc_printf(t, ", %d a %s", g->group,
            g->cls == KC_attend   ? "block of keys"
            : g->cls == KC_column ? "column"
            : g->cls == KC_steps  ? "sum"
                                  : "row");
    if (g->split > 1)
        nnc_printf(
            t, g->cls == KC_scatter ? ", rows in %d parts" : ", %d blocks a point", g->split);
    if (g->shared)
        nnc_printf(t, ", %lld bytes of shared memory", (long long)g->shared);
    if (g->vec > 1)
        nnc_printf(t,
            g->cls == KC_steps    ? "; %d points a block"
            : g->cls == KC_attend ? "; %d rows a thread"
                                  : "; %d elements an access",
            g->vec);
    if (g->flight > 1)
        nnc_printf(t, ", %d in flight", g->flight);
    if (g->keep > 0)
        nnc_printf(t, g->park > 0 ? ", rows stay in registers and shared memory"
                                  : ", rows stay in registers");
    if (g->index == 64)
        nnc_puts(t, "; 64-bit offsets");
    nnc_puts(t, "\n");
}

static void header(const cu *c)
{
    nnc_text *t = c->t;
    const nnc_kernel *k = c->k;
    nnc_printf(t, "\n/* %s\n", k->name);
    extents(t, k, KA_outer, " *   points   ");
    nnc_puts(t, k->n_outer ? "" : " *   points    1");
    extents(t, k, KA_map, ", map");
    extents(t, k, KA_reduce, ", reduce");
    nnc_puts(t, "\n");
    buffers(c, KB_in, " *   reads    ");
    buffers(c, KB_out, " *   writes   ");
    if (k->grid.cls == KC_point || k->grid.spill ||
        (k->grid.shared > 0 && k->grid.cls != KC_attend)) /* otherwise in registers */
        buffers(c, KB_tmp, " *   keeps    ");
    geometry(t, &k->grid);
    for (const char *p = k->note; p && *p;) {
        size_t n = strcspn(p, "\n");
        nnc_printf(t, " *   %-9s %.*s\n", p == k->note ? "remark" : "", (int)n, p);
        p += n + (p[n] == '\n');
    }
    nnc_puts(t, " */\n");
}

/* True when buffer b may share memory with another one. The compiler must know, or it may load one through the read-only cache
 * (ld.global.nc) and move loads past stores. */
static bool overlaid(const nnc_kernel *k, int b)
{
    bool any = false;
    for (int o = 0; o < k->n_buf && !any; o++)
        any = nnc_kernel_may_overlay(k, b, o) || nnc_kernel_may_overlay(k, o, b);
    return any;
}

static void signature(const cu *c, const char *suffix)
{
    nnc_text *t = c->t;
    const nnc_kernel *k = c->k;
    nnc_printf(t, "extern \"C\" __global__ void __launch_bounds__(%d", k->grid.threads);
    if (k->grid.regs > 0) /* occupancy: this many blocks must share the 65536 registers of an SM */
        nnc_printf(t, ", %d", 65536 / k->grid.regs / k->grid.threads);
    nnc_puts(t, ")");
    if (k->grid.cls == KC_steps && k->grid.split > 1)
        nnc_printf(t, " NNC_CLUSTER(%d)", k->grid.split);
    nnc_printf(t, "\n%s%s(", k->name, suffix);
    bool first = true;
    size_t line = t->n;
    for (int b = 0; b < k->n_buf; b++) {
        const nnc_kbuf *u = &k->buf[b];
        if (u->role == KB_tmp)
            continue;
        if (t->n > line + 60) {
            nnc_puts(t, ",\n    ");
            line = t->n;
            first = true;
        }
        nnc_printf(t, "%s%s%s *%s%s", first ? "" : ", ", u->role == KB_in ? "const " : "",
            cu_storage(u->dtype), overlaid(k, b) ? "" : "__restrict__ ", c->buf_name[b]);
        first = false;
    }
    if (k->grid.work > 0)
        nnc_printf(t, "%schar *__restrict__ work", first ? "" : ", ");
    nnc_puts(t, ")\n");
}

/* The same kernel with its parameters in an array of pointers, called by tests that compile it for a CPU. */
static void thunk(nnc_text *t, const nnc_kernel *k, const char *suffix)
{
    int n = 0;
    nnc_printf(t, "extern \"C\" void %s%s_thunk(void *const *a)\n{\n    %s%s(", k->name, suffix,
        k->name, suffix);
    for (int b = 0; b < k->n_buf; b++) {
        const nnc_kbuf *u = &k->buf[b];
        if (u->role == KB_tmp)
            continue;
        nnc_printf(t, "%s(%s%s *)a[%d]", n ? ", " : "", u->role == KB_in ? "const " : "",
            cu_storage(u->dtype), n);
        n++;
    }
    if (k->grid.work > 0)
        nnc_printf(t, "%s(char *)a[%d]", n ? ", " : "", n);
    nnc_puts(t, ");\n}\n");
}

/* Marks what stores and reductions depend on, from the last instruction to the first. */
static void find_live(cu *c)
{
    const nnc_kernel *k = c->k;
    for (int32_t id = k->n_ins - 1; id >= 0; id--) {
        cu_value *v = &c->v[id];
        v->as = v->store = -1;
        v->live |= k->ins[id].op == KO_store;
        for (int j = 0; v->live && j < 3; j++)
            if (k->ins[id].arg[j] >= 0) {
                c->v[k->ins[id].arg[j]].live = true;
                c->v[k->ins[id].arg[j]].uses++;
            }
    }
}

/* Names axes and buffers by kind and number. */
static void name_parts(cu *c)
{
    int count[3] = {0};
    for (int a = 0; a < c->k->n_axis; a++)
        snprintf(c->axis_name[a], sizeof c->axis_name[a], "%c%d", "imr"[c->k->axis[a].kind],
            count[c->k->axis[a].kind]++ % 100);
    memset(count, 0, sizeof count);
    for (int b = 0; b < c->k->n_buf; b++)
        snprintf(c->buf_name[b], sizeof c->buf_name[b], "%c%d", "xyt"[c->k->buf[b].role],
            count[c->k->buf[b].role]++);
}

static bool c_word(const char *s)
{
    return s && strncmp(s, "k_", 2) == 0 &&
           s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] == 0;
}

static nnc_status emit_kernel(nnc_text *t, const nnc_kernel *k, nnc_sink *sink)
{
    cu c = {.t = t, .k = k, .g = &k->grid, .axis = -1, .lanes = 1, .sink = sink};
    if (k->grid.cls == KC_none || !c_word(k->name))
        return nnc_fail0(sink, NNC_E_BUG, "kernel %s: %s", k->name ? k->name : "?",
            k->grid.cls == KC_none ? "no schedule for a GPU" : "no name for C: k_ and letters");
    c.v = nnc_calloc((size_t)k->n_ins + 1, sizeof *c.v);
    c.buf_name = nnc_calloc((size_t)k->n_buf + 1, sizeof *c.buf_name);
    if (c.v && c.buf_name) {
        name_parts(&c);
        find_live(&c);
        header(&c);
        signature(&c, "");
        cu_open(&c, "{");
        switch (k->grid.cls) {
        case KC_row:
        case KC_column: cu_row(&c); break;
        case KC_tile: cu_tile(&c); break;
        case KC_steps: cu_steps(&c); break;
        case KC_scatter: cu_scatters(&c); break;
        case KC_attend: cu_attend(&c); break;
        default: cu_point(&c);
        }
        cu_close(&c, "}");
        if (k->grid.finish > 0) {
            nnc_puts(t, "\n/* Combines the partial results; launched after the kernel above. */\n");
            signature(&c, "_finish");
            cu_open(&c, "{");
            cu_finish(&c);
            cu_close(&c, "}");
        }
    }
    nnc_status s = c.v && c.buf_name ? NNC_OK : nnc_nomem(sink);
    nnc_free(c.v);
    nnc_free(c.buf_name);
    return s;
}

static nnc_status emit(const nnc_kernel *const *k, int n, const nnc_target *target, nnc_emit what,
    char **out, size_t *size, nnc_sink *sink)
{
    (void)target;
    if (what != EMIT_cuda)
        return nnc_fail0(sink, NNC_E_BUG, "the CUDA emitter supports only CUDA C");
    NNC_LOCAL(nnc_text) body = {0}, code = {0}, all = {0};
    for (int i = 0; i < n; i++)
        NNC_TRY(emit_kernel(&body, k[i], sink));
    nnc_puts(&body, "\n#ifdef NNC_THUNKS /* each kernel with its arguments in an array */\n");
    for (int i = 0; i < n; i++)
        for (int finish = 0; finish <= (k[i]->grid.finish > 0); finish++)
            thunk(&body, k[i], finish ? "_finish" : "");
    nnc_puts(&body, "#endif\n");
    cu_formulas(&code, k, n, nnc_text_str(&body));
    nnc_puts(&code, nnc_text_str(&body));
    cu_prelude(&all, nnc_text_str(&code));
    nnc_puts(&all, nnc_text_str(&code));
    NNC_NEED(!body.oom && !code.oom && !all.oom, sink);
    *out = all.s;
    *size = all.n;
    all.s = NULL; /* the caller's */
    return NNC_OK;
}

const nnc_emitter nnc_emitter_cuda = {"cuda", "cuda " NNC_CUDA_EMITTER_REVISION, emit};

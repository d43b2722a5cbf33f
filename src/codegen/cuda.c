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
    static const char *const how[9] = {"", "points", "tiles transposed in shared memory", "rows",
        "columns", "steps in order", "scattered rows", "rows against blocks of keys",
        "tiles of a product on tensor cores"};
    nnc_printf(t, " *   schedule  %s: %lld block%s of %d threads", how[g->cls],
        (long long)g->blocks, g->blocks == 1 ? "" : "s", g->threads);
    if (g->cls == KC_contract)
        nnc_printf(t, ", %d rows by %d columns a block", g->group, g->vec);
    else if (g->group > 1)
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
    if (g->vec > 1 && g->cls != KC_contract)
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

static void header(const cu *c, const cu_shared *s, const nnc_kernel *const *k_all, int i)
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
    cu_put_shared(t, s, k_all, i);
    for (const char *p = k->note; p && *p;) {
        size_t n = strcspn(p, "\n");
        nnc_printf(t, " *   %-9s %.*s\n", p == k->note ? "remark" : "", (int)n, p);
        p += n + (p[n] == '\n');
    }
    nnc_puts(t, " */\n");
}

/* True when buffer b may share memory with another one. The compiler must know: it would load one through the read-only cache
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
    nnc_puts(t, "\n");
    cu_mark_name(c);
    nnc_printf(t, "%s(", suffix);
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
    cu_mark_params(c);
    nnc_puts(t, ")\n");
}

/* Writes a kernel's parameters, taken from an array of pointers. Returns their number. */
static int pointers(nnc_text *t, const nnc_kernel *k)
{
    int n = 0;
    for (int b = 0; b < k->n_buf; b++) {
        const nnc_kbuf *u = &k->buf[b];
        if (u->role == KB_tmp)
            continue;
        nnc_printf(t, "%s(%s%s *)a[%d]", n ? ", " : "", u->role == KB_in ? "const " : "",
            cu_storage(u->dtype), n);
        n++;
    }
    if (k->grid.work > 0) {
        nnc_printf(t, "%s(char *)a[%d]", n ? ", " : "", n);
        n++;
    }
    return n;
}

/* Functions with the kernels' parameters in an array of pointers, called by tests that compile them for a CPU. There is one for each kernel
 * and one for each shared function, which has sizes after the pointers. */
static void thunks(nnc_text *t, const cu_shared *s, const nnc_kernel *const *k)
{
    nnc_puts(t, "\n#ifdef NNC_THUNKS /* each kernel with its arguments in an array */\n");
    for (int i = 0; i < s->n; i++)
        for (int finish = 0; finish <= (k[i]->grid.finish > 0); finish++) {
            NNC_LOCAL(nnc_text) list = {0};
            const char *suffix = finish ? "_finish" : "";
            const int n = pointers(&list, k[i]);
            nnc_printf(
                t, "extern \"C\" void %s%s_thunk(void *const *a)\n{\n    ", k[i]->name, suffix);
            cu_put_call(t, s, k, i, suffix, nnc_text_str(&list));
            nnc_puts(t, "}\n");
            if (s->kernel[i].like == i)
                cu_put_general_call(t, s, k, i, suffix, nnc_text_str(&list), n);
            t->oom |= list.oom;
        }
    nnc_puts(t, "#endif\n");
}

/* Marks the instructions on which stores and reductions depend, from last to first. */
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

/* Bytes of the widest load along own axes of a kernel of columns. */
static int widest(const nnc_kernel *k)
{
    int bytes = 0;
    for (int32_t i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        const int own = in->op == KO_load ? nnc_dtype_size(k->buf[in->buf].dtype) * k->grid.vec : 0;
        if (own > bytes && nnc_kins_axes(in) >> k->n_outer)
            bytes = own;
    }
    return bytes;
}

/* May extents of the kernel be parameters? No loop may be unrolled by an extent that has a mark. Strides along it are part of the kernel's
 * instructions: as parameters they take two registers for each load in flight. That is too many where loads are short: columns of 4 bytes
 * had half as many loads in flight. */
static bool has_sizes(const nnc_kernel *k)
{
    if (k->grid.index != 32 || nnc_window_kernel(k))
        return false;
    return k->grid.cls == KC_point || k->grid.cls == KC_row ||
           (k->grid.cls == KC_column && widest(k) >= 8);
}

static void write_function(cu *c)
{
    signature(c, "");
    cu_open(c, "{");
    switch (c->g->cls) {
    case KC_row:
    case KC_column: cu_row(c); break;
    case KC_tile: cu_tile(c); break;
    case KC_steps: cu_steps(c); break;
    case KC_scatter: cu_scatters(c); break;
    case KC_attend: cu_attend(c); break;
    case KC_contract: cu_contracts(c); break;
    default: cu_point(c);
    }
    cu_close(c, "}");
    if (c->k->grid.finish == 0)
        return;
    nnc_puts(c->t, "\n/* Combines the partial results; launched after the kernel above. */\n");
    signature(c, "_finish");
    cu_open(c, "{");
    cu_finish(c);
    cu_close(c, "}");
}

static bool prepare_kernel(cu *c, const nnc_kernel *k)
{
    c->buf_name = nnc_calloc((size_t)k->n_buf + 1, sizeof *c->buf_name);
    if (c->buf_name)
        name_parts(c);
    return c->buf_name;
}

nnc_status cu_write(cu_one *o, const nnc_kernel *k, bool sizes, nnc_sink *sink)
{
    cu c = {.t = &o->text, .k = k, .g = &k->grid, .axis = -1, .lanes = 1, .sink = sink};
    if (k->grid.cls == KC_none || !c_word(k->name))
        return nnc_fail0(sink, NNC_E_BUG, "kernel %s: %s", k->name ? k->name : "?",
            k->grid.cls == KC_none ? "no schedule for a GPU" : "no name for C: k_ and letters");
    c.sizes = sizes && has_sizes(k) ? &o->sizes : NULL;
    o->sizes.n = 0;
    nnc_text_clear(&o->text);
    c.v = nnc_calloc((size_t)k->n_ins + 1, sizeof *c.v);
    const bool ok = prepare_kernel(&c, k) && c.v;
    if (ok) {
        find_live(&c);
        write_function(&c);
    }
    nnc_free(c.v);
    nnc_free(c.buf_name);
    return ok && !o->text.oom ? NNC_OK : nnc_nomem(sink);
}

/* Writes the comments of a group's kernels, then their function. */
static nnc_status put_group(
    nnc_text *t, const cu_shared *s, const nnc_kernel *const *k, int first, nnc_sink *sink)
{
    for (int i = first; i < s->n; i++) {
        if (s->kernel[i].like != first)
            continue;
        cu c = {.t = t, .k = k[i]};
        NNC_NEED(prepare_kernel(&c, k[i]), sink);
        header(&c, s, k, i);
        nnc_free(c.buf_name);
    }
    cu_put_function(t, s, k, first);
    return NNC_OK;
}

static nnc_status put_all(nnc_text *body, const nnc_kernel *const *k, int n, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    NNC_LOCAL(cu_shared) s = {0};
    NNC_TRY(cu_share(&s, k, n, &a, sink));
    for (int i = 0; i < n; i++)
        if (s.kernel[i].like == i)
            NNC_TRY(put_group(body, &s, k, i, sink));
    thunks(body, &s, k);
    return NNC_OK;
}

static nnc_status emit(const nnc_kernel *const *k, int n, const nnc_target *target, nnc_emit what,
    char **out, size_t *size, nnc_sink *sink)
{
    (void)target;
    if (what != EMIT_cuda)
        return nnc_fail0(sink, NNC_E_BUG, "the CUDA emitter supports only CUDA C");
    NNC_LOCAL(nnc_text) body = {0}, code = {0}, all = {0};
    NNC_TRY(put_all(&body, k, n, sink));
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

/* codegen/cuda_walk.c -- windows of which a thread computes several rows, one after the other (schedule/walk.c), as CUDA C.
 *
 *     weights as floats; sums of no rows; the first row of the source.
 *     for (t = first; t < last; t++) {                      rows of the source
 *         x = the row as floats; loads row t + 1
 *         for (r0 = last of the window; r0 >= 0; r0--)
 *             part[r0 + 1] = part[r0] + x w[r0];            part[r0]: what the result of row t - r0 has seen so far
 *         m0 = t - (last of the window)
 *         if (m0 >= 0)
 *             stores row m0, from part[rows of the window]
 *     }
 *     for (t = last; t < rows that windows read; t++)       below its edge: the same, with nothing to add.
 *
 * A sum moves to the next part without an instruction: multiply-adds write to another register than they read. The memory's latency passes
 * while a row is summed, so that few threads suffice, which have many registers. */
#include "codegen/cuda.h"

#include <stdio.h>

/* True when each access of the body is one vector, and its sums are summed term by term. */
static bool vectors(const cu *c, const nnc_kstage *s)
{
    for (int32_t id = s->body0; id < s->body1; id++) {
        const nnc_kins *in = &c->k->ins[id];
        const cu_value *v = &c->v[id];
        if (in->op == KO_load && v->live && !v->vector)
            return false;
        if (in->op == KO_reduce && v->live && v->into != id)
            return false;
    }
    return true;
}

/* Is the value of the post equal for all rows, so that it is loaded once? */
static bool is_fixed(const cu *c, const nnc_walk *w, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    return in->op == KO_load && c->v[id].live && in->arg[0] < 0 && in->arg[1] < 0 &&
           in->n_guard == 0 && in->at.k[w->map] == 0 && (c->v[id].vector || !c->v[id].varies);
}

static bool is_source(const cu *c, const nnc_walk *w, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    return in->op == KO_load && c->v[id].live && in->at.k[w->map] != 0;
}

static bool is_weight(const cu *c, const nnc_walk *w, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    return in->op == KO_load && c->v[id].live && in->at.k[w->map] == 0;
}

static const char *storage(const cu *c, const nnc_kins *in)
{
    return cu_storage(c->k->buf[in->buf].dtype);
}

/* ---- before the loop ------------------------------------------------------------------------------------------------- */

static void weights(cu *c, const nnc_kstage *s, const nnc_walk *w)
{
    const char *r = c->axis_name[w->taps];
    const long long taps = c->k->axis[w->taps].extent;
    for (int32_t id = s->body0; id < s->body1; id++) {
        const nnc_kins *in = &c->k->ins[id];
        if (!is_weight(c, w, id))
            continue;
        cu_line(c, "nnc_vec<float, %d> row_%d[%lld];", c->lanes, id, taps);
        cu_line(c, "#pragma unroll");
        cu_line(c, "for (%T %s = 0; %s < %lld; %s++)", r, r, taps, r);
        cu_line(c, "    row_%d[%s] = nnc_widened<%s>(nnc_words<%d>(%s + %a));", id, r,
            storage(c, in), c->lanes, c->buf_name[in->buf], &in->at);
    }
}

/* Declares first and last: of the rows that the walk's windows read, first .. last - 1 are rows of the source. */
static void bounds(cu *c, const nnc_walk *w)
{
    const long long all = c->k->axis[w->map].extent + c->k->axis[w->taps].extent - 1;
    nnc_affine above = {0}, below;
    if (!w->row) {
        cu_line(c, "const %T first = 0, last = %lld;", all);
        return;
    }
    for (int a = 0; a < c->k->n_outer; a++)
        above.k[a] = -w->row->e.k[a];
    below = above;
    above.c = w->row->lo - w->row->e.c;
    below.c = w->row->hi - w->row->e.c;
    cu_line(c, "const %T above = %a, below = %a;", &above, &below);
    cu_line(
        c, "const %T first = above > 0 ? above : 0, last = below < %lld ? below : %lld;", all, all);
}

/* The first source whose address differs only by a constant. All of these are loaded from a pointer to its row. */
static int32_t leader(const cu *c, const nnc_kstage *s, const nnc_walk *w, int32_t id)
{
    for (int32_t i = s->body0; i < id; i++) {
        nnc_affine at = c->k->ins[i].at;
        at.c = c->k->ins[id].at.c;
        if (is_source(c, w, i) && c->k->ins[i].buf == c->k->ins[id].buf &&
            nnc_affine_equal(&at, &c->k->ins[id].at))
            return i;
    }
    return id;
}

/* Loads the source's current row without conversion; beyond its edges values stay 0. */
static void load_row(cu *c, const nnc_kstage *s, const nnc_walk *w)
{
    for (int32_t id = s->body0; id < s->body1; id++) {
        const nnc_kins *in = &c->k->ins[id];
        if (!is_source(c, w, id))
            continue;
        const int32_t first = leader(c, s, w, id);
        const bool guarded = cu_guarded(c, in);
        const long long plus = in->at.c - c->k->ins[first].at.c;
        if (guarded)
            cu_line(c, "if (in_%d)", id);
        cu_line(c, "%snext_%d = nnc_words<%d>(from_%d %s %lld);", guarded ? "    " : "", id,
            c->lanes, first, plus < 0 ? "-" : "+", plus < 0 ? -plus : plus);
    }
}

static void declare_source(cu *c, const nnc_kstage *s, const nnc_walk *w, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    const int size = nnc_dtype_size(c->k->buf[in->buf].dtype);
    if (leader(c, s, w, id) == id) {
        nnc_affine at = in->at;
        at.k[w->map] = at.k[w->taps] = 0;
        cu_line(c, "const %s *from_%d = %s + %a + first * %lld;", storage(c, in), id,
            c->buf_name[in->buf], &at, (long long)in->at.k[w->map]);
    }
    if (cu_guarded(c, in)) {
        cu_indent(c);
        cu_put(c, "const bool in_%d = ", id);
        cu_guards(c, in);
        nnc_puts(c->t, ";\n");
    }
    cu_line(c, "nnc_vec<unsigned, %d> next_%d = {};", c->lanes * size / 4, id);
}

static void begin(cu *c, const nnc_kstage *s, const nnc_walk *w)
{
    const int taps = (int)c->k->axis[w->taps].extent;
    weights(c, s, w);
    for (int32_t id = s->post0; id < s->post1; id++)
        if (is_fixed(c, w, id)) {
            cu_load(c, id);
            c->v[id].tiled = true; /* not in the section */
        }
    cu_declare(c, s);
    for (int32_t id = s->body0; id < s->body1; id++)
        if (c->k->ins[id].op == KO_reduce && c->v[id].live)
            cu_line(c, "nnc_vec<float, %d> part_%d[%d] = {};", c->lanes, id, taps + 1);
    bounds(c, w);
    for (int32_t id = s->body0; id < s->body1; id++)
        if (is_source(c, w, id))
            declare_source(c, s, w, id);
    load_row(c, s, w);
}

/* ---- the loop ------------------------------------------------------------------------------------------------------- */

/* Takes the sums from `part`: partial sums of the results that see row t at row `at` of the window. */
static void take_parts(cu *c, const nnc_kstage *s, const char *at)
{
    for (int32_t id = s->body0; id < s->body1; id++)
        if (c->k->ins[id].op == KO_reduce && c->v[id].live)
            cu_line(c, "%n = part_%d[%s];", id, id, at);
}

static void put_parts(cu *c, const nnc_kstage *s, const char *r)
{
    for (int32_t id = s->body0; id < s->body1; id++)
        if (c->k->ins[id].op == KO_reduce && c->v[id].live)
            cu_line(c, "part_%d[%s + 1] = %n;", id, r, id);
}

static void open_taps(cu *c, const nnc_walk *w)
{
    const char *r = c->axis_name[w->taps];
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (%T %s = %lld; %s >= 0; %s--) {", r, (long long)c->k->axis[w->taps].extent - 1,
        r, r);
}

/* Adds row t of the source to the sums of the rows of results that see it. */
static void add_row(cu *c, const nnc_kstage *s, const nnc_walk *w)
{
    const char *r = c->axis_name[w->taps];
    for (int32_t id = s->body0; id < s->body1; id++)
        if (is_source(c, w, id))
            cu_line(
                c, "const auto %n = nnc_widened<%s>(next_%d);", id, storage(c, &c->k->ins[id]), id);
    for (int32_t id = s->body0; id < s->body1; id++)
        if (is_source(c, w, id) && leader(c, s, w, id) == id)
            cu_line(c, "from_%d += t + 1 < last ? %lld : 0;", id,
                (long long)c->k->ins[id].at.k[w->map]);
    load_row(c, s, w);
    open_taps(c, w);
    take_parts(c, s, r);
    for (int32_t id = s->body0; id < s->body1; id++)
        if (is_weight(c, w, id))
            cu_line(c, "const auto %n = row_%d[%s];", id, id, r);
    for (int32_t id = s->body0; id < s->body1; id++)
        c->v[id].tiled |= c->k->ins[id].op == KO_load;
    cu_section(c, s, s->body0, s->body1);
    put_parts(c, s, r);
    cu_close(c, "}");
}

/* The same below the edge of the source, where nothing is added. */
static void pass_row(cu *c, const nnc_kstage *s, const nnc_walk *w)
{
    const char *r = c->axis_name[w->taps];
    open_taps(c, w);
    for (int32_t id = s->body0; id < s->body1; id++)
        if (c->k->ins[id].op == KO_reduce && c->v[id].live)
            cu_line(c, "part_%d[%s + 1] = part_%d[%s];", id, r, id, r);
    cu_close(c, "}");
}

/* Stores the row of results whose last source row is t, if it is part of the walk. */
static void finish_row(cu *c, const nnc_kstage *s, const nnc_walk *w)
{
    char taps[24];
    const long long n = c->k->axis[w->taps].extent;
    snprintf(taps, sizeof taps, "%lld", n);
    cu_line(c, "const %T %s = t - %lld;", c->axis_name[w->map], n - 1);
    cu_open(c, "if (%s >= 0) {", c->axis_name[w->map]);
    take_parts(c, s, taps);
    cu_section(c, s, s->post0, s->post1);
    cu_close(c, "}");
}

/* Rows below the edge have a separate loop: NVRTC would move all sums into a branch of the main loop. */
bool cu_walk(cu *c, const nnc_kstage *s)
{
    nnc_walk w;
    if (c->lanes == 1 || c->ragged || !nnc_walk_of(c->k, &w) || !vectors(c, s) ||
        (w.row && w.row->e.k[c->axis] != 0))
        return false;
    if (w.row)
        c->holds[c->n_holds++] = w.row;
    begin(c, s, &w);
    cu_line(c, "#pragma unroll 1");
    cu_open(c, "for (%T t = first; t < last; t++) {");
    add_row(c, s, &w);
    c->n_holds = 0;
    finish_row(c, s, &w);
    cu_close(c, "}");
    if (!w.row)
        return true;
    cu_line(c, "#pragma unroll 1");
    cu_open(c, "for (%T t = last; t < %lld; t++) {",
        (long long)(c->k->axis[w.map].extent + c->k->axis[w.taps].extent - 1));
    pass_row(c, s, &w);
    finish_row(c, s, &w);
    cu_close(c, "}");
    return true;
}

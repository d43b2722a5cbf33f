/* kernel/winograd.c -- the kernel of Winograd's convolution (ir/winograd.c) with its epilogue. An outer axis runs over blocks of tiles,
 * whose points are tmp buffers; parts.c takes the three stages apart.
 *
 *     for blocks of tiles
 *       for tiles t of the block, channels c:           v[p, t, c] = points of the source's window
 *       for points p, tiles t, outputs o:               m[p, t, o] = sum c: v[p, t, c] u[p, c, o]
 *       for tiles t of the block, outputs o:            y[.., o] = epilogue(the tile's results from m[.., t, o])
 *
 * The epilogue is traced as a kernel of its own, and its instructions are copied for each result of a tile. */
#include "kernel/trace.h"

#include <assert.h>
#include <string.h>

enum {
    POINTS = NNC_WINOGRAD_SIDE * NNC_WINOGRAD_SIDE,
    DIMS = 4, /* image, channel, row, column */
    LINE = 16, /* elements; the points of a tile lie at no multiple of a page */
};

/* Elementwise ops on one element of a tensor. */
typedef struct element {
    nnc_kernel *k;
    int dim[NNC_KAXES]; /* by axis of k */
    int to_buf[NNC_KERNEL_ARGUMENTS + 1]; /* by buffer of k: that of the kernel; of `given` -1 */
    int given; /* buffer of k that is the convolution's result; -1: there is none */
    int store; /* instruction */
} element;

/* An element's place: the affine form of each dimension over the kernel's axes. */
typedef struct position {
    nnc_affine dim[DIMS];
} position;

typedef struct winograd {
    const nx_set *s;
    const nnc_node *n; /* the convolution */
    nnc_winograd w;
    nnc_kernel *k;
    int cap;
    int64_t images, rows; /* of a block: images, rows of tiles */
    int64_t columns, all_rows; /* of tiles in an image */
    int64_t pad[2];
    int v, m, u, y; /* buffers */
    int64_t plane[2]; /* elements of a point in v, m */
    int stage; /* first instruction of the current one */
    nnc_ref value[NNC_KERNEL_ARGUMENTS]; /* by buffer */
    const char **why;
    nnc_arena *scratch, *a;
} winograd;

static bool fails(const winograd *w, const char *why)
{
    *w->why = why;
    return false;
}

const nnc_node *nx_winograd_of(const nx_set *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->g->node[s->node[i]].op == OP_winograd)
            return &s->g->node[s->node[i]];
    return NULL;
}

/* ---- instructions ---------------------------------------------------------------------------------------------------- */

/* Appends an instruction, or finds an equal one of the stage. -1: there is no room for it. */
static int32_t put(winograd *w, const nnc_kins *in)
{
    nnc_kernel *k = w->k;
    for (int32_t i = w->stage; i < k->n_ins && in->op != KO_store; i++)
        if (nnc_kins_equal(&k->ins[i], in))
            return i;
    if (k->n_ins == w->cap) {
        fails(w, "it has too many instructions");
        return -1;
    }
    k->ins[k->n_ins] = *in;
    return k->n_ins++;
}

static int32_t number(winograd *w, double f)
{
    return put(
        w, &(nnc_kins){.op = KO_const, .dtype = DT_f32, .arg = {-1, -1, -1}, .f = f, .lo = 1});
}

static int32_t scalar(winograd *w, nnc_sop op, int32_t x, int32_t y, int32_t z)
{
    return put(w,
        &(nnc_kins){.op = KO_sop, .dtype = DT_f32, .sop = (uint8_t)op, .arg = {x, y, z}, .lo = 1});
}

static int32_t load(winograd *w, int buf, const nnc_affine *at)
{
    return put(w, &(nnc_kins){.op = KO_load,
                      .dtype = DT_f32,
                      .buf = (int16_t)buf,
                      .arg = {-1, -1, -1},
                      .at = *at,
                      .lo = 1});
}

static void store(winograd *w, int buf, const nnc_affine *at, int32_t x)
{
    (void)put(w, &(nnc_kins){.op = KO_store,
                     .dtype = DT_f32,
                     .buf = (int16_t)buf,
                     .arg = {x, -1, -1},
                     .at = *at,
                     .lo = 1});
}

/* sum of c[i] x[i step] over n terms. */
static int32_t combine(winograd *w, const double *c, const int32_t *x, int n, int step)
{
    int32_t sum = -1;
    for (int one = 1; one >= 0; one--) /* terms without a product first */
        for (int i = 0; i < n; i++) {
            if (c[i] == 0 || (c[i] == 1 || c[i] == -1) != one)
                continue;
            if (sum < 0)
                sum = c[i] == 1 ? x[i * step] : scalar(w, SC_mul, x[i * step], number(w, c[i]), -1);
            else if (one)
                sum = scalar(w, c[i] == 1 ? SC_add : SC_sub, sum, x[i * step], -1);
            else
                sum = scalar(w, SC_fma, x[i * step], number(w, c[i]), sum);
        }
    return sum;
}

/* y = m x m^T: x is side x side, m has `rows` rows. */
static void transform(
    winograd *w, const double (*m)[NNC_WINOGRAD_SIDE], int rows, const int32_t *x, int32_t *y)
{
    int32_t t[POINTS] = {0};
    const int side = w->w.side;
    for (int j = 0; j < side; j++)
        for (int i = 0; i < rows; i++)
            t[i * side + j] = combine(w, m[i], x + j, side, side);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < rows; j++)
            y[i * rows + j] = combine(w, m[j], t + i * side, side, 1);
}

/* ---- elements -------------------------------------------------------------------------------------------------------- */

/* Finds the dimension along which each axis runs, by the steps of a tensor of type t that the element stores. */
static bool find_dims(winograd *w, element *e, const nnc_type *t)
{
    int64_t stride[NNC_MAX_RANK];
    nnc_type_strides(t, stride);
    e->store = -1;
    for (int i = 0; i < e->k->n_ins; i++)
        if (e->k->ins[i].op == KO_store) {
            if (e->store >= 0 || e->k->ins[i].n_guard || e->k->ins[i].at.c)
                return fails(w, "its results are stored in parts");
            e->store = i;
        }
    for (int a = 0; a < e->k->n_axis && e->store >= 0; a++) {
        e->dim[a] = -1;
        for (int d = 0; d < DIMS; d++)
            if (t->dim[d] == e->k->axis[a].extent && e->k->ins[e->store].at.k[a] == stride[d])
                e->dim[a] = d;
        if (e->k->axis[a].kind != KA_outer || (e->dim[a] < 0 && e->k->axis[a].extent > 1))
            return fails(w, "ops after it regroup elements");
    }
    return (e->store >= 0 && e->k->n_stage == 1) ||
           fails(w, "ops after it are more than elementwise");
}

/* An element that is copied from a tensor of type t. */
static bool plain(winograd *w, element *e, const nnc_type *t)
{
    nnc_kernel *k = ARENA_NEW(w->scratch, nnc_kernel, 1);
    int64_t stride[NNC_MAX_RANK];
    if (!k || !(k->ins = ARENA_NEW(w->scratch, nnc_kins, 2)) ||
        !(k->stage = ARENA_NEW(w->scratch, nnc_kstage, 1)))
        return fails(w, NULL);
    nnc_type_strides(t, stride);
    k->n_axis = k->n_outer = DIMS;
    k->n_stage = 1;
    k->n_ins = 2;
    for (int i = 0; i < 2; i++)
        k->ins[i] = (nnc_kins){.op = i ? KO_store : KO_load,
            .dtype = DT_f32,
            .buf = (int16_t)i,
            .arg = {i ? 0 : -1, -1, -1},
            .lo = 1};
    for (int d = 0; d < DIMS; d++) {
        k->axis[d] = (nnc_kaxis){KA_outer, t->dim[d], NULL, false};
        k->ins[0].at.k[d] = k->ins[1].at.k[d] = stride[d];
        e->dim[d] = d;
    }
    e->k = k;
    e->store = 1;
    return true;
}

static int buffer_of(winograd *w, nnc_ref v)
{
    for (int i = 0; i < w->k->n_buf; i++)
        if (w->value[i] == v)
            return i;
    if (w->k->n_buf == NNC_KERNEL_ARGUMENTS - 1)
        return -1;
    const nnc_type *t = nnc_typeof(w->s->outer ? w->s->outer : w->s->g, v);
    w->value[w->k->n_buf] = v;
    w->k->buf[w->k->n_buf] =
        (nnc_kbuf){.role = KB_in, .dtype = (nnc_dtype)t->dtype, .numel = nnc_type_span(t)};
    return w->k->n_buf++;
}

/* Operand v of the convolution as a value outside the kernel; NNC_NONE: it is computed there. */
static nnc_ref outside(const winograd *w, nnc_ref v)
{
    const nx_set *s = w->s;
    for (int i = 0; s->owner && i < s->owner->n_in; i++)
        if (s->input[i] == v)
            return s->owner->in[i];
    for (int i = 0; !s->owner && i < s->n; i++)
        if (s->node[i] == s->g->value[v].node)
            return NNC_NONE;
    return s->owner ? NNC_NONE : v;
}

/* Does the element read the convolution's result where it stores its own? */
static bool reads_in_place(winograd *w, const element *e)
{
    int64_t stride[NNC_MAX_RANK];
    nnc_type_strides(nnc_typeof(w->s->g, w->n->out), stride);
    for (int i = 0; i < e->k->n_ins; i++) {
        const nnc_kins *in = &e->k->ins[i];
        bool same = in->at.c == 0 && in->n_guard == 0 && in->arg[0] < 0;
        if (in->op != KO_load || in->buf != e->given)
            continue;
        for (int a = 0; a < e->k->n_axis; a++)
            same = same && (e->dim[a] < 0 || in->at.k[a] == stride[e->dim[a]]);
        if (!same)
            return fails(w, "ops after it move elements");
    }
    return true;
}

/* Traces the ops after the convolution. */
static bool trace_epilogue(winograd *w, element *e)
{
    const nx_set *s = w->s;
    nx_set set = *s;
    nx t = {0};
    uint32_t *node = ARENA_NEW(w->scratch, uint32_t, s->n + 1);
    set.operand = ARENA_NEW(w->scratch, nnc_ref, s->n_operand + 1);
    const nnc_ref out = s->owner ? s->owner->out : s->out[0];
    if (!node || !set.operand)
        return fails(w, NULL);
    if (s->operand)
        memcpy(set.operand, s->operand, sizeof *set.operand * (size_t)s->n_operand);
    set.node = node;
    set.n = 0;
    set.spare = -1;
    for (int i = 0; i < s->n; i++) {
        if (&s->g->node[s->node[i]] != w->n)
            node[set.n++] = s->node[i];
        if (nnc_op_class((nnc_op)s->g->node[s->node[i]].op) == CL_contract &&
            &s->g->node[s->node[i]] != w->n)
            return fails(w, "one kernel would have two contractions");
    }
    if (nx_trace(&t, &set, w->scratch, w->why))
        e->k = nx_kernel(&t, set.outer ? set.outer : set.g, &out, w->scratch, w->scratch, w->why);
    nnc_free(t.ins);
    if (!e->k)
        return false;
    for (int b = 0; b < t.n_buf_value; b++) {
        const nnc_ref v = t.buf_value[b];
        const bool given = s->owner ? v == (w->n->out | NX_INNER) : v == w->n->out;
        if (!given && v & NX_INNER)
            return fails(w, "its operands are computed in its kernel");
        e->given = given ? b : e->given;
        e->to_buf[b] = given ? -1 : buffer_of(w, v);
        if (!given && e->to_buf[b] < 0)
            return fails(w, "one kernel would have more than 64 operands and results");
    }
    if (e->k->n_buf != t.n_buf_value + 1)
        return fails(w, "ops after it are more than elementwise");
    return find_dims(w, e, nnc_typeof(set.outer ? set.outer : set.g, out)) && reads_in_place(w, e);
}

/* The form of an element's kernel at a position; *dims: the dimensions that it depends on. */
static nnc_affine moved(const element *e, const nnc_affine *f, const position *at, uint32_t *dims)
{
    nnc_affine r = {.c = f->c};
    for (int a = 0; a < e->k->n_axis; a++)
        if (f->k[a] && e->dim[a] >= 0) {
            nnc_affine_add(&r, &at->dim[e->dim[a]], f->k[a]);
            *dims |= 1u << e->dim[a];
        }
    return r;
}

/* Adds the guards of instruction `from` at the position, and those of rows and columns that may be outside an image of `size`. */
static bool guard(winograd *w, const element *e, const nnc_kins *from, const position *at,
    const int64_t *size, nnc_kins *in)
{
    nnc_kguard g[NNC_KGUARDS];
    uint32_t dims = 0, none = 0;
    int n = 0;
    in->at = moved(e, &from->at, at, &dims);
    for (; n < from->n_guard; n++) {
        g[n] = from->guard[n];
        g[n].e = moved(e, &from->guard[n].e, at, &none);
    }
    for (int d = 2; d < DIMS; d++) {
        const nnc_span s = nnc_affine_span(w->k, &at->dim[d]);
        if (!(dims >> d & 1 || in->op == KO_store) || (s.lo >= 0 && s.hi < size[d - 2]))
            continue;
        if (n == NNC_KGUARDS)
            return fails(w, "its loads have too many conditions");
        g[n++] = (nnc_kguard){at->dim[d], 0, size[d - 2]};
    }
    in->n_guard = (uint8_t)n;
    in->guard = n ? nnc_arena_memdup(w->a, g, sizeof *g * (size_t)n) : NULL;
    if (n && !in->guard)
        return fails(w, NULL);
    if (n && in->op == KO_load && in->arg[1] < 0)
        in->arg[1] =
            put(w, &(nnc_kins){.op = KO_const, .dtype = in->dtype, .arg = {-1, -1, -1}, .lo = 1});
    return true;
}

/* Copies an element's instructions for a position in an image of `size`; x: the convolution's result there. Returns what is stored; with
 * `out`, stores it. -1: it fails. */
static int32_t copy(
    winograd *w, const element *e, const position *at, const int64_t *size, int32_t x, bool out)
{
    int32_t *to = ARENA_NEW(w->scratch, int32_t, e->k->n_ins + 1);
    for (int i = 0; to && i < e->k->n_ins; i++) {
        const nnc_kins *from = &e->k->ins[i];
        nnc_kins in = *from;
        for (int j = 0; j < 3; j++)
            in.arg[j] = in.arg[j] < 0 ? -1 : to[in.arg[j]];
        if (in.op == KO_store && !out)
            return in.arg[0];
        if (in.op == KO_load && in.buf == e->given) {
            to[i] = x;
            continue;
        }
        if (in.op == KO_index) {
            fails(w, "ops after it depend on an index");
            return -1;
        }
        if (in.op == KO_load || in.op == KO_store) {
            in.buf = (int16_t)(in.op == KO_store ? w->y : e->to_buf[in.buf]);
            if (!guard(w, e, from, at, size, &in))
                return -1;
        }
        if ((to[i] = put(w, &in)) < 0)
            return -1;
    }
    return to ? 0 : -1;
}

/* ---- stages ---------------------------------------------------------------------------------------------------------- */

static int add_axis(nnc_kernel *k, nnc_kaxis_kind kind, int64_t extent)
{
    k->axis[k->n_axis] = (nnc_kaxis){kind, extent, NULL, false};
    return k->n_axis++;
}

static void begin_stage(winograd *w)
{
    nnc_kernel *k = w->k;
    w->stage = k->n_ins;
    k->stage[k->n_stage] = (nnc_kstage){.body0 = k->n_ins, .axes = ~((1u << k->n_axis) - 1)};
}

/* Ends the body, or with `post` the stage, whose axes are those added since it began. */
static void end_stage(winograd *w, bool post)
{
    nnc_kstage *s = &w->k->stage[w->k->n_stage];
    if (!post)
        s->body1 = s->post0 = w->k->n_ins;
    else
        s->axes &= (1u << w->k->n_axis) - 1;
    s->post1 = w->k->n_ins;
    w->k->n_stage += post;
}

/* The axes of a block's tiles and of their channels: *at is the first element of a tile, *tile its number in the block. */
static void add_tiles(winograd *w, int64_t channels, position *at, nnc_affine *tile)
{
    nnc_kernel *k = w->k;
    const int image = w->images > 1 ? add_axis(k, KA_map, w->images) : -1,
              row = w->rows > 1 ? add_axis(k, KA_map, w->rows) : -1,
              column = add_axis(k, KA_map, w->columns), channel = add_axis(k, KA_map, channels);
    *at = (position){0};
    *tile = (nnc_affine){0};
    at->dim[0].k[0] = w->images;
    at->dim[2].k[1] = w->rows * w->w.tile;
    if (image >= 0)
        at->dim[0].k[image] = 1;
    if (row >= 0)
        at->dim[2].k[row] = w->w.tile;
    at->dim[3].k[column] = w->w.tile;
    at->dim[1].k[channel] = 1;
    if (image >= 0)
        tile->k[image] = w->rows * w->columns;
    if (row >= 0)
        tile->k[row] = w->columns;
    tile->k[column] = 1;
}

/* Place of point p of tile `tile` in v or m, with `channel` running along the tile's channels, of which there are n. */
static nnc_affine point_at(int64_t plane, int p, const nnc_affine *tile, int channel, int64_t n)
{
    nnc_affine e = {.c = p * plane};
    nnc_affine_add(&e, tile, n);
    e.k[channel] += 1;
    return e;
}

static bool add_source(winograd *w, const element *x)
{
    const nnc_type *t = nnc_typeof(w->s->g, w->n->in[0]);
    const int side = w->w.side;
    int32_t d[POINTS] = {0}, v[POINTS];
    position first, at;
    nnc_affine tile;
    begin_stage(w);
    add_tiles(w, t->dim[1], &first, &tile);
    for (int i = 0; i < side * side; i++) {
        at = first;
        at.dim[2].c = i / side - w->pad[0];
        at.dim[3].c = i % side - w->pad[1];
        if ((d[i] = copy(w, x, &at, t->dim + 2, -1, false)) < 0)
            return false;
    }
    transform(w, w->w.source, side, d, v);
    for (int p = 0; p < side * side; p++) {
        const nnc_affine to = point_at(w->plane[0], p, &tile, w->k->n_axis - 1, t->dim[1]);
        store(w, w->v, &to, v[p]);
    }
    end_stage(w, false);
    end_stage(w, true);
    return true;
}

static void add_product(winograd *w)
{
    nnc_kernel *k = w->k;
    const nnc_type *u = nnc_typeof(w->s->g, w->n->in[1]);
    nnc_affine x = {0}, y = {0}, m = {0};
    begin_stage(w);
    const int p = add_axis(k, KA_map, u->dim[0]),
              t = add_axis(k, KA_map, w->images * w->rows * w->columns),
              panel = u->dim[1] > 1 ? add_axis(k, KA_map, u->dim[1]) : -1,
              o = add_axis(k, KA_map, u->dim[3]), c = add_axis(k, KA_reduce, u->dim[2]);
    x.k[p] = w->plane[0];
    x.k[t] = u->dim[2];
    x.k[c] = y.k[o] = m.k[o] = 1;
    y.k[p] = u->dim[1] * u->dim[2] * u->dim[3];
    y.k[c] = u->dim[3];
    m.k[p] = w->plane[1];
    m.k[t] = u->dim[1] * u->dim[3];
    if (panel >= 0) {
        y.k[panel] = u->dim[2] * u->dim[3];
        m.k[panel] = u->dim[3];
    }
    const int32_t zero = number(w, 0),
                  product = scalar(w, SC_fma, load(w, w->v, &x), load(w, w->u, &y), zero);
    const int32_t sum = put(
        w, &(nnc_kins){
               .op = KO_reduce, .dtype = DT_f32, .sop = KR_sum, .arg = {product, -1, -1}, .lo = 1});
    end_stage(w, false);
    store(w, w->m, &m, sum);
    end_stage(w, true);
}

static bool add_results(winograd *w, const element *e)
{
    const nnc_type *t = nnc_typeof(w->s->g, w->n->out);
    const int side = w->w.side, tile = w->w.tile;
    int32_t m[POINTS] = {0}, y[NNC_WINOGRAD_TILE * NNC_WINOGRAD_TILE] = {0};
    position first, at;
    nnc_affine number_of;
    begin_stage(w);
    add_tiles(w, t->dim[1], &first, &number_of);
    for (int p = 0; p < side * side; p++) {
        const nnc_affine from = point_at(w->plane[1], p, &number_of, w->k->n_axis - 1, t->dim[1]);
        m[p] = load(w, w->m, &from);
    }
    transform(w, w->w.result, tile, m, y);
    for (int i = 0; i < tile * tile; i++) {
        at = first;
        at.dim[2].c = i / tile;
        at.dim[3].c = i % tile;
        if (copy(w, e, &at, t->dim + 2, y[i], true) < 0)
            return false;
    }
    end_stage(w, false);
    end_stage(w, true);
    return true;
}

/* ---- the kernel ------------------------------------------------------------------------------------------------------ */

static void add_tmp(winograd *w, int *buf, int64_t channels, int64_t *plane)
{
    nnc_kernel *k = w->k;
    const int64_t row = w->images * w->rows * w->columns * channels;
    *plane = nnc_align_up(row, LINE) + LINE;
    *buf = k->n_buf;
    k->buf[k->n_buf++] =
        (nnc_kbuf){.role = KB_tmp, .dtype = DT_f32, .numel = w->w.side * w->w.side * *plane};
}

/* Sizes of the tiles and blocks. */
static void lay_out(winograd *w)
{
    const nnc_type *y = nnc_typeof(w->s->g, w->n->out), *u = nnc_typeof(w->s->g, w->n->in[1]);
    const int64_t *pads, *block;
    (void)nnc_winograd_of(u->dim[0], &w->w);
    if (nnc_attr_ints(w->n, AT_pads, &pads))
        memcpy(w->pad, pads, sizeof w->pad);
    w->columns = nnc_ceildiv(y->dim[3], w->w.tile);
    w->all_rows = nnc_ceildiv(y->dim[2], w->w.tile);
    w->images = w->rows = 1;
    if (nnc_attr_ints(w->n, AT_block, &block) == 2) {
        w->images = y->dim[0] % nnc_max64(block[0], 1) ? 1 : nnc_max64(block[0], 1);
        w->rows = nnc_min64(nnc_max64(block[1], 1), w->all_rows);
    }
}

static bool open_kernel(winograd *w, const element *e)
{
    enum { TRANSFORMS = 2048 };
    nnc_kernel *k = w->k;
    const nnc_type *y = nnc_typeof(w->s->g, w->n->out);
    const nnc_graph *g = w->s->outer ? w->s->outer : w->s->g;
    const nnc_ref out = w->s->owner ? w->s->owner->out : w->s->out[0];
    const nnc_type *t = nnc_typeof(g, out);
    w->y = k->n_buf;
    k->buf[k->n_buf++] =
        (nnc_kbuf){.role = KB_out, .dtype = (nnc_dtype)t->dtype, .numel = nnc_type_span(t)};
    add_tmp(w, &w->v, nnc_typeof(w->s->g, w->n->in[0])->dim[1], &w->plane[0]);
    add_tmp(w, &w->m, y->dim[1], &w->plane[1]);
    w->cap = TRANSFORMS + POINTS * 4 + w->w.tile * w->w.tile * (2 * e->k->n_ins + 2);
    k->ins = ARENA_NEW(w->a, nnc_kins, w->cap);
    k->stage = ARENA_NEW(w->a, nnc_kstage, 3);
    (void)add_axis(k, KA_outer, y->dim[0] / w->images);
    (void)add_axis(k, KA_outer, nnc_ceildiv(w->all_rows, w->rows));
    k->n_outer = k->n_axis;
    return (k->ins && k->stage) || fails(w, NULL);
}

nnc_kernel *nx_winograd(const nx_set *s, nnc_arena *scratch, nnc_arena *a, const char **why)
{
    winograd w = {.s = s, .n = nx_winograd_of(s), .why = why, .scratch = scratch, .a = a};
    element x = {.given = -1}, e = {.given = 0};
    const nnc_graph *g = s->outer ? s->outer : s->g;
    assert(w.n);
    const nnc_ref from = outside(&w, w.n->in[0]), weights = outside(&w, w.n->in[1]);
    *why = NULL;
    w.k = ARENA_NEW(a, nnc_kernel, 1);
    if (!w.k || !(w.k->buf = ARENA_NEW(a, nnc_kbuf, NNC_KERNEL_ARGUMENTS + 3)))
        return NULL;
    if (from == NNC_NONE || weights == NNC_NONE || s->n_out != 1) {
        (void)fails(&w, "its operands are computed in its kernel");
        return NULL;
    }
    for (int i = 0; i < s->n_operand; i++)
        (void)buffer_of(&w, s->operand[i]);
    x.to_buf[0] = buffer_of(&w, from);
    w.u = buffer_of(&w, weights);
    if (x.to_buf[0] < 0 || w.u < 0) {
        (void)fails(&w, "one kernel would have more than 64 operands and results");
        return NULL;
    }
    lay_out(&w);
    if (!plain(&w, &x, nnc_typeof(g, from)) ||
        !(s->n == 1 ? plain(&w, &e, nnc_typeof(g, s->owner ? s->owner->out : s->out[0]))
                    : trace_epilogue(&w, &e)))
        return NULL;
    if (!open_kernel(&w, &e) || !add_source(&w, &x))
        return NULL;
    add_product(&w);
    if (!add_results(&w, &e) || *why)
        return NULL;
    w.k->scratch_bytes = nnc_kernel_scratch(w.k);
    return w.k;
}

/* kernel/winograd.c -- the kernels of Winograd's convolution (ir/winograd.c) with its epilogue, and of the gradient of its weights. Outer
 * axes run over blocks of tiles, whose points are tmp buffers; parts.c takes the stages apart.
 *
 *     for blocks of tiles
 *       for tiles t of the block, channels c:           v[p, t, c] = points of the source's window
 *       for points p, tiles t, outputs o:               m[p, t, o] = sum c: v[p, t, c] u[p, c, o]
 *       for tiles t of the block, outputs o:            y[.., o] = epilogue(the tile's results from m[.., t, o])
 *
 * The epilogue is traced as a kernel of its own, and its instructions are copied for each result of a tile. A tile has all windows of a
 * max pooling of 2x2 results, whose largest are stored instead.
 *
 *     for blocks of tiles
 *       for tiles t of the block, channels c:           v[p, t, c] = points of the source's window
 *       for tiles t of the block, outputs o:            m[p, t, o] = points of dy's tile, by the transposed transform of results
 *       for points p, outputs o, channels c:            g[p, o, c] = sum t: m[p, t, o] v[p, t, c]
 *       for outputs o, channels c:                      the block's gradient, by the transposed transform of weights, from g[.., o, c] */
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

/* A tmp buffer: plane p holds point p, with one row for each tile (in g: each output). */
typedef struct points {
    int buf;
    int64_t plane, row; /* elements from one to the next */
} points;

typedef struct winograd {
    const nx_set *s;
    const nnc_node *n; /* the convolution */
    const nnc_node *pool; /* a pooling of 2x2 results after its epilogue, or NULL */
    nnc_winograd w;
    nnc_kernel *k;
    int cap;
    int64_t images, rows; /* of a block: images, rows of tiles */
    int64_t columns, all_rows; /* of tiles in an image */
    int64_t pad[2];
    int u, y; /* buffers */
    points v, m, g;
    int stage; /* first instruction of the current one */
    nnc_ref value[NNC_KERNEL_ARGUMENTS]; /* by buffer */
    const char **why;
    nnc_arena *scratch, *a;
} winograd;

/* Where the kernel's results are those of a max pooling of 2x2 results, the pooling; or NULL. */
static const nnc_node *pool_of(const nx_set *s)
{
    const nnc_node *last = &s->g->node[s->node[s->n - 1]];
    return last->op == OP_maxpool && nnc_halves(s->g, last) ? last : NULL;
}

static bool fails(const winograd *w, const char *why)
{
    *w->why = why;
    return false;
}

const nnc_node *nx_winograd_of(const nx_set *s)
{
    for (int i = 0; i < s->n; i++)
        if (nnc_op_is_winograd((nnc_op)s->g->node[s->node[i]].op))
            return &s->g->node[s->node[i]];
    return NULL;
}

/* ---- instructions ---------------------------------------------------------------------------------------------------- */

/* Appends an instruction, or finds an equal one of the stage. -1: there is no room for it. */
static int32_t put(winograd *w, const nnc_kins *in)
{
    nnc_kernel *k = w->k;
    for (int32_t i = w->stage; i < k->n_ins && in->op != KO_store; i++)
        if (k->ins[i].arg[0] == in->arg[0] && nnc_kins_equal(&k->ins[i], in))
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

/* y = m x m^T: x is n x n, m has `rows` rows. */
static void transform(winograd *w, const double (*m)[NNC_WINOGRAD_SIDE], int rows, int n,
    const int32_t *x, int32_t *y)
{
    int32_t t[POINTS] = {0};
    for (int j = 0; j < n; j++)
        for (int i = 0; i < rows; i++)
            t[i * n + j] = combine(w, m[i], x + j, n, n);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < rows; j++)
            y[i * rows + j] = combine(w, m[j], t + i * n, n, 1);
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
    nnc_ref out = s->owner ? s->owner->out : s->out[0];
    const nnc_type *result = nnc_typeof(set.outer ? set.outer : set.g, out);
    if (!node || !set.operand)
        return fails(w, NULL);
    if (w->pool) {
        set.out = &w->pool->in[0];
        set.inner = true;
        out = *set.out | (s->owner ? NX_INNER : 0);
        result = nnc_typeof(s->g, *set.out);
    }
    if (s->operand)
        memcpy(set.operand, s->operand, sizeof *set.operand * (size_t)s->n_operand);
    set.node = node;
    set.n = 0;
    set.spare = -1;
    for (int i = 0; i < s->n; i++) {
        const nnc_node *n = &s->g->node[s->node[i]];
        if (n == w->n)
            continue;
        if (!w->pool || n != w->pool)
            node[set.n++] = s->node[i];
        if (nnc_op_class((nnc_op)n->op) == CL_contract)
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
    return find_dims(w, e, result) && reads_in_place(w, e);
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

/* Place of point p of tile `tile`, with `channel` running along the tile's channels. */
static nnc_affine point_at(const points *of, int p, const nnc_affine *tile, int channel)
{
    nnc_affine e = {.c = p * of->plane};
    nnc_affine_add(&e, tile, of->row);
    e.k[channel] += 1;
    return e;
}

/* The points of tiles of x, of type t: m d m^T of its n x n elements d that begin `pad` before the tile. */
static bool add_points(winograd *w, const element *x, const nnc_type *t,
    const double (*m)[NNC_WINOGRAD_SIDE], int n, const int64_t *pad, const points *to)
{
    const int side = w->w.side;
    int32_t d[POINTS] = {0}, v[POINTS] = {0};
    position first, at;
    nnc_affine tile;
    begin_stage(w);
    add_tiles(w, t->dim[1], &first, &tile);
    for (int i = 0; i < n * n; i++) {
        at = first;
        at.dim[2].c = i / n - pad[0];
        at.dim[3].c = i % n - pad[1];
        if ((d[i] = copy(w, x, &at, t->dim + 2, -1, false)) < 0)
            return false;
    }
    transform(w, m, side, n, d, v);
    for (int p = 0; p < side * side; p++) {
        const nnc_affine at_point = point_at(to, p, &tile, w->k->n_axis - 1);
        store(w, to->buf, &at_point, v[p]);
    }
    end_stage(w, false);
    end_stage(w, true);
    return true;
}

/* Ends the stage: sum of x y over its reduce axis, stored at `at`. */
static void end_product(winograd *w, int xbuf, const nnc_affine *x, int ybuf, const nnc_affine *y,
    const points *to, const nnc_affine *at)
{
    const int32_t zero = number(w, 0),
                  product = scalar(w, SC_fma, load(w, xbuf, x), load(w, ybuf, y), zero);
    const int32_t sum = put(
        w, &(nnc_kins){
               .op = KO_reduce, .dtype = DT_f32, .sop = KR_sum, .arg = {product, -1, -1}, .lo = 1});
    end_stage(w, false);
    store(w, to->buf, at, sum);
    end_stage(w, true);
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
    x.k[p] = w->v.plane;
    x.k[t] = w->v.row;
    x.k[c] = y.k[o] = m.k[o] = 1;
    y.k[p] = u->dim[1] * u->dim[2] * u->dim[3];
    y.k[c] = u->dim[3];
    m.k[p] = w->m.plane;
    m.k[t] = w->m.row;
    if (panel >= 0) {
        y.k[panel] = u->dim[2] * u->dim[3];
        m.k[panel] = u->dim[3];
    }
    end_product(w, w->v.buf, &x, w->u, &y, &w->m, &m);
}

/* Stores the largest of each 2x2 results y of the tile at `first`. */
static bool add_pooled(
    winograd *w, const element *e, const int32_t *y, const position *first, const nnc_type *t)
{
    const nx_set *s =
        w->s; /* a fused result may lie in a concat: its steps count, not those of the body's */
    const nnc_type *pooled = s->owner ? nnc_typeof(s->outer ? s->outer : s->g, s->owner->out)
                                      : nnc_typeof(s->g, w->pool->out);
    const int tile = w->w.tile, half = tile / 2;
    element store = {.given = 0};
    if (!plain(w, &store, pooled))
        return false;
    for (int i = 0; i < half * half; i++) {
        position at = *first;
        int32_t most = -1;
        for (int j = 0; j < 4; j++) {
            at.dim[2].c = i / half * 2 + j / 2;
            at.dim[3].c = i % half * 2 + j % 2;
            const int32_t x =
                copy(w, e, &at, t->dim + 2, y[at.dim[2].c * tile + at.dim[3].c], false);
            if (x < 0)
                return false;
            most = j ? scalar(w, SC_max, most, x, -1) : x;
        }
        for (int d = 2; d < DIMS; d++) { /* tiles begin at even rows and columns */
            at.dim[d].c /= 2;
            for (int a = 0; a < w->k->n_axis; a++)
                at.dim[d].k[a] /= 2;
        }
        if (copy(w, &store, &at, pooled->dim + 2, most, true) < 0)
            return false;
    }
    return true;
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
        const nnc_affine from = point_at(&w->m, p, &number_of, w->k->n_axis - 1);
        m[p] = load(w, w->m.buf, &from);
    }
    transform(w, w->w.result, tile, side, m, y);
    if (w->pool && !add_pooled(w, e, y, &first, t))
        return false;
    for (int i = 0; i < tile * tile && !w->pool; i++) {
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

/* ---- the gradient of weights ----------------------------------------------------------------------------------------- */

static void add_gradient_product(winograd *w, int64_t channels, int64_t outputs)
{
    nnc_kernel *k = w->k;
    nnc_affine x = {0}, y = {0}, g = {0};
    begin_stage(w);
    const int p = add_axis(k, KA_map, w->w.side * w->w.side), o = add_axis(k, KA_map, outputs),
              c = add_axis(k, KA_map, channels),
              t = add_axis(k, KA_reduce, w->images * w->rows * w->columns);
    x.k[p] = w->m.plane;
    x.k[t] = w->m.row;
    y.k[p] = w->v.plane;
    y.k[t] = w->v.row;
    g.k[p] = w->g.plane;
    g.k[o] = w->g.row;
    x.k[o] = y.k[c] = g.k[c] = 1;
    end_product(w, w->m.buf, &x, w->v.buf, &y, &w->g, &g);
}

static void add_gradient(winograd *w, int64_t channels, int64_t outputs)
{
    nnc_kernel *k = w->k;
    double turned[NNC_WINOGRAD_TAPS][NNC_WINOGRAD_SIDE] = {{0}};
    int32_t m[POINTS] = {0}, y[NNC_WINOGRAD_TAPS * NNC_WINOGRAD_TAPS] = {0};
    const int64_t matrix = channels * outputs, all = NNC_COUNT(y) * matrix;
    nnc_affine row = {0};
    begin_stage(w);
    const int o = add_axis(k, KA_map, outputs), c = add_axis(k, KA_map, channels);
    row.k[o] = 1;
    for (int p = 0; p < w->w.side * w->w.side; p++) {
        const nnc_affine from = point_at(&w->g, p, &row, c);
        m[p] = load(w, w->g.buf, &from);
    }
    for (int i = 0; i < NNC_WINOGRAD_TAPS; i++)
        for (int p = 0; p < w->w.side; p++)
            turned[i][p] = w->w.weight[p][i];
    transform(w, turned, NNC_WINOGRAD_TAPS, w->w.side, m, y);
    for (int i = 0; i < (int)NNC_COUNT(y); i++) {
        nnc_affine to = {.c = i * matrix};
        to.k[0] = all * k->axis[1].extent;
        to.k[1] = all;
        to.k[o] = channels;
        to.k[c] = 1;
        store(w, w->y, &to, y[i]);
    }
    end_stage(w, false);
    end_stage(w, true);
}

/* ---- the kernel ------------------------------------------------------------------------------------------------------ */

static void add_tmp(winograd *w, points *p, int64_t rows, int64_t row)
{
    nnc_kernel *k = w->k;
    *p = (points){k->n_buf, nnc_align_up(rows * row, LINE) + LINE, row};
    k->buf[k->n_buf++] =
        (nnc_kbuf){.role = KB_tmp, .dtype = DT_f32, .numel = w->w.side * w->w.side * p->plane};
}

/* Elements from tile to tile where these are summed. */
static int64_t apart(int64_t channels)
{
    /* elements: rows at multiples of 512 bytes meet in 8 of L1's 64 sets */
    enum { FEW_SETS = 128 };
    return channels % FEW_SETS ? channels : channels + LINE;
}

/* Sizes of the tiles and blocks; y: the convolution's result, or its gradient. */
static void lay_out(winograd *w, const nnc_type *y)
{
    const int64_t *pads;
    (void)nnc_winograd_of(nnc_winograd_points(w->s->g, w->n), &w->w);
    if (nnc_attr_ints(w->n, AT_pads, &pads))
        memcpy(w->pad, pads, sizeof w->pad);
    w->columns = nnc_ceildiv(y->dim[3], w->w.tile);
    w->all_rows = nnc_ceildiv(y->dim[2], w->w.tile);
    nnc_winograd_block(w->n, y->dim[0], w->all_rows, &w->images, &w->rows);
}

static bool open_kernel(winograd *w, const nnc_type *x, const nnc_type *y, int epilogue)
{
    enum { TRANSFORMS = 1024 };
    nnc_kernel *k = w->k;
    const nnc_graph *g = w->s->outer ? w->s->outer : w->s->g;
    const nnc_ref out = w->s->owner ? w->s->owner->out : w->s->out[0];
    const nnc_type *t = nnc_typeof(g, out);
    const bool gradient = w->n->op == OP_winograd_wgrad;
    const int64_t tiles = w->images * w->rows * w->columns;
    w->y = k->n_buf;
    k->buf[k->n_buf++] =
        (nnc_kbuf){.role = KB_out, .dtype = (nnc_dtype)t->dtype, .numel = nnc_type_span(t)};
    add_tmp(w, &w->v, tiles, gradient ? apart(x->dim[1]) : x->dim[1]);
    add_tmp(w, &w->m, tiles, gradient ? apart(y->dim[1]) : y->dim[1]);
    if (gradient)
        add_tmp(w, &w->g, y->dim[1], x->dim[1]);
    w->cap = TRANSFORMS + POINTS * 4 + w->w.tile * w->w.tile * (2 * epilogue + 2);
    k->ins = ARENA_NEW(w->a, nnc_kins, w->cap);
    k->stage = ARENA_NEW(w->a, nnc_kstage, 4);
    (void)add_axis(k, KA_outer, y->dim[0] / w->images);
    (void)add_axis(k, KA_outer, nnc_ceildiv(w->all_rows, w->rows));
    k->n_outer = k->n_axis;
    return (k->ins && k->stage) || fails(w, NULL);
}

/* The convolution of `from` with its epilogue. */
static bool build_forward(winograd *w, element *x, nnc_ref from)
{
    element e = {.given = 0};
    const nx_set *s = w->s;
    const nnc_graph *g = s->outer ? s->outer : s->g;
    const nnc_type *in = nnc_typeof(s->g, w->n->in[0]), *y = nnc_typeof(s->g, w->n->out);
    if (!plain(w, x, nnc_typeof(g, from)) ||
        !(s->n == 1 + (w->pool != NULL)
                ? plain(w, &e, w->pool ? y : nnc_typeof(g, s->owner ? s->owner->out : s->out[0]))
                : trace_epilogue(w, &e)))
        return false;
    if (!open_kernel(w, in, y, e.k->n_ins) ||
        !add_points(w, x, in, w->w.source, w->w.side, w->pad, &w->v))
        return false;
    add_product(w);
    return add_results(w, &e);
}

/* The gradient of the weights, from `from` and dy, whose elements are `d`. */
static bool build_gradient(winograd *w, element *x, nnc_ref from, nnc_ref dy)
{
    static const int64_t none[2];
    element d = {.given = -1, .to_buf = {w->u}};
    const nnc_graph *g = w->s->outer ? w->s->outer : w->s->g;
    const nnc_type *in = nnc_typeof(g, from), *y = nnc_typeof(g, dy);
    double turned[NNC_WINOGRAD_SIDE][NNC_WINOGRAD_SIDE] = {{0}};
    for (int p = 0; p < w->w.side; p++)
        for (int i = 0; i < w->w.tile; i++)
            turned[p][i] = w->w.result[i][p];
    if (w->s->n > 1)
        return fails(w, "a gradient of weights has no epilogue");
    if (!plain(w, x, in) || !plain(w, &d, y) || !open_kernel(w, in, y, 0) ||
        !add_points(w, x, in, w->w.source, w->w.side, w->pad, &w->v) ||
        !add_points(w, &d, y, turned, w->w.tile, none, &w->m))
        return false;
    add_gradient_product(w, in->dim[1], y->dim[1]);
    add_gradient(w, in->dim[1], y->dim[1]);
    return true;
}

nnc_kernel *nx_winograd(const nx_set *s, nnc_arena *scratch, nnc_arena *a, const char **why)
{
    winograd w = {
        .s = s, .n = nx_winograd_of(s), .pool = pool_of(s), .why = why, .scratch = scratch, .a = a};
    element x = {.given = -1};
    assert(w.n);
    const bool gradient = w.n->op == OP_winograd_wgrad;
    const nnc_ref from = outside(&w, w.n->in[0]), other = outside(&w, w.n->in[1]);
    *why = NULL;
    w.k = ARENA_NEW(a, nnc_kernel, 1);
    if (!w.k || !(w.k->buf = ARENA_NEW(a, nnc_kbuf, NNC_KERNEL_ARGUMENTS + 4)))
        return NULL;
    if (from == NNC_NONE || other == NNC_NONE || s->n_out != 1) {
        (void)fails(&w, "its operands are computed in its kernel");
        return NULL;
    }
    for (int i = 0; i < s->n_operand; i++)
        (void)buffer_of(&w, s->operand[i]);
    x.to_buf[0] = buffer_of(&w, from);
    w.u = buffer_of(&w, other);
    if (x.to_buf[0] < 0 || w.u < 0) {
        (void)fails(&w, "one kernel would have more than 64 operands and results");
        return NULL;
    }
    lay_out(&w, nnc_typeof(s->g, gradient ? w.n->in[1] : w.n->out));
    if (!(gradient ? build_gradient(&w, &x, from, other) : build_forward(&w, &x, from)) || *why)
        return NULL;
    w.k->scratch_bytes = nnc_kernel_scratch(w.k);
    return w.k;
}

/* kernel/winograd.c -- the kernels of Winograd's convolution (ir/winograd.c) with its epilogue, and of the gradient of its weights. Outer
 * axes run over blocks of tiles, whose points are tmp buffers; parts.c takes the stages apart.
 *
 *     for blocks of tiles
 *       for tiles t of the block, channels c:           v[p, t, c] = points of the source's window
 *       for points p, tiles t, outputs o:               m[p, t, o] = sum c: v[p, t, c] u[p, c, o]
 *       for tiles t of the block, outputs o:            y[.., o] = epilogue(the tile's results from m[.., t, o]).
 *
 * The epilogue is traced as a kernel of its own, and its instructions are copied for each result of a row. A tile has all windows of a max
 * pooling of 2x2 results, whose largest are stored instead.
 *
 *     for blocks of tiles
 *       for tiles t of the block, channels c:           v[p, t, c] = points of the source's window
 *       for tiles t of the block, outputs o:            m[p, t, o] = points of dy's tile, by the transposed transform of results
 *       for points p, outputs o, channels c:            g[p, o, c] = sum t: m[p, t, o] v[p, t, c]
 *       for outputs o, channels c:                      the block's gradient, by the transposed transform of weights, from g[.., o, c].
 *
 * A transform m d m^T is two stages, which parts.c nests in the loop over tiles. It is a sixth of the code of one stage for all elements.
 *
 *       for columns j, channels c:                      l[.., j, c] = m d[.., j, c]
 *       for rows i, channels c:                         points[i, .., c] = m l[i, .., c] */
#include "kernel/trace.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    DIMS = 4, /* image, channel, row, column */
    LINE = 16, /* elements; keeps points of a tile off multiples of a page */
};

/* Elementwise ops on one element of a tensor. */
typedef struct element {
    nnc_kernel *k;
    int dim[NNC_KAXES]; /* by axis of k */
    int *to_buf; /* by buffer of k: the kernel's buffer; -1 for `given` */
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

/* Channels of a tensor along which a transform's stages run. */
typedef struct span_axes {
    int64_t n;
    int block, one; /* axes: of blocks, -1: none; within a block */
} span_axes;

/* A transform y = m x m^T of x, n x n, to y of `rows` x `rows`. */
typedef struct transform {
    const double (*m)[NNC_WINOGRAD_SIDE];
    int rows, n;
    int lines; /* rows of y that the second stage computes at once */
    span_axes c;
    int column, row; /* axes of the first and the second stage; -1: extent 1 */
    int buf; /* tmp buffer of the first stage's result */
    nnc_affine at; /* the tile's offset in buf, in its stages */
} transform;

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
    int tile
        [3]; /* axes of images, rows, columns of tiles, also with extent 1, so that sizes share code */
    int count[3], n_count; /* axes of rows or columns of elements, of different extents */
    int u, y; /* buffers */
    points v, m, g;
    int stage; /* first instruction of the current one */
    nnc_ref *value; /* by buffer */
    const char **why;
    nnc_arena *scratch, *a;
} winograd;

/* The max pooling of 2x2 results that gives the kernel's results, or NULL. */
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

static int32_t put_const(winograd *w, double f)
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

/* sum of c[i] x[i] over n terms, those without a product first; -1: there are none. */
static int32_t combine(winograd *w, const double *c, const int32_t *x, int n)
{
    int32_t sum = -1;
    for (int pass = 0; pass < 3; pass++)
        for (int i = 0; i < n; i++) {
            if (c[i] == 0 || pass != (c[i] == 1 ? 0 : c[i] == -1 ? 1 : 2))
                continue;
            if (sum < 0)
                sum = pass ? scalar(w, SC_mul, x[i], put_const(w, c[i]), -1) : x[i];
            else if (pass < 2)
                sum = scalar(w, pass ? SC_sub : SC_add, sum, x[i], -1);
            else
                sum = scalar(w, SC_fma, x[i], put_const(w, c[i]), sum);
        }
    return sum;
}

/* The coefficient of an odd power for which the other coefficients' ratios to it are exact. */
static double odd_unit(const double *c, int n)
{
    double unit = 1;
    for (int i = 1; i < n; i += 2) {
        bool exact = c[i] != 0;
        for (int j = 1; j < n && exact; j += 2)
            exact = (double)(float)(c[j] / c[i]) == c[j] / c[i];
        unit = exact ? c[i] : unit;
    }
    return unit;
}

/* Row c of y = m x. Points come in pairs of opposite signs. If x are points, a pair's coefficients differ only in sign, and rows share sums
 * and differences. If y are points, a pair's rows are e + o and e - o of even and odd powers, and share both. */
static int32_t row_of(winograd *w, const transform *t, const double *c, const int32_t *x)
{
    double part[2][NNC_WINOGRAD_SIDE] = {{0}};
    int32_t of[NNC_WINOGRAD_SIDE];
    const bool sums = t->n > t->rows;
    const double unit = sums ? 1 : odd_unit(c, t->n);
    for (int i = 0; i < t->n; i++) {
        const bool pair = sums && i % 2 && i + 1 < t->n && c[i] && fabs(c[i]) == fabs(c[i + 1]);
        of[i] = pair ? scalar(w, c[i] == c[i + 1] ? SC_add : SC_sub, x[i], x[i + 1], -1) : x[i];
        part[!sums && i % 2][i] = c[i] / (i % 2 ? unit : 1);
        if (pair) {
            i++;
            of[i] = x[i];
        }
    }
    const int32_t e = combine(w, part[0], of, t->n), o = combine(w, part[1], of, t->n);
    if (o < 0)
        return e;
    if (unit == 1 || (unit == -1 && e >= 0))
        return e < 0 ? o : scalar(w, unit == 1 ? SC_add : SC_sub, e, o, -1);
    return e < 0 ? scalar(w, SC_mul, o, put_const(w, unit), -1)
                 : scalar(w, SC_fma, o, put_const(w, unit), e);
}

static void apply(winograd *w, const transform *t, const int32_t *x, int32_t *y)
{
    for (int i = 0; i < t->rows; i++)
        y[i] = row_of(w, t, t->m[i], x);
}

/* ---- elements -------------------------------------------------------------------------------------------------------- */

/* Finds the dimension of each axis, by the steps of the tensor of type t that the element stores. */
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

/* Makes *e an element that is copied from a tensor of type t. */
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
    const nnc_type *t = nnc_typeof(w->s->outer ? w->s->outer : w->s->g, v);
    w->value[w->k->n_buf] = v;
    w->k->buf[w->k->n_buf] =
        (nnc_kbuf){.role = KB_in, .dtype = (nnc_dtype)t->dtype, .numel = nnc_type_span(t)};
    return w->k->n_buf++;
}

/* Operand v of the convolution as a value outside the kernel; NNC_NONE: the kernel computes it. */
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

/* Does the element read the convolution's result at the place where it stores its own? */
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
    e->to_buf = ARENA_NEW(w->scratch, int, t.n_buf_value + 1);
    if (!e->to_buf)
        return fails(w, NULL);
    for (int b = 0; b < t.n_buf_value; b++) {
        const nnc_ref v = t.buf_value[b];
        const bool given = s->owner ? v == (w->n->out | NX_INNER) : v == w->n->out;
        if (!given && v & NX_INNER)
            return fails(w, "its operands are computed in its kernel");
        e->given = given ? b : e->given;
        e->to_buf[b] = given ? -1 : buffer_of(w, v);
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

/* Adds the guards of instruction `from` at the position, and guards on rows and columns that may be outside an image of `size`. Source
 * loads always have all of these, and results those on rows, so that code does not depend on where blocks end. */
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
        const bool inside = s.lo >= 0 && s.hi < size[d - 2], stores = in->op == KO_store;
        if (!(dims >> d & 1 || stores) || (inside && e->given >= 0 && !(stores && d == 2)))
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
    assert(k->n_axis < NNC_KAXES);
    k->axis[k->n_axis] = (nnc_kaxis){kind, extent, NULL, false};
    return k->n_axis++;
}

/* Adds axis a, if it is not -1, to the current stage. */
static void use(winograd *w, int a)
{
    w->k->stage[w->k->n_stage].axes |= a < 0 ? 0 : 1u << a;
}

/* Adds an axis of the current stage. */
static int own_axis(winograd *w, nnc_kaxis_kind kind, int64_t extent)
{
    const int a = add_axis(w->k, kind, extent);
    use(w, a);
    return a;
}

/* A map axis of rows or columns of elements; -1: one. */
static int counted(winograd *w, int extent)
{
    for (int i = 0; i < w->n_count; i++)
        if (w->k->axis[w->count[i]].extent == extent)
            return w->count[i];
    return extent == 1 ? -1 : (w->count[w->n_count++] = add_axis(w->k, KA_map, extent));
}

static void begin_stage(winograd *w)
{
    nnc_kernel *k = w->k;
    w->stage = k->n_ins;
    k->stage[k->n_stage] = (nnc_kstage){.body0 = k->n_ins};
}

/* Ends the body, or with `post` the stage. */
static void end_stage(winograd *w, bool post)
{
    nnc_kstage *s = &w->k->stage[w->k->n_stage];
    if (!post)
        s->body1 = s->post0 = w->k->n_ins;
    s->post1 = w->k->n_ins;
    w->k->n_stage += post;
}

static void add_term(nnc_affine *e, int axis, int64_t step)
{
    if (axis >= 0)
        e->k[axis] += step;
}

static void add_channels(const span_axes *c, const nnc_kernel *k, nnc_affine *e)
{
    add_term(e, c->one, 1);
    add_term(e, c->block, k->axis[c->one].extent);
}

/* Adds the tmp buffer of a transform of n channels for each of `tiles`, and its axes. blocks: in blocks of channels, so that the first
 * stage's result stays in the nearest cache. */
static void open_transform(winograd *w, transform *t, int64_t n, int64_t tiles, bool blocks)
{
    enum { MOST = 128 }; /* channels of a block */
    nnc_kernel *k = w->k;
    int64_t each = n;
    for (int64_t c = MOST; c >= LINE && each > MOST; c -= LINE)
        each = blocks && n % c == 0 ? c : each;
    t->column = counted(w, t->n);
    t->row = counted(w, t->rows / t->lines);
    t->c = (span_axes){n, blocks ? add_axis(k, KA_map, n / each) : -1, add_axis(k, KA_map, each)};
    t->buf = k->n_buf;
    k->buf[k->n_buf++] = (nnc_kbuf){.role = KB_tmp,
        .dtype = DT_f32,
        .numel = tiles * (n / each) * t->rows * t->n * nnc_align_up(each, LINE)};
}

/* Place of element (row i, column j) of the first stage's result, i and j beyond the stage's axes; `row` is false in the first. */
static nnc_affine local_at(const winograd *w, const transform *t, bool row, int i, int j)
{
    const int64_t line = nnc_align_up(w->k->axis[t->c.one].extent, LINE),
                  tile = t->rows * t->n * line;
    nnc_affine e = {.c = (i * t->n + j) * line};
    add_term(&e, row ? t->row : t->column, row ? t->lines * t->n * line : line);
    add_term(&e, t->c.block, tile);
    add_term(&e, t->c.one, 1);
    nnc_affine_add(&e, &t->at, t->c.block < 0 ? tile : tile * w->k->axis[t->c.block].extent);
    return e;
}

/* Ends the first stage: stores the elements x of a column. */
static void end_columns(winograd *w, const transform *t, const int32_t *x)
{
    int32_t y[NNC_WINOGRAD_SIDE] = {0};
    apply(w, t, x, y);
    for (int i = 0; i < t->rows; i++) {
        const nnc_affine at = local_at(w, t, false, i, 0);
        store(w, t->buf, &at, y[i]);
    }
    use(w, t->column);
    use(w, t->c.block);
    use(w, t->c.one);
    end_stage(w, false);
    end_stage(w, true);
}

/* Row i of those that the second stage computes at once, from the first stage's result. */
static void apply_row(winograd *w, const transform *t, int i, int32_t *y)
{
    int32_t x[NNC_WINOGRAD_SIDE] = {0};
    for (int j = 0; j < t->n; j++) {
        const nnc_affine at = local_at(w, t, true, i, j);
        x[j] = load(w, t->buf, &at);
    }
    apply(w, t, x, y);
}

static void end_rows(winograd *w, const transform *t)
{
    use(w, t->row);
    use(w, t->c.block);
    use(w, t->c.one);
    end_stage(w, false);
    end_stage(w, true);
}

/* Begins a stage over a block's tiles: *at is the first element of a tile, *tile its number in the block. */
static void begin_tiles(winograd *w, const span_axes *c, position *at, nnc_affine *tile)
{
    begin_stage(w);
    for (int i = 0; i < 3; i++)
        use(w, w->tile[i]);
    *at = (position){0};
    *tile = (nnc_affine){0};
    at->dim[0].k[0] = w->images;
    at->dim[2].k[1] = w->rows * w->w.tile;
    add_term(&at->dim[0], w->tile[0], 1);
    add_term(&at->dim[2], w->tile[1], w->w.tile);
    add_term(&at->dim[3], w->tile[2], w->w.tile);
    add_channels(c, w->k, &at->dim[1]);
    add_term(tile, w->tile[0], w->rows * w->columns);
    add_term(tile, w->tile[1], w->columns);
    add_term(tile, w->tile[2], 1);
}

/* Place of point p of row `row`, and `step` further ones along an axis. */
static nnc_affine point_at(const winograd *w, const points *of, int p, int axis, int step,
    const nnc_affine *row, const span_axes *c)
{
    nnc_affine e = {.c = p * of->plane};
    nnc_affine_add(&e, row, of->row);
    add_term(&e, axis, step * of->plane);
    add_channels(c, w->k, &e);
    return e;
}

/* The points of tiles of x, of type `type`: m d m^T of its n x n elements d that begin `pad` before the tile. */
static bool add_points(winograd *w, const element *x, const nnc_type *type,
    const double (*m)[NNC_WINOGRAD_SIDE], int n, const int64_t *pad, const points *to)
{
    const int side = w->w.side;
    int32_t d[NNC_WINOGRAD_SIDE] = {0}, v[NNC_WINOGRAD_SIDE] = {0};
    transform t = {.m = m, .rows = side, .n = n, .lines = 1};
    position at;
    open_transform(w, &t, type->dim[1], w->images * w->rows * w->columns, w->n->op == OP_winograd);
    begin_tiles(w, &t.c, &at, &t.at);
    at.dim[3].c = -pad[1];
    add_term(&at.dim[3], t.column, 1);
    for (int i = 0; i < n; i++) {
        at.dim[2].c = i - pad[0];
        if ((d[i] = copy(w, x, &at, type->dim + 2, -1, false)) < 0)
            return false;
    }
    end_columns(w, &t, d);
    begin_tiles(w, &t.c, &at, &t.at);
    apply_row(w, &t, 0, v);
    for (int p = 0; p < side; p++) {
        const nnc_affine point = point_at(w, to, p, t.row, side, &t.at, &t.c);
        store(w, to->buf, &point, v[p]);
    }
    end_rows(w, &t);
    return true;
}

/* Ends the stage: sum of x y over its reduce axis, stored at `at`. */
static void end_product(winograd *w, int xbuf, const nnc_affine *x, int ybuf, const nnc_affine *y,
    const points *to, const nnc_affine *at)
{
    const int32_t zero = put_const(w, 0),
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
    const nnc_type *u = nnc_typeof(w->s->g, w->n->in[1]);
    nnc_affine x = {0}, y = {0}, m = {0};
    begin_stage(w);
    const int p = own_axis(w, KA_map, u->dim[0]),
              t = own_axis(w, KA_map, w->images * w->rows * w->columns),
              panel = u->dim[1] > 1 ? own_axis(w, KA_map, u->dim[1]) : -1,
              o = own_axis(w, KA_map, u->dim[3]), c = own_axis(w, KA_reduce, u->dim[2]);
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

/* Stores the maximum of each 2x2 block of results y, of two rows from `first` on. */
static bool add_pooled(
    winograd *w, const element *e, const int32_t *y, const position *first, const nnc_type *t)
{
    const nx_set *s =
        w->s; /* a fused result may be part of a concat: its own steps count, not those in the body */
    const nnc_type *pooled = s->owner ? nnc_typeof(s->outer ? s->outer : s->g, s->owner->out)
                                      : nnc_typeof(s->g, w->pool->out);
    const int tile = w->w.tile;
    element store = {.given = 0};
    if (!plain(w, &store, pooled))
        return false;
    for (int i = 0; i < tile; i += 2) {
        position at = *first;
        int32_t most = -1;
        for (int j = 0; j < 4; j++) {
            at.dim[2].c = j / 2;
            at.dim[3].c = i + j % 2;
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
    const nnc_type *type = nnc_typeof(w->s->g, w->n->out);
    const int side = w->w.side, tile = w->w.tile;
    int32_t m[NNC_WINOGRAD_SIDE] = {0}, y[2 * NNC_WINOGRAD_TILE] = {0};
    transform t = {.m = w->w.result, .rows = tile, .n = side, .lines = w->pool ? 2 : 1};
    position at;
    open_transform(w, &t, type->dim[1], w->images * w->rows * w->columns, true);
    begin_tiles(w, &t.c, &at, &t.at);
    for (int p = 0; p < side; p++) {
        const nnc_affine point = point_at(w, &w->m, p * side, t.column, 1, &t.at, &t.c);
        m[p] = load(w, w->m.buf, &point);
    }
    end_columns(w, &t, m);
    begin_tiles(w, &t.c, &at, &t.at);
    add_term(&at.dim[2], t.row, t.lines);
    for (int i = 0; i < t.lines; i++)
        apply_row(w, &t, i, y + i * tile);
    if (w->pool && !add_pooled(w, e, y, &at, type))
        return false;
    for (int i = 0; i < tile && !w->pool; i++) {
        at.dim[3].c = i;
        if (copy(w, e, &at, type->dim + 2, y[i], true) < 0)
            return false;
    }
    end_rows(w, &t);
    return true;
}

/* ---- the gradient of weights ----------------------------------------------------------------------------------------- */

static void add_gradient_product(winograd *w, int64_t channels, int64_t outputs)
{
    nnc_affine x = {0}, y = {0}, g = {0};
    begin_stage(w);
    const int p = own_axis(w, KA_map, w->w.side * w->w.side), o = own_axis(w, KA_map, outputs),
              c = own_axis(w, KA_map, channels),
              t = own_axis(w, KA_reduce, w->images * w->rows * w->columns);
    x.k[p] = w->m.plane;
    x.k[t] = w->m.row;
    y.k[p] = w->v.plane;
    y.k[t] = w->v.row;
    g.k[p] = w->g.plane;
    g.k[o] = w->g.row;
    x.k[o] = y.k[c] = g.k[c] = 1;
    end_product(w, w->m.buf, &x, w->v.buf, &y, &w->g, &g);
}

static void add_gradient(winograd *w, int64_t n, int64_t outputs)
{
    enum { TAPS = NNC_WINOGRAD_TAPS };
    nnc_kernel *k = w->k;
    double turned[TAPS][NNC_WINOGRAD_SIDE] = {{0}};
    const int side = w->w.side, o = add_axis(k, KA_map, outputs);
    int32_t m[NNC_WINOGRAD_SIDE] = {0}, y[TAPS] = {0};
    const int64_t matrix = n * outputs;
    transform t = {.m = turned, .rows = TAPS, .n = side, .lines = 1};
    t.at.k[o] = 1;
    for (int i = 0; i < TAPS; i++)
        for (int p = 0; p < side; p++)
            turned[i][p] = w->w.weight[p][i];
    open_transform(w, &t, n, outputs, false);
    begin_stage(w);
    for (int p = 0; p < side; p++) {
        const nnc_affine point = point_at(w, &w->g, p * side, t.column, 1, &t.at, &t.c);
        m[p] = load(w, w->g.buf, &point);
    }
    use(w, o);
    end_columns(w, &t, m);
    begin_stage(w);
    apply_row(w, &t, 0, y);
    for (int i = 0; i < TAPS; i++) {
        nnc_affine to = {.c = i * matrix};
        to.k[0] = TAPS * TAPS * matrix * k->axis[1].extent;
        to.k[1] = TAPS * TAPS * matrix;
        add_term(&to, t.row, TAPS * matrix);
        add_term(&to, o, n);
        add_channels(&t.c, k, &to);
        store(w, w->y, &to, y[i]);
    }
    use(w, o);
    end_rows(w, &t);
}

/* ---- the kernel ------------------------------------------------------------------------------------------------------ */

static void add_tmp(winograd *w, points *p, int64_t rows, int64_t row)
{
    nnc_kernel *k = w->k;
    *p = (points){k->n_buf, nnc_align_up(rows * row, LINE) + LINE, row};
    k->buf[k->n_buf++] =
        (nnc_kbuf){.role = KB_tmp, .dtype = DT_f32, .numel = w->w.side * w->w.side * p->plane};
}

/* Elements from one tile to the next if tiles are summed. */
static int64_t apart(int64_t channels)
{
    /* elements: rows at multiples of 512 bytes use only 8 of L1's 64 sets */
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
    enum { TRANSFORMS = 512, STAGES = 7 };
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
    w->cap = TRANSFORMS + 2 * w->w.tile * (2 * epilogue + 2);
    k->ins = ARENA_NEW(w->a, nnc_kins, w->cap);
    k->stage = ARENA_NEW(w->a, nnc_kstage, STAGES);
    (void)add_axis(k, KA_outer, y->dim[0] / w->images);
    (void)add_axis(k, KA_outer, nnc_ceildiv(w->all_rows, w->rows));
    k->n_outer = k->n_axis;
    w->tile[0] = add_axis(k, KA_map, w->images);
    w->tile[1] = add_axis(k, KA_map, w->rows);
    w->tile[2] = add_axis(k, KA_map, w->columns);
    return (k->ins && k->stage) || fails(w, NULL);
}

/* Builds the convolution of `from` with its epilogue. */
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

/* Builds the gradient of the weights from `from` and dy, whose elements are `d`. */
static bool build_gradient(winograd *w, element *x, nnc_ref from, nnc_ref dy)
{
    static const int64_t none[2];
    element d = {.given = -1, .to_buf = &w->u};
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
    int from_buf, most = 2;
    element x = {.given = -1, .to_buf = &from_buf};
    assert(w.n);
    for (int i = 0; i < s->n; i++)
        most += s->g->node[s->node[i]].n_in;
    const bool gradient = w.n->op == OP_winograd_wgrad;
    const nnc_ref from = outside(&w, w.n->in[0]), other = outside(&w, w.n->in[1]);
    *why = NULL;
    w.k = ARENA_NEW(a, nnc_kernel, 1);
    w.value = ARENA_NEW(scratch, nnc_ref, most + s->n_operand);
    if (!w.k || !w.value || !(w.k->buf = ARENA_NEW(a, nnc_kbuf, most + s->n_operand + 8)))
        return NULL;
    if (from == NNC_NONE || other == NNC_NONE || s->n_out != 1) {
        (void)fails(&w, "its operands are computed in its kernel");
        return NULL;
    }
    for (int i = 0; i < s->n_operand; i++)
        (void)buffer_of(&w, s->operand[i]);
    from_buf = buffer_of(&w, from);
    w.u = buffer_of(&w, other);
    lay_out(&w, nnc_typeof(s->g, gradient ? w.n->in[1] : w.n->out));
    if (!(gradient ? build_gradient(&w, &x, from, other) : build_forward(&w, &x, from)) || *why)
        return NULL;
    w.k->scratch_bytes = nnc_kernel_scratch(w.k);
    return w.k;
}

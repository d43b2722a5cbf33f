/* tests/cudnn/fake_cudnn.c -- cuDNN's backend API over plain loops: descriptors keep their attributes as they came, executing walks the
 * operations in order. */
#include "cuda/cudnn_internal.h"
#include "fake.h"
#include "test.h"
#include <math.h>
#include <stdlib.h>

int fake_note = -1, fake_noted;
_Atomic int fake_alive, fake_handles, fake_compiled,
    fake_precompiled; /* plans are made on several threads */
int64_t fake_work[FAKE_CHOICES] = {FAKE_WORK, FAKE_WORK, FAKE_WORK};
bool fake_compiles_nothing;

enum { MAX_ATTR = 24 };

typedef struct attr {
    int name, type;
    int64_t n;
    char data[256];
} attr;

typedef struct desc {
    int type;
    bool final;
    int n;
    attr a[MAX_ATTR];
    struct desc *graph; /* of a configuration, an engine, a plan */
    int choice;
} desc;

static const char *last = "";

static size_t width(int type)
{
    switch (type) {
    case T_BOOL:
    case T_CHAR: return 1;
    case T_INT64:
    case T_DOUBLE:
    case T_POINTER:
    case T_DESC: return 8;
    default: return 4;
    }
}

static int create(int type, void **out)
{
    desc *d = calloc(1, sizeof *d);
    d->type = type;
    fake_alive++;
    *out = d;
    return 0;
}

static int destroy(void *d)
{
    fake_alive--;
    free(d);
    return 0;
}

static int refuse(const char *why)
{
    last = why;
    return 3000;
}

static int set(void *p, int name, int type, int64_t n, const void *value)
{
    desc *d = p;
    size_t bytes = (size_t)n * width(type);
    if (d->final || d->n == MAX_ATTR)
        return refuse("finalized, or too many attributes");
    attr *a = &d->a[d->n++];
    a->name = name;
    a->type = type;
    a->n = n;
    if (bytes <= sizeof a->data)
        memcpy(a->data, value, bytes);
    return 0;
}

static const attr *find(const desc *d, int name)
{
    for (int i = 0; i < d->n; i++)
        if (d->a[i].name == name)
            return &d->a[i];
    return NULL;
}

static const int64_t *ints(const desc *d, int name)
{
    const attr *a = find(d, name);
    return a ? (const int64_t *)(const void *)a->data : NULL;
}

static int one(const desc *d, int name)
{
    const attr *a = find(d, name);
    return a ? *(const int *)(const void *)a->data : -1;
}

static desc *link_of(const desc *d, int name, int i)
{
    const attr *a = find(d, name);
    return a && i < a->n ? ((desc *const *)(const void *)a->data)[i] : NULL;
}

/* ---- what it supports ---------------------------------------------------------------------------------------------- */

static bool is_relu(const desc *op)
{
    const desc *p = link_of(op, A_OP_POINTWISE_DESC, 0);
    return p && one(p, A_POINTWISE_MODE) == CUDNN_RELU;
}

/* 0: not an addition; 1: of a full tensor, 2: of a bias. */
static int adds(const desc *op)
{
    const desc *p = link_of(op, A_OP_POINTWISE_DESC, 0), *b = link_of(op, A_OP_POINTWISE_B, 0);
    if (!p || one(p, A_POINTWISE_MODE) != CUDNN_ADD || !b)
        return 0;
    const int64_t *dim = ints(b, A_TENSOR_DIMS);
    return dim[0] == 1 && dim[2] == 1 && dim[3] == 1 ? 2 : 1;
}

static bool precompiled(const desc *graph)
{
    const attr *ops = find(graph, A_GRAPH_OPS);
    int i = 1, n = (int)ops->n, type = link_of(graph, A_GRAPH_OPS, 0)->type;
    if (type == D_OP_MATMUL)
        return false;
    if (type != D_OP_CONV)
        return n == 1 && type != D_OP_POINTWISE;
    if (n == 1)
        return true;
    i += adds(link_of(graph, A_GRAPH_OPS, i)) == 1;
    if (i == n || adds(link_of(graph, A_GRAPH_OPS, i++)) != 2)
        return false;
    i += i < n && is_relu(link_of(graph, A_GRAPH_OPS, i));
    return i == n;
}

/* A convolution with an end that only compiled engines have. */
static bool compiled_conv(const desc *graph)
{
    return link_of(graph, A_GRAPH_OPS, 0)->type == D_OP_CONV && !precompiled(graph);
}

static bool attends(const desc *graph);

static bool is_attention(const desc *graph)
{
    return link_of(graph, A_GRAPH_OPS, 0)->type == D_OP_MATMUL;
}

/* Elementwise graphs are for channels last alone. */
static bool supported(const desc *graph)
{
    const desc *op = link_of(graph, A_GRAPH_OPS, 0);
    if (is_attention(graph))
        return attends(graph);
    return op->type != D_OP_POINTWISE ||
           ints(link_of(op, A_OP_POINTWISE_X, 0), A_TENSOR_STRIDES)[1] == 1;
}

/* The graph of attention that cuDNN 9.19 knows ends with two products, writes statistics, and has heads of a multiple of 8 numbers. */
static bool attends(const desc *graph)
{
    const attr *ops = find(graph, A_GRAPH_OPS);
    const desc *q = link_of(link_of(graph, A_GRAPH_OPS, 0), A_OP_MATMUL, 0);
    const int type = one(q, A_TENSOR_TYPE);
    bool stats = false;
    for (int i = 0; i < ops->n; i++) {
        const desc *y = link_of(link_of(graph, A_GRAPH_OPS, i), A_OP_POINTWISE_Y, 0);
        stats |= y && !find(y, A_TENSOR_VIRTUAL)->data[0] && ints(y, A_TENSOR_DIMS)[3] == 1;
    }
    return stats && (type == 2 || type == 9) && ints(q, A_TENSOR_DIMS)[3] % 8 == 0 &&
           link_of(graph, A_GRAPH_OPS, (int)ops->n - 1)->type == D_OP_MATMUL;
}

static int finalize(void *p)
{
    desc *d = p;
    if (d->type == D_TENSOR) {
        const attr *dim = find(d, A_TENSOR_DIMS), *stride = find(d, A_TENSOR_STRIDES);
        if (!dim || !stride || dim->n < 4 || dim->n != stride->n)
            return refuse("_nbDims < 4");
    }
    if (d->type == D_DEVICE && !find(d, A_DEVICE_ID) == !find(d, A_DEVICE_JSON))
        return refuse("a device by its number or its description");
    if ((d->type == D_PLAN && !link_of(d, A_PLAN_DEVICE, 0)) ||
        (d->type == D_HEURISTIC && !link_of(d, A_HEUR_DEVICE, 0)))
        return refuse("no device"); /* cuDNN 9.19 finds engines without one, whose plans crash */
    if (d->type == D_PLAN) {
        const desc *config = link_of(d, A_PLAN_CONFIG, 0);
        if (!config)
            return refuse("no configuration");
        d->graph = config->graph;
        d->choice = config->choice;
        if (fake_compiles_nothing && (compiled_conv(d->graph) || is_attention(d->graph)))
            return refuse("cuLibraryLoadData returned error (34)");
        *(precompiled(d->graph) ? &fake_precompiled : &fake_compiled) += 1;
    }
    d->final = true;
    return 0;
}

static int get(void *p, int name, int type, int64_t want, int64_t *got, void *value)
{
    desc *d = p;
    *got = 0;
    if (name == A_HEUR_RESULTS) {
        if (one(d, A_HEUR_MODE) != HEUR_A || !supported(link_of(d, A_HEUR_GRAPH, 0)))
            return 0;
        for (int i = 0; i < FAKE_CHOICES; i++) {
            ((desc **)value)[i]->graph = link_of(d, A_HEUR_GRAPH, 0);
            ((desc **)value)[i]->choice = i;
        }
        *got = FAKE_CHOICES;
    } else if (name == A_CONFIG_ENGINE) {
        (*(desc **)value)->graph = d->graph;
        (*(desc **)value)->choice = d->choice;
        *got = 1;
    } else if (name == A_ENGINE_INDEX) {
        *(int64_t *)value = 7 + d->choice;
        *got = 1;
    } else if (name == A_ENGINE_NUMERICAL && d->choice == fake_noted && fake_note >= 0) {
        *(int *)value = fake_note;
        *got = 1;
    } else if (name == A_ENGINE_NUMERICAL && (compiled_conv(d->graph) || is_attention(d->graph))) {
        *(int *)value = 0; /* tensor cores: these engines use nothing else */
        *got = 1;
    } else if (name == A_ENGINE_BEHAVIOR && !precompiled(d->graph)) {
        *(int *)value = 0; /* runtime compilation */
        *got = 1;
    } else if (name == A_CONFIG_WORKSPACE || name == A_PLAN_WORKSPACE) {
        *(int64_t *)value = precompiled(d->graph) ? fake_work[d->choice] : 0;
        *got = 1;
    } else if (name ==
               A_PLAN_JSON) { /* a text without a configuration, of which no plan can be made */
        *got = 2;
        if (value)
            memcpy(value, "{}", nnc_min64(want, 2));
    }
    (void)type;
    return 0;
}

/* ---- executing ----------------------------------------------------------------------------------------------------- */

typedef struct tensor {
    nnc_dtype dtype;
    int rank;
    const int64_t *dim, *stride;
    char *data;
} tensor;

typedef struct run {
    const desc *pack;
    float *virtual[32]; /* by id */
    int failed;
} run;

static int64_t numel(const tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->dim[i];
    return n;
}

static tensor open_tensor(run *r, const desc *d)
{
    static const nnc_dtype types[] = {
        [0] = DT_f32, [1] = DT_f64, [2] = DT_f16, [4] = DT_i32, [9] = DT_bf16, [11] = DT_bool};
    int type = one(d, A_TENSOR_TYPE);
    int64_t id = *ints(d, A_TENSOR_ID);
    tensor t = {types[type], (int)find(d, A_TENSOR_DIMS)->n, ints(d, A_TENSOR_DIMS),
        ints(d, A_TENSOR_STRIDES), NULL};
    if (find(d, A_TENSOR_VIRTUAL)->data[0]) {
        if (!r->virtual[id])
            r->virtual[id] = calloc((size_t)numel(&t), sizeof(float));
        t.data = (char *)r->virtual[id];
        t.dtype = DT_f32; /* whatever they are: nothing is rounded within */
        return t;
    }
    const attr *ids = find(r->pack, A_PACK_IDS), *ptr = find(r->pack, A_PACK_POINTERS);
    for (int i = 0; i < ids->n; i++)
        if (ints(r->pack, A_PACK_IDS)[i] == id)
            t.data = ((char *const *)(const void *)ptr->data)[i];
    r->failed |= !t.data;
    return t;
}

static int64_t at(const tensor *t, const int64_t *i)
{
    int64_t off = 0;
    for (int d = 0; d < t->rank; d++)
        off += (t->dim[d] == 1 ? 0 : i[d]) * t->stride[d];
    return off;
}

/* The next index in row-major order; false after the last. */
static bool advance(const tensor *t, int64_t *i)
{
    for (int d = t->rank - 1; d >= 0; d--) {
        if (++i[d] < t->dim[d])
            return true;
        i[d] = 0;
    }
    return false;
}

static double read_at(const tensor *t, const int64_t *i)
{
    return nnc_get_f64(t->dtype, t->data, at(t, i));
}

/* Calls `each` for all (output point, channel, tap) of a convolution x * w = y. */
typedef enum kind { FORWARD, OF_DATA, OF_FILTER } kind;

static kind kind_of(const desc *op, int *first)
{
    kind k = op->type == D_OP_CONV_BWD_DATA ? OF_DATA : op->type == D_OP_CONV ? FORWARD : OF_FILTER;
    *first = k == OF_DATA ? A_OP_BWD_DATA : k == FORWARD ? A_OP_CONV : A_OP_BWD_FILTER;
    return k;
}

typedef struct taps {
    kind kind;
    tensor x, w, y;
    const int64_t *lo, *stride, *dilation;
    int spatial;
} taps;

static bool source(const taps *t, const int64_t *y, const int64_t *tap, int64_t *x)
{
    for (int d = 0; d < t->spatial; d++) {
        x[2 + d] = y[2 + d] * t->stride[d] + tap[2 + d] * t->dilation[d] - t->lo[d];
        if (x[2 + d] < 0 || x[2 + d] >= t->x.dim[2 + d])
            return false;
    }
    return true;
}

/* A tensor's numbers in memory order, as doubles: the loops below read each many times. */
static double *doubles_of(const tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n += (t->dim[d] - 1) * t->stride[d];
    double *p = calloc((size_t)n, sizeof *p);
    for (int64_t i = 0; i < n; i++)
        p[i] = nnc_get_f64(t->dtype, t->data, i);
    return p;
}

/* Offset of element i where channels are the last dimension: the loops over channels read neighbouring numbers. */
static int64_t at_last(const tensor *t, const int64_t *i)
{
    int64_t off = i[0];
    for (int d = 2; d < t->rank; d++)
        off = off * t->dim[d] + i[d];
    return off * t->dim[1] + i[1];
}

/* A tensor's numbers with channels last. */
static double *channels_last(const tensor *t)
{
    int64_t i[8] = {0};
    double *p = malloc((size_t)numel(t) * sizeof *p);
    do
        p[at_last(t, i)] = read_at(t, i);
    while (advance(t, i));
    return p;
}

static void store_channels_last(const tensor *t, const double *p)
{
    int64_t i[8] = {0};
    do
        nnc_set_f64(t->dtype, t->data, at(t, i), p[at_last(t, i)]);
    while (advance(t, i));
}

static void add_scaled(double *restrict to, double by, const double *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += by * from[i];
}

/* One output point and one tap. y[k] gets its sum of products over the input channels at x, or gives its part to the gradient of x or w.
 * w: the tap of the first filter. */
static void one_tap(const taps *t, double *x, double *w, double *y)
{
    const int64_t in = t->w.dim[1], out = t->y.dim[1], per_group = out / (t->x.dim[1] / in),
                  filter = numel(&t->w) / out;
    for (int64_t k = 0; k < out; x += in)
        for (int64_t j = 0; j < per_group; j++, k++, w += filter) {
            if (t->kind == FORWARD)
                y[k] += fake_dot(x, w, in);
            else if (t->kind == OF_DATA)
                add_scaled(x, y[k], w, in);
            else
                add_scaled(w, y[k], x, in);
        }
}

/* The channels of output point i, with every tap that reads x and not its padding. */
static void one_point(
    const taps *t, const tensor *window, int64_t *i, double *xs, double *ws, double *row)
{
    const bool backward = t->kind != FORWARD;
    int64_t x[8] = {i[0]}, tap[8] = {0};
    for (i[1] = 0; i[1] < t->y.dim[1]; i[1]++)
        row[i[1]] = backward ? read_at(&t->y, i) : 0;
    double *w = ws;
    do {
        if (source(t, i, tap, x))
            one_tap(t, xs + at_last(&t->x, x), w, row);
        w += t->w.dim[1];
    } while (advance(window, tap));
    for (i[1] = 0; !backward && i[1] < t->y.dim[1]; i[1]++)
        nnc_set_f64(t->y.dtype, t->y.data, at(&t->y, i), row[i[1]]);
    i[1] = 0;
}

static void convolve(const taps *t)
{
    const tensor *to = t->kind == OF_DATA ? &t->x : t->kind == OF_FILTER ? &t->w : NULL;
    int64_t i[8] = {0}, taps_dim[8], points_dim[8];
    const size_t n = to ? (size_t)numel(to) : 0;
    double *xs = to == &t->x ? calloc(n, sizeof *xs) : channels_last(&t->x),
           *ws = to == &t->w ? calloc(n, sizeof *ws) : channels_last(&t->w),
           *row = malloc((size_t)t->y.dim[1] * sizeof *row);
    memcpy(taps_dim, t->w.dim, (size_t)t->w.rank * sizeof *taps_dim);
    memcpy(points_dim, t->y.dim, (size_t)t->y.rank * sizeof *points_dim);
    taps_dim[0] = taps_dim[1] = points_dim[1] = 1;
    const tensor window = {.rank = t->w.rank, .dim = taps_dim},
                 points = {.rank = t->y.rank, .dim = points_dim};
    do
        one_point(t, &window, i, xs, ws, row);
    while (advance(&points, i));
    if (to)
        store_channels_last(to, to == &t->x ? xs : ws);
    free(xs);
    free(ws);
    free(row);
}

static void run_conv(run *r, const desc *op)
{
    int a;
    const kind k = kind_of(op, &a);
    const desc *c = link_of(op, a + 2, 0);
    taps t = {.kind = k,
        .x = open_tensor(r, link_of(op, a + 4, 0)),
        .w = open_tensor(r, link_of(op, a + 3, 0)),
        .y = open_tensor(r, link_of(op, a + 5, 0)),
        .lo = ints(c, A_CONV_PAD_LO),
        .stride = ints(c, A_CONV_STRIDES),
        .dilation = ints(c, A_CONV_DILATIONS),
        .spatial = (int)*ints(c, A_CONV_SPATIAL)};
    for (int d = 0; d < t.spatial; d++) {
        int64_t reach = (t.w.dim[2 + d] - 1) * t.dilation[d] + 1;
        int64_t room = t.x.dim[2 + d] + t.lo[d] + ints(c, A_CONV_PAD_HI)[d] - reach;
        if (room / t.stride[d] + 1 != t.y.dim[2 + d])
            r->failed = 1; /* as cuDNN says when the graph is made */
    }
    if (!r->failed)
        convolve(&t);
}

static double apply(const desc *p, double x, double b)
{
    switch (one(p, A_POINTWISE_MODE)) {
    case CUDNN_ADD: return x + b;
    case CUDNN_MUL: return x * b;
    case CUDNN_SUB: return x - b;
    case CUDNN_DIV: return x / b;
    case CUDNN_EXP: return exp(x);
    case CUDNN_LOG: return log(x);
    case CUDNN_CMP_GE: return x >= b;
    case CUDNN_RELU: return x < 0 ? 0 : x;
    default: return NAN;
    }
}

static void run_pointwise(run *r, const desc *op)
{
    const desc *p = link_of(op, A_OP_POINTWISE_DESC, 0), *other = link_of(op, A_OP_POINTWISE_B, 0);
    tensor x = open_tensor(r, link_of(op, A_OP_POINTWISE_X, 0)),
           y = open_tensor(r, link_of(op, A_OP_POINTWISE_Y, 0)), b = x;
    int64_t i[8] = {0};
    const desc *when = link_of(op, A_OP_POINTWISE_T, 0);
    const int mode = one(p, A_POINTWISE_MODE);
    if (other)
        b = open_tensor(r, other);
    const tensor t = when ? open_tensor(r, when) : x;
    if (r->failed)
        return;
    do
        nnc_set_f64(y.dtype, y.data, at(&y, i),
            mode == CUDNN_GEN_INDEX       ? (double)i[*ints(p, A_POINTWISE_AXIS)]
            : mode == CUDNN_BINARY_SELECT ? read_at(read_at(&t, i) != 0 ? &x : &b, i)
                                          : apply(p, read_at(&x, i), read_at(&b, i)));
    while (advance(&y, i));
}

static void run_matmul(run *r, const desc *op)
{
    const tensor a = open_tensor(r, link_of(op, A_OP_MATMUL, 0)),
                 b = open_tensor(r, link_of(op, A_OP_MATMUL + 1, 0)),
                 c = open_tensor(r, link_of(op, A_OP_MATMUL + 2, 0));
    int64_t i[8] = {0};
    if (r->failed || a.rank != 4 || b.rank != 4 || a.dim[3] != b.dim[2] || a.dim[2] != c.dim[2] ||
        b.dim[3] != c.dim[3]) {
        r->failed = 1;
        return;
    }
    double *as = doubles_of(&a), *bs = doubles_of(&b);
    const int64_t da = a.dim[3] == 1 ? 0 : a.stride[3], db = b.dim[2] == 1 ? 0 : b.stride[2];
    do {
        const double *pa = as + at(&a, (int64_t[]){i[0], i[1], i[2], 0}),
                     *pb = bs + at(&b, (int64_t[]){i[0], i[1], 0, i[3]});
        double sum = 0;
        for (int64_t k = 0; k < a.dim[3]; k++)
            sum += pa[k * da] * pb[k * db];
        nnc_set_f64(c.dtype, c.data, at(&c, i), sum);
    } while (advance(&c, i));
    free(as);
    free(bs);
}

/* Over the last dimension. */
static void run_reduction(run *r, const desc *op)
{
    const tensor x = open_tensor(r, link_of(op, A_OP_REDUCE, 0)),
                 y = open_tensor(r, link_of(op, A_OP_REDUCE + 1, 0));
    const bool max = one(link_of(op, A_OP_REDUCE + 2, 0), A_REDUCE_OP) == REDUCE_MAX;
    int64_t i[8] = {0};
    if (r->failed)
        return;
    do {
        double all = max ? -INFINITY : 0;
        for (int64_t k = 0; k < x.dim[3]; k++) {
            const double e = read_at(&x, (int64_t[]){i[0], i[1], i[2], k});
            all = !max ? all + e : e > all || isnan(e) ? e : all;
        }
        nnc_set_f64(y.dtype, y.data, at(&y, i), all);
    } while (advance(&y, i));
}

static int execute(void *handle, void *plan, void *pack)
{
    run r = {.pack = pack};
    fake_ran(((desc *)plan)->choice);
    const desc *graph = ((desc *)plan)->graph;
    if (!handle || !((desc *)pack)->final)
        return refuse("no handle");
    for (int i = 0; i < find(graph, A_GRAPH_OPS)->n; i++) {
        const desc *op = link_of(graph, A_GRAPH_OPS, i);
        if (op->type == D_OP_POINTWISE)
            run_pointwise(&r, op);
        else if (op->type == D_OP_MATMUL)
            run_matmul(&r, op);
        else if (op->type == D_OP_REDUCTION)
            run_reduction(&r, op);
        else
            run_conv(&r, op);
    }
    for (int i = 0; i < 32; i++)
        free(r.virtual[i]);
    return r.failed ? refuse("a tensor without memory, or extents that do not belong together") : 0;
}

static void touch(run *r, const desc *d, bool write, fake_touch *t, int *n)
{
    if (!d || find(d, A_TENSOR_VIRTUAL)->data[0] || find(d, A_TENSOR_BY_VALUE) ||
        *n == FAKE_TOUCHES)
        return;
    tensor x = open_tensor(r, d);
    int64_t end = 0;
    for (int i = 0; i < x.rank; i++)
        end += (x.dim[i] - 1) * x.stride[i];
    t[(*n)++] = (fake_touch){x.data, (end + 1) * nnc_dtype_size(x.dtype), write};
}

int fake_cudnn_touches(const void *plan, const void *pack, fake_touch *t)
{
    run r = {.pack = pack};
    const desc *graph = ((const desc *)plan)->graph;
    int n = 0;
    for (int i = 0; i < find(graph, A_GRAPH_OPS)->n; i++) {
        const desc *op = link_of(graph, A_GRAPH_OPS, i);
        int a = 0;
        if (op->type == D_OP_MATMUL)
            for (int k = 0; k < 3; k++)
                touch(&r, link_of(op, A_OP_MATMUL + k, 0), k == 2, t, &n);
        if (op->type == D_OP_MATMUL || op->type == D_OP_REDUCTION)
            continue;
        const bool conv = op->type != D_OP_POINTWISE;
        const kind k = conv ? kind_of(op, &a) : FORWARD;
        touch(&r, link_of(op, conv ? a + 3 : A_OP_POINTWISE_B, 0), k == OF_FILTER, t, &n);
        touch(&r, link_of(op, conv ? a + 4 : A_OP_POINTWISE_X, 0), k == OF_DATA, t, &n);
        touch(&r, link_of(op, conv ? a + 5 : A_OP_POINTWISE_Y, 0), k == FORWARD, t, &n);
    }
    return n;
}

/* ---- the table ----------------------------------------------------------------------------------------------------- */

static size_t get_version(void)
{
    return 91900;
}

static const char *error_string(int status)
{
    return status == 1001   ? "CUDNN_STATUS_NOT_INITIALIZED"
           : status == 4004 ? "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"
                            : "CUDNN_STATUS_FAKE";
}

static void last_error(char *out, size_t n)
{
    snprintf(out, n, "%s", last);
}

static int handle_create(void **handle)
{
    static int something;
    fake_handles++;
    *handle = &something;
    return 0;
}

static int handle_destroy(void *handle)
{
    (void)handle;
    fake_handles--;
    return 0;
}

static int set_stream(void *handle, cuda_stream s)
{
    (void)handle;
    (void)s;
    return 0;
}

const nnc_cuda_cudnn fake_cudnn = {
    .cudnnGetVersion = get_version,
    .cudnnGetErrorString = error_string,
    .cudnnGetLastErrorString = last_error,
    .cudnnCreate = handle_create,
    .cudnnDestroy = handle_destroy,
    .cudnnSetStream = set_stream,
    .cudnnBackendCreateDescriptor = create,
    .cudnnBackendDestroyDescriptor = destroy,
    .cudnnBackendSetAttribute = set,
    .cudnnBackendGetAttribute = get,
    .cudnnBackendFinalize = finalize,
    .cudnnBackendExecute = execute,
};

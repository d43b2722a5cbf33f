/* bench/partition/gpt.c -- the kernels of a GPT's layers. */
#include "gpt.h"
#include "sim/sim.h"

enum {
    FORWARD,
    BACKWARD,
    WEIGHT,
    FORWARD_COMM,
    BACKWARD_COMM,
    OPTIMIZER,
    WEIGHTS,
    GRADIENTS,
    STATES,
    SAVED,
    WORKING,
    BOUNDARY,
    INPUT,
    VECTORS
};

double gpt_parameters(const gpt *g)
{
    const double h = g->hidden;
    return g->layers * (12 * h * h + 13 * h) + ((double)g->vocabulary + g->sequence) * h;
}

double gpt_flops(const gpt *g, int64_t batch, bool again)
{
    const double h = g->hidden, s = g->sequence, l = g->layers;
    const double layers = (again ? 96 : 72) * (double)batch * s * l * h * h * (1 + s / (6 * h));
    return layers + 6 * (double)batch * s * h * g->vocabulary;
}

typedef struct kernels {
    const gpt *g;
    const nnc_cluster_kind *k;
    double n; /* tokens of a micro-batch */
    double t, share; /* tensor degree; of what sequence parallelism divides */
    double bytes; /* of an element */
} kernels;

static int64_t run(const kernels *x, const char *op_class, double flops, double bytes)
{
    const nnc_sim_op op = {.op_class = op_class,
        .dtype = x->g->dtype,
        .flops = (int64_t)flops,
        .bytes = (int64_t)bytes};
    return x->k->target.launch_ns + nnc_sim_op_ps(x->k, &op, NULL) / 1000;
}

/* m x k by k x n */
static int64_t product(const kernels *x, double m, double n, double k)
{
    return run(x, "matmul", 2 * m * n * k, (m * k + k * n + m * n) * x->bytes);
}

/* Memory passes over tokens x width elements. */
static int64_t stream(const kernels *x, const char *op_class, double width, double passes)
{
    const double elements = x->n * width;
    return run(x, op_class, elements, elements * passes * x->bytes);
}

/* Heads' products of s x s scores: batch b x heads / t of them. */
static int64_t scores(const kernels *x, double times)
{
    const double s = x->g->sequence, h = x->g->hidden / x->t, b = x->n / s,
                 square = b * x->g->heads / x->t * s * s;
    return run(x, "matmul", times * 2 * b * s * s * h, times * (2 * x->n * h + square) * x->bytes);
}

/* softmax with mask and scale, dropout of its result with a byte of mask */
static int64_t softmax(const kernels *x, double passes)
{
    const double s = x->g->sequence, square = x->n / s * x->g->heads / x->t * s * s;
    return run(x, "norm", 5 * square, square * 2 * x->bytes * passes) +
           run(x, "ewise", square, square * (2 * x->bytes + 1));
}

/* FlashAttention does the products of the lower triangle only; backwards five instead of two. */
static int64_t flash(const kernels *x, double products)
{
    const double s = x->g->sequence, h = x->g->hidden / x->t;
    return run(x, "matmul", products * x->n * s * h, 4 * x->n * h * x->bytes);
}

static void layer(const kernels *x, int64_t *to)
{
    const gpt *g = x->g;
    const double h = g->hidden, n = x->n, t = x->t, own = h / x->share;
    const int64_t norms = 2 * stream(x, "norm", own, 2), adds = 2 * stream(x, "ewise", own, 3.5),
                  gelu = stream(x, "ewise", 4 * h / t, 2);
    const int64_t products = product(x, n, 3 * h / t, h) + product(x, n, h, h / t) +
                             product(x, n, 4 * h / t, h) + product(x, n, h, 4 * h / t);
    const int64_t back = product(x, n, h, 3 * h / t) + product(x, n, h / t, h) +
                         product(x, n, h, 4 * h / t) + product(x, n, 4 * h / t, h);
    const int64_t weight = product(x, h, 3 * h / t, n) + product(x, h / t, h, n) +
                           product(x, h, 4 * h / t, n) + product(x, 4 * h / t, h, n);
    to[FORWARD] =
        products + norms + adds + gelu + (g->flash ? flash(x, 2) : scores(x, 2) + softmax(x, 1));
    to[BACKWARD] = back + 2 * stream(x, "norm", own, 4) + adds + stream(x, "ewise", 4 * h / t, 3) +
                   (g->flash ? flash(x, 5) : scores(x, 4) + softmax(x, 1.5));
    to[WEIGHT] = weight;
}

/* The loss in f32 as Megatron-LM computes it (core/tensor_parallel/cross_entropy.py): cast, maximum, difference, exp, sum, quotient;
 * backwards a product and a cast. Bytes of an element of the logits. */
static int64_t loss(const kernels *x, double logits, bool backward)
{
    static const double forward_bytes[] = {6, 4, 8, 8, 4, 8}, backward_bytes[] = {8, 6};
    const double elements = x->n * logits;
    int64_t ns = 0;
    for (size_t k = 0; k < (backward ? NNC_COUNT(backward_bytes) : NNC_COUNT(forward_bytes)); k++)
        ns += run(x, "ewise", elements, elements * (backward ? backward_bytes : forward_bytes)[k]);
    return ns;
}

static void memory(const kernels *x, double parameters, int64_t *to)
{
    to[WEIGHTS] += (int64_t)(parameters * x->bytes);
    to[GRADIENTS] += (int64_t)(parameters * x->g->gradient_bytes);
    to[STATES] += (int64_t)(parameters * 12); /* an f32 copy and Adam's two */
    to[OPTIMIZER] +=
        run(x, "ewise", parameters, parameters * (x->g->gradient_bytes + 24 + x->bytes));
}

nnc_status gpt_costs(const gpt *g, const nnc_cluster_kind *k, const auto_links *l, int tensor,
    int size, nnc_arena *a, nnc_search_costs *out, nnc_sink *sink)
{
    const kernels x = {
        g, k, (double)size * g->sequence, tensor, g->sequence_parallel ? tensor : 1, 2};
    const double h = g->hidden, s = g->sequence, n = x.n;
    int64_t *v[VECTORS], one[VECTORS] = {0};
    for (int i = 0; i < VECTORS; i++)
        NNC_NEED(v[i] = ARENA_NEW(a, int64_t, g->layers + 1), sink);
    layer(&x, one);
    memory(&x, (12 * h * h + 13 * h) / tensor, one);
    /* Korthikanti et al. 2022: 34 bytes an element of the hidden state, 5 for each score */
    const double scores = g->flash ? 0 : 5 * g->heads * s / h;
    one[SAVED] = (int64_t)(n * h * (10 / x.share + (24 + scores) / tensor));
    one[WORKING] = (int64_t)(n * h * 8 / tensor);
    one[BOUNDARY] = (int64_t)(n * h * x.bytes / tensor);
    one[INPUT] = (int64_t)(n * h * x.bytes / x.share);
    one[FORWARD_COMM] = one[BACKWARD_COMM] =
        2 * auto_tensor_ns(l, SEARCH_allreduce, tensor, (int64_t)(n * h * x.bytes));
    for (int i = 0; i <= g->layers; i++)
        for (int j = 0; j < VECTORS; j++)
            v[j][i] = one[j];
    int64_t ends[VECTORS] = {0};
    memory(&x, ((double)g->vocabulary + g->sequence) * h / tensor, ends);
    const int last = g->layers - 1;
    const double logits = (double)g->vocabulary / tensor;
    for (int j = OPTIMIZER; j <= STATES; j++)
        v[j][0] += ends[j];
    v[FORWARD][0] += stream(&x, "move", h, 2);
    v[BACKWARD][0] += stream(&x, "move", h, 3);
    v[FORWARD][last] += product(&x, n, logits, h) + loss(&x, logits, false);
    v[BACKWARD][last] += product(&x, n, h, logits) + loss(&x, logits, true);
    v[WEIGHT][last] += product(&x, h, logits, n);
    v[SAVED][last] += (int64_t)(n * logits * 4);
    v[FORWARD_COMM][last] += auto_tensor_ns(l, SEARCH_allreduce, tensor, (int64_t)(n * 4));
    v[BACKWARD_COMM][last] +=
        auto_tensor_ns(l, SEARCH_allreduce, tensor, (int64_t)(n * h * x.bytes));
    *out = (nnc_search_costs){tensor, size, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8],
        v[9], v[10], v[11], v[12], NULL};
    return NNC_OK;
}

/* schedule/attend.c -- attention on a GPU: a kernel of two products with a softmax of the rows between them (kernel/chain.c). q, k and v
 * are each elementwise in one operand.
 *
 *     stage 0: t[c] = score of row r and key c: sum over d of q[r,d] k[c,d], and ops on it.
 *     stage 1: m = max over c of f(t[c]). f: a mask that depends on indices, or nothing.
 *     stage 2: e[c] = exp(f(t[c]) - m), l = sum over c of e[c].
 *     stage 3: p[c] = e[c] / l.
 *     stage 4: y[r,n] = sum over c of p[c] v[c,n].
 *
 * It runs as one pass over blocks of keys. A block of threads has the rows' sums, maxima and results so far in registers. It scales them by
 * exp(old maximum - new maximum) when a block of keys raises the maximum (Milakov and Gimelshein 2018, Dao et al. 2022). So neither scores
 * nor probabilities are ever in memory. The kernel's text stays the stages above. The interpreter executes it, as the reference for the
 * emitter (codegen/cuda_attend.c).
 *
 * A block computes R = 8 `vec` rows (along grid.axis) with 16 columns of threads. A thread has `vec` rows, and every 16th of a block's
 * `group` keys. q, k, v and the block's probabilities are in shared memory as f32. */
#include "schedule/schedule.h"

#include <math.h>
#include <string.h>

enum {
    COLUMNS = 16, /* of threads */
    MOST_WIDE = 256, /* columns of a head, whose results are in registers */
    MOST_BUF = 80
};

/* ---- what the kernel computes ---- */

/* The value that each tmp buffer holds after the instructions so far; -1: none. */
typedef struct matcher {
    const nnc_kernel *k;
    nnc_attend *a;
    int32_t held[MOST_BUF];
} matcher;

static bool is_tmp(const nnc_kernel *k, int b)
{
    return b >= 0 && b < MOST_BUF && k->buf[b].role == KB_tmp;
}

/* The stage's only own axis of this kind, -1: none or several; axes of extent 1 count. */
static int own_axis(const nnc_kernel *k, const nnc_kstage *s, nnc_kaxis_kind kind)
{
    uint32_t m = s->axes & nnc_kernel_axes(k, kind);
    return m && !(m & (m - 1)) ? cu_last_axis(m) : -1;
}

static bool plain(const nnc_kins *in)
{
    return in->n_guard == 0 && nnc_kins_index(in) < 0;
}

/* Is `in` an access to element `axis` of a tmp buffer? */
static bool row_access(const nnc_kernel *k, const nnc_kins *in, int axis)
{
    nnc_affine e = {.k[0] = 0};
    e.k[axis] = 1;
    return is_tmp(k, in->buf) && plain(in) && nnc_affine_equal(&in->at, &e);
}

/* The stage's only reduction, or -1. */
static int32_t reduction(const nnc_kernel *k, const nnc_kstage *s, nnc_kred kind)
{
    int32_t found = -1;
    for (int32_t i = s->body0; i < s->post1; i++) {
        if (k->ins[i].op != KO_reduce)
            continue;
        if (found >= 0 || k->ins[i].sop != kind || k->ins[i].arg[1] >= 0 || k->ins[i].running)
            return -1;
        found = i;
    }
    return found >= 0 && k->ins[found].dtype == DT_f32 ? found : -1;
}

/* Skips casts to f32, such as those of 16-bit operands. */
static int32_t uncast(const nnc_kernel *k, int32_t i)
{
    while (i >= 0 && k->ins[i].op == KO_sop &&
           ((k->ins[i].sop == SC_cast && k->ins[i].dtype == DT_f32 &&
                k->ins[k->ins[i].arg[0]].dtype == DT_f32) ||
               k->ins[i].sop == SC_identity))
        i = k->ins[i].arg[0];
    return i;
}

static bool is_sop(const nnc_kernel *k, int32_t i, nnc_sop op)
{
    return i >= 0 && k->ins[i].op == KO_sop && k->ins[i].sop == op;
}

/* The only load that v is computed from, elementwise; -1: v is of another form. */
static int32_t source(const nnc_kernel *k, int32_t v)
{
    while (k->ins[v].op == KO_sop) {
        int32_t next = -1;
        for (int j = 0; j < 3; j++) {
            const int32_t x = k->ins[v].arg[j];
            if (x < 0 || k->ins[x].op == KO_const)
                continue;
            if (next >= 0)
                return -1;
            next = x;
        }
        if (next < 0 || k->ins[next].dtype != DT_f32)
            return -1;
        v = next;
    }
    return k->ins[v].op == KO_load && plain(&k->ins[v]) ? v : -1;
}

/* The factors of the stage's sum of products; false: the sum is of another form. */
static bool factors(const nnc_kernel *k, int32_t sum, int32_t *x, int32_t *y)
{
    const int32_t t = k->ins[sum].arg[0];
    if (is_sop(k, t, SC_fma)) {
        const nnc_kins *zero = &k->ins[k->ins[t].arg[2]];
        if (zero->op != KO_const || zero->f != 0)
            return false;
    } else if (!is_sop(k, t, SC_mul)) {
        return false;
    }
    *x = uncast(k, k->ins[t].arg[0]);
    *y = uncast(k, k->ins[t].arg[1]);
    return source(k, *x) >= 0 && source(k, *y) >= 0;
}

static bool is_operand(const nnc_kernel *k, int32_t i)
{
    return k->buf[k->ins[i].buf].role == KB_in;
}

/* Are values x and y the same function of the key, which is axis u where x is computed and axis v where y is? *left: steps to spend, since
 * kernels from files may have expressions whose trees are exponential. */
static bool same(
    const nnc_kernel *k, int32_t x, int u, int32_t y, int v, const int32_t *holds, int *left)
{
    if (--*left < 0)
        return false;
    const nnc_kins *p = &k->ins[x], *q = &k->ins[y];
    if (p->op != q->op || p->dtype != q->dtype || p->sop != q->sop || p->cast_to != q->cast_to ||
        p->n_guard || q->n_guard)
        return false;
    switch (p->op) {
    case KO_const: return p->i == q->i && memcmp(&p->f, &q->f, sizeof p->f) == 0;
    case KO_index: return p->i == u ? q->i == v : p->i == q->i;
    case KO_load: {
        nnc_affine e = q->at;
        const int64_t step = e.k[v];
        e.k[v] = 0;
        e.k[u] += step;
        bool held = is_tmp(k, p->buf) && is_tmp(k, q->buf) && holds[x] == holds[y];
        return plain(p) && plain(q) && (p->buf == q->buf ? holds[x] == holds[y] : held) &&
               nnc_affine_equal(&p->at, &e);
    }
    case KO_sop:
        for (int j = 0; j < 3; j++)
            if ((p->arg[j] < 0) != (q->arg[j] < 0) ||
                (p->arg[j] >= 0 && !same(k, p->arg[j], u, q->arg[j], v, holds, left)))
                return false;
        return true;
    default: return x == y;
    }
}

/* By instruction: for a load from a tmp buffer, the value stored there. NULL: out of memory. */
static int32_t *held_values(const nnc_kernel *k)
{
    int32_t now[MOST_BUF];
    int32_t *holds = nnc_malloc(sizeof *holds * ((size_t)k->n_ins + 1));
    memset(now, -1, sizeof now);
    for (int32_t i = 0; holds && i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        holds[i] = in->op == KO_load && is_tmp(k, in->buf) ? now[in->buf] : -1;
        if (in->op == KO_store && is_tmp(k, in->buf))
            now[in->buf] = in->arg[0];
    }
    return holds;
}

/* The first product: scores. */
static bool match_scores(const nnc_kernel *k, nnc_attend *a)
{
    const nnc_kstage *s = &k->stage[0];
    int32_t x, y;
    a->key[0] = own_axis(k, s, KA_map);
    a->depth = own_axis(k, s, KA_reduce);
    a->dot = reduction(k, s, KR_sum);
    if (a->key[0] < 0 || a->depth < 0 || a->dot < 0 || !factors(k, a->dot, &x, &y) ||
        !is_operand(k, source(k, x)) || !is_operand(k, source(k, y)))
        return false;
    bool keys = k->ins[source(k, x)].at.k[a->key[0]] != 0; /* x is the key */
    a->from[0] = keys ? y : x;
    a->from[1] = keys ? x : y;
    a->q = source(k, a->from[0]);
    a->k = source(k, a->from[1]);
    if (k->ins[a->q].at.k[a->key[0]] || !k->ins[a->k].at.k[a->key[0]] ||
        !k->ins[a->q].at.k[a->depth] || !k->ins[a->k].at.k[a->depth])
        return false;
    int stores = 0;
    for (int32_t i = s->body0; i < s->post1; i++)
        if (k->ins[i].op == KO_store) {
            if (i < s->body1 || !row_access(k, &k->ins[i], a->key[0]))
                return false;
            a->stored = i;
            stores++;
        }
    return stores == 1;
}

/* Matches the softmax of a row of scores; *p: the value p[c]. */
static bool match_rows(const nnc_kernel *k, nnc_attend *a, const int32_t *holds)
{
    const nnc_kstage *max = &k->stage[1], *sum = &k->stage[2], *div = &k->stage[3];
    a->key[1] = own_axis(k, max, KA_reduce);
    a->key[2] = own_axis(k, sum, KA_reduce);
    a->key[3] = own_axis(k, div, KA_map);
    a->max = reduction(k, max, KR_max);
    a->sum = reduction(k, sum, KR_sum);
    if (a->key[1] < 0 || a->key[2] < 0 || a->key[3] < 0 || a->max < 0 || a->sum < 0)
        return false;
    a->score[0] = k->ins[a->max].arg[0];
    a->weight = k->ins[a->sum].arg[0];
    if (!is_sop(k, a->weight, SC_exp) || !is_sop(k, k->ins[a->weight].arg[0], SC_sub))
        return false;
    const nnc_kins *less = &k->ins[k->ins[a->weight].arg[0]];
    a->score[1] = less->arg[0];
    const int32_t at = k->ins[a->score[1]].op == KO_load ? holds[a->score[1]] : -1;
    int left = 1024;
    bool again = at >= 0 && at == a->score[0] && row_access(k, &k->ins[a->score[1]], a->key[2]);
    if (less->arg[1] != a->max ||
        !(again || same(k, a->score[0], a->key[1], a->score[1], a->key[2], holds, &left)))
        return false;
    int32_t e = -1, p = -1, stores = 0; /* the quotient and its operand */
    for (int32_t i = div->body0; i < div->post1; i++)
        if (k->ins[i].op == KO_store) {
            p = uncast(k, k->ins[i].arg[0]);
            stores += row_access(k, &k->ins[i], a->key[3]) ? 1 : 2;
            a->prob = k->ins[i].arg[0];
        }
    if (stores != 1 || !is_sop(k, p, SC_div) || k->ins[p].arg[1] != a->sum)
        return false;
    e = uncast(k, k->ins[p].arg[0]);
    return k->ins[e].op == KO_load && row_access(k, &k->ins[e], a->key[3]) && holds[e] == a->weight;
}

/* The second product. */
static bool match_result(const nnc_kernel *k, nnc_attend *a, const int32_t *holds)
{
    const nnc_kstage *s = &k->stage[4];
    int32_t x, y, stores = 0;
    a->wide = own_axis(k, s, KA_map);
    a->key[4] = own_axis(k, s, KA_reduce);
    a->out = reduction(k, s, KR_sum);
    if (a->wide < 0 || a->key[4] < 0 || a->out < 0 || !factors(k, a->out, &x, &y))
        return false;
    bool first = is_operand(k, source(k, x)); /* x is v */
    const int32_t p = first ? y : x;
    a->from[2] = first ? x : y;
    a->v = source(k, a->from[2]);
    for (int32_t i = s->body0; i < s->post1; i++)
        if (k->ins[i].op == KO_store) {
            stores += i >= s->body1 && plain(&k->ins[i]) && !is_tmp(k, k->ins[i].buf) ? 1 : 2;
            a->store = i;
        }
    return stores == 1 && is_operand(k, a->v) && k->ins[p].op == KO_load &&
           is_tmp(k, k->ins[p].buf) && row_access(k, &k->ins[p], a->key[4]) &&
           holds[p] == a->prob && k->ins[a->v].at.k[a->key[4]] && k->ins[a->v].at.k[a->wide];
}

/* The axis of the rows: the longest outer axis of q that neither k nor v has. */
static int row_axis(const nnc_kernel *k, const nnc_attend *a)
{
    int row = -1;
    for (int x = 0; x < k->n_outer; x++)
        if (k->ins[a->q].at.k[x] && !k->ins[a->k].at.k[x] && !k->ins[a->v].at.k[x] &&
            (row < 0 || k->axis[x].extent > k->axis[row].extent))
            row = x;
    return row;
}

/* Do all accesses give f32, from f32 or 16-bit tensors? */
static bool narrow_types(const nnc_kernel *k, const nnc_attend *a)
{
    const int32_t at[] = {a->q, a->k, a->v, a->store};
    for (size_t i = 0; i < NNC_COUNT(at); i++)
        if (k->ins[at[i]].dtype != DT_f32)
            return false;
    return true;
}

bool nnc_attend_find(const nnc_kernel *k, nnc_attend *a)
{
    *a = (nnc_attend){.row = -1};
    if (k->n_stage != 5 || k->n_buf > MOST_BUF)
        return false;
    int32_t *holds = held_values(k);
    bool ok = holds && match_scores(k, a) && match_rows(k, a, holds) && match_result(k, a, holds);
    nnc_free(holds);
    for (int i = 1; ok && i < 5; i++)
        ok = k->axis[a->key[i]].extent == k->axis[a->key[0]].extent;
    if (!ok || !narrow_types(k, a))
        return false;
    a->row = row_axis(k, a);
    return a->row >= 0 && k->axis[a->wide].extent <= MOST_WIDE &&
           k->axis[a->depth].extent <= MOST_WIDE;
}

/* ---- what libraries compute ---- */

/* Follows a load of the scores to the value stored there, and skips casts. */
static int32_t behind(const nnc_kernel *k, const nnc_attend *a, int32_t v)
{
    v = uncast(k, v);
    if (k->ins[v].op == KO_load && is_tmp(k, k->ins[v].buf))
        v = uncast(k, k->ins[a->stored].arg[0]);
    return v;
}

/* Is v the index of axis x? */
static bool is_index(const nnc_kernel *k, int32_t v, int x)
{
    while (k->ins[v].op == KO_sop && k->ins[v].sop == SC_cast)
        v = k->ins[v].arg[0];
    return k->ins[v].op == KO_index && k->ins[v].i == x;
}

/* select(row >= key, score, -inf) */
static bool is_causal(const nnc_kernel *k, const nnc_attend *a, int32_t v)
{
    if (!is_sop(k, v, SC_select))
        return false;
    const nnc_kins *when = &k->ins[k->ins[v].arg[0]], *low = &k->ins[k->ins[v].arg[2]];
    if (when->op != KO_sop || low->op != KO_const || low->f != -INFINITY)
        return false;
    const int row = when->sop == SC_le; /* key <= row */
    return (when->sop == SC_ge || when->sop == SC_le) && is_index(k, when->arg[row], a->row) &&
           (is_index(k, when->arg[!row], a->key[0]) || is_index(k, when->arg[!row], a->key[1]));
}

static bool is_number(const nnc_kernel *k, int32_t v)
{
    return k->ins[v].op == KO_const;
}

/* Is v the load times a number? Multiplies *scale by it. */
static bool scaled(const nnc_kernel *k, int32_t v, int32_t load, double *scale)
{
    while (v != load) {
        const nnc_kins *in = &k->ins[v];
        const int j = in->sop == SC_mul && is_number(k, in->arg[0]);
        if (in->sop == SC_mul)
            *scale *= k->ins[in->arg[!j]].f;
        else if (uncast(k, v) == v)
            return false;
        v = uncast(k, in->arg[j]);
    }
    return true;
}

bool nnc_attend_form(const nnc_kernel *k, const nnc_attend *a, nnc_aform *f)
{
    *f = (nnc_aform){.scale = 1, .mask = -1};
    int32_t v = behind(k, a, a->score[0]);
    if (is_causal(k, a, v)) {
        f->causal = true;
        v = behind(k, a, k->ins[v].arg[1]);
    }
    if (is_sop(k, v, SC_add) && !f->causal) {
        for (int j = 0; j < 2 && f->mask < 0; j++) {
            const int32_t m = uncast(k, k->ins[v].arg[j]);
            if (k->ins[m].op == KO_load && is_operand(k, m) && plain(&k->ins[m]) &&
                k->ins[m].dtype == DT_f32) {
                f->mask = m;
                v = behind(k, a, k->ins[v].arg[!j]);
            }
        }
    }
    if (is_sop(k, v, SC_mul) &&
        (is_number(k, k->ins[v].arg[0]) || is_number(k, k->ins[v].arg[1]))) {
        const int j = is_number(k, k->ins[v].arg[0]);
        f->scale = k->ins[k->ins[v].arg[!j]].f;
        v = behind(k, a, k->ins[v].arg[j]);
    }
    return v == a->dot && a->from[2] == a->v && scaled(k, a->from[0], a->q, &f->scale) &&
           scaled(k, a->from[1], a->k, &f->scale);
}

/* Are rows of the access whole vectors of 16 bytes along axis `along`? */
static bool rows_aligned(const nnc_kernel *k, int32_t access, int along)
{
    return cu_vector(k, &k->ins[access], along, 8) && k->axis[along].extent % 8 == 0;
}

const char *nnc_attend_library(const nnc_kernel *k, const nnc_attend *a, const nnc_target *t)
{
    nnc_aform f;
    const nnc_dtype d = k->buf[k->ins[a->q].buf].dtype;
    int batches = 0;
    for (int x = 0; x < k->n_outer; x++)
        batches += x != a->row && k->axis[x].extent > 1;
    if (!nnc_target_engine_for(t, ASK_conv))
        return "the target has no cuDNN";
    if (t->sm < 80)
        return "cuDNN computes attention from sm_80 on";
    if (d != DT_f16 && d != DT_bf16)
        return "cuDNN computes attention of f16 and bf16";
    if (k->buf[k->ins[a->k].buf].dtype != d || k->buf[k->ins[a->v].buf].dtype != d ||
        k->buf[k->ins[a->store].buf].dtype != d)
        return "cuDNN needs operands and result of one type";
    if (!rows_aligned(k, a->q, a->depth) || !rows_aligned(k, a->k, a->depth) ||
        !rows_aligned(k, a->v, a->wide) || !rows_aligned(k, a->store, a->wide))
        return "cuDNN needs heads of a multiple of 8 numbers that lie side by side";
    if (!nnc_attend_form(k, a, &f))
        return "cuDNN computes scores with a scale, and an added mask or a causal one";
    if (f.mask >= 0 && k->buf[k->ins[f.mask].buf].dtype != DT_f32 &&
        k->buf[k->ins[f.mask].buf].dtype != d)
        return "cuDNN adds masks of f32 or of the operands' type";
    return batches > 2 ? "cuDNN has two dimensions for batches and heads" : NULL;
}

int64_t nnc_attend_stats(const nnc_kernel *k)
{
    return nnc_align_up(4 * cu_all_points(k), 256);
}

/* ---- the grid ---- */

int nnc_attend_lanes(const nnc_kernel *k, const nnc_attend *a)
{
    const int64_t n = k->axis[a->wide].extent;
    for (int w = 4; w > 1; w /= 2)
        if (n % w == 0 && n >= w * COLUMNS / 2 && cu_vector(k, &k->ins[a->store], a->wide, w))
            return w;
    return 1;
}

void nnc_attend_layout(const nnc_kernel *k, const nnc_kgrid *g, const nnc_attend *a, nnc_alayout *l)
{
    enum { PAD = 4 }; /* so that rows begin in different banks */
    l->lanes = nnc_attend_lanes(k, a);
    l->rows = g->threads / COLUMNS * g->vec;
    l->keys = g->group;
    l->depth = (int)nnc_align_up(k->axis[a->depth].extent, 4);
    l->chunks = (int)nnc_ceildiv(k->axis[a->wide].extent, l->lanes * COLUMNS);
    l->wide = l->chunks * COLUMNS * l->lanes;
    l->q = l->depth + PAD;
    l->v = l->wide + PAD;
    l->p = l->keys + PAD;
    l->shared = 4 * ((int64_t)(l->rows + l->keys) * l->q + (int64_t)l->keys * l->v +
                        (int64_t)l->rows * l->p);
}

bool nnc_attend_derive(const nnc_kernel *k, nnc_kgrid *g, int64_t *points)
{
    nnc_attend a;
    nnc_alayout l;
    if (!nnc_attend_find(k, &a) || g->axis != a.row || g->threads != 128 || g->vec > 8 ||
        (g->vec & (g->vec - 1)) || (g->group != 32 && g->group != 64) || g->flight != 1 ||
        g->split != 1 || g->keep || g->spill > 1)
        return false;
    nnc_attend_layout(k, g, &a, &l);
    g->shared = l.shared;
    g->work = g->spill ? nnc_attend_stats(k) + NNC_ATTEND_WORK : 0;
    g->blocks = nnc_ceildiv(k->axis[a.row].extent, l.rows);
    for (int x = 0; x < k->n_outer; x++)
        if (x != a.row && !nnc_mul_ok(g->blocks, k->axis[x].extent, &g->blocks))
            return false;
    *points = cu_all_points(k);
    return g->shared <= NNC_SM_shared;
}

/* ---- time ---- */

/* Clocks of an SM for one block of keys, with `n` resident blocks of threads. Each part takes the longest of issuing (a block has one warp
 * per scheduler), shared-memory reads, and a warp's latency. */
static double step_clocks(const nnc_kgrid *g, const nnc_alayout *l, int n)
{
    const double shared = nnc_gpu_price[NNC_G_shared_wait];
    const int vec = g->vec, keys = l->keys / COLUMNS, columns = l->chunks * l->lanes;
    /* four terms of each sum: multiply-adds, reads, and 4 for the loop; a read of 4 elements by each of 16 threads is 2 accesses */
    const int first = 4 * vec * keys + vec + keys + 4, first_read = 4 * (vec + 2 * keys);
    const int second = 4 * vec * columns + vec + 4 * l->chunks + 4,
              second_read = 4 * (vec + 4 * l->chunks * (l->lanes > 2 ? 2 : 1));
    const int rows = vec * (keys * 14 + 40 + columns);
    const double bytes = 4.0 * l->keys * (l->depth + l->wide);
    const int first_steps = l->depth / 4, second_steps = l->keys / 4;
    double sum = first_steps * fmax(n * fmax(first, first_read), first + shared);
    sum += second_steps * fmax(n * fmax(second, second_read), second + shared);
    sum += fmax(n * rows, rows + nnc_gpu_price[NNC_G_attend_softmax]);
    return sum +
           fmax(nnc_gpu_price[NNC_G_attend_load], n * bytes / nnc_gpu_price[NNC_G_attend_bytes]);
}

/* Nanoseconds of the scheduled kernel without its launch. Each SM runs its share of the blocks, as many at a time as fit in shared memory
 * and registers. */
static double attend_ns(const nnc_kernel *k, const void *of, const nnc_target *t)
{
    const nnc_attend *a = of;
    const nnc_kgrid *g = &k->grid;
    nnc_alayout l;
    nnc_attend_layout(k, g, a, &l);
    const int64_t sms = nnc_target_sms(t), each = nnc_ceildiv(g->blocks, sms),
                  clock = t->clock_hz > 0 ? t->clock_hz : 1000000000, shared = cu_most_shared(t);
    const int registers = NNC_SM_attend_registers +
                          g->vec * (2 * l.keys / COLUMNS + l.chunks * l.lanes + NNC_SM_attend_row);
    int64_t n = nnc_min64(
        shared / (l.shared + NNC_SM_block_shared), NNC_SM_registers / registers / g->threads);
    n = nnc_max64(nnc_min64(n, each), 1);
    const int64_t steps = nnc_ceildiv(k->axis[a->key[0]].extent, l.keys);
    const double clocks = nnc_gpu_price[NNC_G_attend_start] +
                          (double)nnc_ceildiv(each, n) * (double)steps * step_clocks(g, &l, (int)n);
    return floor(fmin(clocks * 1e9 / (double)clock, 1e15));
}

/* Nanoseconds of cuDNN's kernel without its launch: a fixed time, and its FLOPs at a share of the tensor cores' peak. */
static int64_t library_ns(const nnc_kernel *k, const nnc_attend *a, const nnc_target *t)
{
    const int64_t flops = nnc_mul_sat(2 * cu_all_points(k) * k->axis[a->key[0]].extent,
        k->axis[a->depth].extent + k->axis[a->wide].extent);
    const int64_t peak = nnc_target_peak_flops(t, DT_f16, false);
    const double rate = (double)nnc_max64(peak, 1) * nnc_gpu_price[NNC_G_attend_library];
    return (int64_t)(nnc_gpu_price[NNC_G_attend_library_ns] + (double)flops / rate * 1e9);
}

int64_t nnc_attend_ns(const nnc_kernel *k, const nnc_target *t)
{
    nnc_attend a;
    if (k->grid.cls != KC_attend || !nnc_attend_find(k, &a))
        return -1;
    const int64_t own = k->grid.spill ? library_ns(k, &a, t) : (int64_t)attend_ns(k, &a, t);
    const int64_t bytes = nnc_kernel_points(k, nnc_kernel_axes(k, KA_outer)) *
                          (k->axis[a.depth].extent + k->axis[a.wide].extent) *
                          nnc_dtype_size(k->buf[k->ins[a.q].buf].dtype);
    return nnc_add_sat(t->launch_ns, nnc_max64(own, nnc_target_move_ns(t, bytes, 0)));
}

bool nnc_attend_schedule(nnc_kernel *k, const nnc_target *t)
{
    nnc_attend a;
    nnc_kgrid grid[8];
    int n = 0;
    if (!nnc_attend_find(k, &a))
        return false;
    for (int16_t vec = 8; vec >= 1; vec /= 2)
        for (int16_t group = 64; group >= 32; group /= 2) {
            nnc_kgrid *g = &grid[n++];
            *g = k->grid;
            g->cls = KC_attend;
            g->axis = (int16_t)a.row;
            g->threads = 128;
            g->vec = vec;
            g->group = group;
        }
    const double least = nnc_cuda_fastest(k, t, grid, n, attend_ns, &a);
    if (least < INFINITY && !nnc_attend_library(k, &a, t) && (double)library_ns(k, &a, t) < least) {
        k->grid.spill = 1;
        (void)nnc_cuda_derive(k, &k->grid);
    }
    return least < INFINITY;
}

/* math/collapse.c -- replaces chains of functions of one bounded value by polynomials.
 *
 * The operand graph's immediate dominator of an f32 value is the nearest value that all paths to it pass through. The instructions between
 * the two are a function of one variable, a link, whatever their shape: sin x, but also x sigmoid x. Consecutive links form a chain. Along
 * a chain, dynamic programming minimises the number of machine instructions. It chooses between a link's own ones and one polynomial for
 * several links, which needs a finite interval for its argument. Chosen polynomials are measured in the kernel's own arithmetic. One with
 * an error above NNC_POLY_ULP, or above the sum of the bounds of the functions it replaces, gets another coefficient or is dropped. Then
 * the choice is repeated. A polynomial for a chain that may deviate between the sample points is treated likewise: interval arithmetic
 * bounds how much the chain changes there. */
#include "math/collapse.h"
#include "math/poly.h"

#include <math.h>
#include <string.h>

enum {
    LINKS = 64,
    SPAN = 24,
    BODY = 128,
    QUICK = 128,
    SAMPLE = 1500,
    PARTS = 2048,
    LOOSE = 4,
    NEVER = 30000
};

/* ---- costs and error bounds of the functions ---- */

typedef struct plain {
    int cost; /* instructions per vector; 0: not smooth, not part of any link */
    double ulp;
} plain;

static plain of_op(const nnc_kins *in)
{
    const nnc_sop_info *o = &nnc_sops[in->sop];
    if (in->hint & KH_halfpi &&
        (in->sop == SC_sin || in->sop == SC_cos)) /* no argument reduction */
        return in->sop == SC_sin ? (plain){6, 0.9} : (plain){9, 2};
    return (plain){o->cost, o->ulp};
}

static bool is_function(const nnc_kins *in)
{
    return of_op(in).cost >= 6;
}

/* ---- links ---- */

typedef struct link {
    int32_t from, to; /* values */
    int32_t *node; /* instructions in between, `to` last; without constants */
    int n_node, cost;
    double ulp; /* sum of the error bounds of its functions and operations */
    bool closed; /* inner values have no other users */
    bool single; /* `to` is used by the next link only */
    bool function;
} link;

typedef struct piece {
    int cost, loose; /* NEVER: no polynomial; coefficients beyond the first estimate */
    const nnc_poly *poly; /* measured polynomial of this cost */
} piece;

typedef struct choice {
    const nnc_poly *poly;
    int32_t from, to;
    int plain_cost;
} choice;

typedef struct collapser {
    nnc_kernel *k;
    nnc_arena *a; /* scratch */
    nnc_text *note;
    bool wide; /* compute in f64: no fused multiply-add */
    bool fast; /* --math=fast */
    bool *loose; /* by instruction: 16 bits of it suffice */
    int32_t *dom; /* immediate dominator by instruction; -1: none */
    int32_t *section;
    int32_t *uses;
    int32_t *need; /* stamps */
    int32_t stamp;
    bool *seen;
    double *value; /* by instruction, for evaluation */
    nnc_range *hull; /* interval bounds by instruction */
    choice **chosen; /* by instruction */
    int n_chosen, n_step;
    link link[LINKS];
    int n_link;
    piece piece[LINKS][SPAN + 1]; /* from link i, this many links */
    nnc_poly_nodes at;
    double nodes[3 * NNC_POLY_NODES], quick[QUICK]; /* sample points, then values along the chain */
    float quick_x[QUICK], part_x[PARTS];
    double part[PARTS];
    bool oom;
} collapser;

static int32_t meet(const collapser *c, int32_t a, int32_t b)
{
    while (a != b) {
        if (a > b)
            a = c->dom[a];
        else
            b = c->dom[b];
    }
    return a;
}

static void dominators(collapser *c)
{
    nnc_kernel *k = c->k;
    for (int i = 0; i < k->n_ins; i++) {
        const nnc_kins *in = &k->ins[i];
        int32_t d = -2;
        for (int j = 0; j < 3; j++) {
            if (in->arg[j] < 0)
                continue;
            c->uses[in->arg[j]]++;
            if (in->op == KO_sop && c->k->ins[in->arg[j]].op != KO_const)
                d = d == -2 ? in->arg[j] : meet(c, d, in->arg[j]);
        }
        c->dom[i] = d == -2 ? -1 : d;
    }
    for (int s = 0; s < k->n_stage; s++)
        for (int i = k->stage[s].body0; i < k->stage[s].post1; i++)
            c->section[i] = 2 * s + (i >= k->stage[s].post0);
}

/* Builds the link that ends in `to`. False: some instruction is not a smooth f32 function. */
static bool make_link(collapser *c, link *l, int32_t to)
{
    const nnc_kernel *k = c->k;
    int32_t from = c->dom[to];
    *l = (link){.from = from, .to = to, .closed = true};
    if (from < 0 || to - from > BODY || k->ins[from].dtype != DT_f32)
        return false;
    l->node = ARENA_NEW(c->a, int32_t, to - from);
    c->oom |= !l->node;
    if (!l->node)
        return false;
    int32_t stamp = ++c->stamp;
    c->need[to] = stamp;
    for (int32_t i = to; i > from; i--) {
        const nnc_kins *in = &k->ins[i];
        if (c->need[i] != stamp || in->op == KO_const)
            continue;
        plain p = in->op == KO_sop && in->dtype == DT_f32 ? of_op(in) : (plain){0, 0};
        if (p.cost == 0 || c->section[i] != c->section[to])
            return false;
        l->node[l->n_node++] = i;
        l->cost += p.cost >= 6 && c->wide    ? 3 * p.cost
                   : p.cost >= 12 && c->fast ? p.cost * 5 / 9 /* fast forms cost about half */
                                             : p.cost;
        l->ulp += p.ulp;
        l->function |= is_function(in);
        for (int j = 0; j < 3; j++)
            if (in->arg[j] >= 0)
                c->need[in->arg[j]] = stamp;
    }
    for (int i = 0; i < l->n_node / 2; i++) {
        int32_t t = l->node[i];
        l->node[i] = l->node[l->n_node - 1 - i];
        l->node[l->n_node - 1 - i] = t;
    }
    return l->n_node > 0;
}

/* Number of uses of value v by the link's own instructions. */
static int uses_inside(const collapser *c, const link *l, int32_t v)
{
    int n = 0;
    for (int i = 0; i < l->n_node; i++)
        for (int j = 0; j < 3; j++)
            n += c->k->ins[l->node[i]].arg[j] == v;
    return n;
}

static void close_links(collapser *c)
{
    for (int i = 0; i < c->n_link; i++) {
        link *l = &c->link[i];
        for (int j = 0; j < l->n_node - 1; j++)
            l->closed &= uses_inside(c, l, l->node[j]) == c->uses[l->node[j]];
        l->single = i + 1 < c->n_link && uses_inside(c, l + 1, l->to) == c->uses[l->to];
    }
}

/* Builds the chain that ends in v, first link first. */
static void make_chain(collapser *c, int32_t v)
{
    link back[LINKS];
    int n = 0;
    while (n < LINKS && make_link(c, &back[n], v)) {
        c->seen[v] = true;
        v = back[n++].from;
    }
    c->n_link = n;
    for (int i = 0; i < n; i++)
        c->link[i] = back[n - 1 - i];
    close_links(c);
}

/* ---- evaluation in double ---- */

static double eval_link(collapser *c, const link *l, double x)
{
    const nnc_kins *ins = c->k->ins;
    double *v = c->value;
    v[l->from] = x;
    for (int i = 0; i < l->n_node; i++) {
        const nnc_kins *in = &ins[l->node[i]];
        double arg[3] = {0};
        for (int j = 0; j < 3 && in->arg[j] >= 0; j++)
            arg[j] = ins[in->arg[j]].op == KO_const ? ins[in->arg[j]].f : v[in->arg[j]];
        v[l->node[i]] = nnc_steady_f64((nnc_sop)in->sop, arg[0], arg[1], arg[2]);
    }
    return v[l->to];
}

static double eval_links(collapser *c, int i, int n, double x)
{
    for (int j = i; j < i + n; j++)
        x = eval_link(c, &c->link[j], x);
    return x;
}

/* ---- pieces ---- */

static bool has_interval(const collapser *c, int i)
{
    const nnc_kins *in = &c->k->ins[c->link[i].from];
    return in->lo < in->hi && in->lo >= -0x1p16 && in->hi <= 0x1p16;
}

static double zero_of(collapser *c, int i, int n)
{
    return c->at.lo <= 0 && c->at.hi >= 0 ? eval_links(c, i, n, 0) : NAN;
}

/* From near 0 the interval begins at 0: functions that are 0 there keep their relative accuracy by a factor (ln(1 + x) from 1e-13). */
static void place(collapser *c, int i)
{
    const double near = 0x1p-10;
    const nnc_kins *in = &c->k->ins[c->link[i].from];
    const double lo = in->lo > 0 && in->lo < near * in->hi ? 0 : in->lo,
                 hi = in->hi < 0 && in->hi > near * in->lo ? 0 : in->hi;
    nnc_poly_place(&c->at, lo, hi);
    memcpy(c->nodes, c->at.x, sizeof c->nodes);
    for (int j = 0; j < QUICK; j++) {
        c->quick_x[j] = (float)(lo + (hi - lo) * (j + 0.5) / QUICK);
        c->quick[j] = (double)c->quick_x[j];
    }
}

static bool may_join(const collapser *c, int i, int n)
{
    for (int j = i; j < i + n; j++)
        if (!c->link[j].closed || (j + 1 < i + n && !c->link[j].single))
            return false;
    return true;
}

/* True when the piece may use the error bound of --math=fast. */
static bool is_short(const collapser *c, int i, int n)
{
    return c->fast || c->loose[c->link[i + n - 1].to];
}

static void set_tolerance(collapser *c, int i, int n)
{
    bool s = is_short(c, i, n);
    c->at.tolerance = s ? NNC_POLY_FAST_TOLERANCE : NNC_POLY_TOLERANCE;
    c->at.condition = s ? NNC_POLY_FAST_CONDITION : NNC_POLY_CONDITION;
}

/* Error bound of the functions of a piece together. */
static double bound(const collapser *c, int i, int n)
{
    double sum = 0;
    if (is_short(c, i, n))
        return NNC_POLY_FAST_ULP;
    for (int j = i; j < i + n; j++)
        sum += c->link[j].ulp;
    return fmin(sum, NNC_POLY_ULP);
}

/* Finds the shortest polynomial for the values at the nodes that passes a quick sample. */
static void price_piece(collapser *c, int i, int n)
{
    piece *q = &c->piece[i][n];
    double zero = zero_of(c, i, n);
    nnc_poly p;
    set_tolerance(c, i, n);
    for (; q->loose < LOOSE; q->loose++) {
        if (!nnc_poly_fit(&p, &c->at, c->nodes, zero, c->wide, q->loose))
            return;
        if (nnc_poly_check(&p, c->quick_x, c->quick, QUICK) <= bound(c, i, n)) {
            q->cost = p.cost;
            return;
        }
    }
}

/* Costs of all pieces that start at link i, from values computed along the chain. */
static void price(collapser *c, int i)
{
    for (int n = 1; n <= SPAN; n++)
        c->piece[i][n] = (piece){.cost = NEVER};
    if (!has_interval(c, i))
        return;
    place(c, i);
    for (int n = 1; n <= SPAN && i + n <= c->n_link && may_join(c, i, n); n++) {
        for (int j = 0; j < 3 * NNC_POLY_NODES; j++)
            c->nodes[j] = eval_link(c, &c->link[i + n - 1], c->nodes[j]);
        for (int j = 0; j < QUICK; j++)
            c->quick[j] = eval_link(c, &c->link[i + n - 1], c->quick[j]);
        price_piece(c, i, n);
    }
}

/* ---- between sample points ---- */

/* Bounds of the values of links i .. i+n-1 over [lo, hi]. */
static nnc_range hull(collapser *c, int i, int n, double lo, double hi)
{
    const nnc_kins *ins = c->k->ins;
    nnc_range *v = c->hull;
    v[c->link[i].from] = (nnc_range){lo, hi, false};
    for (const link *l = &c->link[i]; l < &c->link[i] + n; l++)
        for (int j = 0; j < l->n_node; j++) {
            const nnc_kins *in = &ins[l->node[j]];
            nnc_range arg[3] = {{0}};
            for (int a = 0; a < 3 && in->arg[a] >= 0; a++) {
                const nnc_kins *x = &ins[in->arg[a]];
                arg[a] = x->op == KO_const ? (nnc_range){x->f, x->f, false} : v[in->arg[a]];
            }
            v[l->node[j]] = nnc_range_of_sop(in, arg[0], arg[1], arg[2]);
        }
    return v[c->link[i + n - 1].to];
}

/* Bisects the interval until the chain changes by at most 1/32 of its size within each part, which a sample cannot miss; fills
 * c->part_x with the boundaries. Returns the number of parts, -1: too many, or a point without a value. */
static int part_interval(collapser *c, int i, int n, double size)
{
    double from[64] = {c->at.lo}, to[64] = {c->at.hi};
    int depth = 1, parts = 0;
    while (depth > 0) {
        double lo = from[--depth], hi = to[depth];
        nnc_range r = hull(c, i, n, lo, hi);
        if (!r.nan && r.hi - r.lo <= size / 32)
            continue;
        float mid = (float)((lo + hi) / 2);
        if (parts == PARTS || depth + 2 > 64 || (double)mid <= lo || (double)mid >= hi)
            return -1;
        c->part_x[parts++] = mid;
        from[depth] = lo;
        to[depth] = from[depth + 1] = (double)mid;
        to[depth + 1] = hi;
        depth += 2;
    }
    return parts;
}

/* True when the chain may deviate from the polynomial between the points of the sample want[0..m). */
static bool hides(collapser *c, int i, int n, const nnc_poly *p, const double *want, int m)
{
    nnc_poly q = *p;
    double size = 0;
    for (int j = 0; j < m; j++)
        size = fmax(size, fabs(want[j]));
    int parts = part_interval(c, i, n, size);
    for (int j = 0; j < parts; j++)
        c->part[j] = eval_links(c, i, n, (double)c->part_x[j]);
    return parts < 0 || nnc_poly_check(&q, c->part_x, c->part, parts) > bound(c, i, n);
}

/* Fits and measures piece (i, n), adding coefficients as needed. Its cost becomes exact, or NEVER. */
static void prove(collapser *c, int i, int n)
{
    piece *q = &c->piece[i][n];
    float *x = ARENA_NEW(c->a, float, SAMPLE + 320);
    double *want = ARENA_NEW(c->a, double, SAMPLE + 320);
    nnc_poly *p = ARENA_NEW(c->a, nnc_poly, 1);
    c->oom |= !x || !want || !p;
    if (c->oom)
        return;
    place(c, i);
    set_tolerance(c, i, n);
    for (int j = 0; j < 3 * NNC_POLY_NODES; j++)
        c->nodes[j] = eval_links(c, i, n, c->nodes[j]);
    int m = nnc_poly_sample(c->at.lo, c->at.hi, SAMPLE, x);
    for (int j = 0; j < m; j++)
        want[j] = eval_links(c, i, n, (double)x[j]);
    for (int loose = q->loose; loose < LOOSE; loose++) {
        if (!nnc_poly_fit(p, &c->at, c->nodes, zero_of(c, i, n), c->wide, loose))
            break;
        if (nnc_poly_check(p, x, want, m) > bound(c, i, n))
            continue;
        if (hides(c, i, n, p, want, m))
            break;
        q->poly = p;
        q->cost = p->cost;
        return;
    }
    q->cost = NEVER;
}

/* Cheapest partition of the chain: take[j] links that end at j form one piece, 0: the link's own instructions. */
static void cheapest(const collapser *c, int *take)
{
    int best[LINKS + 1] = {0};
    for (int j = 1; j <= c->n_link; j++) {
        best[j] = best[j - 1] + c->link[j - 1].cost;
        take[j] = 0;
        for (int n = 1; n <= SPAN && n <= j; n++) {
            bool function = false;
            for (int i = j - n; i < j; i++)
                function |= c->link[i].function;
            int cost = best[j - n] + c->piece[j - n][n].cost;
            if (function && c->piece[j - n][n].cost < NEVER && cost < best[j]) {
                best[j] = cost;
                take[j] = n;
            }
        }
    }
}

static void accept(collapser *c, int i, int n)
{
    choice *h = ARENA_NEW(c->a, choice, 1);
    c->oom |= !h;
    if (!h)
        return;
    h->poly = c->piece[i][n].poly;
    h->from = c->link[i].from;
    h->to = c->link[i + n - 1].to;
    for (int j = i; j < i + n; j++)
        h->plain_cost += c->link[j].cost;
    c->chosen[h->to] = h;
    c->n_chosen++;
    c->n_step += h->poly->f.n;
}

/* Repeats the choice until all chosen pieces are measured at the cost they were chosen for. */
static void choose_pieces(collapser *c)
{
    int take[LINKS + 1];
    for (int i = 0; i < c->n_link; i++)
        price(c, i);
    for (bool again = true; again && !c->oom;) {
        again = false;
        cheapest(c, take);
        for (int j = c->n_link; j > 0 && !c->oom; j -= take[j] ? take[j] : 1)
            if (take[j] && !c->piece[j - take[j]][take[j]].poly) {
                prove(c, j - take[j], take[j]);
                again = true;
            }
    }
    for (int j = c->n_link; j > 0 && !c->oom; j -= take[j] ? take[j] : 1)
        if (take[j])
            accept(c, j - take[j], take[j]);
}

/* ---- rewriting the kernel ---- */

static void rewrite(void *ctx, nnc_kedit *e, int i)
{
    const collapser *c = ctx;
    const nnc_kins *old = &e->k->ins[i];
    const choice *h = c->chosen[i];
    if (!h) {
        nnc_kedit_copy(e, i);
        return;
    }
    static const uint8_t sop[FO__COUNT] = {[FO_add] = SC_add,
        [FO_sub] = SC_sub,
        [FO_mul] = SC_mul,
        [FO_fma] = SC_fma,
        [FO_wide] = SC_cast,
        [FO_narrow] = SC_cast};
    int32_t id[NNC_FSTEPS] = {e->map[h->from]};
    for (int s = 1; s < h->poly->f.n; s++) {
        const nnc_fstep *q = &h->poly->f.step[s];
        nnc_dtype d = q->type == FT_f64 ? DT_f64 : DT_f32;
        int32_t arg[3];
        for (int j = 0; j < 3; j++)
            arg[j] = q->arg[j] >= 0 ? id[q->arg[j]] : -1;
        id[s] = q->op == FO_num ? nnc_kedit_const(e, d, q->f)
                                : nnc_kedit_sop(e, (nnc_sop)sop[q->op], d, arg[0], arg[1], arg[2]);
    }
    nnc_kins *y = &e->ins[e->n - 1];
    y->lo = old->lo;
    y->hi = old->hi;
    y->maybe_nan = old->maybe_nan;
    e->map[i] = e->n - 1;
}

/* "sin x3, exp" */
static void put_ops(const collapser *c, nnc_text *t, const choice *h)
{
    int32_t stamp = c->stamp + 1, last = -1, n = 0;
    c->need[h->to] = stamp;
    for (int32_t i = h->to; i > h->from; i--)
        for (int j = 0; c->need[i] == stamp && j < 3; j++)
            if (c->k->ins[i].arg[j] >= 0)
                c->need[c->k->ins[i].arg[j]] = stamp;
    for (int32_t i = h->from + 1; i <= h->to + 1; i++) {
        bool end = i > h->to;
        if (!end && (c->need[i] != stamp || c->k->ins[i].op == KO_const))
            continue;
        int sop = end ? -1 : c->k->ins[i].sop;
        if (sop == last) {
            n++;
            continue;
        }
        if (n > 1)
            nnc_printf(t, " x%d", n);
        if (!end)
            nnc_printf(t, "%s%s", last >= 0 ? ", " : "", nnc_sops[sop].name);
        last = sop;
        n = 1;
    }
}

static void explain(collapser *c)
{
    for (int i = 0; i < c->k->n_ins; i++) {
        const choice *h = c->chosen[i];
        if (!h)
            continue;
        const nnc_poly *p = h->poly;
        put_ops(c, c->note, h);
        c->stamp++;
        nnc_printf(c->note,
            " on [%.4g, %.4g]: one polynomial of degree %d, %d instructions instead of %d, wrong "
            "by %.1f ulp at most\n",
            p->lo, p->hi, (p->n - 1) * (p->squared ? 2 : 1) + p->order, p->cost, h->plain_cost,
            p->ulp);
    }
}

static bool open(collapser *c)
{
    size_t n = (size_t)c->k->n_ins + 1;
    c->dom = ARENA_NEW(c->a, int32_t, n);
    c->section = ARENA_NEW(c->a, int32_t, n);
    c->uses = ARENA_NEW(c->a, int32_t, n);
    c->need = ARENA_NEW(c->a, int32_t, n);
    c->seen = ARENA_NEW(c->a, bool, n);
    c->value = ARENA_NEW(c->a, double, n);
    c->hull = ARENA_NEW(c->a, nnc_range, n);
    c->chosen = ARENA_NEW(c->a, choice *, n);
    c->loose = ARENA_NEW(c->a, bool, n);
    return c->dom && c->section && c->uses && c->need && c->seen && c->value && c->hull &&
           c->chosen && c->loose;
}

static bool has_function(const nnc_kernel *k)
{
    for (int i = 0; i < k->n_ins; i++)
        if (k->ins[i].op == KO_sop && k->ins[i].dtype == DT_f32 && is_function(&k->ins[i]) &&
            !(k->ins[i].sop == SC_div || k->ins[i].sop == SC_recip))
            return true;
    return false;
}

static bool collapse(collapser *c, nnc_arena *out)
{
    if (!open(c))
        return false;
    dominators(c);
    if (!c->wide)
        nnc_kernel_loose(c->k, c->loose);
    for (int i = c->k->n_ins - 1; i >= 0 && !c->oom; i--) {
        if (c->k->ins[i].op != KO_sop || c->seen[i])
            continue;
        make_chain(c, i);
        bool function = false;
        for (int j = 0; j < c->n_link; j++)
            function |= c->link[j].function;
        if (function)
            choose_pieces(c);
    }
    if (c->oom || c->n_chosen == 0)
        return !c->oom;
    explain(c);
    nnc_kedit e;
    if (!nnc_kedit_begin(&e, c->k, c->n_step, out))
        return false;
    nnc_kedit_run(&e, rewrite, c);
    return true;
}

bool nnc_kernel_collapse(
    nnc_kernel *k, const nnc_target *t, nnc_math math, nnc_arena *a, nnc_text *note)
{
    if (!has_function(k))
        return true;
    NNC_LOCAL(nnc_arena) scratch = {0};
    NNC_FREED collapser *c = nnc_calloc(1, sizeof *c);
    if (!c)
        return false;
    c->k = k;
    c->a = &scratch;
    c->note = note;
    c->wide = !nnc_has_fma(t);
    c->fast = math == MATH_fast;
    return collapse(c, a);
}

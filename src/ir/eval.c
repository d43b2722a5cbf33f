/* ir/eval.c -- the reference evaluator: executes a graph in order, keeps values until their last use, and calls the function of each op's
 * class (eval_*.c). Simple where possible, but usable at real sizes. Leaves are read at their first use, reshapes share memory, and an
 * elementwise op overwrites an operand at its last use. */
#include "ir/eval_internal.h"
#include "ir/graph.h"

#include <assert.h>
#include <string.h>

/* ---- parallel ranges ---- */

typedef struct for_job {
    int64_t n, grain;
    ev_body *fn;
    void *ctx;
    int status; /* of any failed range */
} for_job;

static void for_part(void *ctx, int part, int parts)
{
    for_job *j = ctx;
    int64_t begin, end;
    nnc_par_range(j->n, j->grain, part, parts, &begin, &end);
    nnc_status s = begin < end ? j->fn(j->ctx, begin, end) : NNC_OK;
    if (s != NNC_OK)
        __atomic_store_n(&j->status, (int)s, __ATOMIC_RELAXED);
}

nnc_status ev_for(const ev *e, int64_t n, int64_t grain, int64_t cost, ev_body *fn, void *ctx)
{
    for_job j = {.n = n, .grain = grain, .fn = fn, .ctx = ctx, .status = NNC_OK};
    bool small = (double)n * (double)cost < 32768;
    nnc_par_run(small ? 1 : e->threads, for_part, &j);
    return (nnc_status)j.status;
}

/* ---- values ---- */

/* Elements of a value, shared by the refs that view it (in one frame, or in a fused node and around it). */
typedef struct buf {
    void *data;
    int refs;
} buf;

static buf *new_buf(int64_t elements)
{
    buf *b = nnc_malloc(sizeof *b);
    int64_t bytes;
    if (!b || !nnc_mul_ok(elements, 8, &bytes)) {
        nnc_free(b);
        return NULL;
    }
    b->refs = 1;
    b->data = nnc_aligned_alloc(64, (size_t)nnc_align_up(bytes, 64));
    if (!b->data) {
        nnc_free(b);
        return NULL;
    }
    return b;
}

static void drop(buf *b)
{
    if (b && --b->refs == 0) {
        nnc_free(b->data);
        nnc_free(b);
    }
}

/* A graph being evaluated: the whole model, or the body of a fused node. */
typedef struct frame {
    const ev *e;
    const nnc_graph *g;
    const void *const
        *inputs; /* whole graph: the caller's data; NULL in a body, whose inputs are in val */
    buf **val; /* by value id; NULL: not computed, or no longer needed */
    uint32_t *left; /* remaining uses */
    bool body;
} frame;

/* ---- leaves ---- */

typedef struct leaf_job {
    const ev *e;
    const nnc_type *t;
    const nnc_weight *w; /* NULL: `data` */
    const void *data;
    int64_t inner, extent; /* iota */
    nnc_sink *sink;
    uint64_t *y;
} leaf_job;

enum { CHUNK = 8192 };

static void widen(nnc_dtype d, const void *src, int64_t first, int64_t n, uint64_t *y)
{
    double *f = (double *)y;
    if (d == DT_f64)
        memcpy(y, (const double *)src + first, (size_t)n * 8);
    else if (d == DT_f32)
        for (int64_t i = 0; i < n; i++)
            f[i] = ((const float *)src)[first + i];
    else if (nnc_is_float(d))
        for (int64_t i = 0; i < n; i++)
            f[i] = nnc_get_f64(d, src, first + i);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = (uint64_t)nnc_get_i64(d, src, first + i);
}

static nnc_status widen_range(void *ctx, int64_t begin, int64_t end)
{
    const leaf_job *j = ctx;
    nnc_dtype d = j->t->dtype;
    if (!j->w) {
        widen(d, j->data, begin, end - begin, j->y + begin);
        return NNC_OK;
    }
    NNC_FREED void *tmp = nnc_malloc((size_t)CHUNK * (size_t)nnc_dtype_size(d));
    if (!tmp)
        return NNC_E_NOMEM;
    for (int64_t i = begin; i < end; i += CHUNK) {
        int64_t n = nnc_min64(CHUNK, end - i);
        NNC_TRY(nnc_weight_read(j->w, j->t, i, n, tmp, j->e->files, j->sink));
        widen(d, tmp, 0, n, j->y + i);
    }
    return NNC_OK;
}

static nnc_status iota_range(void *ctx, int64_t begin, int64_t end)
{
    const leaf_job *j = ctx;
    nnc_dtype d = j->t->dtype;
    for (int64_t i = begin; i < end; i++) {
        int64_t v = i / j->inner % j->extent;
        if (nnc_is_float(d))
            ((double *)j->y)[i] = (double)v;
        else
            j->y[i] = (uint64_t)nnc_sop_eval_i64(SC_cast, d, v, 0, 0);
    }
    return NNC_OK;
}

/* Index of input node n among g's inputs. */
static int input_index(const nnc_graph *g, const nnc_node *n)
{
    int at = 0;
    for (const nnc_node *m = g->node; m < n; m++)
        at += m->op == OP_input;
    return at;
}

static nnc_status read_leaf(frame *f, nnc_ref r)
{
    const nnc_node *n = nnc_def(f->g, r);
    const nnc_type *t = nnc_typeof(f->g, r);
    buf *b = new_buf(nnc_type_numel(t));
    NNC_NEED(b, f->e->sink);
    leaf_job j = {.e = f->e, .t = t, .w = n->weight, .y = b->data};
    int64_t elements = nnc_type_numel(t);
    nnc_status s = NNC_OK;
    uint32_t o = 0;
    while (n->state && o < f->g->n_output && f->g->output_state[o] != r)
        o++;
    if (n->state && f->e->before && o < f->g->n_output) {
        const nnc_rval *v = &f->e->before[o];
        memcpy(b->data, v->f ? (const void *)v->f : v->i, (size_t)elements * 8);
    } else if (n->op == OP_iota) {
        int dim = (int)nnc_attr_int(n, AT_dim, 0);
        j.extent = t->rank ? t->dim[dim] : 1;
        j.inner = nnc_type_extents(t, dim + 1, t->rank);
        s = ev_for(f->e, elements, 1, 1, iota_range, &j);
    } else {
        if (n->op == OP_input) {
            assert(f->inputs);
            j.w = NULL;
            j.data = f->inputs[input_index(f->g, n)];
        }
        s = ev_for(f->e, elements, CHUNK, 1, widen_range, &j);
        if (s == NNC_E_NOMEM) {
            s = nnc_nomem(f->e->sink);
        } else if (s != NNC_OK) {
            /* repeated here for the message, since threads share no sink */
            j.sink = f->e->sink;
            s = widen_range(&j, 0, elements);
        }
    }
    if (s != NNC_OK) {
        drop(b);
        return s;
    }
    f->val[r] = b;
    return NNC_OK;
}

/* ---- nodes ---- */

static nnc_status run_graph(
    const ev *e, const nnc_graph *g, const void *const *inputs, buf **args, buf **results);

static void use_done(frame *f, nnc_ref r)
{
    if (--f->left[r] == 0) {
        drop(f->val[r]);
        f->val[r] = NULL;
    }
}

static uint32_t occurrences(const nnc_node *n, nnc_ref r)
{
    uint32_t c = 0;
    for (int i = 0; i < n->n_in; i++)
        c += n->in[i] == r;
    return c;
}

static bool shares_operand(nnc_op op)
{
    return op == OP_reshape || op == OP_relayout || op == OP_identity || op == OP_dropout;
}

/* Finds an operand whose memory the elementwise result can reuse: one at its last use, with the same number of elements. */
static buf *dying_operand(const frame *f, const nnc_node *n, const nnc_type *out)
{
    for (int i = 0; i < n->n_in; i++) {
        nnc_ref r = n->in[i];
        if (f->val[r]->refs == 1 && f->left[r] == occurrences(n, r) &&
            nnc_type_same_shape(nnc_typeof(f->g, r), out))
            return f->val[r];
    }
    return NULL;
}

static nnc_status run_class(const ev *e, const nnc_node *n, const ev_arg *in, ev_arg *out)
{
    static ev_run *const by_class[] = {[CL_ewise] = ev_ewise,
        [CL_ecomp] = ev_ewise,
        [CL_reduce] = ev_reduce,
        [CL_move] = ev_move,
        [CL_window] = ev_pool,
        [CL_contract] = ev_contract,
        [CL_comp] = ev_comp,
        [CL_loop] = ev_loop,
        [CL_collective] = ev_collective};
    return by_class[nnc_op_class(n->op)](e, n, in, out);
}

/* Assigns buffers to results: shared, reused or new. */
static nnc_status place_results(frame *f, const nnc_node *n)
{
    for (int i = 0; i < n->n_out; i++) {
        const nnc_type *t = nnc_typeof(f->g, n->out + (nnc_ref)i);
        buf *b = NULL;
        if (shares_operand(n->op))
            b = f->val[n->in[0]];
        else if (nnc_op_is_ewise(n->op))
            b = dying_operand(f, n, t);
        if (b)
            b->refs++;
        else
            b = new_buf(nnc_type_numel(t));
        NNC_NEED(b, f->e->sink);
        f->val[n->out + (nnc_ref)i] = b;
    }
    return NNC_OK;
}

/* Executes n with operand 0 perturbed, and perturbs its results. */
static nnc_status run_rounded(const frame *f, const nnc_node *n, ev_arg *in, ev_arg *out)
{
    const ev_errors a = ev_errors_of(f->e, f->g, n);
    ev e = *f->e;
    buf *copy = NULL;
    e.errors = a;
    if (a.operand > 0) {
        copy = new_buf(nnc_type_numel(in->type));
        NNC_NEED(copy, f->e->sink);
    }
    nnc_status s = copy ? ev_perturb(f->e, n, 0, in->type, a.operand, in->f, copy->data) : NNC_OK;
    if (copy)
        in->p = copy->data;
    if (s == NNC_OK)
        s = run_class(&e, n, in, out);
    if (s == NNC_OK && a.terms > 0)
        s = ev_mark_overflow(f->e, n, a.terms, run_class, in);
    const int n_out = a.result > 0 && !ev_is_recurrent(n) ? n->n_out : 0;
    for (int i = 0; i < n_out && s == NNC_OK; i++)
        s = ev_perturb(f->e, n, -1 - i, out[i].type, a.result, out[i].f, out[i].f);
    drop(copy);
    return s;
}

static nnc_status run_plain(frame *f, const nnc_node *n)
{
    NNC_TRY(place_results(f, n));
    if (shares_operand(n->op))
        return NNC_OK;
    NNC_FREED ev_arg *arg = nnc_malloc(sizeof *arg * ((size_t)n->n_in + n->n_out));
    NNC_NEED(arg, f->e->sink);
    for (int i = 0; i < n->n_in; i++)
        arg[i] = (ev_arg){.type = nnc_typeof(f->g, n->in[i]), .p = f->val[n->in[i]]->data};
    ev_arg *out = arg + n->n_in;
    for (int i = 0; i < n->n_out; i++) {
        nnc_ref r = n->out + (nnc_ref)i;
        out[i] = (ev_arg){.type = nnc_typeof(f->g, r), .p = f->val[r]->data};
    }
    return f->e->rounding ? run_rounded(f, n, arg, out) : run_class(f->e, n, arg, out);
}

static void edit_results(const frame *f, const nnc_node *n)
{
    for (size_t i = 0; i < f->e->n_edit && !f->body; i++) {
        const nnc_replaced *d = &f->e->edit[i];
        if (d->value >= n->out && d->value < n->out + n->n_out && f->val[d->value])
            ((double *)f->val[d->value]->data)[d->element] = d->number;
    }
}

/* The body's inputs share the operands' memory. The body may overwrite an operand at its last use. */
static nnc_status run_fused(frame *f, const nnc_node *n)
{
    NNC_FREED buf **args = nnc_calloc((size_t)n->n_in + 1, sizeof *args);
    NNC_NEED(args, f->e->sink);
    for (int i = 0; i < n->n_in; i++) {
        args[i] = f->val[n->in[i]];
        args[i]->refs++;
    }
    for (int i = 0; i < n->n_in; i++)
        use_done(f, n->in[i]);
    return run_graph(f->e, n->body, NULL, args, f->val + n->out);
}

static nnc_status run_node(frame *f, const nnc_node *n)
{
    bool fused = n->op == OP_fused, needed = false;
    for (int i = 0; i < n->n_out; i++)
        needed |= f->left[n->out + (nnc_ref)i] > 0;
    nnc_status s = NNC_OK;
    for (int i = 0; needed && i < n->n_in && s == NNC_OK; i++)
        if (!f->val[n->in[i]])
            s = read_leaf(f, n->in[i]);
    if (s == NNC_OK && needed)
        s = fused ? run_fused(f, n) : run_plain(f, n);
    if (s != NNC_OK)
        return s;
    if (needed)
        edit_results(f, n);
    for (int i = 0; i < n->n_in && !(needed && fused); i++)
        use_done(f, n->in[i]);
    for (int i = 0; needed && i < n->n_out; i++)
        if (f->left[n->out + (nnc_ref)i] == 0) {
            drop(f->val[n->out + (nnc_ref)i]);
            f->val[n->out + (nnc_ref)i] = NULL;
        }
    return NNC_OK;
}

/* Moves the outputs to `results`, one reference each. */
static nnc_status take_outputs(frame *f, buf **results)
{
    for (uint32_t o = 0; o < f->g->n_output; o++) {
        nnc_ref r = f->g->output[o];
        nnc_status s = f->val[r] ? NNC_OK : read_leaf(f, r);
        if (s != NNC_OK) {
            while (o-- > 0) {
                drop(results[o]);
                results[o] = NULL;
            }
            return s;
        }
        results[o] = f->val[r];
        results[o]->refs++;
        use_done(f, r);
    }
    return NNC_OK;
}

/* Evaluates g. Consumes args (a body's inputs), also on failure. */
static nnc_status run_graph(
    const ev *e, const nnc_graph *g, const void *const *inputs, buf **args, buf **results)
{
    frame f = {.e = e, .g = g, .inputs = inputs, .body = args != NULL};
    NNC_LOCAL(nnc_arena) tmp = {0};
    f.val = ARENA_NEW(&tmp, buf *, g->n_value + 1);
    f.left = nnc_use_counts(g, &tmp);
    nnc_status s = f.val && f.left ? NNC_OK : nnc_nomem(e->sink);
    int at = 0;
    for (uint32_t i = 0; args && i < g->n_node; i++) {
        if (g->node[i].op != OP_input)
            continue;
        buf *b = args[at++];
        if (s == NNC_OK && f.left[g->node[i].out])
            f.val[g->node[i].out] = b;
        else
            drop(b);
    }
    for (uint32_t i = 0; s == NNC_OK && i < g->n_node; i++)
        if (nnc_op_class(g->node[i].op) != CL_leaf)
            s = run_node(&f, &g->node[i]);
    if (s == NNC_OK)
        s = take_outputs(&f, results);
    for (uint32_t r = 0; f.val && r < g->n_value; r++)
        drop(f.val[r]);
    return s;
}

/* ---- entry points -------------------------------------------------------------------------------------------------- */

/* Makes the caller's value from a buffer: its memory, or a copy where another output uses it too. */
static nnc_status to_rval(const ev *e, const nnc_type *t, buf *b, nnc_rval *out)
{
    size_t bytes = (size_t)nnc_type_numel(t) * 8;
    void *data = b->data;
    if (b->refs > 1) {
        data = nnc_aligned_alloc(64, (size_t)nnc_align_up((int64_t)bytes, 64));
        NNC_NEED(data, e->sink);
        memcpy(data, b->data, bytes);
    } else {
        b->data = NULL;
    }
    out->type = nnc_type_make(t->dtype, t->rank, t->dim);
    if (nnc_is_float(t->dtype))
        out->f = data;
    else
        out->i = data;
    return NNC_OK;
}

static nnc_status evaluate(
    const ev *e, const nnc_graph *g, const void *const *inputs, nnc_rval *outputs)
{
    memset(outputs, 0, sizeof *outputs * g->n_output);
    buf **results = nnc_calloc((size_t)g->n_output + 1, sizeof *results);
    nnc_graph *expanded = e->rounding ? ev_expanded(g, e->sink) : NULL;
    nnc_status s = !results || (e->rounding && !expanded)
                       ? nnc_nomem(e->sink)
                       : run_graph(e, expanded ? expanded : g, inputs, NULL, results);
    nnc_graph_destroy(expanded);
    if (!results)
        return s;
    for (uint32_t o = 0; o < g->n_output; o++) {
        if (s == NNC_OK)
            s = to_rval(e, nnc_typeof(g, g->output[o]), results[o], &outputs[o]);
        drop(results[o]);
    }
    nnc_free(results);
    for (uint32_t o = 0; s != NNC_OK && o < g->n_output; o++)
        nnc_rval_free(&outputs[o]);
    return s;
}

/* how: all settings except the number of threads, files and sink. */
static nnc_status start(const nnc_graph *g, const void *const *inputs, int threads, ev how,
    nnc_rval *outputs, nnc_sink *sink)
{
    NNC_LOCAL(nnc_weight_files) files = {NULL};
    how.threads = threads < 1 ? 1 : threads;
    how.files = &files;
    how.sink = sink;
    return evaluate(&how, g, inputs, outputs);
}

nnc_status nnc_eval_step(const nnc_graph *g, const void *const *inputs, int threads,
    const nnc_rval *before, nnc_rval *outputs, nnc_sink *sink)
{
    return start(g, inputs, threads, (ev){.before = before}, outputs, sink);
}

nnc_status nnc_eval(
    const nnc_graph *g, const void *const *inputs, int threads, nnc_rval *outputs, nnc_sink *sink)
{
    return start(g, inputs, threads, (ev){.threads = 1}, outputs, sink);
}

nnc_status nnc_eval_rounded(const nnc_graph *g, const void *const *inputs, int threads,
    const nnc_rounding *rounding, nnc_rval *outputs, nnc_sink *sink)
{
    return start(g, inputs, threads,
        (ev){.rounding = rounding, .before = rounding ? rounding->before : NULL}, outputs, sink);
}

nnc_status nnc_eval_replaced(const nnc_graph *g, const void *const *inputs, int threads,
    const nnc_replaced *edit, size_t n, nnc_rval *outputs, nnc_sink *sink)
{
    return start(g, inputs, threads, (ev){.edit = edit, .n_edit = n}, outputs, sink);
}

void nnc_rval_free(nnc_rval *v)
{
    nnc_free(v->f);
    nnc_free(v->i);
    v->f = NULL;
    v->i = NULL;
}

void nnc_rval_store(const nnc_rval *v, void *to)
{
    const nnc_dtype d = v->type.dtype;
    for (int64_t i = 0, n = nnc_type_numel(&v->type); i < n; i++)
        v->f ? nnc_set_f64(d, to, i, v->f[i]) : nnc_set_i64(d, to, i, v->i[i]);
}

nnc_ref nnc_constant_of(nnc_graph *g, const nnc_rval *v)
{
    const nnc_type t = nnc_type_make(v->type.dtype, v->type.rank, v->type.dim);
    NNC_FREED void *data = nnc_malloc((size_t)nnc_type_bytes(&t));
    if (!data)
        return nnc_stick(g, nnc_nomem(g->sink));
    nnc_rval_store(v, data);
    return nnc_constant(g, &t, data);
}

/* ---- cost ---------------------------------------------------------------------------------------------------------- */

static void cost_of(const nnc_graph *g, double *ops, double *peak);

static void cost_node(const nnc_graph *g, const nnc_node *n, bool *here, uint32_t *left,
    double *now, double *ops, double *peak)
{
    double body_peak = 0, dying = 0, made = 0;
    for (int i = 0; i < n->n_in; i++)
        if (!here[n->in[i]]) { /* a leaf is read at its first use */
            here[n->in[i]] = true;
            *now += 8.0 * (double)nnc_type_numel(nnc_typeof(g, n->in[i]));
        }
    if (n->op == OP_fused)
        cost_of(n->body, ops, &body_peak);
    else
        *ops += ev_node_ops(g, n);
    for (int i = 0; i < n->n_in; i++)
        if (--left[n->in[i]] == 0)
            dying += 8.0 * (double)nnc_type_numel(nnc_typeof(g, n->in[i]));
    for (int i = 0; i < n->n_out; i++) {
        here[n->out + (nnc_ref)i] = true;
        made += 8.0 * (double)nnc_type_numel(nnc_typeof(g, n->out + (nnc_ref)i));
    }
    bool in_place = nnc_op_is_ewise(n->op) || shares_operand(n->op);
    double during =
        *now + body_peak + (n->op == OP_fused || (in_place && dying >= made) ? 0 : made);
    *now += made - dying;
    double after = *now > during ? *now : during;
    if (after > *peak)
        *peak = after;
}

static void cost_of(const nnc_graph *g, double *ops, double *peak)
{
    NNC_LOCAL(nnc_arena) tmp = {0};
    uint32_t *left = nnc_use_counts(g, &tmp);
    bool *here = ARENA_NEW(&tmp, bool, g->n_value + 1);
    double now = 0;
    if (!left || !here)
        *ops = *peak = 0x1p62; /* unknown: treated as very expensive */
    else
        for (uint32_t i = 0; i < g->n_node; i++)
            if (nnc_op_class(g->node[i].op) != CL_leaf)
                cost_node(g, &g->node[i], here, left, &now, ops, peak);
}

void nnc_eval_cost(const nnc_graph *g, int64_t *ops, int64_t *peak_bytes)
{
    double o = 0, p = 0;
    cost_of(g, &o, &p);
    *ops = o < 0x1p62 ? (int64_t)o : INT64_MAX;
    *peak_bytes = p < 0x1p62 ? (int64_t)p : INT64_MAX;
}

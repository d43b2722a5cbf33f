/* onnx/build_loop.c -- Loop and Scan are written out, iteration by iteration: a loop whose end depends on data is refused. */
#include "onnx/internal.h"
#include <string.h>

enum { MAX_ITERATIONS = 1 << 14 };

typedef struct loop {
    ox_build *b;
    ox_graph body;
    int n_state; /* values that each iteration takes from the one before */
    int n_scan; /* results of which each iteration computes a part */
    ox_value *state;
    nnc_ref *part; /* MAX_ITERATIONS of each scan result */
    int n; /* iterations so far */
} loop;

static bool open_loop(ox_build *b, loop *l, int n_state, int first_out)
{
    const ox_attr *a = ox_attr_find(b, "body", OXA_graph);
    if (!a)
        return ox_wrong(b, "its body is missing");
    *l = (loop){.b = b, .n_state = n_state, .n_scan = b->n_out - n_state};
    if (!ox_open_graph(b->x, a->bytes, &l->body))
        return false;
    if (l->n_scan < 0 || l->body.n_out != (size_t)(b->n_out + first_out))
        return ox_wrong(b, "its body has %zu outputs, the node %d", l->body.n_out, b->n_out);
    l->state = ARENA_NEW(&b->x->a, ox_value, n_state + 1);
    l->part = ARENA_NEW(&b->x->a, nnc_ref, (size_t)l->n_scan * MAX_ITERATIONS + 1);
    if (!l->state || !l->part)
        return ox_nomem(b->x);
    return true;
}

/* Runs the body on these inputs; its results from `first_out` on are the states and parts. */
static bool iterate(loop *l, const ox_value *in, int n_in, int first_out, ox_value *cond)
{
    ox_build *b = l->b;
    ox_scope s = {.up = b->scope,
        .opset = b->scope->opset,
        .n_opset = b->scope->n_opset,
        .call = b->scope->call,
        .prefix = nnc_arena_printf(&b->x->a, "%s[%d]", b->path, l->n)};
    if (!s.prefix)
        return ox_nomem(b->x);
    if (l->n == MAX_ITERATIONS)
        return ox_refuse(b, "it has more than %d iterations", MAX_ITERATIONS);
    if ((size_t)n_in != l->body.n_in)
        return ox_wrong(b, "its body has %zu inputs, the node gives %d", l->body.n_in, n_in);
    for (int i = 0; i < n_in; i++)
        if (!ox_define(b->x, &s, l->body.in[i].name, in[i]))
            return false;
    if (ox_run_graph(b->x, &s, &l->body))
        return false;
    for (size_t i = 0; i < l->body.n_out; i++) {
        ox_value *v = ox_lookup(&s, l->body.out[i].name);
        int k = (int)i - first_out;
        if (!v || v->state == OX_unset)
            return ox_wrong(b, "its body does not compute `%.60s`", l->body.out[i].name);
        if (k < 0)
            *cond = *v;
        else if (k < l->n_state)
            l->state[k] = *v;
        else if (v->state == OX_here)
            l->part[(k - l->n_state) * MAX_ITERATIONS + l->n] = v->ref;
        else if (v->state == OX_missing)
            b->out[k] = *v;
        else
            return ox_refuse(b, "its output %d has no elements", k);
    }
    l->n++;
    return true;
}

/* Parts of a result, each with a new dimension at `axis`, one after the other. */
static bool join_outputs(loop *l, int k, int64_t axis, bool backwards)
{
    ox_build *b = l->b;
    nnc_ref *part = l->part + (ptrdiff_t)k * MAX_ITERATIONS, first = part[0];
    int at;
    if (b->out[l->n_state + k].state == OX_missing)
        return true;
    if (!ox_axis(b, axis, ox_type(b, first)->rank + 1, &at))
        return false;
    for (int i = 0; i < l->n; i++)
        part[i] = ox_add_dim(b, part[i], at);
    for (int i = 0; backwards && i < l->n / 2; i++) {
        nnc_ref v = part[i];
        part[i] = part[l->n - 1 - i];
        part[l->n - 1 - i] = v;
    }
    return ox_set(b, l->n_state + k, ox_joined(b, l->n, part, at));
}

/* A condition that is left out is true; false with *known unset: it depends on data. */
static bool condition(ox_build *b, const ox_value *v, bool *known)
{
    *known = true;
    if (v->state == OX_unset)
        return true;
    const uint8_t *p = v->state == OX_here ? ox_known(b->x, v->ref) : NULL;
    *known = p && nnc_type_numel(ox_type(b, v->ref)) == 1;
    return *known && *p;
}

/* Inputs of the body in iteration l->n. */
static void iteration_inputs(loop *l, ox_value *in)
{
    ox_build *b = l->b;
    in[0] = (ox_value){.state = OX_here, .ref = ox_num(b, DT_i64, l->n), .dtype = DT_i64};
    in[1] = (ox_value){.state = OX_here, .ref = ox_num(b, DT_bool, 1), .dtype = DT_bool};
    memcpy(in + 2, l->state, (size_t)l->n_state * sizeof *in);
}

/* Scanned results of no iteration have no row: an iteration, which is dropped again, tells their types. */
static bool no_rows(loop *l, ox_value *in, int n_in)
{
    ox_build *b = l->b;
    nnc_graph *g = b->x->g;
    const uint32_t n_node = g->n_node, n_value = g->n_value;
    ox_value cond;
    iteration_inputs(l, in);
    if (!iterate(l, in, n_in, 1, &cond))
        return false;
    memcpy(l->state, in + 2, (size_t)l->n_state * sizeof *in);
    for (int k = 0; k < l->n_scan; k++) {
        const nnc_type t = *ox_type(b, l->part[(ptrdiff_t)k * MAX_ITERATIONS]);
        int64_t d[NNC_MAX_RANK + 1] = {0};
        memcpy(d + 1, t.dim, (size_t)t.rank * sizeof *d);
        if (t.rank == NNC_MAX_RANK)
            return ox_refuse(b, "its output %d has too many dimensions", l->n_state + k);
        if (b->out[l->n_state + k].state != OX_missing)
            ox_none(b, l->n_state + k, t.dtype, t.rank + 1, d);
    }
    g->n_node = n_node;
    g->n_value = n_value;
    return true;
}

bool ox_loop(ox_build *b)
{
    loop l = {0};
    int64_t trips = INT64_MAX;
    int n = 0, n_in = (int)nnc_max64(b->n_in, 2);
    bool known;
    ox_value cond = {0}, *in = ARENA_NEW(&b->x->a, ox_value, n_in);
    if (!in)
        return ox_nomem(b->x);
    if (!open_loop(b, &l, n_in - 2, 1) || !l.state) /* the latter for analysers */
        return false;
    if (ox_has(b, 0) && !ox_const_ints(b, 0, 1, &n, &trips))
        return false;
    if (b->n_in > 1)
        cond = b->in[1];
    for (int i = 2; i < b->n_in; i++)
        l.state[i - 2] = b->in[i];
    while (condition(b, &cond, &known) && l.n < trips) {
        iteration_inputs(&l, in);
        if (!iterate(&l, in, n_in, 1, &cond))
            return false;
        if (cond.state == OX_missing)
            return false;
    }
    if (!known && l.n < trips)
        return ox_refuse(b, "the condition that ends it is not a constant");
    const bool none = l.n == 0;
    if (none && l.n_scan && !no_rows(&l, in, n_in))
        return false;
    for (int i = 0; i < l.n_state; i++)
        b->out[i] = l.state[i];
    for (int k = 0; k < l.n_scan && !none; k++)
        if (!join_outputs(&l, k, 0, false))
            return false;
    return true;
}

/* A number of an optional list of n; false: reported. */
static bool list_of(ox_build *b, const char *name, int n, int64_t *v)
{
    int have;
    for (int i = 0; i < n; i++)
        v[i] = 0;
    if (ox_ints(b, name, n, &have, v) && have != n)
        return ox_wrong(b, "%s has %d numbers; %d are expected", name, have, n);
    return !b->x->status;
}

bool ox_scan(ox_build *b)
{
    loop l = {0};
    const int64_t scanned = ox_int(b, "num_scan_inputs", 0);
    int64_t axes[64] = {0}, back[64] = {0}, out_axes[64] = {0}, out_back[64] = {0}, length = -1;
    if (scanned < 1 || scanned > b->n_in || scanned > 64 || b->n_out > 64)
        return ox_wrong(b, "it has %d inputs, %lld of them scanned", b->n_in, (long long)scanned);
    const int n_x = (int)scanned, n_state = b->n_in - n_x;
    ox_value *in = ARENA_NEW(&b->x->a, ox_value, b->n_in), none = {0};
    if (!in)
        return ox_nomem(b->x);
    if (!open_loop(b, &l, n_state, 0) || !l.state || !list_of(b, "scan_input_axes", n_x, axes) ||
        !list_of(b, "scan_input_directions", n_x, back) ||
        !list_of(b, "scan_output_axes", l.n_scan, out_axes) ||
        !list_of(b, "scan_output_directions", l.n_scan, out_back))
        return false;
    for (int i = 0; i < n_x; i++) {
        int at;
        const nnc_type *t = ox_type(b, ox_in(b, n_state + i));
        if (!ox_axis(b, axes[i], t->rank, &at))
            return false;
        axes[i] = at;
        if (length >= 0 && t->dim[at] != length)
            return ox_wrong(b, "its scanned inputs have different lengths");
        length = t->dim[at];
    }
    memcpy(l.state, b->in, (size_t)n_state * sizeof *in);
    while (l.n < length) {
        memcpy(in, l.state, (size_t)n_state * sizeof *in);
        for (int i = 0; i < n_x; i++) {
            nnc_ref x = ox_in(b, n_state + i);
            const nnc_type t = *ox_type(b, x);
            int64_t at = back[i] ? length - 1 - l.n : l.n, d[NNC_MAX_RANK];
            for (int k = 0; k < t.rank - 1; k++)
                d[k] = t.dim[k + (k >= axes[i])];
            x = ox_slice(b, x, (int)axes[i], at, at + 1);
            x = ox_reshape(b, x, t.rank - 1, d);
            if (x == NNC_NONE)
                return false;
            in[n_state + i] = (ox_value){.state = OX_here, .ref = x, .dtype = t.dtype};
        }
        if (!iterate(&l, in, b->n_in, 0, &none))
            return false;
    }
    for (int i = 0; i < n_state; i++)
        b->out[i] = l.state[i];
    for (int k = 0; k < l.n_scan; k++)
        if (!join_outputs(&l, k, out_axes[k], out_back[k] != 0))
            return false;
    return true;
}

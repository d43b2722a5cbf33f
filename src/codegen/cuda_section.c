/* codegen/cuda_section.c -- the body or the epilogue of a stage as CUDA C, for one or more lanes. */
#include "codegen/cuda.h"

static bool varies(const cu *c, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    bool yes = c->axis >= 0 && nnc_kins_axes(in) >> c->axis & 1;
    for (int j = 0; j < 3; j++)
        yes |= in->arg[j] >= 0 && c->v[in->arg[j]].varies;
    return yes;
}

/* True for an access that is one vector for all lanes: only its address depends on the lane. */
static bool is_vector(const cu *c, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    if (c->lanes == 1 || !cu_vector(c->k, in, c->axis, c->lanes))
        return false;
    if (in->op == KO_store)
        return true;
    return ((in->arg[0] < 0 || !c->v[in->arg[0]].varies) &&
            (in->arg[1] < 0 || !c->v[in->arg[1]].varies));
}

/* True when instruction id is written inside the loop over lanes. Reducing the lanes of a vector is, too. */
static bool in_loop(const cu *c, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    const cu_value *v = &c->v[id];
    if (c->lanes == 1 || in->op == KO_const || in->op == KO_index)
        return false;
    if (in->op == KO_load || in->op == KO_store)
        return v->varies && !v->vector;
    if (in->op ==
        KO_reduce) /* a value that is the same in all lanes is accumulated once per lane */
        return v->varies || (c->axis >= 0 && c->k->axis[c->axis].kind == KA_reduce);
    return v->varies;
}

/* Finds sums of products x w + (y v + (.. + 0)) whose terms are used once each: the terms are added to the reduction as they are
 * computed. */
static void find_terms(cu *c, const nnc_kstage *s, int32_t id)
{
    const nnc_kernel *k = c->k;
    const nnc_kins *in = &k->ins[id];
    int32_t t = in->arg[0], n = 0;
    if (in->sop != KR_sum || (in->arg[1] >= 0 && c->v[in->arg[1]].varies) || !c->v[id].live)
        return;
    for (; t >= s->body0 && k->ins[t].op == KO_sop && k->ins[t].sop == SC_fma;
         t = k->ins[t].arg[2], n++)
        if (c->v[t].uses != 1 || c->v[t].lanes || c->v[t].outside ||
            in_loop(c, t) != in_loop(c, id))
            return;
    if (n == 0 || t < 0 || k->ins[t].op != KO_const || k->ins[t].f != 0)
        return;
    c->v[id].into = id;
    for (t = in->arg[0]; k->ins[t].op == KO_sop; t = k->ins[t].arg[2])
        c->v[t].into = id;
}

void cu_analyse(cu *c, const nnc_kstage *s, int axis, int lanes)
{
    const nnc_kernel *k = c->k;
    c->axis = lanes > 1 ? axis : -1;
    c->lanes = lanes;
    bool folds = c->axis >= 0 && k->axis[c->axis].kind == KA_reduce;
    for (int32_t id = s->body0; id < s->post1; id++) {
        const nnc_kins *in = &k->ins[id];
        cu_value *v = &c->v[id];
        bool body = id < s->body1;
        v->varies = lanes > 1 && (body || !folds) && varies(c, id);
        if (in->op == KO_reduce) {
            v->outside = true;
            v->varies = v->varies && !folds;
            v->lanes = v->varies;
        } else if (in->op == KO_load) {
            v->vector = v->lanes = (body || !folds) && is_vector(c, id);
        } else if (in->op == KO_store) {
            v->vector = (body || !folds) && is_vector(c, id);
            cu_value *x = &c->v[in->arg[0]];
            if (v->vector && x->varies && in->arg[0] >= s->body0)
                x->lanes = true; /* stored as a vector */
            int n = 0;
            if (!v->vector && lanes > 1 && k->grid.cls == KC_point && !c->ragged && !c->store_if)
                v->store = cu_store_run(k, id, c->axis, lanes, &n);
        }
        if (v->outside && v->varies)
            v->lanes = true;
    }
    for (int32_t id = s->body0; id < s->body1; id++)
        if (k->ins[id].op == KO_reduce)
            find_terms(c, s, id);
}

/* sum_9 = fmaf(x, w, sum_9); where the sum's mask holds */
static void add_term(cu *c, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    const int32_t to = c->v[id].into, mask = c->k->ins[to].arg[1];
    if (mask >= 0)
        cu_line(c, "if (%r)", mask);
    cu_line(c, in->dtype == DT_f64 ? "%r = fma(%r, %r, %r);" : "%r = fmaf(%r, %r, %r);", to,
        in->arg[0], in->arg[1], to);
}

/* ---- memory ---- */

static void address(const cu *c, const nnc_kins *in)
{
    cu_affine(c, &in->at);
    if (nnc_kins_index(in) < 0)
        return;
    cu_put(c, " + (%T)nnc_clamp(%r, %lldll)", nnc_kins_index(in), (long long)in->limit);
    cu_put(c, in->scale != 1 ? " * %i" : "", in->scale);
}

/* run_4[e * 2 + r1], converted when the run was loaded. */
static void run_element(const cu *c, int32_t id)
{
    nnc_printf(c->t, "run_%d[", id);
    if (c->lanes > 1)
        nnc_printf(c->t, "e * %lld + ", (long long)c->k->axis[c->run_axis].extent);
    nnc_printf(c->t, "%s]", c->axis_name[c->run_axis]);
}

static void element(const cu *c, const nnc_kins *in)
{
    nnc_printf(c->t, "%s[", c->buf_name[in->buf]);
    address(c, in);
    nnc_puts(c->t, "]");
}

static bool converts(const cu *c, const nnc_kins *in)
{
    nnc_dtype d = c->k->buf[in->buf].dtype;
    return d == DT_f16 || d == DT_bf16 || d == DT_bool;
}

static void vector_load(const cu *c, const nnc_kins *in, bool guarded)
{
    nnc_printf(
        c->t, "nnc_load%s<%d>(%s + ", c->ragged ? "_some" : "", c->lanes, c->buf_name[in->buf]);
    address(c, in);
    if (c->ragged)
        nnc_printf(c->t, ", %s", c->ragged);
    nnc_puts(c->t, ")");
    cu_put(c, guarded ? " : nnc_splat<%d>(%r)" : "", c->lanes, in->arg[1]);
}

void cu_load_run(cu *c, int32_t id, int n)
{
    const nnc_kins *in = &c->k->ins[id];
    nnc_affine at = in->at;
    at.k[c->run_axis] = 0;
    cu_line(c, "const auto run_%d = nnc_load<%d>(%s + %a);", id, n, c->buf_name[in->buf], &at);
}

void cu_load(cu *c, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    const cu_value *v = &c->v[id];
    bool guarded = cu_guarded(c, in);
    if (guarded) {
        cu_indent(c);
        nnc_printf(c->t, "const bool in_%d = ", id);
        cu_guards(c, in);
        nnc_puts(c->t, ";\n");
    }
    cu_indent(c);
    bool lane = v->lanes && !v->vector;
    if (!v->held && !lane)
        nnc_printf(c->t, v->vector ? "const auto " : "const %s ", cu_type((nnc_dtype)in->dtype));
    cu_name(c, id);
    if (v->held)
        nnc_printf(c->t, "[%s]", c->unroll);
    nnc_puts(c->t, lane ? "[e] = " : " = ");
    if (guarded)
        nnc_printf(c->t, "in_%d ? ", id);
    if (v->vector) {
        vector_load(c, in, guarded);
    } else if (v->run) {
        run_element(c, id);
    } else {
        nnc_puts(c->t, converts(c, in) ? "nnc_get(" : "");
        element(c, in);
        nnc_puts(c->t, converts(c, in) ? ")" : "");
        cu_put(c, guarded ? " : %r" : "", in->arg[1]);
    }
    nnc_puts(c->t, ";\n");
}

static void store(cu *c, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    const nnc_kbuf *b = &c->k->buf[in->buf];
    const cu_value *x = &c->v[in->arg[0]];
    bool guarded = cu_guarded(c, in), out = b->role == KB_out && c->store_if;
    cu_indent(c);
    if (guarded || out) {
        nnc_puts(c->t, "if (");
        nnc_puts(c->t, out ? c->store_if : "");
        nnc_puts(c->t, out && guarded ? " && " : "");
        if (guarded)
            cu_guards(c, in);
        nnc_puts(c->t, ")\n    ");
        cu_indent(c);
    }
    if (c->v[id].vector) {
        /* the place is one sum of integers: NVRTC for sm_75 to sm_90 may split a store at a sum of pointers, p + i + j */
        nnc_printf(c->t, "nnc_store%s<%d>(&", c->ragged ? "_some" : "", c->lanes);
        element(c, in);
        if (x->lanes)
            cu_put(c, ", %r", in->arg[0]);
        else
            cu_put(c, ", nnc_splat<%d>(%r)", c->lanes, in->arg[0]);
        cu_put(c, c->ragged ? ", %s);\n" : ");\n", c->ragged);
        return;
    }
    if (c->v[id].store >= 0) {
        cu_put(c, "out_%d[e * %lld + %lld] = %r;\n", c->v[id].store, (long long)in->at.k[c->axis],
            (long long)in->at.c, in->arg[0]);
        return;
    }
    element(c, in);
    if (converts(c, in))
        cu_put(c, " = nnc_put<%s>(%r);\n", cu_storage(b->dtype), in->arg[0]);
    else
        cu_put(c, " = %r;\n", in->arg[0]);
}

/* Elements that store id stores together with its neighbours; 0: it is not the first of them. */
static int stored_run(const cu *c, int32_t id)
{
    return c->k->ins[id].op == KO_store && c->v[id].store == id
               ? c->lanes * (int)c->k->ins[id].at.k[c->axis]
               : 0;
}

static void store_run(cu *c, int32_t id)
{
    cu_indent(c);
    nnc_printf(c->t, "nnc_store<%d>(&", stored_run(c, id));
    element(c, &c->k->ins[id]);
    nnc_printf(c->t, ", out_%d);\n", id);
}

/* ---- sections ---- */

static void statement(cu *c, const nnc_kstage *s, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    const cu_value *v = &c->v[id];
    switch (in->op) {
    case KO_load: cu_load(c, id); break;
    case KO_store: store(c, id); break;
    case KO_reduce: cu_fold(c, s, id); break;
    case KO_sop:
        if (v->into > 0) {
            add_term(c, id);
            break;
        }
        cu_indent(c);
        if (!v->lanes && !v->held)
            nnc_printf(c->t, "const %s ", cu_type((nnc_dtype)in->dtype));
        cu_put(c, "%r = ", id);
        cu_sop(c, id);
        nnc_puts(c->t, ";\n");
        break;
    default: /* constants and indices are written where they are used */ break;
    }
}

static bool written(const cu *c, int32_t id)
{
    const cu_value *v = &c->v[id];
    int op = c->k->ins[id].op;
    if ((op == KO_store && c->kept && c->kept[c->k->ins[id].buf]) ||
        (op == KO_reduce && v->into > 0))
        return false;
    return v->live && !(op == KO_load && (v->held || v->tiled || v->as >= 0)) && op != KO_const &&
           op != KO_index;
}

/* Declares arrays for values of this section that are stored or loaded as vectors. */
static void declare_lanes(cu *c, int begin, int end)
{
    for (int32_t id = begin; id < end; id++)
        if (c->v[id].lanes && !c->v[id].outside && !c->v[id].held &&
            (c->k->ins[id].op == KO_sop || (c->k->ins[id].op == KO_load && !c->v[id].vector)) &&
            written(c, id))
            cu_line(
                c, "nnc_vec<%s, %d> %n;", cu_type((nnc_dtype)c->k->ins[id].dtype), c->lanes, id);
    for (int32_t id = begin; id < end; id++)
        if (stored_run(c, id) && written(c, id))
            cu_line(c, "nnc_vec<%s, %d> out_%d;",
                cu_type((nnc_dtype)c->k->ins[c->k->ins[id].arg[0]].dtype), stored_run(c, id), id);
}

void cu_section(cu *c, const nnc_kstage *s, int begin, int end)
{
    int loop = 0; /* lines in the loop over lanes */
    for (int32_t id = begin; id < end; id++)
        if (written(c, id)) {
            if (in_loop(c, id))
                loop += c->k->ins[id].op == KO_load && cu_guarded(c, &c->k->ins[id]) ? 2 : 1;
            else if (c->k->ins[id].op != KO_store || !c->v[id].vector)
                statement(c, s, id);
        }
    if (loop) {
        declare_lanes(c, begin, end);
        cu_line(c, "#pragma unroll");
        cu_open(c, "for (int e = 0; e < %d; e++)%s", c->lanes, loop > 1 ? " {" : "");
        c->in_lanes = true;
        for (int32_t id = begin; id < end; id++)
            if (written(c, id) && in_loop(c, id))
                statement(c, s, id);
        c->in_lanes = false;
        c->depth--;
        if (loop > 1)
            cu_line(c, "}");
    }
    for (int32_t id = begin; id < end; id++)
        if (c->k->ins[id].op == KO_store && c->v[id].vector && written(c, id))
            statement(c, s, id);
    for (int32_t id = begin; id < end; id++)
        if (stored_run(c, id) && written(c, id))
            store_run(c, id);
}

uint32_t cu_axes_used(const cu *c, const nnc_kstage *s)
{
    uint32_t used = 0;
    for (int32_t id = s->body0; id < s->post1; id++) {
        const nnc_kins *in = &c->k->ins[id];
        bool first = in->op == KO_load && c->v[id].held && c->v[id].as < 0;
        if (in->op == KO_reduce && in->sop >= KR_argmax)
            used |= s->axes;
        if (in->op == KO_index ? c->v[id].live : written(c, id) || first)
            used |= nnc_kins_axes(in);
    }
    return used;
}

/* ---- values that outlive a section ---- */

static void declare(cu *c, int32_t id, const char *type, const char *prefix)
{
    const nnc_kins *in = &c->k->ins[id];
    bool lanes = c->v[id].lanes;
    cu_typed(c, type, lanes ? c->lanes : 1);
    if (prefix)
        nnc_printf(c->t, "%s_%d", prefix, id);
    else
        cu_name(c, id);
    if (in->op == KO_reduce) {
        nnc_puts(c->t, " = ");
        if (lanes)
            nnc_printf(c->t, "nnc_splat<%d>(", c->lanes);
        if (!prefix && in->sop >= KR_argmax)
            nnc_printf(c->t, "(%s)-1", cu_index(c));
        else
            cu_start(c, in);
        nnc_puts(c->t, lanes ? ")" : "");
    }
    nnc_puts(c->t, ";\n");
}

void cu_declare(cu *c, const nnc_kstage *s)
{
    for (int32_t id = s->body0; id < s->body1; id++) {
        const nnc_kins *in = &c->k->ins[id];
        if (in->op != KO_reduce || !c->v[id].live)
            continue;
        const char *type = cu_type((nnc_dtype)c->k->ins[in->arg[0]].dtype);
        if (in->sop >= KR_argmax) {
            declare(c, id, type, "best");
            declare(c, id, cu_index(c), NULL);
        } else {
            declare(c, id, type, NULL);
        }
    }
    for (int32_t id = s->post0; id < s->post1; id++) {
        const int op = c->k->ins[id].op;
        const bool by_lane = op == KO_sop || (op == KO_load && !c->v[id].vector && written(c, id));
        if (c->v[id].outside && c->v[id].lanes && c->v[id].live && by_lane)
            declare(c, id, cu_type((nnc_dtype)c->k->ins[id].dtype), NULL);
    }
}

/* An index of -1: all elements were masked. */
void cu_finish_arg(cu *c, const nnc_kstage *s)
{
    for (int32_t id = s->body0; id < s->body1; id++) {
        const nnc_kins *in = &c->k->ins[id];
        if (in->op != KO_reduce || in->sop < KR_argmax || !c->v[id].live)
            continue;
        const char *name = nnc_kred_names[in->sop];
        if (c->v[id].lanes) {
            cu_line(c, "#pragma unroll");
            cu_line(c, "for (int e = 0; e < %d; e++)", c->lanes);
            cu_line(c, "    %s_%d[e] = %s_%d[e] < 0 ? 0 : %s_%d[e];", name, id, name, id, name, id);
        } else if (in->arg[1] >= 0) {
            cu_line(c, "%s_%d = %s_%d < 0 ? 0 : %s_%d;", name, id, name, id, name, id);
        }
    }
}

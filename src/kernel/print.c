/* kernel/print.c -- the text form of a kernel (docs/kernel-ir.md): the schedule first, then
 * stage by stage. */
#include "kernel/kernel.h"

typedef struct printer {
    nnc_text *t;
    const nnc_kernel *k;
    bool names;
} printer;

static void put_name(const printer *p, const char *name, char kind, int number)
{
    if (p->names && name)
        nnc_puts(p->t, name);
    else
        nnc_printf(p->t, "%c%d", kind, number);
}

static void put_axis(const printer *p, int a)
{
    put_name(p, p->k->axis[a].name, 'a', a);
}

static void put_buf(const printer *p, int b)
{
    put_name(p, p->k->buf[b].name, 'b', b);
}

static void put_affine(const printer *p, const nnc_affine *e)
{
    bool first = true;
    for (int a = 0; a < p->k->n_axis; a++) {
        if (e->k[a] == 0)
            continue;
        if (!first)
            nnc_puts(p->t, " + ");
        put_axis(p, a);
        if (e->k[a] != 1)
            nnc_printf(p->t, "*%lld", (long long)e->k[a]);
        first = false;
    }
    if (e->c != 0 || first)
        nnc_printf(p->t, "%s%lld", first ? "" : " + ", (long long)e->c);
}

static void put_access(const printer *p, const nnc_kins *in)
{
    put_buf(p, in->buf);
    nnc_puts(p->t, "[");
    put_affine(p, &in->at);
    if (nnc_kins_index(in) >= 0)
        nnc_printf(p->t, " : %%%d*%lld below %lld", nnc_kins_index(in), (long long)in->scale,
            (long long)in->limit);
    nnc_puts(p->t, "]");
}

static void put_guards(const printer *p, const nnc_kins *in)
{
    for (int g = 0; g < in->n_guard; g++) {
        nnc_printf(p->t, " if %lld <= ", (long long)in->guard[g].lo);
        put_affine(p, &in->guard[g].e);
        nnc_printf(p->t, " < %lld", (long long)in->guard[g].hi);
    }
}

static void put_facts(const printer *p, const nnc_kins *in)
{
    if (in->lo <= in->hi) {
        nnc_puts(p->t, " range(");
        nnc_put_double(p->t, in->lo);
        nnc_puts(p->t, ", ");
        nnc_put_double(p->t, in->hi);
        nnc_puts(p->t, in->maybe_nan ? ", nan)" : ")");
    }
    if (in->hint) {
        nnc_puts(p->t, " hint(");
        for (int b = 0, n = 0; b < NNC_KHINTS; b++)
            if (in->hint >> b & 1)
                nnc_printf(p->t, "%s%s", n++ ? " " : "", nnc_khint_names[b]);
        nnc_puts(p->t, ")");
    }
}

static void put_const(const printer *p, const nnc_kins *in)
{
    nnc_printf(p->t, "const %s ", nnc_dtype_name(in->dtype));
    if (nnc_is_float(in->dtype))
        nnc_put_double(p->t, in->f);
    else
        nnc_printf(p->t, "%lld", (long long)in->i);
}

static void put_ins(const printer *p, int id)
{
    const nnc_kins *in = &p->k->ins[id];
    nnc_printf(p->t, "    %%%d = ", id);
    switch (in->op) {
    case KO_const: put_const(p, in); break;
    case KO_index:
        nnc_printf(p->t, "index %s ", nnc_dtype_name(in->dtype));
        put_axis(p, (int)in->i);
        break;
    case KO_load:
        nnc_printf(p->t, "load %s ", nnc_dtype_name(in->dtype));
        put_access(p, in);
        put_guards(p, in);
        if (in->arg[1] >= 0)
            nnc_printf(p->t, " else %%%d", in->arg[1]);
        break;
    case KO_store:
        nnc_printf(p->t, "store %s ", nnc_dtype_name(in->dtype));
        put_access(p, in);
        nnc_printf(p->t, " %%%d", in->arg[0]);
        put_guards(p, in);
        break;
    case KO_sop:
        nnc_printf(p->t, "%s %s", nnc_sops[in->sop].name, nnc_dtype_name(in->dtype));
        if (in->sop == SC_cast)
            nnc_printf(p->t, " %s", nnc_dtype_name(in->cast_to));
        for (int i = 0; i < nnc_sops[in->sop].arity; i++)
            nnc_printf(p->t, " %%%d", in->arg[i]);
        break;
    case KO_reduce:
        nnc_printf(p->t, "%s %s %s %%%d", in->running ? "scan" : "reduce", nnc_kred_names[in->sop],
            nnc_dtype_name(in->dtype), in->arg[0]);
        if (in->arg[1] >= 0)
            nnc_printf(p->t, " mask %%%d", in->arg[1]);
        break;
    }
    put_facts(p, in);
    nnc_puts(p->t, "\n");
}

/* Prints a word and a number, unless it is the default. */
static void put_choice(const printer *p, const char *word, int64_t value, int64_t usual)
{
    if (value != usual)
        nnc_printf(p->t, " %s %lld", word, (long long)value);
}

static void put_grid(const printer *p)
{
    const nnc_kgrid *g = &p->k->grid;
    nnc_printf(p->t, "  schedule cuda %s", nnc_kclass_names[g->cls]);
    if (g->axis >= 0) {
        nnc_puts(p->t, " along ");
        put_axis(p, g->axis);
    }
    if (g->cls == KC_tile) {
        nnc_puts(p->t, " across ");
        put_axis(p, g->across);
    }
    nnc_printf(p->t, " threads %d", g->threads);
    put_choice(p, "vec", g->vec, 1);
    put_choice(p, "flight", g->flight, 1);
    put_choice(p, "group", g->group, 1);
    put_choice(p, "split", g->split, 1);
    put_choice(p, "keep", g->keep, 0);
    put_choice(p, "park", g->park, 0);
    put_choice(p, "spill", g->spill, 0);
    put_choice(p, "regs", g->regs, 0);
    put_choice(p, "index", g->index, 32);
    nnc_printf(p->t, " blocks %lld", (long long)g->blocks);
    put_choice(p, "finish", g->finish, 0);
    put_choice(p, "shared", g->shared, 0);
    put_choice(p, "work", g->work, 0);
    nnc_puts(p->t, "\n");
}

static void put_schedule(const printer *p)
{
    if (p->k->grid.cls != KC_none) {
        put_grid(p);
        return;
    }
    const nnc_kschedule *s = &p->k->sched;
    if (!nnc_kernel_is_scheduled(p->k))
        return;
    nnc_puts(p->t, "  schedule");
    for (int i = 0; i < s->n; i++) {
        const nnc_kdirective *d = &s->d[i];
        if (d->what != KD_order || i == 0 || s->d[i - 1].what != KD_order)
            nnc_printf(p->t, " %s", nnc_kdo_names[d->what]);
        if (d->what == KD_ring) {
            nnc_puts(p->t, " ");
            put_buf(p, d->buf);
        }
        if (d->axis >= 0) {
            nnc_puts(p->t, " ");
            put_axis(p, d->axis);
        }
        if (d->n > 0)
            nnc_printf(p->t, " %lld", (long long)d->n);
    }
    nnc_printf(p->t, " parallel %lld grain %lld\n", (long long)s->domain, (long long)s->grain);
}

static void put_stage(const printer *p, const nnc_kstage *s)
{
    nnc_puts(p->t, "  stage");
    for (int a = 0; a < p->k->n_axis; a++)
        if (s->axes >> a & 1) {
            nnc_puts(p->t, " ");
            put_axis(p, a);
        }
    nnc_puts(p->t, " {\n");
    for (int i = s->body0; i < s->body1; i++)
        put_ins(p, i);
    if (s->post0 < s->post1) {
        nnc_puts(p->t, "  post\n");
        for (int i = s->post0; i < s->post1; i++)
            put_ins(p, i);
    }
    nnc_puts(p->t, "  }\n");
}

void nnc_kernel_print_as(nnc_text *t, const nnc_kernel *k, bool names)
{
    static const char *const role[3] = {"in", "out", "tmp"};
    printer p = {t, k, names};
    nnc_printf(t, "kernel %s {\n", names && k->name ? k->name : "k");
    for (int a = 0; a < k->n_axis; a++) {
        nnc_printf(t, "  axis ");
        put_axis(&p, a);
        nnc_printf(t, " %s %lld%s\n", nnc_kaxis_names[k->axis[a].kind],
            (long long)k->axis[a].extent, k->axis[a].seq ? " seq" : "");
    }
    for (int b = 0; b < k->n_buf; b++) {
        nnc_puts(t, "  buf ");
        put_buf(&p, b);
        nnc_printf(t, " %s %s %lld\n", role[k->buf[b].role], nnc_dtype_name(k->buf[b].dtype),
            (long long)k->buf[b].numel);
    }
    put_schedule(&p);
    for (int s = 0; s < k->n_stage; s++)
        put_stage(&p, &k->stage[s]);
    nnc_puts(t, "}\n");
}

void nnc_kernel_print(nnc_text *t, const nnc_kernel *k)
{
    nnc_kernel_print_as(t, k, true);
}

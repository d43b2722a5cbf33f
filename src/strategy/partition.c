/* strategy/partition.c -- nnc partition: measures a model, fills the table, prints it. */
#include "report/report.h"
#include "session/session.h"
#include "strategy/strategy.h"
#include "cuda/cuda.h"
#include "frontend/frontend.h"
#include "picture/picture.h"
#include <string.h>

/* The devices are the first of described hardware: there are as many, and they are equal. */
static nnc_status check_devices(const nnc_cluster *c, int devices, nnc_sink *sink)
{
    if (devices > c->n_device)
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = c->file},
            "describes %d device%s, fewer than --devices=%d", c->n_device,
            nnc_plural(c->n_device, "s"), devices);
    int d = 1;
    while (d < devices && nnc_cluster_kind_of(c, d) == nnc_cluster_kind_of(c, 0))
        d++;
    if (d < devices)
        return nnc_fail(sink, NNC_E_USAGE, (nnc_loc){.file = c->file},
            "nnc partition divides a model among equal devices, but device %d is a %s and "
            "device 0 a %s: expected at most %d of them",
            d, nnc_cluster_target(c, d)->name, nnc_cluster_target(c, 0)->name, d);
    return NNC_OK;
}

/* How many: --devices (0: not given); or all that are described, or as many as are placed on, at least 2. */
static int count_devices(const nnc_env *e, const nnc_partition_model *m, int asked)
{
    if (asked > 0)
        return asked;
    int n = e->cluster ? e->cluster->n_device : nnc_env_world(e);
    for (int l = 0; l < m->n_layer; l++)
        n = m->device[l] + 1 > n ? m->device[l] + 1 : n;
    return n < 2 ? 2 : n;
}

/* GPUs of this machine that t's code runs on. */
static int count_gpus(const nnc_target *t)
{
    nnc_cuda_device d[NNC_MAX_DEVICES];
    int n = 0;
    if (t->kind != NNC_T_cuda)
        return 0;
    const int all = nnc_cuda_devices(d, NNC_MAX_DEVICES, NULL);
    for (int i = 0; i < all && i < NNC_MAX_DEVICES; i++)
        n += d[i].sm == t->sm;
    return n;
}

/* --chunks is of one schedule. */
static nnc_status check_chunks(const nnc_partition_options *o, bool step, nnc_sink *sink)
{
    bool used = step && !o->n_strategy;
    for (int i = 0; i < o->n_strategy; i++)
        used = used || nnc_strategy_named(o->strategy[i]) == NNC_STRATEGY_interleaved ||
               (step && !strcmp(o->strategy[i], "all"));
    return !o->chunks || used
               ? NNC_OK
               : nnc_fail0(sink, NNC_E_USAGE,
                     "--chunks=%d are stages of a device in the interleaved schedule of a training "
                     "step: it needs --mode=step and --strategy=interleaved (or all)",
                     o->chunks);
}

/* Has the model an arg of its batch, by which commands can say another one? */
static nnc_status find_batch(const nnc_model *m, nnc_partition_table *t, nnc_sink *sink)
{
    const nnc_set set = {"batch", 2 * t->m->batch};
    const nnc_model_options o = {.set = &set, .n_set = 1};
    NNC_OWNED(nnc_sink) *quiet = nnc_sink_create();
    NNC_NEED(quiet, sink);
    NNC_OWNED(nnc_graph) *g = m->given && !t->m->step ? nnc_model_again(m, &o, quiet) : NULL;
    const nnc_type *is = g && g->n_output ? nnc_typeof(g, g->output[0]) : NULL,
                   *was = m->n_output ? nnc_typeof(m, m->output[0]) : NULL;
    t->sets_batch = is && was && is->rank && is->rank == was->rank && is->dim[0] == 2 * was->dim[0];
    return nnc_sink_cause(quiet, NNC_OK) == NNC_E_NOMEM ? nnc_nomem(sink) : NNC_OK;
}

/* No strategy that was asked for is possible: they are the wrong ones for the model or the devices. */
static nnc_status refuse(const nnc_partition_table *t, nnc_sink *sink)
{
    NNC_LOCAL(nnc_text) all = {0};
    for (int i = 0; i < t->n_row; i++) {
        nnc_puts(&all, i ? "; " : "");
        if (strncmp(t->row[i].why_not, "--strategy=", 11) != 0)
            nnc_printf(&all, "--strategy=%s is not possible: ", t->row[i].strategy);
        nnc_puts(&all, t->row[i].why_not);
    }
    NNC_NEED(!all.oom, sink);
    return nnc_fail0(sink, NNC_E_USAGE, "%s", nnc_text_str(&all));
}

/* Says on standard error why no strategy fits. NNC_E_USAGE: none is possible. */
static nnc_status say_none_fits(const nnc_partition_table *t, nnc_sink *sink)
{
    const nnc_partition_row *least = NULL, *lacks = NULL;
    int64_t least_bytes = 0;
    for (int i = 0; i < t->n_row; i++) {
        const nnc_partition_row *r = &t->row[i];
        lacks = r->why_not && r->lacks_memory ? r : lacks;
        const int64_t bytes = r->why_not ? 0 : nnc_partition_fullest(t, r);
        if (!r->why_not && (!least || bytes < least_bytes)) {
            least = r;
            least_bytes = bytes;
        }
    }
    if (!least && !lacks)
        return refuse(t, sink);
    NNC_LOCAL(nnc_text) has = {0};
    NNC_LOCAL(nnc_text) needs = {0};
    nnc_put_bytes(&has, nnc_partition_capacity(t));
    nnc_put_bytes(&needs, least_bytes);
    if (!least)
        nnc_note(sink, (nnc_loc){0}, "does not fit devices of %s: --strategy=%s: %s",
            nnc_text_str(&has), lacks->strategy, lacks->why_not);
    else
        nnc_note(sink, (nnc_loc){0}, "%s devices of %s: the least need is %s%s (--strategy=%s)",
            least->open ? "no strategy is known to fit" : "no strategy fits", nnc_text_str(&has),
            nnc_text_str(&needs), least->planned ? "" : " by estimate", least->strategy);
    return NNC_OK;
}

static void nnc_partition_table_deinit(nnc_partition_table *t)
{
    for (int i = 0; i < t->n_row; i++)
        nnc_timeline_destroy(t->row[i].timeline);
}

nnc_status nnc_partition_model_report(nnc_env *e, const nnc_model *m, const nnc_training *training,
    const nnc_partition_options *o, nnc_format f, nnc_text *out, bool *fits, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_partition_model of;
    *fits = false;
    if (e->n_target > 1)
        return nnc_fail0(
            sink, NNC_E_USAGE, "nnc partition takes one --target: its devices are equal");
    if (e->cluster && (o->link_gbs != 0 || o->link_us != 0))
        return nnc_fail0(sink, NNC_E_USAGE,
            "the links are those of --hardware=%s: leave --link-gbs and --link-us out",
            e->cluster->file);
    NNC_TRY(check_chunks(o, training != NULL, sink));
    NNC_TRY(nnc_partition_check(o, m, training != NULL, sink));
    if (o->simulate && !e->cluster)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--simulate runs plans on described hardware: give its file, as in "
            "--hardware=models/hardware/a100x8.json");
    if (e->cluster && o->measure && e->target[0].kind != NNC_T_cpu)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--measure times this machine's CPU and --hardware=%s describes %s: leave one out",
            e->cluster->file, e->target[0].name);
    if (e->cluster && o->compile.devices > 1) /* before the model is compiled */
        NNC_TRY(check_devices(e->cluster, o->compile.devices, sink));
    NNC_TRY(nnc_partition_measure(e, m, training, o, &of, &a, sink));
    const int devices = count_devices(e, &of, o->compile.devices);
    if (e->cluster)
        NNC_TRY(check_devices(e->cluster, devices, sink));
    NNC_LOCAL(nnc_partition_table) t = {.m = &of,
        .graph = m,
        .training = training,
        .o = o,
        .target = &e->target[0],
        .cluster = e->cluster,
        .devices = devices,
        .gpus = o->run || e->target[0].asked ? count_gpus(&e->target[0]) : 0,
        .micro = o->micro > 0 ? o->micro : 4 * devices};
    if (nnc_partition_wants(o, "auto"))
        NNC_TRY(nnc_partition_sizes(e, m, training, &t, &a, sink));
    NNC_TRY(nnc_partition_fill_table(&t, &a, sink));
    if (o->sensitivity)
        NNC_TRY(nnc_partition_sense(&t, &a, sink));
    if (o->simulate)
        NNC_TRY(nnc_partition_simulate(e, m, training, &t, &a, sink));
    NNC_TRY(nnc_partition_decide(e, m, training, &t, &a, sink));
    if (o->run)
        NNC_TRY(nnc_partition_run(e, m, training, &t, &a, sink));
    NNC_TRY(nnc_partition_draw(e, m, &t, &a, sink));
    for (int i = 0; i < t.n_row; i++)
        *fits = *fits || (!t.row[i].why_not && t.row[i].fits);
    if (!*fits)
        NNC_TRY(say_none_fits(&t, sink));
    NNC_TRY(find_batch(m, &t, sink));
    nnc_partition_print(&t, f, out);
    return out->oom ? nnc_nomem(sink) : NNC_OK;
}

nnc_status nnc_partition_place(nnc_env *e, const nnc_model *m, const nnc_training *training,
    const nnc_partition_options *o, int devices, nnc_strategy strategy, nnc_text *place,
    nnc_sink *sink)
{
    const char *name = nnc_strategy_names[strategy];
    NNC_LOCAL(nnc_arena) a = {0};
    nnc_partition_model of;
    nnc_partition_options one = *o;
    one.strategy = &name;
    one.n_strategy = 1;
    if (e->n_target > 1)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--strategy=%s on devices of several kinds: say which layers are where, with --place",
            name);
    NNC_TRY(nnc_partition_check(&one, m, training != NULL, sink));
    NNC_TRY(nnc_partition_measure(e, m, training, &one, &of, &a, sink));
    nnc_partition_table t = {
        .m = &of, .o = &one, .target = &e->target[0], .devices = devices, .micro = o->micro};
    NNC_TRY(nnc_partition_fill_table(&t, &a, sink));
    if (t.row[0].why_not || !t.row[0].place)
        return nnc_fail0(sink, NNC_E_USAGE, "--strategy=%s: %s", name,
            t.row[0].why_not ? t.row[0].why_not : "no cut of the model into stages was found");
    nnc_puts(place, t.row[0].place);
    return place->oom ? nnc_nomem(sink) : NNC_OK;
}

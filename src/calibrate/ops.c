/* calibrate/ops.c -- ops: every command of the nets' plans is a measured time of its class; a table has the median of those of
 * similar work. Then all devices compute at the same time, which shows how much slower each class is then. */
#include "calibrate/measure.h"
#include "strategy/strategy.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST_RUNS = 5,
    PER_OCTAVE = 1 /* points of a table for each doubling of the work */
};
static const double ALONE_SHARE = 0.55, COMPILE_SHARE = 0.35, TOGETHER_SHARE = 0.75;

static const nnc_cmd *command(const cal_program *p, int i)
{
    return &p->a->plan->cmd[nnc_plan_first(p->a->plan, SEC_main) + i];
}

/* The op of a command, of the class whose table it counts for; NULL: out of memory. */
static nnc_sim_op table_op(calibration *c, const nnc_plan *p, const nnc_cmd *cmd)
{
    char name[NNC_SIM_CLASS];
    nnc_sim_op op = nnc_sim_command_op(p, cmd);
    nnc_sim_row_class(&op, name);
    op.op_class = nnc_arena_strdup(&c->a, name);
    return op;
}

/* ---- alone ---------------------------------------------------------------------------------------------- */

nnc_status cal_add_samples(calibration *c, const cal_program *p, int64_t less)
{
    enum { LEAST_NS = 100 }; /* where nothing else is left */
    for (int i = 0; i < p->n_cmd; i++) {
        const nnc_cmd *cmd = command(p, i);
        if (!nnc_plan_computes(p->a->plan, cmd))
            continue;
        NNC_NEED(ARENA_ROOM(&c->a, c->sample, c->cap_sample, c->n_sample + 1), c->sink);
        cal_sample *s = &c->sample[c->n_sample++];
        *s = (cal_sample){.op = table_op(c, p->a->plan, cmd)};
        s->ns = cal_median(p, i, &s->spread);
        if (less)
            s->ns = nnc_max64(s->ns - less, LEAST_NS);
        NNC_NEED(s->op.op_class, c->sink);
    }
    return NNC_OK;
}

/* From the end of a command to the start of the next. */
static nnc_status add_gaps(
    calibration *c, const cal_program *p, int64_t **gap, size_t *n, size_t *cap)
{
    for (int i = 1; i < p->n_cmd; i++) {
        if (!nnc_plan_computes(p->a->plan, command(p, i)) ||
            !nnc_plan_computes(p->a->plan, command(p, i - 1)))
            continue;
        NNC_NEED(ARENA_ROOM(&c->a, *gap, *cap, *n + 1), c->sink);
        (*gap)[(*n)++] = nnc_max64(p->from[i] - p->to[i - 1], 0);
    }
    return NNC_OK;
}

/* Loads the nets for one device, as many as there is time for: *n programs. */
static nnc_status load_nets(calibration *c, cal_program *p, int *n)
{
    for (int i = cal_n_nets - 1; i >= 0; i--) /* the memory's bandwidth first */
        for (int step = 0; step <= cal_nets[i].step; step++) {
            NNC_LOCAL(nnc_text) text = {0};
            bool yes;
            NNC_TRY(cal_has_time(c, COMPILE_SHARE, &yes));
            if (!yes && *n)
                return NNC_OK;
            cal_nets_write(&text, &cal_nets[i], 1, 1);
            NNC_TRY(cal_load(c, &text, 1, true, step, &p[*n]));
            p[(*n)++].net = &cal_nets[i];
        }
    return NNC_OK;
}

static nnc_status measure_alone(calibration *c, cal_program *p, int n)
{
    int64_t *gap = NULL;
    size_t n_gap = 0, cap = 0;
    for (int i = 0; i < n; i++)
        NNC_TRY(cal_profile(c, &p[i], false));
    for (int round = 0; round < CAL_RUNS; round++) {
        const bool late = (double)(nnc_now_ns() - c->begin_ns) > ALONE_SHARE * (double)c->budget_ns;
        if (round >= LEAST_RUNS && late)
            break;
        for (int k = 0; k < n; k++) {
            cal_program *now = &p[round % 2 ? n - 1 - k : k];
            /* Caches hold another net's data, as at each layer of a model those of other layers. */
            NNC_TRY(cal_profile(c, now, true));
            NNC_TRY(add_gaps(c, now, &gap, &n_gap, &cap));
        }
    }
    for (int i = 0; i < n; i++)
        NNC_TRY(cal_add_samples(c, &p[i], 0));
    c->command_ns = cal_median_of(gap, (int)nnc_min64((int64_t)n_gap, INT32_MAX), NULL);
    return NNC_OK;
}

/* ---- tables ---------------------------------------------------------------------------------------------- */

static double work_of(const nnc_sim_op *op)
{
    const bool flops = nnc_sim_class_contracts(op->op_class) ? op->flops > 0 : op->bytes <= 0;
    return (double)(flops ? op->flops : op->bytes);
}

static bool is_tf32(const nnc_sim_op *op)
{
    return op->tf32 && op->dtype == DT_f32;
}

static cal_class *class_of(calibration *c, const nnc_sim_op *op)
{
    for (int i = 0; i < c->n_class; i++)
        if (!strcmp(c->class[i].name, op->op_class) && c->class[i].dtype == op->dtype &&
            c->class[i].tf32 == is_tf32(op))
            return &c->class[i];
    if (c->n_class == CAL_CLASSES)
        return NULL;
    c->class[c->n_class] =
        (cal_class){.name = op->op_class, .dtype = op->dtype, .tf32 = is_tf32(op)};
    return &c->class[c->n_class++];
}

static double moving_ns(const calibration *c, int64_t bytes)
{
    return (double)bytes / (double)c->memory_bytes_s * 1e9;
}

/* On a GPU: would it, if it computed at half of the peak, and is that a good part of what it takes? Ops that take longer for other
 * reasons, such as few blocks, are not. */
static bool is_moving_there(const calibration *c, const cal_sample *s)
{
    const double peak = (double)nnc_target_peak_flops(&c->target, s->op.dtype, s->op.tf32),
                 moving = moving_ns(c, s->op.bytes + s->op.epilogue_bytes);
    return moving > 0.4 * (double)s->ns && moving > (double)s->op.flops / (0.5 * peak) * 1e9;
}

/* Does a contraction take as long as moving its bytes would? Then its time says nothing about FLOPs. */
static bool is_moving(const calibration *c, const cal_sample *s)
{
    if (!nnc_sim_class_contracts(s->op.op_class) || c->memory_bytes_s <= 0)
        return false;
    return c->target.kind == NNC_T_cuda ? is_moving_there(c, s)
                                        : moving_ns(c, s->op.bytes) > 0.7 * (double)s->ns;
}

/* Samples of one class by work. */
static int by_work(const void *a, const void *b)
{
    const cal_sample *x = *(const cal_sample *const *)a, *y = *(const cal_sample *const *)b;
    const double u = work_of(&x->op), v = work_of(&y->op);
    return u != v ? (u < v ? -1 : 1) : x->ns < y->ns ? -1 : x->ns > y->ns;
}

/* Samples i..k-1 as a point: the geometric mean of work, and of time for it. */
static void add_point(cal_class *x, const cal_sample *const *s, int i, int k)
{
    double work = 0, ns = 0;
    for (int j = i; j < k; j++) {
        work += log(work_of(&s[j]->op)) / (k - i);
        ns += log((double)nnc_max64(s[j]->ns, 1)) / (k - i);
    }
    const nnc_point p = {nnc_max64(1, llround(exp(work))), nnc_max64(1, llround(exp(ns)))};
    if (x->n_point && p.work <= x->point[x->n_point - 1].work)
        return;
    if (x->n_point < CAL_POINTS)
        x->point[x->n_point++] = p;
}

static bool is_of(const cal_class *x, const cal_sample *s)
{
    return !strcmp(s->op.op_class, x->name) && s->op.dtype == x->dtype &&
           is_tf32(&s->op) == x->tf32 && work_of(&s->op) >= 1;
}

/* The share of the memory's rate that a GPU's contractions reach where it decides: of the class; 0: unknown. */
static double memory_share(const calibration *c, const cal_class *x)
{
    double moving = 0, took = 0; /* sums: the large ones decide */
    for (size_t i = 0; i < c->n_sample && c->target.kind == NNC_T_cuda; i++)
        if (is_of(x, &c->sample[i]) && is_moving(c, &c->sample[i])) {
            const nnc_sim_op *op = &c->sample[i].op;
            moving += moving_ns(c, op->bytes);
            took += fmax((double)c->sample[i].ns - moving_ns(c, op->epilogue_bytes),
                moving_ns(c, op->bytes));
        }
    return took > 0 ? moving / took : 0;
}

static nnc_status fill_class(calibration *c, cal_class *x)
{
    const cal_sample **s = ARENA_NEW(&c->a, const cal_sample *, c->n_sample + 1);
    int n = 0;
    NNC_NEED(s, c->sink);
    for (size_t i = 0; i < c->n_sample; i++)
        if (is_of(x, &c->sample[i]) && !is_moving(c, &c->sample[i]))
            s[n++] = &c->sample[i];
    for (size_t i = 0; i < c->n_sample && !n; i++) /* the only ones that there are */
        if (is_of(x, &c->sample[i]) && c->target.kind == NNC_T_cuda)
            s[n++] = &c->sample[i];
    qsort(s, (size_t)n, sizeof *s, by_work);
    for (int i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && work_of(&s[k]->op) < work_of(&s[i]->op) * exp2(1.0 / PER_OCTAVE);)
            k++;
        add_point(x, s, i, k);
    }
    for (int i = 0; i < n; i++)
        x->spread += s[i]->spread / n;
    return NNC_OK;
}

/* The highest rate of a point of a class that goes by FLOPs, of operands as x has. */
static double best_rate(const calibration *c, const cal_class *x)
{
    double best = 0;
    for (int i = 0; i < c->n_class; i++) {
        const cal_class *y = &c->class[i];
        for (int k = 0; k < y->n_point && y->dtype == x->dtype && y->tf32 == x->tf32; k++)
            if (nnc_sim_class_contracts(y->name))
                best = fmax(best, (double)y->point[k].work / (double)y->point[k].ns);
    }
    return best;
}

/* A last point for a class of which only small work was measured. A table goes on at the rate of its last point, and small work is slower
 * since beginning has a cost. The rate is assumed: that of the memory, or 0.6 of the best class's FLOPs, if the class did not reach more
 * itself. A class measured up to a hundredth of that work keeps its own rate; by bytes, the lower of the two. */
static void add_anchor(cal_class *x, bool gpu, double rate)
{
    const bool contracts = nnc_sim_class_contracts(x->name);
    const int64_t far = contracts ? (gpu ? 20000000000 : 1000000000) : 134217728;
    const nnc_point *last = x->n_point ? &x->point[x->n_point - 1] : NULL;
    if (!last || last->work >= far / 4 || x->n_point == CAL_POINTS || rate <= 0)
        return;
    const double own = (double)last->work / (double)last->ns;
    const bool known = last->work >= far / 100;
    const double use = contracts ? (known ? own : fmax(own, rate)) : known ? fmin(own, rate) : rate;
    x->point[x->n_point++] = (nnc_point){far, llround(fmax((double)far / use, (double)last->ns))};
}

/* A first point for a class of which only large work was measured: below its first point a table keeps half of that point's time. The new
 * point's time is assumed to be in proportion, and at least a microsecond. */
static void add_first(cal_class *x)
{
    const int64_t near = nnc_sim_class_contracts(x->name) ? 100000 : 4096;
    if (!x->n_point || x->point[0].work < 8 * near || x->n_point == CAL_POINTS)
        return;
    const double own = (double)x->point[0].ns * (double)near / (double)x->point[0].work;
    memmove(&x->point[1], &x->point[0], (size_t)x->n_point++ * sizeof *x->point);
    x->point[0] = (nnc_point){near, llround(fmin(fmax(own, 1000), (double)x->point[1].ns))};
}

nnc_status cal_make_tables(calibration *c)
{
    for (size_t i = 0; i < c->n_sample; i++)
        (void)class_of(
            c, &c->sample[i].op); /* classes beyond the last are left to the built-in table */
    for (int i = 0; i < c->n_class; i++) {
        cal_class *x = &c->class[i];
        NNC_TRY(fill_class(c, x));
        x->efficiency = strstr(x->name, "_thin") ? 1 : 0;
        if (nnc_sim_class_contracts(x->name) && c->memory_bytes_s > 0)
            x->memory = (double)c->memory_bytes_s / (double)c->target.copy_bytes_s;
        const double share = memory_share(c, x);
        x->memory *= share > 0 ? share : 1;
    }
    double rate[CAL_CLASSES];
    for (int i = 0; i < c->n_class; i++)
        rate[i] = nnc_sim_class_contracts(c->class[i].name) ? 0.6 * best_rate(c, &c->class[i])
                                                            : (double)c->memory_bytes_s * 1e-9;
    for (int i = 0; i < c->n_class; i++) {
        cal_class *x = &c->class[i];
        add_anchor(x, c->target.kind == NNC_T_cuda, rate[i]);
        add_first(x);
    }
    return NNC_OK;
}

/* The rate at which one device reads and writes memory: of the last net's command. */
static void find_memory(calibration *c, const cal_program *p)
{
    int64_t most = 0;
    for (int i = 0; i < p->n_cmd; i++) {
        const int64_t ns = cal_median(p, i, NULL);
        if (nnc_plan_computes(p->a->plan, command(p, i)) && ns > most) {
            most = ns;
            c->memory_bytes_s = (int64_t)((double)command(p, i)->bytes / (double)ns * 1e9);
        }
    }
}

/* ---- together ---------------------------------------------------------------------------------------------- */

/* Profiles a program by itself, over and over. */
static nnc_status measure_again(calibration *c, cal_program *p)
{
    p->runs = 0;
    for (int k = -2; k < LEAST_RUNS + 4; k++)
        NNC_TRY(cal_profile(c, p, k >= 0));
    return NNC_OK;
}

/* Ratios to the times of one device, whose program is ctx, by class. */
static nnc_status measure_together(calibration *c, cal_program *p, void *ctx)
{
    cal_program *one = ctx;
    nnc_command_times *times = nnc_command_times_create(&c->a);
    NNC_NEED(times, c->sink);
    NNC_TRY(measure_again(c, one));
    for (int i = 0; i < one->n_cmd; i++)
        NNC_NEED(
            nnc_command_times_add(times, one->a->plan, command(one, i), cal_median(one, i, NULL)),
            c->sink);
    NNC_TRY(measure_again(c, p));
    for (int i = 0; i < p->n_cmd; i++) {
        const nnc_cmd *cmd = command(p, i);
        const int64_t alone = nnc_command_times_ps(times, p->a->plan, cmd) / 1000,
                      now = cal_median(p, i, NULL);
        const nnc_sim_op op = table_op(c, p->a->plan, cmd);
        NNC_NEED(op.op_class, c->sink);
        cal_class *x = alone > 0 && now > 0 ? class_of(c, &op) : NULL;
        if (x) {
            x->log_ratio += log((double)now / (double)alone);
            x->n_ratio++;
        }
    }
    return NNC_OK;
}

/* Finds the cores that a thread takes where n devices compute, from the measured ratio. Classes that were not measured have the mean
 * of their kind. */
static void find_contention(calibration *c, int n_device)
{
    double sum[2] = {0};
    int n[2] = {0};
    for (int i = 0; i < c->n_class; i++) {
        const bool contracts = nnc_sim_class_contracts(c->class[i].name);
        sum[contracts] += c->class[i].log_ratio;
        n[contracts] += c->class[i].n_ratio;
    }
    for (int i = 0; i < c->n_class; i++) {
        cal_class *x = &c->class[i];
        const bool contracts = nnc_sim_class_contracts(x->name);
        const double all = n[contracts] ? sum[contracts] / n[contracts] : 0;
        const double ratio = exp(x->n_ratio ? x->log_ratio / x->n_ratio : all);
        x->contention = fmax(1, ratio * c->cores / ((double)n_device * c->threads));
    }
}

/* As many devices compute as there are cores for: more of them would take turns, which single commands do not show. */
static nnc_status measure_contention(calibration *c, cal_program *alone, int n_alone)
{
    const int most = (int)nnc_max64(1, c->cores / c->threads),
              n = c->devices < most ? c->devices : most;
    for (int i = 0; i < n_alone && n > 1; i++) {
        NNC_LOCAL(nnc_text) text = {0};
        NNC_LOCAL(cal_program) p = {0};
        bool yes;
        NNC_TRY(cal_has_time(c, TOGETHER_SHARE, &yes));
        if (!yes)
            break;
        cal_nets_write(&text, alone[i].net, 1, n);
        NNC_TRY(cal_load(c, &text, c->devices, false, alone[i].step, &p));
        NNC_TRY(cal_lead(c, &p, measure_together, &alone[i]));
    }
    find_contention(c, n);
    return NNC_OK;
}

nnc_status cal_ops(calibration *c)
{
    cal_program *p = ARENA_NEW(&c->a, cal_program, 2 * cal_n_nets + 1);
    int n = 0;
    NNC_NEED(p, c->sink);
    nnc_status st = load_nets(c, p, &n);
    if (!st && cal_leads(c))
        st = measure_alone(c, p, n);
    if (!st && cal_leads(c)) {
        find_memory(c, &p[0]);
        st = cal_make_tables(c);
    }
    if (!st && c->devices > 1)
        st = measure_contention(c, p, n);
    for (int i = 0; i < n; i++)
        cal_program_deinit(&p[i]);
    return st;
}

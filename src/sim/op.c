/* sim/op.c -- the time of one op on a described device: measured points, or else a roofline with an efficiency for each class of ops. */
#include "cost/cost.h"
#include "sim/internal.h"
#include <math.h>
#include <string.h>

/* Where a hardware file has no row for a class. */
static const struct {
    const char *name;
    double f32, memory, tensor, tensor_memory;
} classes[] = {
#define CLASS(name, f32, memory, tensor, tensor_memory) {#name, f32, memory, tensor, tensor_memory},
#include "cost/prices.def"
};

enum {
    CONV = 2, /* those before it are convolutions, too */
    WINOGRAD = 6,
    MATMUL,
    RECURRENT,
    CONTRACTIONS = 9 /* the first classes */
};

/* Takes the last suffix off a class; false: it has none. */
static bool strip(char *name)
{
    static const char *const suffix[] = {"_step", "_thin", "_gather", "_wgrad", "_back"};
    const size_t n = strlen(name);
    for (size_t i = 0; i < NNC_COUNT(suffix); i++) {
        const size_t tail = strlen(suffix[i]);
        if (n > tail && !strcmp(name + n - tail, suffix[i])) {
            name[n - tail] = 0;
            return true;
        }
    }
    return false;
}

/* The row for the class and dtype, a row for any dtype after one for this; tf32: rows of tf32 alone. */
static const nnc_op_speed *row_of(
    const nnc_cluster_kind *k, const char *op_class, nnc_dtype dtype, bool tf32)
{
    const nnc_op_speed *any = NULL;
    for (int i = 0; i < k->n_op; i++) {
        const nnc_op_speed *row = &k->op[i];
        if (row->tf32 != tf32 || strcmp(row->op_class, op_class) != 0)
            continue;
        if (!row->any_dtype && row->dtype == dtype)
            return row;
        any = row->any_dtype ? row : any;
    }
    return any;
}

static double peak_of(const nnc_cluster_kind *k, const nnc_sim_op *op)
{
    if (op->tf32 && op->dtype == DT_f32 && k->target.flops_tf32 > 0)
        return (double)k->target.flops_tf32;
    const bool none = op->dtype == DT_f16 && !k->target.flops_f16;
    if (k->flops[op->dtype] > 0 && !none)
        return (double)k->flops[op->dtype];
    return (double)k->target.flops_f32; /* without tensor cores: computed in f32 */
}

/* The number of the class; of "conv" for another convolution, of "other" for the rest. */
static size_t class_of(const char *name)
{
    enum { OTHER = NNC_COUNT(classes) - 1 };
    char base[NNC_SIM_CLASS];
    size_t i = 0;
    nnc_snprintf(base, sizeof base, "%s", name);
    while (strip(base))
        continue;
    while (i < OTHER && strcmp(classes[i].name, base) != 0)
        i++;
    return i == OTHER && !strncmp(base, "conv", 4) ? CONV : i;
}

static nnc_op_speed default_speed(const nnc_cluster_kind *k, const nnc_sim_op *op)
{
    const nnc_target *t = &k->target;
    const bool gpu = t->kind == NNC_T_cuda;
    const bool tensor = gpu && peak_of(k, op) > 2 * (double)t->flops_f32;
    const size_t i = class_of(op->op_class);
    nnc_op_speed s = {.op_class = classes[i].name,
        .efficiency = tensor ? classes[i].tensor : classes[i].f32,
        .memory = !gpu     ? 1
                  : tensor ? classes[i].tensor_memory
                           : classes[i].memory,
        .ramp_ns = gpu ? NNC_SM_ramp : 0};
    const double share = gpu || !t->n_engines ? 0 : nnc_sim_engine_share(op->op_class);
    if (share > 0) /* what its first engine reaches */
        s.efficiency = t->engine[0].efficiency * share;
    return s;
}

double nnc_sim_engine_share(const char *op_class)
{
    const size_t i = class_of(op_class);
    return i >= CONTRACTIONS || i == RECURRENT ? 0 : i == WINOGRAD ? classes[i].f32 : 1;
}

/* A contraction with few FLOPs per byte, such as a product of one row: its bytes decide. */
static bool is_thin(const nnc_sim_op *op)
{
    enum { FLOPS_A_BYTE = 8 }; /* a core computes some 100 GFLOP/s, and reads 12 GB/s of memory */
    const size_t i = class_of(op->op_class);
    return (i <= CONV || i == WINOGRAD || i == MATMUL) && op->bytes > 0 &&
           op->flops < FLOPS_A_BYTE * op->bytes;
}

void nnc_sim_row_class(const nnc_sim_op *op, char name[NNC_SIM_CLASS])
{
    nnc_snprintf(name, NNC_SIM_CLASS, "%s%s%s", op->op_class, is_thin(op) ? "_thin" : "",
        op->trains ? "_step" : "");
}

/* The row of the class, of the class without its last suffixes, or of "conv" for another convolution; NULL: there is none. */
static const nnc_op_speed *find_row_of(const nnc_cluster_kind *k, const nnc_sim_op *op, bool tf32)
{
    char name[NNC_SIM_CLASS];
    nnc_sim_row_class(op, name);
    const nnc_op_speed *row;
    do
        row = row_of(k, name, op->dtype, tf32);
    while (!row && strip(name));
    return row || strncmp(name, "conv", 4) != 0 ? row : row_of(k, "conv", op->dtype, tf32);
}

/* Where tf32 may be used and was not measured, the row for f32. */
static const nnc_op_speed *find_row(const nnc_cluster_kind *k, const nnc_sim_op *op)
{
    const nnc_op_speed *row = op->tf32 && op->dtype == DT_f32 ? find_row_of(k, op, true) : NULL;
    return row ? row : find_row_of(k, op, false);
}

double nnc_sim_op_contention(const nnc_cluster_kind *k, const nnc_sim_op *op)
{
    const nnc_op_speed *row = find_row(k, op);
    return row && row->contention > 0 ? row->contention : 1;
}

/* Blocks run in waves of as many as the multiprocessors hold; the last wave takes as long as a full one. */
static double waves(const nnc_target *t, const nnc_sim_op *op)
{
    if (op->blocks <= 0 || t->sms <= 0)
        return 1;
    const double at_once = (double)t->sms * (op->blocks_per_sm > 0 ? op->blocks_per_sm : 1);
    const double n = (double)op->blocks / at_once;
    return ceil(n) / n;
}

bool nnc_sim_class_contracts(const char *op_class)
{
    return class_of(op_class) < CONTRACTIONS && !strstr(op_class, "_thin");
}

/* By measured points, and by what else the row gives. */
static double table_ns(const nnc_cluster_kind *k, const nnc_op_speed *s, const nnc_sim_op *op)
{
    const bool by_flops = nnc_sim_class_contracts(s->op_class) ? op->flops > 0 : op->bytes <= 0;
    const double work = (double)(by_flops ? op->flops : op->bytes);
    double ns = nnc_measured_ns(s->point, s->n_point, work);
    if (s->efficiency > 0 && !by_flops)
        ns = fmax(ns, (double)op->flops / (peak_of(k, op) * s->efficiency) * 1e9);
    if (s->memory > 0 && by_flops) {
        const double rate = (double)k->target.copy_bytes_s * 1e-9;
        /* a GPU's epilogue reads and writes what no cache keeps */
        const double after = k->target.kind == NNC_T_cuda ? (double)op->epilogue_bytes / rate : 0;
        ns = fmax(ns, (double)op->bytes / (rate * s->memory) + after);
    }
    return ns;
}

static int64_t whole_ps(double ps)
{
    return ps < 0x1p61 ? (int64_t)ceil(ps) : (int64_t)1 << 61;
}

int64_t nnc_sim_op_ps(const nnc_cluster_kind *k, const nnc_sim_op *op, const char **how)
{
    const nnc_op_speed *row = find_row(k, op), s = row ? *row : default_speed(k, op);
    const char *unused;
    how = how ? how : &unused;
    if (s.n_point) {
        *how = "table";
        return whole_ps(table_ns(k, &s, op) * 1000);
    }
    const double compute =
        (double)op->flops / (peak_of(k, op) * s.efficiency) * waves(&k->target, op);
    const double moving = (double)op->bytes / ((double)k->target.copy_bytes_s * s.memory);
    const double after = (double)op->epilogue_bytes / (double)k->target.copy_bytes_s;
    *how = compute > moving + after ? "compute" : "memory";
    return whole_ps((double)s.ramp_ns * 1000 + ceil((fmax(compute, moving) + after) * 1e12));
}

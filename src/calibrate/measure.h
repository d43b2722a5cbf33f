/* calibrate/measure.h -- shared by the files of nnc calibrate: programs that are measured, and what they show. */
#ifndef NNC_CALIBRATE_MEASURE_H
#define NNC_CALIBRATE_MEASURE_H

#include "calibrate/calibrate.h"
#include "session/session.h"
#include "strategy/strategy.h"
#include "cluster/cluster.h"
#include "sim/sim.h"

/* What a net reads: pictures [n,3,h,h], [n,c,h,h], [n,c], [n,h,c], or n tokens of c features in sequences of up to 128. */
typedef enum cal_input { CAL_picture, CAL_channels, CAL_rows, CAL_sequences, CAL_tokens } cal_input;
/* A net that is measured: a small one with layers as in models/, or tensors that move between devices. */
typedef struct cal_net {
    const char *name; /* of a block in nets.def */
    cal_input input;
    int n, c, h; /* samples, channels (or features), pixels of a side (or rows) */
    bool step;   /* also measured as a training step */
} cal_net;
extern const cal_net cal_nets[];
extern const int cal_n_nets;
/* Of GPUs: sizes of nets, from some that a slow device computes at once to batches of full pictures, and one between (nets only). The
 * nets of a tier; single ops on rows of tensors of its size; training steps; a chain of the smallest commands. */
typedef enum cal_kind { CAL_nets, CAL_ops, CAL_steps, CAL_KINDS } cal_kind;
enum { CAL_TIERS = 4, CAL_NETS = 16 };
const cal_net *cal_gpu_nets(int tier, cal_kind kind, int *n);
extern const cal_net cal_gpu_chain;
/* Appends a model file: these nets beside each other, on each of so many devices. */
void cal_nets_write(nnc_text *t, const cal_net *net, int n, int devices);

/* A loaded program of this process alone, or of all ranks. */
typedef struct cal_program {
    const cal_net *net;
    nnc_artifact *a;
    nnc_session *s;
    bool alone, step;
    int before;       /* runs of main that are submitted before a profile, so that a GPU does not wait for the host */
    int n_cmd, runs;  /* commands from main on; profiles so far */
    int64_t *ns;      /* by command, `most` times: their durations */
    int64_t *from, *to; /* of the latest profile */
    size_t cap;
} cal_program;

enum { CAL_RUNS = 41, CAL_CLASSES = 192, CAL_POINTS = 24, CAL_GROUPS = 12, CAL_SIZES = 5 };

/* A command of a program: what it does, and its median time. */
typedef struct cal_sample {
    nnc_sim_op op;
    int64_t ns;
    double spread;
} cal_sample;

typedef struct cal_class {
    const char *name;
    nnc_dtype dtype;
    bool tf32;
    int n_point;
    nnc_point point[CAL_POINTS];
    double contention, spread;
    double memory, efficiency; /* lower bounds: shares of the target's copy bandwidth and peak; 0: none */
    double log_ratio; /* sum over commands of log(all devices computing / one), n_ratio of them */
    int n_ratio;
} cal_class;

typedef struct cal_group {
    nnc_group_op kind;
    int devices, n_point;
    nnc_point point[CAL_SIZES];
    double spread;
} cal_group;

typedef struct calibration {
    nnc_env *e;
    const nnc_calibrate_options *o;
    nnc_sink *sink;
    nnc_arena a;
    nnc_target target; /* of a device; strings are those of e's */
    nnc_compile_options with; /* of the programs */
    bool no_replay; /* the next program that is loaded alone is not captured */
    int devices, threads; /* threads: of a device */
    int cores; /* of this host, that its ranks share */
    int64_t begin_ns, budget_ns;
    cal_sample *sample;
    size_t n_sample, cap_sample;
    int n_class;
    cal_class class[CAL_CLASSES];
    nnc_command_times *times; /* of commands alone */
    int64_t command_ns, memory_bytes_s;
    int n_copy;
    nnc_point copy[CAL_SIZES];
    double copy_spread;
    int64_t copy_latency_ns, copy_bytes_s;
    int64_t run_ns, wake_ns; /* of a run on several devices, beside its commands; of a device that has waited long */
    int n_group;
    cal_group group[CAL_GROUPS];
    int n_program, n_profile; /* for the file's source */
    struct {
        int64_t host_ns; /* to submit a command by itself */
        int64_t context_bytes, library_bytes;
        nnc_point up[CAL_SIZES], down[CAL_SIZES], pageable_up[CAL_SIZES], pageable_down[CAL_SIZES];
        int64_t host_copy_bytes_s; /* of the host's memory, read and written */
        nnc_text done; /* programs that were measured */
    } gpu;
} calibration;

static inline bool cal_leads(const calibration *c)
{
    return nnc_env_rank(c->e) == 0;
}

/* calibrate.c. Parses a model, compiles it for so many devices and loads it; alone: on rank 0 only, the others do nothing. */
nnc_status cal_load(calibration *c, const nnc_text *model, int devices, bool alone, bool step, cal_program *out) NNC_MUST;
void cal_unload(cal_program *p);
/* Rank 0: profiles the program once more; with `keep` the times are among its durations. */
nnc_status cal_profile(calibration *c, cal_program *p, bool keep) NNC_MUST;
/* The median of durations of command i (from main's first), and their spread. */
int64_t cal_median(const cal_program *p, int i, double *spread);
int64_t cal_median_of(int64_t *v, int n, double *spread); /* sorts v */
/* All ranks: rank 0's answer. Is there time until this share of the budget is spent? */
nnc_status cal_has_time(const calibration *c, double share, bool *yes) NNC_MUST;
/* Rank 0 measures a program of all ranks, the others follow. */
nnc_status cal_lead(calibration *c, cal_program *p, nnc_status (*measure)(calibration *c, cal_program *p, void *ctx), void *ctx) NNC_MUST;

/* ops.c: tables of classes; how much slower ops are when all devices compute. */
nnc_status cal_ops(calibration *c) NNC_MUST;
/* The parts of it that GPUs have, too. The medians of a program's commands, each less so many nanoseconds, as samples. */
nnc_status cal_add_samples(calibration *c, const cal_program *p, int64_t less) NNC_MUST;
nnc_status cal_make_tables(calibration *c) NNC_MUST;
/* links.c: copies between devices, collectives. */
nnc_status cal_links(calibration *c) NNC_MUST;
/* Copies of all sizes, of at least the first `least`, until this share of the budget is spent; and their line. */
nnc_status cal_copies(calibration *c, double share, int least, nnc_status (*measure)(calibration *c, int64_t bytes, int64_t *ns)) NNC_MUST;
/* Each collective on all devices and on two: measure sets the time of g's next point. */
nnc_status cal_groups(calibration *c, int least, nnc_status (*measure)(calibration *c, cal_group *g, int64_t bytes)) NNC_MUST;
/* Latency and rate of points [bytes, ns] with the least relative errors. */
void cal_fit_line(const nnc_point *p, int n, int64_t *latency_ns, int64_t *bytes_s);
/* Graphs of copies between devices 0 and 1 (or of as many commands on device 0 alone), and of collectives. */
enum { CAL_HOPS = 9, CAL_REPEATS = 4 };
void cal_copy_text(nnc_text *t, int64_t bytes, bool alone);
void cal_group_text(nnc_text *t, nnc_group_op kind, int n, int64_t bytes);

/* gpu.c: the whole of a GPU. gpu_links.c: copies from and to the host, between GPUs, collectives. */
nnc_status cal_gpu(calibration *c) NNC_MUST;
nnc_status cal_gpu_host(calibration *c) NNC_MUST;
nnc_status cal_gpu_links(calibration *c) NNC_MUST;
/* Nanoseconds of a run of main (or a whole step) in a long burst that is waited for once. */
nnc_status cal_gpu_burst(calibration *c, cal_program *p, int64_t *ns) NNC_MUST;
/* Bytes of device 0 that are taken, by this process or others; 0: unknown. */
int64_t cal_gpu_taken(const calibration *c);

/* print.c: the hardware file. gpu_print.c: of GPUs. */
void cal_print(const calibration *c, nnc_text *out);
void cal_gpu_print(const calibration *c, nnc_text *out);
void cal_put_points(nnc_text *t, const nnc_point *p, int n);
void cal_put_groups(nnc_text *t, const calibration *c); /* the rest of "collectives" */
void cal_put_ops(const calibration *c, nnc_text *t);

#endif

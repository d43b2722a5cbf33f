/* calibrate/measure.h -- shared by the files of nnc calibrate: measured programs and their results. */
#ifndef NNC_CALIBRATE_MEASURE_H
#define NNC_CALIBRATE_MEASURE_H

#include "calibrate/calibrate.h"
#include "session/session.h"
#include "strategy/strategy.h"
#include "cluster/cluster.h"
#include "sim/sim.h"

/* Shape of a net's input: [n,3,h,h], [n,c,h,h], [n,c], [n,h,c], or n tokens of c features in sequences of up to 128. */
typedef enum cal_input { CAL_picture, CAL_channels, CAL_rows, CAL_sequences, CAL_tokens } cal_input;
/* A net to measure: a small one with layers as in models/, or tensors that move between devices. */
typedef struct cal_net {
    const char *name; /* name of a block in nets.def */
    cal_input input;
    int n, c, h; /* samples, channels (or features), pixels of a side (or rows) */
    bool step;   /* also measured as a training step */
} cal_net;
extern const cal_net cal_nets[];
extern const int cal_n_nets;
/* Nets for GPUs, in tiers of growing size, from nets that a slow device computes quickly to batches of full pictures. A tier has nets,
 * single ops on tensors of its size, and training steps; one tier in between has only nets. cal_gpu_chain is a chain of the smallest
 * commands. */
typedef enum cal_kind { CAL_nets, CAL_ops, CAL_steps, CAL_KINDS } cal_kind;
enum { CAL_TIERS = 4, CAL_NETS = 16 };
const cal_net *cal_gpu_nets(int tier, cal_kind kind, int *n);
extern const cal_net cal_gpu_chain;
/* Appends a model file with these nets side by side, on each of `devices` devices. */
void cal_nets_write(nnc_text *t, const cal_net *net, int n, int devices);

/* A loaded program of this process only, or of all ranks. */
typedef struct cal_program {
    const cal_net *net;
    nnc_artifact *a;
    nnc_session *s;
    bool alone, step;
    int before;       /* runs of main submitted before a profile, so that a GPU does not wait for the host */
    int n_cmd, runs;  /* number of commands from main on, and of profiles so far */
    int64_t *ns;      /* by command: durations in all profiles */
    int64_t *from, *to; /* begin and end of commands in the latest profile */
    size_t cap;
} cal_program;

enum { CAL_RUNS = 41, CAL_CLASSES = 192, CAL_POINTS = 24, CAL_GROUPS = 12, CAL_SIZES = 5 };

/* A command of a program: its op, and its median time. */
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
    nnc_target target; /* of a device; its strings belong to e */
    nnc_compile_options with; /* for the programs */
    bool no_replay; /* do not capture the next program that is loaded alone */
    int devices, threads; /* threads of a device */
    int cores; /* cores of this host, which its ranks share */
    int64_t begin_ns, budget_ns;
    cal_sample *sample;
    size_t n_sample, cap_sample;
    int n_class;
    cal_class class[CAL_CLASSES];
    int64_t command_ns, memory_bytes_s;
    int n_copy;
    nnc_point copy[CAL_SIZES];
    double copy_spread;
    int64_t copy_latency_ns, copy_bytes_s;
    int64_t run_ns, wake_ns; /* overhead of a run on several devices beside its commands; delay of a device that has waited long */
    int n_group;
    cal_group group[CAL_GROUPS];
    int n_program, n_profile; /* for the file's source */
    struct {
        int64_t host_ns; /* host time to submit a single command */
        int64_t context_bytes, library_bytes;
        nnc_point up[CAL_SIZES], down[CAL_SIZES], pageable_up[CAL_SIZES], pageable_down[CAL_SIZES];
        int64_t host_copy_bytes_s; /* of the host's memory, read and written */
        nnc_text done; /* names of the measured programs */
    } gpu;
} calibration;

static inline bool cal_leads(const calibration *c)
{
    return nnc_env_rank(c->e) == 0;
}

/* calibrate.c. Parses a model, compiles it for `devices` devices and loads it. alone: only on rank 0; the others do nothing. */
nnc_status cal_load(calibration *c, const nnc_text *model, int devices, bool alone, bool step, cal_program *out) NNC_MUST;
void cal_program_deinit(cal_program *p);
/* Rank 0: profiles the program once more. `keep`: add the times to its durations. */
nnc_status cal_profile(calibration *c, cal_program *p, bool keep) NNC_MUST;
/* Median duration of command i, counted from main's first, and the spread. */
int64_t cal_median(const cal_program *p, int i, double *spread);
int64_t cal_median_of(int64_t *v, int n, double *spread); /* sorts v */
/* Whether less than this share of the time budget is spent. All ranks call it and get rank 0's answer. */
nnc_status cal_has_time(const calibration *c, double share, bool *yes) NNC_MUST;
/* Rank 0 measures a program of all ranks, the others follow. */
nnc_status cal_lead(calibration *c, cal_program *p, nnc_status (*measure)(calibration *c, cal_program *p, void *ctx), void *ctx) NNC_MUST;

/* ops.c: makes the tables of classes, and measures how much slower ops are when all devices compute. */
nnc_status cal_ops(calibration *c) NNC_MUST;
/* Parts of cal_ops that GPUs use too. cal_add_samples adds the medians of a program's commands, each reduced by `less` nanoseconds. */
nnc_status cal_add_samples(calibration *c, const cal_program *p, int64_t less) NNC_MUST;
nnc_status cal_make_tables(calibration *c) NNC_MUST;
/* links.c: measures copies between devices, and collectives. */
nnc_status cal_links(calibration *c) NNC_MUST;
/* Measures copies of all sizes, at least the first `least` of them, until this share of the budget is spent. Fits a line. */
nnc_status cal_copies(calibration *c, double share, int least, nnc_status (*measure)(calibration *c, int64_t bytes, int64_t *ns)) NNC_MUST;
/* Measures each collective on all devices and on two. `measure` sets the time of g's next point. */
nnc_status cal_groups(calibration *c, int least, nnc_status (*measure)(calibration *c, cal_group *g, int64_t bytes)) NNC_MUST;
/* Fits latency and rate to points [bytes, ns], with the least relative errors. */
void cal_fit_line(const nnc_point *p, int n, int64_t *latency_ns, int64_t *bytes_s);
/* Append a model file of copies between devices 0 and 1 (devices = 1: of as many commands on device 0 only), and a graph of collectives. */
enum { CAL_HOPS = 9, CAL_REPEATS = 4 };
void cal_copies_write(nnc_text *t, int64_t bytes, int devices);
void cal_group_text(nnc_text *t, nnc_group_op kind, int n, int64_t bytes);

/* gpu.c: measures GPUs. gpu_links.c: measures copies from and to the host and between GPUs, and collectives. */
nnc_status cal_gpu(calibration *c) NNC_MUST;
nnc_status cal_gpu_host(calibration *c) NNC_MUST;
nnc_status cal_gpu_links(calibration *c) NNC_MUST;
/* Nanoseconds of a run of main (or a whole step), in a long burst with a single wait at its end. */
nnc_status cal_gpu_burst(calibration *c, cal_program *p, int64_t *ns) NNC_MUST;
/* Bytes in use on device 0, by this process or others; 0: unknown. */
int64_t cal_gpu_taken(const calibration *c);

/* print.c: prints the hardware file. gpu_print.c: that of GPUs. */
void cal_print(const calibration *c, nnc_text *out);
void cal_gpu_print(const calibration *c, nnc_text *out);
void cal_put_groups(nnc_text *t, const calibration *c); /* the rest of "collectives" */
void cal_put_ops(const calibration *c, nnc_text *t);

#endif

/* api/calibrate.h -- shared by the files of nnc calibrate: programs that are measured, and what they show. Internal to api/. */
#ifndef NNC_API_CALIBRATE_H
#define NNC_API_CALIBRATE_H

#include "api/partition.h"
#include "cluster/cluster.h"
#include "sim/sim.h"

struct cal_writer;
/* A net that is measured: a small one with layers as in models/, or tensors that move between devices. */
typedef struct cal_net {
    const char *name;
    void (*body)(struct cal_writer *w, const struct cal_net *net); /* appends its nodes for one device */
    int n, c, h; /* samples, channels (or features), pixels of a side (or rows) */
    bool step;   /* also measured as a training step */
} cal_net;
extern const cal_net cal_nets[];
extern const int cal_n_nets;
/* Appends a graph: the net on each of so many devices. */
void cal_net_write(nnc_text *t, const cal_net *net, int devices);

/* A loaded program of this process alone, or of all ranks. */
typedef struct cal_program {
    const cal_net *net;
    nnc_artifact *a;
    nnc_session *s;
    bool alone, step;
    int n_cmd, runs;  /* commands from main on; profiles so far */
    int64_t *ns;      /* by command, `most` times: their durations */
    int64_t *from, *to; /* of the latest profile */
    size_t cap;
} cal_program;

enum { CAL_RUNS = 41, CAL_CLASSES = 80, CAL_POINTS = 24, CAL_GROUPS = 12, CAL_SIZES = 5 };

/* A command of a program: what it does, and its median time. */
typedef struct cal_sample {
    nnc_sim_op op;
    int64_t ns;
    double spread;
} cal_sample;

typedef struct cal_class {
    const char *name;
    nnc_dtype dtype;
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
} calibration;

static inline bool cal_leads(const calibration *c)
{
    return nnc_env_rank(c->e) == 0;
}

/* calibrate.c. Parses a graph, compiles it for so many devices and loads it; alone: on rank 0 only, the others do nothing. */
nnc_status cal_load(calibration *c, const nnc_text *graph, int devices, bool alone, bool step, cal_program *out) NNC_MUST;
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

/* calibrate_ops.c: tables of classes; how much slower ops are when all devices compute. */
nnc_status cal_ops(calibration *c) NNC_MUST;
/* calibrate_links.c: copies between devices, collectives. */
nnc_status cal_links(calibration *c) NNC_MUST;
/* calibrate_print.c: the hardware file. */
void cal_print(const calibration *c, nnc_text *out);

#endif

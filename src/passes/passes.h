/* passes/passes.h -- transformations of the graph. The table passes.def gives order, level and needs. The driver verifies the graph after
 * each pass and collects remarks. It also checks that a pass's applied remarks add up exactly to its change of nnc_graph_cost. */
#ifndef NNC_PASSES_H
#define NNC_PASSES_H

#include "ir/ir.h"
#include "cost/cost.h"

/* One decision. Strings live in the remark list's arena. */
typedef struct nnc_remark {
    const char *pass;
    bool applied;
    const char *rule;    /* short name of the rule: "relu into conv epilogue" */
    int n_layers;
    const char **layer;  /* the user's layer paths, producer first */
    const char *reason;  /* one sentence: the reason, or what prevents it */
    int64_t bytes_saved; /* may be negative (a relayout costs) */
    int64_t launches_saved;
    int64_t bytes_kept;  /* training steps: bytes kept for the backward pass; of an applied remark: no longer kept */
} nnc_remark;

typedef struct nnc_remarks {
    nnc_arena arena;
    nnc_remark *at;
    size_t n, cap;
} nnc_remarks;

void nnc_remarks_init(nnc_remarks *r);
void nnc_remarks_deinit(nnc_remarks *r);
bool nnc_remarks_add(nnc_remarks *r, const nnc_remark *m); /* m's strings are in r's arena; false: out of memory */

enum { NNC_MEMORY_PRICE = 300 };
typedef struct nnc_pass_options {
    int level;                 /* 0..3 */
    nnc_policy policy;         /* exact math: no relu inside an engine that drops NaN */
    const nnc_target *target;  /* of each device (nnc_target_on); NULL: none is described */
    int n_target;
    const char *const *skip;   /* names of passes not to run */
    int n_skip;
    const char *const *only;   /* when n_only > 0: run exactly these, in this order (nnc opt --passes=) */
    int n_only;
    const char *from, *until;  /* for a run in two parts, in table order only: begins with `from` (NULL: the first pass) and ends before
                                * `until` (NULL: the end) */
    int memory_price;          /* recompute: for a result kept for the backward pass, in percent of the time that reading it takes */
    int segments;              /* recompute. 0: repeats only elementwise ops. n: keeps values between n forward segments, and those of the
                                * last (Chen et al., "Training deep nets with sublinear memory cost", 2016) */
    bool join_siblings;        /* joins siblings also where that is expected to take longer */
    /* called after every pass that ran; `changed` counts its applied rewrites */
    void (*after)(void *ctx, const char *pass, const nnc_graph *g, int changed, int64_t ns);
    void *after_ctx;
} nnc_pass_options;

typedef struct nnc_pass_info {
    const char *name;
    int level;        /* lowest -O level that runs it */
    bool fusion;      /* disabled in the "unfused" side of compare */
    const char *doc;
} nnc_pass_info;

extern const nnc_pass_info nnc_pass_table[];
extern const int nnc_pass_count;
int nnc_pass_find(const char *name); /* index, or -1 */

/* ---- splitting ops over devices (split.c) --------------------------------------------------------------------- */

/* How the ops of a layer are divided among devices. */
typedef enum nnc_split_by {
    NNC_SPLIT_follow,   /* as their operands are */
    NNC_SPLIT_whole,    /* not at all */
    NNC_SPLIT_columns,  /* the result's features, a convolution's output channels: each device has its part of the weights */
    NNC_SPLIT_rows,     /* the operand's features, a convolution's input channels: results are sums over the devices */
    NNC_SPLIT_batch,    /* dimension 0 */
    NNC_SPLIT_height,   /* the last dimension but one of windows; neighbours exchange halos */
    NNC_SPLIT_width,    /* the last dimension of windows */
    NNC_SPLIT_features, /* rows or columns, as fewer bytes are sent; whole where neither is possible */
    NNC_SPLIT_space,    /* height, or width of one spatial dimension; whole where that is impossible */
    NNC_SPLIT__COUNT
} nnc_split_by;
extern const char *const nnc_split_words[NNC_SPLIT__COUNT]; /* "columns" */

typedef struct nnc_split_options {
    int n_device;
    const uint8_t *by; /* nnc_split_by, by node of the graph; NULL: all nodes follow */
    bool *heard;       /* by node: set where `by` applied; may be NULL */
    bool trains;       /* the graph will be differentiated: a weight that several ops read stays one */
} nnc_split_options;

/* Maximum of devices with copies of weights. With `trains`, a weight that all devices read whole becomes a param on each device. They
 * follow each other in the graph in the order of the devices, and name the same weight. Training keeps them equal. */
enum { NNC_SPLIT_COPIES = 64 };

/* Bytes that devices send each other in a run of the split graph, all links together. */
typedef struct nnc_split_cost { int64_t bytes, halo, collective; int n_split; } nnc_split_cost;

/* Splits graph g of one device over several. Ops are divided as o->by says, others follow their operands. Weights are parts of g's.
 * Collectives and slices between the devices give each op its operands. Inputs and outputs are those of g, on device 0. NNC_E_USAGE: a
 * layer cannot be divided as it should. The caller owns *out; cost and remarks may be NULL. */
nnc_status nnc_split(const nnc_graph *g, const nnc_split_options *o, nnc_graph **out, nnc_split_cost *cost, nnc_remarks *remarks,
    nnc_sink *sink) NNC_MUST;
extern const nnc_pass_info nnc_split_notes; /* pass name of its remarks */

/* Transforms *g in place (the pointer may be replaced). After a failure *g may still be destroyed. */
nnc_status nnc_passes_run(nnc_graph **g, const nnc_pass_options *o, nnc_remarks *remarks, nnc_sink *sink) NNC_MUST;

#endif

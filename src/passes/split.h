/* passes/split.h -- shared by the files that split ops over devices (split*.c). Internal to passes/.
 *
 * Each value of the graph has a layout. It is whole (`L_full`, on the devices that need it), divided along an axis, or a partial sum on
 * each device (`L_sum`). Part d of n of an extent E has the indices E d / n .. E (d + 1) / n. split_decide.c chooses the layout of each
 * node's results, in order, and thereby of its operands. split_search.c compares such choices. split_build.c makes the nodes. split_move.c
 * changes layouts, which is where devices exchange data. */
#ifndef NNC_PASSES_SPLIT_H
#define NNC_PASSES_SPLIT_H

#include "passes/passes.h"

enum { L_full = -2, L_sum = -1, LAYOUTS = NNC_MAX_RANK + 2 };

/* A node's decision: the layout of its results, and its cost. */
typedef struct choice {
    int8_t out;
    bool inner;   /* a contraction or reduction over the divided axis */
    int8_t axis;  /* inner: the axis of operand 0; otherwise out */
    int64_t cost; /* bytes sent, by estimate */
} choice;

/* Ways in which devices send each other values. */
typedef enum split_sent {
    SENT_broadcast, /* whole, from device 0 */
    SENT_scatter,   /* parts, from device 0 */
    SENT_halo,      /* what windows read of neighbours' parts */
    SENT_exchange,  /* parts along another axis */
    SENT_gather,    /* parts, in a concat */
    SENT_allgather,
    SENT_allreduce,
    SENT_reduce_scatter,
    SENT_sum, /* partial sums, to device 0 */
    SENT__COUNT
} split_sent;

typedef struct splitter {
    const nnc_graph *s;
    nnc_graph *g;
    int n;
    const uint8_t *by;
    bool *heard;
    nnc_arena *a;
    nnc_sink *sink;
    bool *fixed;      /* by value: weights, and values computed only from them */
    choice *choice;   /* by node */
    uint8_t *pick;    /* by node with NNC_SPLIT_features: NNC_SPLIT_columns or _rows; 0: the best by estimate */
    bool *gathered;   /* by value: assembled from parts or partial sums */
    int64_t moved;    /* bytes sent to change layouts otherwise, by estimate */
    uint16_t *have;   /* by value: layouts it is available in, bit layout + 2 */
    bool *everywhere; /* by value: whole on all devices, once it is needed there */
    bool *local;      /* by node: each device that needs the whole result computes it, from operands that are on all devices */
    uint32_t *uses;   /* by value */
    bool trains;      /* the graph will be differentiated */
    bool *statistic;  /* by value: a running statistic of a batch norm */
    bool *broadcast;  /* by value: its copies from device 0 are in the cost */
    uint8_t *demand;  /* by value: whole on device 0, on all devices: DEMAND_... */
    nnc_ref **form;   /* by value and layout: its parts by device, or NULL; L_full: NNC_NONE for devices that do not need it */
    nnc_split_cost cost;
    int64_t sent[SENT__COUNT]; /* for the current node's operands, for its remark */
    nnc_remarks *remarks;
} splitter;

enum { DEMAND_first = 1, DEMAND_all = 2 };

static inline int64_t split_cut(int64_t extent, int n, int d) { return (int64_t)((__int128)extent * d / n); }
static inline uint16_t layout_bit(int layout) { return (uint16_t)(1u << (layout + 2)); }
static inline int64_t value_bytes(const splitter *c, nnc_ref v) { return nnc_type_bytes(nnc_typeof(c->s, v)); }

/* ---- split_rules.c: which operands' axes belong to a result's ---- */

/* Can each of n devices compute its part of node x's results along axis r? Operand k must then be divided along in[k], or whole
 * (L_full). */
bool split_axes(const nnc_graph *s, const nnc_node *x, int r, int n, int8_t *in);
/* Can partial sums of x's result be computed from parts of operand 0 along `axis`? Operand k as above, or only on device 0 (L_sum): a
 * bias. */
bool split_inner(const nnc_graph *s, const nnc_node *x, int axis, int n, int8_t *in);
/* The axis of operand 0 that contraction x sums over, and the axis of its features; -1: it is no contraction. */
int split_summed_axis(const nnc_graph *s, const nnc_node *x);
int split_feature_axis(const nnc_graph *s, const nnc_node *x);
/* Is r a spatial axis of x's windows? *w: of that dimension, *ceil: the number of windows is rounded up. */
bool split_window(const nnc_graph *s, const nnc_node *x, int r, nnc_window *w);
/* The indices from..to of the operand that the windows of results a..b read, and padding before and after them. False: none. */
bool split_window_range(const nnc_window *w, int64_t a, int64_t b, int64_t *from, int64_t *to, int64_t *lo, int64_t *hi);

/* ---- split_decide.c ---- */

nnc_status split_decide(splitter *c) NNC_MUST;
/* The layouts of node x's operands: in[k], by its choice. */
void split_layouts(const splitter *c, const nnc_node *x, const choice *y, int8_t *in);
int8_t *split_operand_forms(const splitter *c); /* array for any node's operands; NULL: out of memory */

/* ---- split_search.c: decides, choosing rows and columns for the fewest bytes of the whole graph ---- */

nnc_status split_search(splitter *c) NNC_MUST;

/* ---- split_move.c ---- */

/* The parts of v in a layout, by device. NULL: failed, c->g->status says so. */
const nnc_ref *split_form(splitter *c, nnc_ref v, int layout);
/* Indices from..to of v along axis, on device d: of v's parts along that axis, or of the whole value. */
nnc_ref split_range(splitter *c, nnc_ref v, int axis, int64_t from, int64_t to, int d);
/* Adds to the current node's cost. */
void split_sends(splitter *c, split_sent how, int64_t bytes);
nnc_ref *split_slots(splitter *c, nnc_ref v, int layout);

/* ---- split_build.c ---- */

nnc_status split_build(splitter *c) NNC_MUST;

#endif

/* ir/graph.h -- what graph.c, build.c, text.c and parse.c share; nobody outside src/ir includes
 * it. */
#ifndef NNC_IR_GRAPH_H
#define NNC_IR_GRAPH_H

#include "ir/ir.h"

/* Appends a node made from *proto (op, operands, attributes, weight, body, origin, loc, device,
 * frozen): everything but the body is copied into g, attributes are sorted, types inferred.
 * `typed`: n_out types, or NULL; leaves must give theirs; for other ops they must agree with
 * inference in dtype and dimensions and decide the memory order. On failure g->status is set, the
 * body destroyed and NNC_NONE returned. */
nnc_ref nnc_add_node(nnc_graph *g, const nnc_node *proto, const nnc_type *typed);

/* The value a name (or, while parsing, a number) stands for; NNC_NONE when none does. */
nnc_ref nnc_name_find(const nnc_graph *g, const char *name);
/* Reserves `name` for r without making it unique; false: taken or out of memory (then g->status is
 * set). */
bool nnc_name_claim(nnc_graph *g, const char *name, nnc_ref r);

/* Copies of the things a node refers to, in g's arena; NULL and sticky NNC_E_NOMEM when memory is
 * out. */
nnc_weight *nnc_weight_copy(nnc_graph *g, const nnc_weight *w, const nnc_type *t);

/* A copy of s, or `before` where that says the same: the strings of consecutive nodes often do. NULL for NULL. */
const char *nnc_keep_string(nnc_graph *g, const char *s, const char *before);
/* Makes what an attribute points to g's own. False: out of memory, not yet reported. */
bool nnc_keep_attr(nnc_graph *g, nnc_attr *a);

/* Why `update state <- value` is wrong; NULL: it is not. */
const char *nnc_update_fault(const nnc_graph *g, nnc_ref state, nnc_ref value);

/* Are the nodes in place where their operands and results say (views.c)? */
nnc_status nnc_check_places(const nnc_graph *g, nnc_sink *sink) NNC_MUST;

/* Where to report on a node: its location, with the origin for a path. */
nnc_loc nnc_node_loc(const nnc_node *n);

/* Sets the sticky status (first failure wins) and returns NNC_NONE. */
nnc_ref nnc_stick(nnc_graph *g, nnc_status s);

#endif

/* ir/graph.h -- shared by graph.c, build.c, text.c and parse.c; not included outside src/ir. */
#ifndef NNC_IR_GRAPH_H
#define NNC_IR_GRAPH_H

#include "ir/ir.h"

/* Appends a node made from *proto (op, operands, attributes, weight, body, origin, loc, device, frozen). Everything except the body is
 * copied into g, attributes are sorted, types inferred. `typed`: n_out types, or NULL. Leaves require it. For other ops it must agree with
 * inference in dtype and dimensions, and determines the memory order. On failure sets g->status, destroys the body and returns NNC_NONE. */
nnc_ref nnc_add_node(nnc_graph *g, const nnc_node *proto, const nnc_type *typed);

/* The value with this name (or, while parsing, number); NNC_NONE: none. */
nnc_ref nnc_name_find(const nnc_graph *g, const char *name);
/* Reserves `name` for r without making it unique; false: in use, or out of memory (then g->status is set). */
bool nnc_name_claim(nnc_graph *g, const char *name, nnc_ref r);

/* Copy objects that a node refers to into g's arena. NULL, and sticky NNC_E_NOMEM: out of memory. */
nnc_weight *nnc_weight_copy(nnc_graph *g, const nnc_weight *w, const nnc_type *t);

/* Returns a copy of s, or `before` if it is equal, as strings of consecutive nodes often are. NULL for NULL. */
const char *nnc_keep_string(nnc_graph *g, const char *s, const char *before);
/* Copies an attribute's arrays and strings into g. False: out of memory, not yet reported. */
bool nnc_keep_attr(nnc_graph *g, nnc_attr *a);

/* What is wrong with `update state <- value`; NULL: nothing. */
const char *nnc_update_fault(const nnc_graph *g, nnc_ref state, nnc_ref value);

/* Checks that operands and results of in-place nodes have the places that these nodes need (views.c). */
nnc_status nnc_check_places(const nnc_graph *g, nnc_sink *sink) NNC_MUST;

/* Location for messages about a node, with its origin as the path. */
nnc_loc nnc_node_loc(const nnc_node *n);

/* Nodes appended from now on get n's origin, location, device, task and micro-batch. Returns the previous setting. */
nnc_node nnc_take_place(nnc_graph *g, const nnc_node *n);

/* Sets the sticky status (the first failure is kept) and returns NNC_NONE. */
nnc_ref nnc_stick(nnc_graph *g, nnc_status s);

#endif

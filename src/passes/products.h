/* passes/products.h -- two products with ops on rows between them, as fuse_products.c finds them and attention.c fuses them on GPUs. */
#ifndef NNC_PASSES_PRODUCTS_H
#define NNC_PASSES_PRODUCTS_H

#include "kernel/kernel.h"
#include "passes/internal.h"

enum { MOST_RUN = 48 };

/* Operands before users: node[first] and node[last] are the products. */
typedef struct product_run {
    uint32_t node[MOST_RUN];
    int n, first, last;
} product_run;

static inline bool run_has(const product_run *r, uint32_t i)
{
    for (int k = 0; k < r->n; k++)
        if (r->node[k] == i)
            return true;
    return false;
}

/* The kernel of fused node n, arranged for its target. NULL: *why, or p->status. */
nnc_kernel *products_kernel(pass *p, const nnc_node *n, nnc_arena *mem, const char **why);

/* Values built outside of regions for their masks. */
typedef struct mask_list {
    nnc_ref *at;
    size_t n, cap;
} mask_list;
/* Region v (a fused node of one result) with its mask as an operand instead of computed inside; NNC_NONE: it has no mask, or p->status. */
nnc_ref attention_mask_outside(pass *p, nnc_ref v, mask_list *made);

/* Fuses the run on a GPU where it is attention and expected to take less time. rule, l: of the remark. */
void fuse_attention(pass *p, const product_run *r, layers *l, const char *rule, mask_list *made);

#endif

/* bench/partition/gpt.h -- what a GPT's layers cost on described hardware, kernel by kernel as Megatron-LM launches them, for tensor
 * parallelism as it divides them. */
#ifndef BENCH_PARTITION_GPT_H
#define BENCH_PARTITION_GPT_H

#include "session/session.h"
#include "strategy/auto.h"

typedef struct gpt {
    int hidden, layers, heads, sequence, vocabulary;
    nnc_dtype dtype;   /* f16, bf16 */
    bool flash;        /* attention in one kernel, nothing of sequence x sequence in memory */
    bool sequence_parallel; /* norms and dropouts are divided over the tensor group, too */
    int gradient_bytes; /* of a parameter: what is kept and reduced */
} gpt;

double gpt_parameters(const gpt *g);
/* FLOPs of the matrix products of an iteration (Narayanan et al. 2021, eq. 3), forwards, backwards, and, `again`, forwards again. */
double gpt_flops(const gpt *g, int64_t batch, bool again);
/* Costs of the layers, embedding with the first and logits with the last, on devices of kind k. */
nnc_status gpt_costs(const gpt *g, const nnc_cluster_kind *k, const auto_links *l, int tensor, int size, nnc_arena *a,
    nnc_search_costs *out, nnc_sink *sink) NNC_MUST;

#endif

/* api/strategy.h -- how devices share a model: strategies that nnc executes, as graphs of all devices. Internal to api/. */
#ifndef NNC_API_STRATEGY_H
#define NNC_API_STRATEGY_H

#include "api/internal.h"
#include "api/train.h"
#include "partition/partition.h"

typedef struct nnc_sharing {
    nnc_train_strategy strategy;
    int devices;  /* of the plan */
    int replicas; /* that they are divided among; data: as many as devices */
    int micro;   /* micro-batches of a run */
    int batches; /* runs of a step (--accumulate); 1 for inference */
    int chunks;  /* interleaved: stages of a device */
    int64_t bucket_bytes; /* of gradients that replicas sum together; 0: those of each kernel of the optimizer */
    int zero;    /* ZeRO's stage, 0 to 2 (nnc_distribution); beyond 0 nnc_training.shards is `replicas` */
} nnc_sharing;

bool nnc_is_pipeline(nnc_train_strategy s);
/* Its name in nnc partition, and the strategy of a name. */
const char *nnc_strategy_name(nnc_train_strategy s);
bool nnc_strategy_named(const char *name, nnc_train_strategy *out);
/* Is a layer of g placed on another device than 0? */
bool nnc_is_placed(const nnc_graph *g);
/* m placed as `nnc partition` cuts it for this strategy. The caller closes *out. training NULL: inference. */
nnc_status nnc_strategy_place(nnc_env *e, const nnc_model *m, const nnc_training *training, const nnc_compile_options *compile,
    const nnc_sharing *o, nnc_model **out, nnc_sink *sink) NNC_MUST;
/* The graph of all devices and micro-batches of g, a step, an evaluation (`forward`) or a model; g itself stays. *out NULL: g is that
 * graph. */
nnc_status nnc_strategy_graph(const nnc_graph *g, const nnc_sharing *o, bool forward, nnc_graph **out, nnc_sink *sink) NNC_MUST;

#endif

/* train/train.h -- from a model to the graph of a training step.
 *
 * The graph computes a batch's loss and updates its params: weights by their gradients (autodiff/), moments of the optimizer, and running
 * statistics of batch norms. Passes, plan and devices treat it like any other graph. `main` computes the loss, `step` the rest. */
#ifndef NNC_TRAIN_H
#define NNC_TRAIN_H

#include "ir/ir.h"
#include <limits.h>

typedef enum nnc_loss {
    NNC_LOSS_cross_entropy, /* logits [N,C,...], or their softmax, and class indices i64 [N,...]: mean over all indices */
    NNC_LOSS_mse, /* mean of (y - target)^2 */
    NNC_LOSS_bce, /* logits, or their sigmoid, and targets in 0..1: mean binary cross-entropy */
} nnc_loss;

typedef enum nnc_optimizer { NNC_OPT_sgd, NNC_OPT_adam, NNC_OPT_adamw } nnc_optimizer;

enum { NNC_IGNORE_none = INT_MIN };

/* Statistics of batch norms: the batch's, which update the running ones, or the running ones, which stay. */
typedef enum nnc_bn {
    NNC_BN_auto,  /* as the layer says (AT_bn); default: the batch's, but the running ones in frozen layers */
    NNC_BN_train, /* the batch's, also in frozen layers */
    NNC_BN_eval,  /* the running ones */
} nnc_bn;

typedef struct nnc_training {
    nnc_loss loss;
    nnc_optimizer optimizer;
    double label_smoothing; /* cross_entropy: share of each target that is spread over all classes */
    double momentum; /* sgd; 0: none */
    bool nesterov; /* sgd with momentum */
    double beta1, beta2, eps; /* adam, adamw */
    double weight_decay; /* sgd, adam: added to the gradient; adamw: decoupled from it */
    double
        clip_norm; /* limit of the gradients' global norm; 0: none */
    double bn_momentum; /* share of a batch's statistics in the running ones */
    nnc_bn bn;
    int class_axis; /* cross_entropy: dimension of the classes; negative: from the end */
    int ignore_index; /* cross_entropy: targets to leave out of loss and accuracy; NNC_IGNORE_none: none */
    const char *const *freeze, *const *only; /* patterns of frozen weights, and of the only trained ones */
    int n_freeze, n_only;
    int accumulate; /* batches of a step, whose gradients are averaged; 0: 1 */
    int shards; /* replicas that shard the updates (nnc_distribution.zero); moments are padded to a multiple of them; 0: 1 */
    /* Loss scaling, as PyTorch's GradScaler. The loss is multiplied by a state that starts with loss_scale (0: none). A step with a
     * gradient that is not finite only halves the scale; scale_growth finite steps double it. */
    double loss_scale;
    int scale_growth;
    /* Output the loss's gradient with respect to each float input, as "NAME.gradient". The model may then have nothing to train. */
    bool grad_inputs;
    /* Splits the graph of the loss, *g, over devices before it is differentiated; outputs stay the same. NULL: one device. */
    nnc_status (*divide)(void *ctx, nnc_graph **g, nnc_sink *sink);
    void *divide_ctx;
} nnc_training;

/* Dimension of the classes of a prediction of this rank; -1: no such dimension. */
static inline int nnc_class_axis(const nnc_training *t, int rank)
{
    const int axis = t->class_axis < 0 ? rank + t->class_axis : t->class_axis;
    return axis < rank ? axis : -1;
}

/* Whether the param is frozen, by the model or by a pattern of t. */
bool nnc_train_freezes(const nnc_training *t, const nnc_node *param);

/* Whether such a weight is updated by a kernel of its own. All other weights of a device are updated, and their gradients reduced,
 * together. */
bool nnc_train_updates_alone(const nnc_type *weight);

/* PyTorch's defaults. */
#define NNC_TRAINING_DEFAULTS .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .bn_momentum = 0.1, .class_axis = 1, \
    .ignore_index = NNC_IGNORE_none, .scale_growth = 2000
extern const nnc_training nnc_training_defaults;

/* Names of added inputs: the target, and f32 scalars that change from step to step. */
#define NNC_TRAIN_TARGET "target"
#define NNC_TRAIN_LR "lr" /* learning rate */
#define NNC_TRAIN_SCALE1 "m_scale" /* adam, adamw without loss_scale: 1 / (1 - beta1^t) */
#define NNC_TRAIN_SCALE2 \
    "v_scale" /* adam, adamw without loss_scale: 1 / sqrt(1 - beta2^t), t = 1 for the first step */
#define NNC_TRAIN_FIRST "first" /* bool, if gradients are accumulated: this batch is the first of its step */
#define NNC_TRAIN_GRADIENT NNC_GRADIENT /* suffix of the name of a weight's gradient */
#define NNC_TRAIN_OPTIMIZER "/optimizer" /* path of the updates' nodes */
#define NNC_TRAIN_SUM ".grad" /* suffix of the state that accumulates a weight's gradients */
#define NNC_TRAIN_MOMENT2 ".exp_avg_sq" /* adam, adamw: suffix of the state that is a weight's second moment */
#define NNC_TRAIN_KEY "key" /* u32, if there are dropouts: decides which elements are dropped */

/* Makes the training graph of m, whose first output is the prediction. Its outputs are "loss" (f32) and, with grad_inputs, gradients of
 * inputs. Cross entropy adds "correct", the number of targets with the largest logit, and with ignore_index "counted", the number of
 * targets that are not ignored. The caller owns *out. NNC_E_MODEL: the loss does not fit the prediction, an op has no derivative, or
 * nothing is trained. If gradients are accumulated, nnc_session_accumulate runs all batches of a step but the last; sums of gradients and
 * running statistics are states that accumulate. */
nnc_status nnc_train_graph(
    const nnc_graph *m, const nnc_training *t, nnc_graph **out, nnc_sink *sink) NNC_MUST;
/* The same for evaluation: no gradients, batch norms with running statistics, no dropout. Its states are the params, and its step does not
 * change them. */
nnc_status nnc_evaluation_graph(
    const nnc_graph *m, const nnc_training *t, nnc_graph **out, nnc_sink *sink) NNC_MUST;

enum { NNC_MAX_REPLICAS = 64 };

/* How a run shares several batches among devices, and in which order (distribute.c). */
typedef struct nnc_distribution {
    int replicas; /* each has all states, and a batch of its own for each micro-batch */
    int micro;    /* micro-batches */
    int devices;  /* devices of a replica, on which the step is placed; 1: all layers on one, whatever they name */
    int batches;  /* runs of a step; the training has accumulate = micro * batches. 1: no gradients are kept between runs */
    int stages;   /* stages of a pipeline, the number of devices or a multiple (chunks) */
    /* rank[(kind * stages + stage) * micro + micro-batch]: number of the task in an order without backward dependences. Kinds are forward,
     * backward and, with `split`, weight gradients. NULL: no tasks, as for one micro-batch. */
    const int32_t *rank;
    /* ZeRO stage. 1: each replica updates a part of the weights and has its moments; nnc_training.shards is the number of replicas. 2: it
     * also keeps only its part of accumulated gradients, which are reduce-scattered in each micro-batch */
    int zero;
    int64_t bucket_bytes; /* size of a bucket of gradients of one device; 0: the gradients of each optimizer kernel */
    bool split;        /* weight gradients are tasks of their own, not part of backward passes */
    const bool *whole; /* by node: inputs that are not divided, since all read them; NULL: none */
} nnc_distribution;

/* Makes the step, evaluation or inference of `replicas` times `micro` batches from the graph of one. Inputs have as many times the rows.
 * Scalars such as the loss become vectors over several micro-batches. States of replica r > 0 are named "conv1.weight.device<r>" and are
 * on device r * devices + that of the layer. NNC_E_USAGE: the placement is not a pipeline of o->stages stages. */
nnc_status nnc_distribute(const nnc_graph *step, const nnc_distribution *o, nnc_graph **out, nnc_sink *sink) NNC_MUST;

/* The same for n replicas of `devices` devices each, and one micro-batch. */
nnc_status nnc_replicate(const nnc_graph *step, int n, int devices, nnc_graph **out, nnc_sink *sink) NNC_MUST;

/* ---- learning rates ---- */

typedef enum nnc_schedule { NNC_LR_constant, NNC_LR_step, NNC_LR_cosine } nnc_schedule;

typedef struct nnc_rate {
    nnc_schedule schedule;
    double lr;
    int warmup; /* number of steps in which the rate grows linearly to the schedule's */
    double gamma; /* step: factor of each decay */
    const char *every; /* step: decay period in epochs ("30") or steps ("500steps"); NULL: none */
    const char *const *at; /* step: epochs or steps after which it decays */
    int n_at;
    double min; /* cosine: final rate */
} nnc_rate;

#define NNC_RATE_DEFAULTS .lr = 0.01, .gamma = 0.1

/* NNC_E_USAGE: `every` or `at` is malformed, or belongs to another schedule. */
nnc_status nnc_rate_check(const nnc_rate *r, nnc_sink *sink) NNC_MUST;
/* Learning rate of step number `step`, from 0, of `steps`. */
double nnc_rate_at(const nnc_rate *r, int64_t step, int64_t steps, int64_t per_epoch);

#endif

/* train/train.h -- from a model to the graph of a training step.
 *
 * The graph computes the loss of a batch and updates its params: weights by their gradients (autodiff/), moments of the optimizer, and
 * running statistics of batch norms. Everything after it (passes, plan, devices) is that of every other graph: the loss is computed by
 * `main`, the rest by `step`. */
#ifndef NNC_TRAIN_H
#define NNC_TRAIN_H

#include "ir/ir.h"
#include <limits.h>

typedef enum nnc_loss {
    NNC_LOSS_cross_entropy, /* of logits [N,C,...], or of their softmax, and class indices i64 [N,...]: mean over all indices */
    NNC_LOSS_mse, /* the mean of (y - target)^2 */
    NNC_LOSS_bce, /* of logits, or of their sigmoid, and targets in 0..1: the mean of the binary cross-entropy */
} nnc_loss;

typedef enum nnc_optimizer { NNC_OPT_sgd, NNC_OPT_adam, NNC_OPT_adamw } nnc_optimizer;

enum { NNC_IGNORE_none = INT_MIN };

/* Statistics that batch norms normalise by: those of the batch, which move the running ones, or the running ones, which stay. */
typedef enum nnc_bn {
    NNC_BN_auto,  /* as the layer says (AT_bn), by default the batch's; of frozen layers the running ones */
    NNC_BN_train, /* the batch's, also of frozen layers */
    NNC_BN_eval,  /* the running ones */
} nnc_bn;

typedef struct nnc_training {
    nnc_loss loss;
    nnc_optimizer optimizer;
    double label_smoothing; /* cross_entropy: this share of each target goes to all classes alike */
    double momentum; /* sgd; 0: none */
    bool nesterov; /* sgd with momentum */
    double beta1, beta2, eps; /* adam, adamw */
    double weight_decay; /* sgd, adam: added to the gradient; adamw: of the weight itself */
    double
        clip_norm; /* all gradients are scaled so that their common norm is at most this; 0: they are not */
    double bn_momentum; /* share of a batch's statistics in the running ones */
    nnc_bn bn;
    int class_axis; /* cross_entropy: the dimension of the classes, from 0; negative: from the end */
    int ignore_index; /* cross_entropy: such targets are left out of loss and accuracy; NNC_IGNORE_none: there are none */
    const char *const *freeze, *const *only; /* patterns: weights that are frozen; weights that are not, while all others are */
    int n_freeze, n_only;
    int accumulate; /* batches whose gradients' mean a step takes; 0: 1 */
    int shards; /* replicas that share the updates (nnc_distribution.zero): moments are vectors of a multiple of them; 0: 1 */
    /* Gradients are computed of the loss times a scale, a state that starts with loss_scale (0: none). Where one is not finite, the step
     * changes nothing but the scale, which it halves; after scale_growth steps that were finite it doubles (PyTorch's GradScaler). */
    double loss_scale;
    int scale_growth;
    /* The gradient of the loss with respect to each input of floats is an output, "NAME.gradient". Then there need be nothing to train. */
    bool grad_inputs;
    /* Divides the graph of the loss, *g, among devices before it is differentiated, with the same outputs; NULL: it stays on one. */
    nnc_status (*divide)(void *ctx, nnc_graph **g, nnc_sink *sink);
    void *divide_ctx;
} nnc_training;

/* The dimension of the classes of a prediction of this rank; -1: it has no such dimension. */
static inline int nnc_class_axis(const nnc_training *t, int rank)
{
    const int axis = t->class_axis < 0 ? rank + t->class_axis : t->class_axis;
    return axis < rank ? axis : -1;
}

/* Does the param stay as it is: by the model, or by a pattern of t? */
bool nnc_train_freezes(const nnc_training *t, const nnc_node *param);

/* Is such a weight updated by a kernel of its own? All others of a device are updated, and their gradients summed, together. */
bool nnc_train_updates_alone(const nnc_type *weight);

/* PyTorch's defaults. */
#define NNC_TRAINING_DEFAULTS .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .bn_momentum = 0.1, .class_axis = 1, \
    .ignore_index = NNC_IGNORE_none, .scale_growth = 2000
extern const nnc_training nnc_training_defaults;

/* Names of the inputs that are added to the model's: the target, and numbers that change from step to step (f32 scalars). */
#define NNC_TRAIN_TARGET "target"
#define NNC_TRAIN_LR "lr" /* learning rate */
#define NNC_TRAIN_SCALE1 "m_scale" /* adam, adamw without loss_scale: 1 / (1 - beta1^t) */
#define NNC_TRAIN_SCALE2 \
    "v_scale" /* adam, adamw without loss_scale: 1 / sqrt(1 - beta2^t), t = 1 for the first step */
#define NNC_TRAIN_FIRST "first" /* bool, where gradients are accumulated: this batch is the first one of its step */
#define NNC_TRAIN_GRADIENT NNC_GRADIENT /* ends the name of the value that is a weight's gradient */
#define NNC_TRAIN_OPTIMIZER "/optimizer" /* the path of the updates' nodes */
#define NNC_TRAIN_SUM ".grad" /* ends the name of the state that is the sum of a weight's gradients, where they are accumulated */
#define NNC_TRAIN_MOMENT2 ".exp_avg_sq" /* adam, adamw: ends the name of the state that is a weight's second moment */
#define NNC_TRAIN_KEY "key" /* u32, where there are dropouts: decides which elements are dropped */

/* The training graph of m, whose first output is the prediction: outputs "loss" (f32), and of cross_entropy "correct", the number of
 * indices that have the largest logit, and where targets are ignored "counted", the number of the others;
 * with grad_inputs the gradients of inputs. The caller owns *out.
 * NNC_E_MODEL: the loss does not fit the prediction, an op has no derivative, or nothing is trained. Where gradients are accumulated,
 * all batches of a step but the last are given to nnc_session_accumulate: sums of gradients and running statistics are states that
 * accumulate. */
nnc_status nnc_train_graph(
    const nnc_graph *m, const nnc_training *t, nnc_graph **out, nnc_sink *sink) NNC_MUST;
/* The same for evaluation: no gradients, batch norms with running statistics, no dropout. Its states are the params, and its step
 * leaves them. */
nnc_status nnc_evaluation_graph(
    const nnc_graph *m, const nnc_training *t, nnc_graph **out, nnc_sink *sink) NNC_MUST;

enum { NNC_MAX_REPLICAS = 64 };

/* How a run shares several batches among devices, and in which order (distribute.c). */
typedef struct nnc_distribution {
    int replicas; /* of all states, each with a batch of its own for each micro-batch */
    int micro;    /* micro-batches */
    int devices;  /* of each replica: those that the step is placed on; 1: all layers are on one, whatever they name */
    int batches;  /* runs that make a step: the training has accumulate = micro * batches. 1: there are no sums of gradients between runs */
    int stages;   /* of a pipeline: the devices, or a multiple of them (chunks) */
    /* rank[(kind * stages + stage) * micro + micro-batch]: the tasks of forward passes, backward passes and, with `split`, weight gradients
     * in an order in which none needs a later one. NULL: there are no tasks, as for one micro-batch. */
    const int32_t *rank;
    /* ZeRO's stage. 1: each replica updates a part of the weights and has its moments; nnc_training.shards is as many. 2: it also keeps
     * only its part of the sums of gradients: those of each micro-batch are reduce-scattered */
    int zero;
    int64_t bucket_bytes; /* gradients of one device are summed together up to so many bytes; 0: those of each kernel of the optimizer */
    bool split;        /* weight gradients are tasks apart from backward passes */
    const bool *whole; /* by node: inputs that all read, not divided; NULL: none */
} nnc_distribution;

/* The step, evaluation or inference of `replicas` times `micro` batches. Inputs have so many times the rows; numbers, as the loss, become
 * vectors of micro-batches where there are several; states of replica r > 0 are named "conv1.weight.devicer" and are on device
 * r * devices + that of the layer. NNC_E_USAGE: the placement is no pipeline of so many stages. */
nnc_status nnc_distribute(const nnc_graph *step, const nnc_distribution *o, nnc_graph **out, nnc_sink *sink) NNC_MUST;

/* The same for n replicas of so many devices and one micro-batch. */
nnc_status nnc_replicate(const nnc_graph *step, int n, int devices, nnc_graph **out, nnc_sink *sink) NNC_MUST;

/* ---- learning rates ---- */

typedef enum nnc_schedule { NNC_LR_constant, NNC_LR_step, NNC_LR_cosine } nnc_schedule;

typedef struct nnc_rate {
    nnc_schedule schedule;
    double lr;
    int warmup; /* steps in which the rate grows linearly to its schedule's */
    double gamma; /* step: factor of each fall */
    const char *every; /* step: falls after each so many epochs ("30") or steps ("500steps"); NULL: not */
    const char *const *at; /* step: falls after these epochs or steps */
    int n_at;
    double min; /* cosine: what it falls to, at the end */
} nnc_rate;

#define NNC_RATE_DEFAULTS .lr = 0.01, .gamma = 0.1

/* NNC_E_USAGE: texts that are no such numbers, or belong to another schedule. */
nnc_status nnc_rate_check(const nnc_rate *r, nnc_sink *sink) NNC_MUST;
/* The learning rate of a step of `steps`, counted from 0. */
double nnc_rate_at(const nnc_rate *r, int64_t step, int64_t steps, int64_t per_epoch);

#endif

/* check/layers.h -- every layer of a model in float64, and where a compiled program computes it. Made by layers.c, judged and printed by
 * verify_model.c. */
#ifndef NNC_CHECK_LAYERS_H
#define NNC_CHECK_LAYERS_H

#include "check/ties.h"
#include "session/session.h"

/* One program's value of a layer. */
typedef struct side {
    bool there; /* it is stored; otherwise it only passes through registers of `in` */
    bool other; /* the optimised graph computes another value in its place */
    const char *in; /* layers of the command that computes it; NULL: none does */
    nnc_error e; /* against float64 */
    int64_t worst; /* element of the largest error, and both numbers */
    double got, want;
} side;

enum { FUSED, UNFUSED, SIDES };

typedef struct layer { /* a value of the model as written */
    const char *name, *origin; /* name: of a gradient, and of a state, the weight's */
    nnc_loc loc;
    nnc_type type;
    side side[SIDES];
    double limit; /* largest nmse that agrees */
    bool agrees;
} layer;

typedef struct layers {
    nnc_env *env;
    const nnc_compare_options *o;
    nnc_sink *sink;
    nnc_arena a;
    nnc_graph *model; /* without updates, but in training */
    nnc_graph *source; /* as written, with every layer an output, the model's own first */
    int n_output; /* of the model */
    layer *at; /* by output of `source` */
    int n; /* of them layers and outputs; states follow, judged by their change in a step */
    int n_state;
    void **initial; /* by state: before the step */
    nnc_artifact *program[SIDES]; /* with every stored value an output, the model's own first */
    void **input;
    int n_input;
    nnc_reference reference; /* of `source` */
    nnc_ties ties; /* found where a layer is beyond its limit */
    bool widened; /* limits allow for them */
    void **result; /* of the fused program: the model's own outputs, if `against` is given */
    const char *against; /* file of outputs; NULL */
    bool agrees;
    int first; /* index of the first layer that does not agree, in the order of the model; -1: none */
} layers;

/* Compiles both programs, runs them and float64, and judges every layer. Zero-initialise; nnc_layers_free also after a failure. */
nnc_status nnc_layers_verify(layers *l, nnc_env *e, const nnc_model *m,
    const nnc_compare_options *o, nnc_sink *sink) NNC_MUST;
void nnc_layers_free(layers *l);
/* layers_judge.c: verdicts of all layers, from the errors of both programs. */
nnc_status nnc_layers_judge(layers *l) NNC_MUST;
/* Largest nmse of layer i that agrees, without conditioning. */
double nnc_layer_limit(layers *l, int i);
void nnc_drop_updates(nnc_graph *g);
/* Makes the new values of states plain outputs. */
void nnc_expose_updates(nnc_graph *g);
/* A generated learning rate is 0, which keeps weights for timing: where results are judged it becomes so large that a weight's new value
 * shows all digits of its gradient. */
void nnc_judged_lr(const nnc_artifact *a, void *const *input);
/* Second moments of g, a training step of adam or adamw, are 0 at first: then a weight's change is the sign of its gradient, whatever its
 * size, and that of a gradient which is 0 but for rounding is noise. Where results are judged they begin with the square of a usual
 * gradient. */
void nnc_judged_moments(nnc_graph *g);

#endif

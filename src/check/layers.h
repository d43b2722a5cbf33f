/* check/layers.h -- every layer of a model in float64 beside the values of compiled programs. layers.c makes them, layers_judge.c judges,
 * verify_model.c prints. */
#ifndef NNC_CHECK_LAYERS_H
#define NNC_CHECK_LAYERS_H

#include "check/ties.h"
#include "session/session.h"

/* One program's value of a layer. */
typedef struct side {
    bool there; /* the program stores it; otherwise it only passes through registers of `in` */
    bool other; /* the optimised graph computes another value instead */
    const char *in; /* layers of the command that computes it; NULL: no command */
    nnc_error e; /* against float64 */
    int64_t worst; /* element with the largest error; got and want are its numbers */
    double got, want;
} side;

/* Is no element compared, so that the error says nothing? */
static inline bool layers_all_open(const side *s)
{
    return s->e.open > 0 && s->e.n == 0;
}

enum { FUSED, UNFUSED, SIDES };

typedef struct layer { /* a value of the model as written */
    const char *name, *origin; /* a gradient or state has the name of its weight */
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
    nnc_graph *model; /* without updates, except in training */
    nnc_graph *source; /* as written, with every layer as an output after the model's own */
    int n_output; /* the model's own outputs */
    layer *at; /* by output of `source` */
    int n; /* number of layers and outputs in `at`. States follow, judged by their change in a step */
    int n_state;
    void **initial; /* by state: before the step */
    nnc_artifact *program[SIDES]; /* with every stored value as an output after the model's own */
    void **input;
    int n_input;
    nnc_reference reference; /* of `source` */
    nnc_ties ties; /* searched if a layer is beyond its limit */
    bool widened; /* limits allow for ties */
    void **result; /* the model's own outputs by the fused program, if `against` is given */
    const char *against; /* file of outputs to compare with, or NULL */
    bool agrees;
    int first; /* index of the first layer, in the model's order, that does not agree; -1: none */
} layers;

/* Compiles both programs, runs them and float64, and judges every layer. Zero-initialise; layers_deinit also after a failure. */
nnc_status nnc_layers_verify(layers *l, nnc_env *e, const nnc_model *m,
    const nnc_compare_options *o, nnc_sink *sink) NNC_MUST;
void layers_deinit(layers *l);
/* layers_judge.c: sets the verdicts of all layers from the errors of both programs. */
nnc_status nnc_layers_judge(layers *l) NNC_MUST;
/* Largest nmse of layer i that agrees, without conditioning. */
double nnc_layer_limit(layers *l, int i);
void nnc_drop_updates(nnc_graph *g);
/* Makes the new values of states plain outputs. */
void nnc_expose_updates(nnc_graph *g);
/* Sets a generated learning rate for judging results. It is 0 for timing, which keeps the weights. For judging it is so large that a
 * weight's new value shows all digits of its gradient. */
void nnc_judged_lr(const nnc_artifact *a, void *const *input);
/* Starts the second moments of g, a training step of adam or adamw, with the square of a usual gradient, for judging results. With
 * moments of 0 a weight changes by the sign of its gradient, whatever its size. For a gradient that is 0 up to rounding this sign is
 * noise. */
void nnc_judged_moments(nnc_graph *g);

#endif

/* session/split.c -- --strategy and --split: which layers are divided how; the pass does it (passes/split.c). */
#include "session/session.h"
#include "session/train.h"
#include "train/train.h"
#include <string.h>

/* The words of --split: the pass's own, and two for convolutions. */
static const struct {
    nnc_split_by by;
    const char *word;
} words[] = {{NNC_SPLIT_columns}, {NNC_SPLIT_rows}, {NNC_SPLIT_columns, "channels"},
    {NNC_SPLIT_rows, "input-channels"}, {NNC_SPLIT_batch}, {NNC_SPLIT_height}, {NNC_SPLIT_width},
    {NNC_SPLIT_whole}};

/* A strategy's way to split a node. */
static nnc_split_by strategy_of(nnc_strategy s, const nnc_node *x)
{
    const bool conv = x->op == OP_conv || x->op == OP_conv_transpose;
    const bool product = x->op == OP_linear || x->op == OP_matmul;
    const bool window = x->op == OP_conv || x->op == OP_maxpool || x->op == OP_avgpool;
    if (s == NNC_STRATEGY_spatial)
        return window ? NNC_SPLIT_space : NNC_SPLIT_follow;
    return product || (conv && s == NNC_STRATEGY_channel) ? NNC_SPLIT_features : NNC_SPLIT_follow;
}

static nnc_status by_strategy(const char *name, const nnc_graph *g, uint8_t *by, nnc_sink *sink)
{
    const nnc_strategy s = nnc_strategy_named(name);
    bool any = false;
    if (!nnc_is_split(s))
        return nnc_unknown_strategy(name, nnc_is_split, false, sink);
    for (uint32_t i = 0; i < g->n_node; i++) {
        by[i] = (uint8_t)strategy_of(s, &g->node[i]);
        any = any || by[i] != NNC_SPLIT_follow;
    }
    if (any)
        return NNC_OK;
    return nnc_fail0(sink, NNC_E_USAGE, "--strategy=%s: %s has no %s to split", name, g->name,
        s == NNC_STRATEGY_tensor    ? "linear layer or matrix product"
        : s == NNC_STRATEGY_channel ? "linear layer, matrix product or convolution"
                                    : "convolution or pooling");
}

/* What --split says of nodes. */
typedef struct rules {
    int *word;
    const char **rule; /* that says it */
    bool *heard;
} rules;

static nnc_status by_layer(const char *text, const nnc_graph *g, bool trains, uint8_t *by, rules *r,
    nnc_arena *a, nnc_sink *sink)
{
    const char *word[NNC_COUNT(words)];
    for (size_t i = 0; i < NNC_COUNT(words); i++)
        word[i] = words[i].word ? words[i].word : nnc_split_words[words[i].by];
    *r = (rules){ARENA_NEW(a, int, g->n_node + 1), ARENA_NEW(a, const char *, g->n_node + 1),
        ARENA_NEW(a, bool, g->n_node + 1)};
    NNC_NEED(r->word && r->rule && r->heard, sink);
    NNC_TRY(nnc_model_words(g, "--split", text, word, NNC_COUNT(words), r->word, r->rule, sink));
    for (uint32_t i = 0; i < g->n_node; i++) {
        const bool loss = trains && nnc_same_text(g->node[i].origin, "/loss"); /* no layer */
        by[i] = r->word[i] < 0 || loss ? by[i] : (uint8_t)words[r->word[i]].by;
    }
    return NNC_OK;
}

/* A rule that no op has followed says something else than its writer meant. */
static nnc_status check_heard(const rules *r, const nnc_graph *g, nnc_sink *sink)
{
    for (uint32_t i = 0; r->rule && i < g->n_node; i++) {
        bool heard = !r->rule[i];
        for (uint32_t k = 0; k < g->n_node && !heard; k++)
            heard = r->rule[k] == r->rule[i] && r->heard[k];
        if (!heard)
            return nnc_fail0(sink, NNC_E_USAGE,
                "--split: `%.*s`: no op of these layers can be split so. Linear layers, products "
                "by weights and convolutions have columns and rows, convolutions and pooling "
                "height and width",
                (int)strcspn(r->rule[i], ","), r->rule[i]);
    }
    return NNC_OK;
}

nnc_status nnc_split_graph(const nnc_compile_options *o, bool trains, nnc_graph **g,
    nnc_split_cost *cost, nnc_remarks *remarks, nnc_sink *sink)
{
    NNC_LOCAL(nnc_arena) a = {0};
    rules r = {NULL, NULL, NULL};
    NNC_OWNED(nnc_graph) *split = NULL;
    if (!o->strategy && !o->split)
        return NNC_OK;
    if (o->devices < 2)
        return nnc_fail0(sink, NNC_E_USAGE,
            "%s splits over several devices: it needs --devices=N, or ranks: one device for each "
            "is the default then",
            o->strategy ? "--strategy" : "--split");
    uint8_t *by = ARENA_NEW(&a, uint8_t, (*g)->n_node + 1);
    NNC_NEED(by, sink);
    if (o->strategy)
        NNC_TRY(by_strategy(o->strategy, *g, by, sink));
    if (o->split)
        NNC_TRY(by_layer(o->split, *g, trains, by, &r, &a, sink));
    const nnc_split_options with = {
        .n_device = o->devices, .by = by, .heard = r.heard, .trains = trains};
    nnc_split_cost own = {0};
    NNC_TRY(nnc_split(*g, &with, &split, cost ? cost : &own, remarks, sink));
    NNC_TRY(check_heard(&r, *g, sink));
    if (!cost && o->strategy && !own.n_split)
        return nnc_fail0(sink, NNC_E_USAGE,
            "--strategy=%s: no layer of %s has enough features, channels or rows for %d devices: "
            "give fewer, or another strategy",
            o->strategy, (*g)->name, o->devices);
    nnc_graph *whole = *g;
    *g = split;
    split = whole;
    return NNC_OK;
}

static nnc_status divide_graph(void *ctx, nnc_graph **g, nnc_sink *sink)
{
    return nnc_split_graph(ctx, true, g, NULL, NULL, sink);
}

void nnc_split_training(struct nnc_training *t, const nnc_compile_options *o)
{
    t->divide = o->strategy || o->split ? divide_graph : NULL;
    t->divide_ctx = (void *)(uintptr_t)o;
}

void nnc_train_split(const nnc_train_options *o, nnc_compile_options *with, nnc_training *of)
{
    if (!nnc_is_split(o->strategy))
        return;
    *with = o->compile;
    if (o->replicas > 1)
        with->devices /= o->replicas;
    with->strategy = nnc_strategy_names[o->strategy];
    nnc_split_training(of, with);
}

/* The weight that state i is, or is a part of. */
static const char *weight_of(const nnc_session *s, int i)
{
    const nnc_weight *w = nnc_session_state_part_of(s, i);
    return w && w->name ? w->name : nnc_session_state_of(s, i);
}

nnc_status nnc_split_check(const nnc_session *train, const nnc_session *eval, nnc_sink *sink)
{
    for (int i = 0; i < nnc_session_states(eval); i++) {
        bool same = false, weight = false;
        for (int k = 0; k < nnc_session_states(train) && !same; k++) {
            same = !strcmp(nnc_session_state_name(eval, i), nnc_session_state_name(train, k));
            weight = weight || !strcmp(weight_of(eval, i), weight_of(train, k));
        }
        if (weight && !same)
            return nnc_fail0(sink, NNC_E_USAGE,
                "the weight %s is divided otherwise in validation than in training: leave the "
                "validation out, or choose another --strategy",
                weight_of(eval, i));
    }
    return NNC_OK;
}

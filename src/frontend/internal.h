/* frontend/internal.h -- shared by the files of this folder: expressions, the layer table, the state of one load.
 *
 * Stages of a load: text -> JSON (base) -> check.c -> expand.c (blocks, repeats, names) -> build*.c (one layer = a few graph
 * nodes) -> weights.c (the source of each weight's numbers). check.c reads every key of every layer, used or not. */
#ifndef NNC_FRONTEND_INTERNAL_H
#define NNC_FRONTEND_INTERNAL_H

#include "frontend/frontend.h"
#include "tensors/tensors.h"

/* ---- expressions (expr.c) --------------------------------------------------------------------------------- */

typedef struct fe_val { /* an integer or a word; the word is part of the model's text or the options */
    bool is_word;
    int64_t i;
    const char *word;
    int n; /* length of word */
} fe_val;

typedef struct fe_env { /* variables, innermost first */
    const char *name;
    fe_val v;
    const struct fe_env *up;
} fe_env;

typedef struct fe_expr_error {
    char text[256];
    int at; /* offset of the offending token */
} fe_expr_error;

bool fe_expr(const char *s, size_t n, const fe_env *env, fe_val *out, fe_expr_error *err);
/* True when `s` is a valid variable name. */
bool fe_is_name(const char *s);

/* ---- the layer table (table.c, layers.def, keys.def) -------------------------------------------------------- */

typedef enum fe_kind {
    LK_int,     /* integer or expression */
    LK_count,   /* the same, >= 1 */
    LK_spatial, /* one count for all spatial dimensions, or one each */
    LK_pad,     /* "same", one integer, one per spatial dimension, or begins then ends */
    LK_ints,    /* list of integers; one integer counts as a list of one */
    LK_bool,
    LK_float,
    LK_dtype,
    LK_word, /* one of the choices in the layer's row */
} fe_kind;

typedef enum fe_key {
#define KEY(name, kind, lo, hi, doc) FK_##name,
#include "frontend/keys.def"
    FK__COUNT
} fe_key;
_Static_assert(FK__COUNT <= 64, "fe_spec.has is one word");

typedef struct fe_list { /* of integers */
    int n;
    bool one; /* written as a single number, which applies to every dimension */
    int64_t v[2 * NNC_MAX_RANK];
} fe_list;
/* fe_list.n of "same" padding, which keeps ceil(extent / stride); an odd zero goes to the end (upper) or to the begin (lower). */
enum { FE_SAME_UPPER = -1, FE_SAME_LOWER = -2 };

/* The parameters of one layer: filled in by a reader of model files, checked, normalised and built by a builder. A field whose bit in
 * `has` (1 << FK_...) is clear holds the default of the layer's row, or zero where the row has none. */
typedef struct fe_spec {
    uint64_t has;
#define FE_FIELD_int int64_t
#define FE_FIELD_count int64_t
#define FE_FIELD_spatial fe_list
#define FE_FIELD_pad fe_list
#define FE_FIELD_ints fe_list
#define FE_FIELD_bool bool
#define FE_FIELD_float double
#define FE_FIELD_dtype nnc_dtype
#define FE_FIELD_word const char *
#define KEY(name, kind, lo, hi, doc) FE_FIELD_##kind name;
#include "frontend/keys.def"
} fe_spec;

typedef struct fe_key_row {
    const char *name;
    fe_kind kind;
    size_t at; /* offset of the field in fe_spec */
    int64_t lo, hi; /* range of integers */
    const char *doc;
} fe_key_row;
extern const fe_key_row fe_keys[FK__COUNT];

struct fe_layer;
typedef nnc_ref (*fe_build)(struct fe_layer *l);

typedef struct fe_row {
    const char *name;
    int n_min, n_max;  /* inputs; -1 = any */
    nnc_op op;         /* the op that computes the layer's result */
    bool own;          /* true: a row of layers.def; false: of ops.def, with the op's attributes as keys */
    const char *keys;  /* "kernel stride=1 shape?": see layers.def */
    fe_build build;
    const char *doc;
} fe_row;

bool fe_layer_find(const char *name, fe_row *out);
/* listing.c: appends the keys with their defaults, "kernel stride=1 shape?", each in quotes. */
void fe_put_uses(nnc_text *t, const fe_row *r, const char *quote);
/* A kind in words. */
const char *fe_kind_text(fe_kind k);
int fe_layer_count(void);
fe_row fe_layer_at(int i); /* in table order: layers.def, then ops.def */
bool fe_key_parse(const char *name, size_t n, fe_key *out);
bool fe_row_takes(const fe_row *r, fe_key key);
/* One key of a row. */
typedef struct fe_use {
    fe_key key;
    bool must;
    char dflt[16]; /* "" = none */
    char choices[40]; /* LK_word: "a,b,c", the first is the default */
} fe_use;
/* Iterates over fe_row.keys; false at the end. */
bool fe_use_next(const char **keys, fe_use *u);

/* Keys that every layer supports. */
extern const char *const fe_common[];
extern const int fe_n_common;
bool fe_is_common(const char *key);

/* ---- one load ------------------------------------------------------------------------------------------------ */

#define FE_MAX_NAME 100    /* characters of a name */
#define FE_MAX_PATH 1000   /* characters of a layer path */
#define FE_MAX_ARGS 256    /* of a model or block; also inputs, outputs */
#define FE_MAX_BLOCKS 256
#define FE_MAX_INPUTS 4096 /* operands of a layer */
#define FE_MAX_DIM (INT64_C(1) << 40)
#define FE_MAX_WEIGHT_BYTES (INT64_C(1) << 44)

typedef struct fe_name { /* a layer or input that `in` may name */
    uint32_t scope;
    const char *name;
    const nnc_ref *ref;
    int n_ref;
    int line;
    bool absent; /* excluded by "when": its input takes its place */
} fe_name;

typedef struct fe_scaled { /* a weight whose scale depends on the consumers of its contraction */
    uint32_t param, user;
    double fan_in;
} fe_scaled;

/* Maps a file with timm's names to torchvision's (timm.c). */
typedef struct fe_timm {
    const nnc_tensors *st;
    const char **as; /* by tensor: torchvision's name, or NULL. as NULL: the file does not have timm's names */
    const char *family, *note;
    int used;
} fe_timm;

typedef struct fe {
    nnc_json j;
    const nnc_model_options *o;
    nnc_sink *sink;
    nnc_graph *g;
    nnc_arena a; /* freed with the load */
    const char *file; /* the caller's; nodes copy it */
    nnc_status status;
    const fe_env *globals;
    const nnc_item *blocks;
    /* names: array and open-addressing table of indices + 1 */
    fe_name *name;
    size_t n_name, cap_name;
    uint32_t *slot;
    size_t n_slot;
    uint32_t n_scope;
    int64_t steps; /* layers and iterations so far */
    /* weights */
    nnc_tensors *st;
    bool *st_used;
    fe_timm timm;
    nnc_mismatch mismatch; /* between st and the weights so far */
    fe_name *weight; /* by full name: ref[0] is the value that layers use */
    size_t n_weight, cap_weight;
    uint32_t *wslot;
    size_t n_wslot;
    int64_t weight_bytes;
    fe_scaled *scaled;
    size_t n_scaled, cap_scaled;
} fe;

typedef struct fe_scope { /* scope in which names are looked up */
    const struct fe_scope *up; /* NULL for a block's body */
    uint32_t id;
} fe_scope;

typedef struct fe_ctx { /* inherited from enclosing groups and blocks */
    const struct fe_ctx *up;
    const fe_env *env;
    const fe_scope *scope;
    const char *path;    /* "/layers/3/bottleneck[2]" */
    const char *prefix;  /* of weight names, "" or "stage1.2." */
    const nnc_item *block;  /* the block whose body this is, to detect recursion; NULL */
    int depth;
    int16_t device;
    int dtype; /* -1 = that of the input */
    bool frozen;
    bool tied;  /* "weights" was given, so a weight name may be used again */
} fe_ctx;

typedef struct fe_layer { /* the layer being built */
    fe *f;
    const nnc_item *item; /* NULL: the layer is not from JSON, and errors are reported at loc */
    const fe_ctx *ctx;
    fe_row row;
    const char *path;
    const char *weights; /* prefix of weight names without the last '.' */
    fe_spec s;
    int n_weight;        /* weights requested by the builder */
    int dtype;           /* of the layer, -1 = that of its input */
    nnc_loc loc;
    int n_in;
    nnc_ref *in;
    int n_out;
} fe_layer;

nnc_status fe_fail_at(fe *f, const nnc_item *item, bool key, const char *path, const char *fmt, ...) NNC_PRINTF(5, 6);
/* Warns at loc unless the same warning was given before: a repeated layer is built several times. */
void fe_warn_once(fe *f, nnc_loc loc, const char *fmt, ...) NNC_PRINTF(3, 4);
nnc_status fe_stop(fe *f, nnc_status st); /* records the first failure; returns it */
nnc_ref fe_nomem(fe *f);
static inline const nnc_type *fe_in_type(const fe_layer *l) { return nnc_typeof(l->f->g, l->in[0]); } /* of the first input */
static inline bool fe_oom(fe *f) { return fe_nomem(f) != NNC_NONE; } /* returns false */
/* Report an error and evaluate to false, for functions that return whether they succeeded. */
#define FE_FALSE_AT(f, item, path, ...) (fe_fail_at(f, item, false, path, __VA_ARGS__), false)
#define FE_FALSE(l, key, ...) (fe_bad(l, key, __VA_ARGS__), false)
/* ", did you mean `x`?" or "". `names` may hold NULLs. */
const char *fe_hint(fe *f, const char *word, const char *const *names, size_t n);

/* The same for a layer type, and for a key among `names`; names from PyTorch, Keras and ONNX are tried first (hints.c). */
const char *fe_type_hint(fe *f, const char *op, const char *const *names, size_t n);
const char *fe_key_hint(fe *f, const char *key, const char *const *names, size_t n);

/* Reading JSON values (value.c). All report errors and return false. */
bool fe_eval(fe *f, const nnc_item *item, const char *path, const fe_env *env, const char *what, fe_val *out);
/* The same for an arg: a float is a word, which is valid only for float keys. */
bool fe_eval_arg(fe *f, const nnc_item *item, const char *path, const fe_env *env, const char *what, fe_val *out);
bool fe_read_int(fe *f, const nnc_item *item, const char *path, const fe_env *env, const char *what, int64_t lo, int64_t hi, int64_t *out);
bool fe_read_ints(fe *f, const nnc_item *item, const char *path, const fe_env *env, const char *what, int64_t lo,
    int64_t hi, int max, int *n, int64_t *out);
bool fe_read_word(fe *f, const nnc_item *item, const char *path, const fe_env *env, const char *what,
    const char **out); /* ${...} replaced */
bool fe_read_dtype(fe *f, const nnc_item *item, const char *path, const fe_env *env, nnc_dtype *out);
bool fe_read_shape(fe *f, const nnc_item *item, const char *path, const fe_env *env, nnc_dtype d, nnc_type *out);
const char *fe_kind_name(const nnc_item *v); /* "a list" */
bool fe_name_ok(fe *f, const nnc_item *item, const char *path, const char *name);

/* The value of a key of the layer being built; NULL: not given. */
const nnc_item *fe_item(const fe_layer *l, const char *key);
bool fe_has(const fe_layer *l, fe_key key);
/* Fills l->s from the layer's keys and its row's defaults; without l->item from the defaults only, for readers of other formats. */
bool fe_read_spec(fe_layer *l);
bool fe_read_bool(fe *f, const nnc_item *item, const char *path, const fe_env *env, const char *what, bool *out);
/* Checks that d can represent v (an integer exactly). `whose`: what has type d, for the message. */
bool fe_fits(fe_layer *l, const char *key, double v, nnc_dtype d, const char *whose);
/* Checks the axis and makes it non-negative. */
bool fe_axis(fe_layer *l, const char *key, int rank, int64_t *axis);
/* Makes the axes of `list` non-negative and ascending; reports repeated ones. */
bool fe_axes(fe_layer *l, const char *key, int rank, const fe_list *list, int *n, int64_t out[NNC_MAX_RANK]);
/* Reports an error at the layer's key (or at the layer, when absent) and returns NNC_NONE. */
nnc_ref fe_bad(fe_layer *l, const char *key, const char *fmt, ...) NNC_PRINTF(3, 4);
const char *fe_type_text(fe *f, const nnc_type *t);
/* Extents as "3x224x224". */
const char *fe_dims_text(fe *f, int n, const int64_t *d);

/* Builders that table.c refers to. */
#define LAYER(name, n_min, n_max, op, build, keys, doc) nnc_ref build(fe_layer *l);
#include "frontend/layers.def"
nnc_ref fe_build_op(fe_layer *l);     /* any op, its attributes as keys */
nnc_ref fe_build_binary(fe_layer *l); /* two operands, or one and "value" */

/* Weights (weights.c). */
nnc_ref fe_weight(fe_layer *l, const char *suffix, const nnc_type *t, float scale, float shift);
/* Sets the weight's scale at the end of the load, since it depends on the consumers of `user` (see weights.c). */
bool fe_scale_later(fe *f, nnc_ref weight, nnc_ref user, double fan_in);
/* The tensors of o->weights. */
nnc_status fe_open_weights(const nnc_model_options *o, nnc_tensors **out, nnc_sink *sink);
nnc_status fe_weights_open(fe *f);
nnc_status fe_timm_open(fe_timm *t, const nnc_tensors *st, nnc_arena *a, nnc_sink *sink);
/* Finds the tensor that has this name in torchvision; NULL: none. */
const nnc_tensor_entry *fe_timm_find(fe_timm *t, const char *name);
/* Adds a note if such tensors were found. */
void fe_timm_say(const fe_timm *t, const char *file, nnc_sink *sink);
/* family.c: appends to f->mismatch which library's model the file's names belong to, if many weights do not match. */
void fe_hint_family(fe *f);
nnc_status fe_weights_close(fe *f, bool ok);
nnc_status fe_weights_bind_graph(nnc_graph *g, const nnc_model_options *o, nnc_sink *sink);

/* The head (head.c). Removes the differences of its weights from m. */
void fe_forget_head(const nnc_graph *g, nnc_mismatch *m);
/* Gives the head o->classes outputs, and says so. */
nnc_status fe_replace_head(nnc_graph *g, const nnc_model_options *o, nnc_sink *sink);

/* Args (model.c). */
bool fe_arg_default(fe *f, const nnc_item *a, const char *path, fe_val *out);
bool fe_arg_allowed(fe *f, const nnc_item *a, const char *name, const fe_val *v, const nnc_item *given, const char *path);

/* Names (names.c). `layer`: start of the search for later layers of the name, or NULL; `prev`: the value of "prev", or NULL. */
bool fe_resolve_list(fe *f, const nnc_item *v, const nnc_item *layer, const fe_ctx *c, const char *path, const char *what,
    const nnc_ref *prev, int *n, nnc_ref **out);
bool fe_define(fe *f, const nnc_item *at, const fe_ctx *c, const char *path, const char *name, int n, const nnc_ref *ref, bool absent);

/* Stages for the whole file. */
nnc_status fe_check(fe *f);                                         /* check.c */
/* Checks type and keys of one layer (also when its type came from ${...}); false = reported. */
bool fe_check_op(fe *f, const nnc_item *item, const char *op, const char *path);
nnc_status fe_expand_model(fe *f, const nnc_item *inputs, const nnc_item *layers, const nnc_item *outputs); /* expand.c */
fe_name *fe_find(fe_name *names, const uint32_t *slot, size_t n_slot, uint32_t scope, const char *name);
fe_name *fe_add(fe *f, fe_name **names, size_t *n, size_t *cap, uint32_t **slot, size_t *n_slot, uint32_t scope, const char *name);

#endif

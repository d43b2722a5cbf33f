/* codegen/cuda.h -- the state of one kernel being written as CUDA C, shared by cuda*.c.
 *
 * Every schedule writes sections (the body or epilogue of a stage) for `vec` lanes along one axis. Values that are the same for all lanes
 * are written once before the section, with the vector loads. The others are inside a loop over lanes `e`, vector stores after it. Values
 * are named after their op: exp_4 is the exp of instruction 4; exp_4[e] is one lane of it. */
#ifndef NNC_CODEGEN_CUDA_H
#define NNC_CODEGEN_CUDA_H

#include "codegen/codegen.h"
#include "math/formula.h"

/* Values written as marks, in the order of the text (cuda_share.c). */
typedef struct cu_size_at {
    uint8_t kind;
    int64_t value; /* a float's bits, or an integer */
} cu_size_at;
typedef struct cu_sizes {
    cu_size_at *at;
    int n, cap;
} cu_sizes;

typedef struct cu_value {
    bool varies;   /* differs between the lanes of its section */
    bool vector;   /* load: one vector access for all lanes */
    bool lanes;    /* declared outside the loop over lanes: name[e] */
    bool held;     /* load: in registers for the whole row, or for all of a thread's vectors: name[u] */
    bool run;      /* load: one of the consecutive elements that neighbouring windows share, run_4[e * 2 + r1] */
    bool tiled;    /* load: transposed in shared memory, declared before the section */
    bool outside;  /* declared before its section: read by later sections */
    bool live;     /* a store depends on it */
    int32_t uses;  /* number of uses as an operand */
    int32_t into;  /* fma: the reduction that accumulates this term; for such a reduction: itself; 0: neither */
    int32_t store; /* store: the first of stores to consecutive elements, which stores all of them; -1: none */
    int32_t as;    /* load: the earlier instruction that loads the same element, or -1 */
} cu_value;

typedef struct cu {
    nnc_text *t;
    const nnc_kernel *k;
    const nnc_kgrid *g;
    cu_value *v;            /* by instruction */
    char axis_name[NNC_KAXES][16]; /* i0, m0, r0: axis names of the kernel may not be valid in C */
    char (*buf_name)[16];    /* x0, y0, t0 */
    int depth;              /* indentation, in steps of four */
    int axis, lanes;        /* of the current section: lanes along this axis; -1 and 1: none */
    bool in_lanes;          /* inside the loop over lanes */
    const char *ragged;     /* text of the number of elements left for a vector access, NULL = all */
    const char *store_if;   /* text of the condition for stores, NULL = none */
    int32_t synced;         /* the threads of a group have synchronised after all instructions below this one */
    const bool *kept;       /* by buffer: tmp buffers that live in registers, or NULL */
    const nnc_kguard *holds[NNC_KGUARDS]; /* guards that are known to hold at this point */
    int n_holds;
    int run_axis;           /* reduce axis of the loads of runs */
    const char *unroll;     /* name of the index of `held` values, "u" */
    cu_sizes *sizes;        /* sizes of the marks; NULL: extents are written as numbers */
    nnc_sink *sink;
} cu;

/* cuda_expr.c: text of types, numbers, affine forms, values. */
const char *cu_type(nnc_dtype d);       /* of a value: "float" */
const char *cu_storage(nnc_dtype d);    /* of a buffer's element: "nnc_f16" */
const char *cu_index(const cu *c);      /* type of offsets: "int" */
void cu_int(const cu *c, int64_t v);    /* a literal of that type */
/* Appends text: %s, %d, %lld and %% as in printf. %r: a value as an operand (its instruction), %n: its name. %a: an index form (const
 * nnc_affine *). %i: a literal index (int64_t), %z: one that may be a parameter, %Z: the same of type long long. %T: the type of
 * offsets. */
void cu_put(const cu *c, const char *fmt, ...);
void cu_line(cu *c, const char *fmt, ...); /* the same, indented, with a newline */
void cu_open(cu *c, const char *fmt, ...); /* the same, then indents further */
void cu_typed(const cu *c, const char *type, int lanes); /* indented: "float ", "nnc_vec<float, 4> " */
void cu_close(cu *c, const char *text);
void cu_close_all(cu *c, int scopes);   /* that many "}" */
void cu_indent(const cu *c);
void cu_axis(const cu *c, int a);       /* the axis' index: "i0", "(i0 + e)" */
void cu_affine(const cu *c, const nnc_affine *e);
/* Declares `name` as a digit of a number: number / below % count * times; count 0: the highest digit. */
void cu_digit(cu *c, const char *name, const char *number, int64_t below, int64_t count, int64_t times);
void cu_name(const cu *c, int32_t id);  /* "exp_4" */
void cu_ref(const cu *c, int32_t id);   /* the value as an operand: "exp_4[e]", "0.5f" */
void cu_number(const cu *c, nnc_dtype d, double f, int64_t i);
void cu_sop(const cu *c, int32_t id);   /* the expression of a KO_sop */
void cu_guards(const cu *c, const nnc_kins *in); /* "0 <= i1 && i1 < 8"; "true" when all guards are known to hold */
void cu_guard_list(const cu *c, const nnc_kguard *const *q, int n); /* the same for n guards */
bool cu_guarded(const cu *c, const nnc_kins *in);
void cu_start(const cu *c, const nnc_kins *in);  /* a reduction's neutral element */
void cu_fold(cu *c, const nnc_kstage *s, int32_t id); /* the statement that accumulates one more value */

/* cuda_section.c */
void cu_analyse(cu *c, const nnc_kstage *s, int axis, int lanes); /* fills c->v for the stage; sets the section's lanes */
void cu_section(cu *c, const nnc_kstage *s, int begin, int end);
void cu_declare(cu *c, const nnc_kstage *s); /* declares reductions and values that later sections read */
uint32_t cu_axes_used(const cu *c, const nnc_kstage *s); /* axes that the stage's text names */
void cu_finish_arg(cu *c, const nnc_kstage *s);
void cu_load(cu *c, int32_t id);
void cu_load_run(cu *c, int32_t id, int n); /* loads n consecutive elements */

void cu_find_outside(cu *c); /* marks values that sections of later stages read */
void cu_place(cu *c, const char *unit); /* declares the outer axes, from the number of a work item */

/* One kernel in one schedule class. */
void cu_point(cu *c);
bool cu_walk(cu *c, const nnc_kstage *s); /* part of cu_point: a stage whose windows a thread walks along; false: not such a stage */
void cu_row(cu *c);
void cu_finish(cu *c); /* the second launch of a split kernel */
void cu_tile(cu *c);
void cu_steps(cu *c);
void cu_scatters(cu *c);
void cu_attend(cu *c);
void cu_contracts(cu *c);

/* cuda_share.c: kernels that differ only in extents and constants share one function. These functions write values that may differ: an
 * extent or stride, the same of type long long, a divisor, an f32 constant. */
void cu_size(const cu *c, int64_t v);
void cu_size_long(const cu *c, int64_t v);
void cu_divisor(const cu *c, int64_t v);
void cu_float(const cu *c, double f);
void cu_mark_name(const cu *c);   /* the function's name */
void cu_mark_params(const cu *c); /* the end of its parameters, where those for sizes follow */
typedef struct cu_one { /* a kernel */
    nnc_text text;
    cu_sizes sizes;
    nnc_hash128 hash;        /* of the text */
    int like;                /* first kernel of its group */
    struct cu_group *group;  /* set for that kernel */
} cu_one;
typedef struct cu_shared {
    cu_one *kernel;
    int n;
} cu_shared;
nnc_status cu_write(cu_one *o, const nnc_kernel *k, bool sizes, nnc_sink *sink); /* cuda.c: writes its text; `sizes`: with marks */
/* Writes kernels and groups them. s uses memory of a, and must be freed after an error too. */
nnc_status cu_share(cu_shared *s, const nnc_kernel *const *k, int n, nnc_arena *a, nnc_sink *sink) NNC_MUST;
void cu_shared_deinit(cu_shared *s);
void cu_put_function(nnc_text *t, const cu_shared *s, const nnc_kernel *const *k, int first); /* the function of a group */
void cu_put_shared(nnc_text *t, const cu_shared *s, const nnc_kernel *const *k, int i); /* a line for kernel i's comment */
/* For tests: append calls of a function with these pointers, by kernel i or by the group. The group reads sizes from a[n_pointer] on;
 * false: it is a single kernel. */
void cu_put_call(nnc_text *t, const cu_shared *s, const nnc_kernel *const *k, int i, const char *suffix, const char *pointers);
bool cu_put_general_call(nnc_text *t, const cu_shared *s, const nnc_kernel *const *k, int first, const char *suffix,
    const char *pointers, int n_pointer);

/* cuda_formula.c: defines the math functions that the kernels' code in `text` calls. */
void cu_formulas(nnc_text *t, const nnc_kernel *const *k, int n, const char *text);
/* cuda_prelude.c: defines the helpers that `text` names, in order. */
void cu_prelude(nnc_text *t, const char *text);
bool cu_names(const char *text, const char *name); /* whether the text has the name as a whole word */

#endif

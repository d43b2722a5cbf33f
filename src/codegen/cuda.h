/* codegen/cuda.h -- the state of one kernel being written as CUDA C, shared by cuda*.c.
 *
 * Every schedule writes sections (the body or post of a stage) for `vec` lanes along one axis. What is the same for all
 * lanes is written once before them, with the vector loads; the rest inside a loop over lanes `e`; vector stores after it.
 * Names say what a value is: exp_4 is the exp of instruction 4; of a value with lanes, exp_4[e] is one. */
#ifndef NNC_CODEGEN_CUDA_H
#define NNC_CODEGEN_CUDA_H

#include "codegen/codegen.h"
#include "math/formula.h"

typedef struct cu_value {
    bool varies;   /* among the lanes of its section */
    bool vector;   /* load: the lanes are one access */
    bool lanes;    /* declared outside the loop over lanes: name[e] */
    bool held;     /* load: in registers for all of a row, or for all of a thread's vectors: name[u] */
    bool run;      /* load: one of the elements side by side that windows split among them, run_4[e * 2 + r1] */
    bool tiled;    /* load: turned in shared memory, declared before the section */
    bool outside;  /* declared before its section: read by later sections */
    bool live;     /* something that is stored depends on it */
    int32_t uses;  /* how often it is an operand */
    int32_t into;  /* fma: a term that is added to this reduction where it is computed; such a reduction: itself; 0: neither */
    int32_t as;    /* load: the earlier instruction that has loaded the same, or -1 */
} cu_value;

typedef struct cu {
    nnc_text *t;
    const nnc_kernel *k;
    const nnc_kgrid *g;
    cu_value *v;            /* by instruction */
    char axis_name[NNC_KAXES][16]; /* i0, m0, r0: the kernel's own names may be no C */
    char (*buf_name)[16];    /* x0, y0, t0 */
    int depth;              /* of indentation, in steps of four */
    int axis, lanes;        /* of the section being written: lanes along this axis, -1 and 1: none */
    bool in_lanes;          /* inside the loop over lanes */
    const char *ragged;     /* text of how many elements are left for a vector access, NULL = all */
    const char *store_if;   /* text that must hold for stores, NULL = nothing */
    const bool *kept;       /* by buffer: tmp buffers that live in registers, or NULL */
    const nnc_kguard *holds[NNC_KGUARDS]; /* guards that are known to hold here */
    int n_holds;
    int run_axis;           /* along which loads of runs reduce */
    const char *unroll;     /* name of the index of held values, "u" */
    nnc_sink *sink;
} cu;

/* cuda_expr.c: text of types, numbers, forms, values. */
const char *cu_type(nnc_dtype d);       /* of a value: "float" */
const char *cu_storage(nnc_dtype d);    /* of a buffer's element: "nnc_f16" */
const char *cu_index(const cu *c);      /* type of offsets: "int" */
void cu_int(const cu *c, int64_t v);    /* a literal of that type */
void cu_line(cu *c, const char *fmt, ...) NNC_PRINTF(2, 3); /* indented, with a newline */
void cu_open(cu *c, const char *fmt, ...) NNC_PRINTF(2, 3); /* the same, then one step deeper */
void cu_close(cu *c, const char *text);
void cu_indent(const cu *c);
void cu_axis(const cu *c, int a);       /* where it stands: "i0", "(i0 + e)" */
void cu_affine(const cu *c, const nnc_affine *e);
void cu_name(const cu *c, int32_t id);  /* "exp_4" */
void cu_ref(const cu *c, int32_t id);   /* the value where it is read: "exp_4[e]", "0.5f" */
void cu_number(const cu *c, nnc_dtype d, double f, int64_t i);
void cu_sop(const cu *c, int32_t id);   /* the expression of a KO_sop */
void cu_guards(const cu *c, const nnc_kins *in); /* "0 <= i1 && i1 < 8"; "true" when nothing is left to ask */
bool cu_guard_equal(const nnc_kguard *a, const nnc_kguard *b);
void cu_guard_list(const cu *c, const nnc_kguard *const *q, int n); /* the same of n guards */
bool cu_guarded(const cu *c, const nnc_kins *in);
void cu_start(const cu *c, const nnc_kins *in);  /* a reduction's neutral element */
void cu_fold(cu *c, const nnc_kstage *s, int32_t id); /* the statement that takes one more value in */

/* cuda_section.c */
void cu_analyse(cu *c, const nnc_kstage *s, int axis, int lanes); /* fills c->v of the stage; sets the section's lanes */
void cu_section(cu *c, const nnc_kstage *s, int begin, int end);
void cu_declare(cu *c, const nnc_kstage *s); /* reductions and what later sections read */
uint32_t cu_axes_used(const cu *c, const nnc_kstage *s); /* what the stage's text names */
void cu_finish_arg(cu *c, const nnc_kstage *s);
void cu_load(cu *c, int32_t id);
void cu_load_run(cu *c, int32_t id, int n); /* its n elements side by side */

void cu_find_outside(cu *c); /* marks values that sections of later stages read */
void cu_place(cu *c, const char *unit); /* declares the outer axes from the number of a unit */

/* One kernel in one schedule. */
void cu_point(cu *c);
void cu_row(cu *c);
void cu_finish(cu *c); /* of a split kernel: the second launch */
void cu_tile(cu *c);

/* cuda_formula.c: the functions that the kernels' code in `text` calls. */
void cu_formulas(nnc_text *t, const nnc_kernel *const *k, int n, const char *text);
/* cuda_prelude.c: the parts of the prelude that `text` names, in order. */
void cu_prelude(nnc_text *t, const char *text);
bool cu_names(const char *text, const char *name); /* as a whole word */

#endif

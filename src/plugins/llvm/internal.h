/* plugins/llvm/internal.h -- shared by the files of the LLVM emitter. Internal to this folder.
 *
 * The emitter produces vector IR directly. A value that differs between lanes is an LLVM vector, often longer than the hardware's: LLVM
 * splits it and interleaves the parts, which hides latencies. A uniform value is an LLVM scalar. The LLVM type tells which; ll_match
 * broadcasts scalars where the two are mixed. No IR pass runs, so hoisting and folding are done by the emitter. */
#ifndef NNC_PLUGIN_LLVM_H
#define NNC_PLUGIN_LLVM_H

#include "codegen/codegen.h"
#include "math/formula.h"

#include <llvm-c/Core.h>

enum { LL_MAX_LANES = 128 }; /* elements of a vector of IR */

typedef LLVMValueRef V;
typedef LLVMTypeRef T;

#define LL_SLOTS 4

/* One module being built. */
typedef struct ll_mod {
    LLVMContextRef c;
    LLVMModuleRef m;
    LLVMBuilderRef b;
    const nnc_target *t;
    bool fma, f16c;
    bool rounds; /* floor, ceil and the like are instructions (SSE4.1) */
    bool aarch64; /* the target; else x86-64 */
    bool scalef; /* AVX-512: p 2^n in one instruction */
    T f32, f64, i1, i8, i16, i32, i64, ptr;
    V fn; /* function being built */
    V slot[LL_SLOTS]; /* stack buffers of slot_bytes, created on demand */
    int slot_bytes; /* 8 * widest vector */
    bool shared; /* sizes are symbols (share.c) */
    bool quick; /* the code generator does not optimise */
    bool oom;
    int64_t *size; /* by symbol; allocated with nnc_malloc */
    int n_size, cap_size;
    V live; /* lanes of the current vector that exist, while an op is emitted; NULL: all */
} ll_mod;

/* ---- build.c: types, constants, small instructions ---------------------------------------------------------------- */

T ll_vec(T elem, int lanes); /* lanes 0: the element itself */
T ll_dtype(ll_mod *m, nnc_dtype d); /* of values: bool is i1 */
T ll_elem(V v);
int ll_lanes(V v); /* 0: scalar */
V ll_splat(ll_mod *m, V v, int lanes); /* a vector, or lanes 0: unchanged */
void ll_match(ll_mod *m, V *a, V *b); /* broadcasts the scalar one of the two */
V ll_fk(V like, double v); /* float constant of the type of `like` */
V ll_ik(V like, int64_t v); /* integer constant of the type of `like` */
V ll_i64(ll_mod *m, int64_t v);
V ll_iota(T elem, int lanes, int64_t scale); /* 0, scale, 2 scale, ... */
V ll_call(ll_mod *m, const char *intrinsic, T overload, V *arg, int n);
V ll_call2(ll_mod *m, const char *intrinsic, T first, T second, V *arg,
    int n); /* of two overloaded types */
V ll_un(ll_mod *m, const char *intrinsic, V a);
V ll_select(ll_mod *m, V c, V a, V b); /* broadcasts as needed */
V ll_bits(ll_mod *m, V f); /* float to the integer of its size */
V ll_float(ll_mod *m, V i); /* back */
V ll_any(ll_mod *m, V mask); /* i1: is any lane true? */
V ll_wide(ll_mod *m, V x); /* f32 to f64 */
V ll_narrow(ll_mod *m, V x); /* f64 to f32 */
V ll_shuffle(ll_mod *m, V a, V b, const int *lane, int n); /* b NULL: lanes of a only */
V ll_row(ll_mod *m, V a, V b, int from, int step, int n); /* the same with lanes from, from + step, ... */
V ll_part(ll_mod *m, V v, int from, int n); /* lanes from..from+n-1; a scalar for n = 1 */
V ll_lanes_mask(ll_mod *m, int lanes, int64_t live); /* <lanes x i1>: true in the first `live` */
int ll_pow2_up(int64_t n); /* the least power of two that is not below n */
V ll_table(ll_mod *m, const char *name, V numbers,
    unsigned align); /* a constant of the module, created once; align 0: as its type */
V ll_stack(ll_mod *m, int64_t bytes); /* a buffer on the function's stack, 64-byte aligned */
V ll_slot(ll_mod *m, int i); /* stack buffer i of the function, 64-byte aligned */
V ll_slot_put(ll_mod *m, int i, V v); /* stores v there, returns the buffer */
V ll_slot_get(ll_mod *m, int i, T t);
LLVMBasicBlockRef ll_block(ll_mod *m, const char *name);
/* Code up to ll_join runs only where the condition is true. ll_join(NULL) does nothing. */
LLVMBasicBlockRef ll_branch(ll_mod *m, V condition, const char *name);
void ll_join(ll_mod *m, LLVMBasicBlockRef next);
void ll_attr(ll_mod *m, V fn, const char *name);
bool ll_const_int(V v, int64_t *out);
bool ll_const_float(V v, double *out);

/* A bottom-tested loop over i64 from, from + step, ... < to, which runs at least once. phi[] are loop-carried values. */
typedef struct ll_loop {
    LLVMBasicBlockRef head;
    V i, from, to, step;
    int n_phi;
    V *phi; /* the caller's array. In: initial values; inside: phis; ll_loop_end reads the next values and leaves the final ones */
    V *node; /* the caller's array of n_phi: the phi nodes */
} ll_loop;
void ll_loop_begin(ll_mod *m, ll_loop *l, V from, V to, V step, V *phi, V *node, int n_phi);
void ll_loop_end(ll_mod *m, ll_loop *l);

/* Block `index` of `size` elements of n: returns its end, *from is its beginning. */
V ll_block_range(ll_mod *m, V index, int64_t size, int64_t n, V *from);
/* Emits that block in steps of `lanes` elements, then the n % lanes last elements if they belong to the block. size >= n: one block for all
 * elements; index is not used. */
typedef void (*ll_span_body)(void *ctx, V at, int live);
void ll_spans(ll_mod *m, V index, int64_t size, int64_t n, int lanes, ll_span_body body, void *ctx);

/* An internal function void sym(ptr.., i64 n) with a loop over i < n, created once per module. */
typedef struct ll_helper {
    V fn, outer; /* the function, and the one being built before */
    LLVMBasicBlockRef here;
    ll_loop loop; /* loop.i: the element */
} ll_helper;
bool ll_helper_begin(ll_mod *m, ll_helper *h, const char *sym,
    int n_ptr); /* false: it exists already; h->fn is set */
V ll_helper_at(ll_mod *m, const ll_helper *h, int ptr, T elem); /* address of the element */
void ll_helper_end(ll_mod *m, ll_helper *h);

/* ---- share.c: sizes that are symbols, and code that differs in them only ------------------------------------------- */

/* i64 v >= 0, on which the form of the code does not depend; v < 0: a constant. Never compared with another for equality: LLVM takes
 * different symbols for different addresses. */
V ll_size(ll_mod *m, int64_t v);
V ll_offset(ll_mod *m, int64_t v); /* the same of either sign */
V ll_quotient(ll_mod *m, V u, int64_t n); /* u / n; u < 2^31 */
/* Key of the module's code, which depends on all but the values of its sizes. */
nnc_hash128 ll_code_key(const ll_mod *m, nnc_hash128 machine);
/* Defines the sizes in the module's object, and names its function, which was compiled under a name that is no shorter. */
void ll_define_sizes(const ll_mod *m, char *object, const char *function);
/* Copies the object of this key to *out (nnc_malloc). */
enum ll_found {
    LL_FOUND,
    LL_NEW, /* the caller compiles it, and calls ll_code_put in any case; bytes NULL: it failed */
    LL_BUSY, /* another thread compiles it; never where the call may wait */
};
enum ll_found ll_code_get(nnc_hash128 key, bool wait, char **out, size_t *n);
void ll_code_put(nnc_hash128 key, const char *bytes, size_t n);

/* ---- math.c, lanes.c: functions of floats ------------------------------------------------------------------------- */

V ll_fma(ll_mod *m, V a, V b, V c);
V ll_copysign(ll_mod *m, V magnitude, V sign);
V ll_max(ll_mod *m, V a, V b, bool is_max, bool nonan); /* floats; NaN if either is */
V ll_math(ll_mod *m, nnc_fkey key, V x,
    V y); /* the key's formula, or mod. x, y: f32 or f64, scalar or vector; y may be NULL */
/* Calls libm's function `name` (fmodf, sin, pow, ...) lane by lane. b may be NULL. */
V ll_lanes_call(ll_mod *m, const char *name, V a, V b);

/* ---- scalar.c: scalar ops ----------------------------------------------------------------------------------------- */

V ll_sop(ll_mod *m, const nnc_kernel *k, const nnc_kins *ins, V *arg);
V ll_round(ll_mod *m, nnc_sop op, V x); /* floor, ceil, round, trunc */
V ll_cast(ll_mod *m, V x, nnc_dtype from, nnc_dtype to);
V ll_compare(ll_mod *m, nnc_sop op, nnc_dtype d, V a, V b); /* eq .. ge */
V ll_arith(ll_mod *m, nnc_sop op, nnc_dtype d, V a, V b, bool nonan); /* add mul min max */
/* The two 16-bit formats: value f32 <-> i16 bits. */
V ll_from16(ll_mod *m, V bits, nnc_dtype d);
V ll_to16(ll_mod *m, V x, nnc_dtype d); /* x: f32 or f64 */

/* ---- kernel.c, access.c ------------------------------------------------------------------------------------------- */

#define LL_SUMS 8
#define LL_PLACES 64
typedef struct ll_sum { /* an offset computed in `block`, and its address in a buffer */
    LLVMBasicBlockRef block;
    int64_t k[NNC_KAXES];
    V axis[NNC_KAXES], v, p;
    int buf;
} ll_sum;

#define LL_TESTS 16
typedef struct ll_test { /* whether v is .. limit, in `block` */
    LLVMBasicBlockRef block;
    V v, holds;
    LLVMIntPredicate is;
    int64_t limit;
} ll_test;

enum ll_phase {
    LL_WHOLE, /* the stages */
    LL_INIT, /* blocked sums: accumulators to memory */
    LL_STEP, /* some steps of the reduce axis */
    LL_DONE, /* accumulators from memory, then the epilogue */
};

typedef struct ll_emit ll_emit;
typedef struct ll_strips { /* strips from .. to - 1 of an unrolled axis */
    ll_emit *e; /* their kernel, whose axis begins at the first of them */
    int64_t from, to, each; /* each: points of that axis for a strip */
} ll_strips;

struct ll_emit {
    ll_mod *m;
    const nnc_kernel *k, *whole; /* a part of it, in strips; its buffers come first in k's */
    int vax; /* current vector axis, -1 = scalar code */
    int lanes; /* of current vectors; 0 without vax */
    V mask; /* <lanes x i1>: lanes that exist; NULL = all */
    V axis[NNC_KAXES]; /* i64: index on the axis; of vax: lane 0's */
    int64_t shift[NNC_KAXES]; /* constant offset of the index from `axis` */
    V *given; /* by instruction: a load's value computed elsewhere, or NULL */
    V *base; /* by instruction: its guarded load's address at index 0 of the innermost axis (ll_hoist), or NULL */
    int64_t *beyond; /* elements from there to its address; they become a displacement in the loop */
    int base_axis;
    nnc_kguard held[NNC_KGUARDS]; /* guards that hold here (ll_reached) */
    int n_held;
    V *kept; /* accumulators where terms may be left out: 2 per reduce */
    uint32_t stripped; /* unrolled axes that k has in strips already, register blocks */
    uint32_t rows; /* the same of rows at once */
    ll_emit *point; /* a strip's kernel before it became a strip, where its epilogue is a loop over points; NULL: others */
    int n_part;
    ll_strips part[4]; /* of a kernel with an unrolled axis beyond these, in order along it */
    struct ll_panel *panel; /* the kernel that fills it; NULL: there is none */
    const nnc_kring *ring; /* by buffer */
    V *ring_at; /* by buffer: the row of the current point's row 0 */
    V first[NNC_KAXES]; /* first index of a tiled axis in the work item, of a ring's rows at the current point; NULL: 0 */
    V args; /* the pointer array: readable memory, whatever the kernel */
    V *buf; /* base pointers */
    V *val; /* by instruction */
    uint32_t *dep; /* axes that a value depends on, by instruction */
    uint8_t phase; /* LL_*: the part of the stages that ll_stages emits */
    int steps; /* of LL_STEP */
    V last[NNC_KAXES]; /* of reduce axes that are summed from `first` to last - 1 only, and added to the results; NULL: others */
    V added; /* i1: earlier terms are in the results; NULL: there are none */
    V complete; /* i1, beside `added`: no terms follow */
    V ahead; /* memory with the address that the next strip prefetches from (ahead.c); NULL: none */
    V ahead_from; /* that address, in a strip */
    int64_t ahead_step; /* bytes of a step */
    V totals; /* a register block's, in memory (ll_totals_begin); NULL: accumulators are values */
    V memory, start; /* blocked sums: accumulators; the block's first element */
    bool stream; /* non-temporal stores in this copy of the code */
    ll_sum sum[LL_SUMS];
    struct { /* displacements in bytes of a buffer */
        V v;
        int64_t bytes;
        int buf;
    } place[LL_PLACES];
    ll_test test[LL_TESTS];
    unsigned next_place, next_sum, next_test;
    bool oom;
    bool hoisting; /* before a loop: equal comparisons are one instruction */
    bool narrow; /* this copy runs rarely: at most 16 lanes */
    V *acc; /* reductions of the current stage: 2 per reduce (value, index) */
    V *node; /* scratch of loops: 2 per reduce and level */
    int n_red, vec_red; /* reductions of the stage; whether vax is one of its reduce axes */
    int32_t *red; /* their instructions */
};

V ll_load(ll_emit *e, const nnc_kins *ins);
/* Called before a stage's innermost loop, over axis c. Guarded loads along c whose guards do not depend on c then read either their address
 * or zeros, and the loop has no conditions. c may be the vector axis. */
void ll_hoist(ll_emit *e, const nnc_kstage *st, int c);
/* The guarded load, zero outside, whose multiples a sum adds; NULL: none, or 0 times infinity matters. */
const nnc_kins *ll_source(const ll_emit *e, const nnc_kins *sum);
/* i1: whether the guards hold that all sums of the stage share and that do not depend on axis c. Without sums: those that its stores share.
 * If they do not, all terms are zeros, or nothing is stored. NULL: no such guards. Until e->n_held becomes 0 they are known to hold. */
V ll_reached(ll_emit *e, const nnc_kstage *st, int c);
/* Loads `lanes` elements from the current position in the memory type, the first `live` of them. */
V ll_load_row(ll_emit *e, const nnc_kins *ins, int live);
/* Prefetches the current position into the nearest or the next cache level, for reading or writing. */
void ll_prefetch(ll_emit *e, const nnc_kins *ins, bool near, bool write);
/* True when this store crosses cache lines, since its rows may begin anywhere. */
bool ll_splits_lines(const ll_emit *e, const nnc_kins *store);
V ll_from_memory(ll_mod *m, V v, nnc_dtype d);
T ll_memory_type(ll_mod *m, nnc_dtype d);
void ll_store(ll_emit *e, const nnc_kins *ins);
/* Stores the first `live` lanes of v from the current position on. */
void ll_store_lanes(ll_emit *e, const nnc_kins *ins, V v, int live);

/* Defines the function of kernel k in the module. */
nnc_status ll_kernel(ll_mod *m, const nnc_kernel *k, nnc_sink *sink);

/* Adds a function of a kernel's type. */
V ll_function(ll_mod *m, const char *name);
/* Adds the kernel's function to the module: m->fn. */
void ll_declare(ll_mod *m, const nnc_kernel *k);
/* Returns from the function if it has no work items, since loops of ll_loop_begin run at least once. */
void ll_return_unless_units(ll_mod *m);
/* The lowest digit of u in base n; *u becomes u / n. */
V ll_digit(ll_mod *m, V *u, int64_t n);
/* parts.c: a kernel in parts, each of them a kernel. open: k's parts, in `a`; n = 0: it has none. */
typedef struct ll_parts {
    nnc_kpart part[NNC_KPARTS];
    int n;
    struct ll_rows *row; /* by buffer of k */
} ll_parts;
nnc_status ll_parts_open(ll_parts *p, const nnc_kernel *k, nnc_arena *a, nnc_sink *sink);
/* Name of part i's function in an object of its own. */
enum { LL_PART_NAME = 16 };
char *ll_part_name(char name[LL_PART_NAME], int i);
/* Defines k's function, which calls those of its parts for each unit: fn[], or NULL: of other objects. */
void ll_parts_call(ll_mod *m, const nnc_kernel *k, const ll_parts *p, const V *fn);
/* Defines k's function and those of its parts in one module. */
nnc_status ll_parts_together(ll_mod *m, const nnc_kernel *k, nnc_sink *sink);
void ll_stages(ll_emit *e); /* all stages at the current place */
void ll_ins(ll_emit *e, int i); /* instruction i, which is no reduction, at the current place */
/* pack.c: emits the posts of a stage whose sums are numbers, computing functions of several of them as lanes of a vector. False: it has
 * none, and nothing was emitted. */
bool ll_pack_posts(ll_emit *e, const nnc_kstage *st);
void ll_vectors(
    ll_emit *e, const V *index); /* a unit's vectors; index[]: the numbers of its blocks */
bool ll_open(ll_emit *e, nnc_arena *a); /* the state of e->k; false: out of memory */
/* block.c: opens the parts of a kernel with `unroll` (false: out of memory). ll_block_run emits a work item's strips. */
bool ll_block_open(ll_emit *e, nnc_arena *a);
void ll_block_run(ll_emit *e, const V *index);
/* Adds each sum of a block of terms to what its store's place has. After the last block the results are computed from the totals. */
void ll_block_add(ll_emit *e, const nnc_kstage *st);
/* panel.c: opens the kernels of a kernel with `panel`; e becomes the one that reads the panel (false: out of memory). ll_panel_fill comes
 * before a work item's sums, and fills the panel unless the previous work item belongs to the same block. */
bool ll_panel_open(ll_emit *e, nnc_arena *a);
void ll_panel_fill(ll_emit *e, V unit, const V *index);
/* ahead.c: weights of the next work item. begin: before a work item; strip: before and after the innermost loop of so many steps;
 * step: in it, at index i. Without the directive they do nothing. */
void ll_ahead_begin(ll_emit *e, V unit, const V *index);
void ll_ahead_strip(ll_emit *e, int64_t steps, bool ends);
void ll_ahead_step(ll_emit *e, V i);
void ll_tiles_run(
    ll_emit *e, const V *index); /* block.c: a unit's points: loops over its tiles, then vectors */
/* tile.c: block number `chunk` of the vector axis by block number `block` of the tile axis */
void ll_tiles(ll_emit *e, V chunk, V block);

/* reduce.c: accumulators */
T ll_red_type(const ll_emit *e, int r); /* an element of accumulator r */
void ll_red_init(ll_emit *e, int r, bool vec);
/* Short sums of a register block begin with what the posts would add to all of them alike, a bias. post: emits the posts' instruction i of
 * p, which is e or e->point, without such an addition. */
void ll_red_begin(ll_emit *e, const nnc_kstage *st);
void ll_post(ll_emit *e, ll_emit *p, const nnc_kstage *st, int i);
void ll_red_step(ll_emit *e, int r, const uint8_t *axes, const int64_t *stride, int n_axes);
V ll_red_done(ll_emit *e, int r, bool vec);
/* Results of these n reductions (a power of two) as lanes of one vector, each equal to that of ll_red_done; called before ll_red_done.
 * NULL: their accumulators differ in kind or have fewer lanes. */
V ll_red_together(ll_emit *e, const int *r, int n);
/* Sets the values of all of the stage's reductions: those of a kind are combined together, in fewer instructions. */
void ll_red_all(ll_emit *e);
bool ll_red_fused(const ll_emit *e, int r); /* its product is part of a multiply-add */
/* A loop over the points of a strip, around the epilogue of one (e->point), whose sum is read from memory. False: there is none. */
bool ll_point_posts(ll_emit *e);
/* From begin to end the accumulators of a register block's partial sums are in memory; add: adds the values acc[] to them. Values that live
 * through all loops around the innermost one would take LLVM as long as all else in such a kernel. */
void ll_totals_begin(ll_emit *e);
void ll_totals_add(ll_emit *e);
void ll_totals_end(ll_emit *e);
V ll_total_get(ll_emit *e, V r); /* while they are in memory */

#endif

/* tests/nvrtc/budget.c -- see budget.h. */
#include "budget.h"
#include "codegen/cuda.h"
#include "gpu_share.h"
#include "plan/plan.h"
#include "test.h"
#include <pthread.h>
#include <stdatomic.h>

enum { CODE_TIMES = 3, CODE_FIXED = 500, UNFITTED_TIMES = 2 };
enum { ROUTINE_REGISTERS = 16, OP_CALL = 0x144 };
/* A thread of a kernel of windows loads a strip's places at once: two blocks of 256 an SM have 64 KiB and more in flight, enough. */
enum { WINDOW_REGISTERS = 128 };
/* One that goes from row to row has the next one loaded meanwhile: six blocks of 64 an SM. */
enum { WALK_REGISTERS = 168 };
/* A point that one thread computes keeps its tmp buffers in arrays of its own, in registers up to so many bytes. Beyond it they are in
 * local memory on purpose: many threads' data is adjacent there, and shared memory has no room for it. */
enum { REGISTER_TMP = 64, ARRAY_REGISTERS = 128 };

typedef struct schedule {
    const char *name;
    int registers, fixed, copies;
} schedule;
static const schedule schedules[] = {
#define SCHEDULE(class, registers, fixed, copies) [KC_##class] = {#class, registers, fixed, copies},
#define ACCESS(what, n)
#define COST(op, f32, f64, integer)
#include "budget.def"
};
enum {
#define SCHEDULE(class, registers, fixed, copies)
#define ACCESS(what, n) COST_##what = n,
#define COST(op, f32, f64, integer)
#include "budget.def"
};
static const struct {
    int f32, f64, integer;
} costs[SC__COUNT] = {
#define SCHEDULE(class, registers, fixed, copies)
#define ACCESS(what, n)
#define COST(op, f32, f64, integer) [SC_##op] = {f32, f64, integer},
#include "budget.def"
};

/* ---- what was seen ------------------------------------------------------------------------------------------------- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    int kernels, unfound, local, spill, wide;
    int registers, limit; /* of the kernel that is nearest to its limit */
    double used,
        each; /* largest: part of a budget of instructions; instructions for an element of a pointwise kernel */
    char name[80], each_name[80];
} seen[KC_contract + 1];
static _Atomic int
    unknown[CUBIN_OPS]; /* kernels with this opcode, which the reader does not know */

void budget_reset(void)
{
    memset(seen, 0, sizeof seen);
    for (int op = 0; op < CUBIN_OPS; op++)
        unknown[op] = 0;
}

void budget_print(void)
{
    for (int c = KC_point; c <= KC_contract; c++)
        if (seen[c].kernels) {
            printf("     %-6s %5d kernels, at most %d of %d registers, %.0f %% of the instructions "
                   "(%s)",
                schedules[c].name, seen[c].kernels, seen[c].registers, seen[c].limit,
                seen[c].used * 100, seen[c].name);
            printf(
                "; %d with 128-bit accesses, no usual path found in %d; %d with local memory, %d "
                "on the usual path\n",
                seen[c].wide, seen[c].unfound, seen[c].local, seen[c].spill);
        }
    for (int op = 0; op < CUBIN_OPS; op++)
        if (unknown[op])
            printf("     opcode %03x is unknown: in %d kernels\n", op, unknown[op]);
}

/* ---- what a kernel may cost ---------------------------------------------------------------------------------------- */

typedef struct shape { /* of a stage */
    int axis, vec;
    double body, post; /* copies of the code */
} shape;

static double product(const nnc_kernel *k, uint32_t axes)
{
    double n = 1;
    for (int a = 0; a < k->n_axis; a++)
        if (axes >> a & 1)
            n *= (double)k->axis[a].extent;
    return n;
}

static uint32_t reduce_axes(const nnc_kernel *k)
{
    uint32_t bits = 0;
    for (int a = 0; a < k->n_axis && a < NNC_KAXES; a++)
        bits |= (uint32_t)(k->axis[a].kind == KA_reduce) << a;
    return bits;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

static shape shape_of(const nnc_kernel *k, const cu_rows *rows, int i)
{
    const nnc_kgrid *g = &k->grid;
    const nnc_kstage *s = &k->stage[i];
    const double most = schedules[g->cls].copies;
    shape out = {g->axis, g->vec, least(product(k, s->axes), most),
        least(product(k, s->axes & ~reduce_axes(k)), most)};
    if (g->cls == KC_tile)
        out.body = out.post = 4.0 * g->vec;
    if (g->cls != KC_row)
        return out;
    const cu_spread *p = &rows->stage[i];
    const double kept = most > g->keep ? most : g->keep;
    out.axis = -1;
    for (int a = 0; a < k->n_axis; a++)
        if (p->spread >> a & 1)
            out.axis = a;
    out.vec = p->vec;
    out.body = least((double)p->trips, kept);
    out.post = s->axes & ~reduce_axes(k) ? out.body : 1;
    return out;
}

static double cost_of(const nnc_kernel *k, const nnc_kins *in)
{
    const bool access = in->op == KO_load || in->op == KO_store;
    double cost = access ? COST_guard * in->n_guard : 0;
    if (access && nnc_dtype_size(k->buf[in->buf].dtype) < 4)
        cost += COST_narrow;
    switch ((nnc_kop)in->op) {
    case KO_load: return cost + COST_load + (in->arg[0] >= 0 ? 2 * COST_load : 0);
    case KO_store: return cost + COST_store;
    case KO_reduce: return in->sop >= KR_argmax ? COST_best : COST_reduce;
    case KO_sop: break;
    default: return 1;
    }
    const nnc_dtype d = (nnc_dtype)k->ins[in->arg[0]].dtype;
    const double wide = nnc_dtype_size(d) == 8 ? 2 : 1; /* integers of 64 bits are two of 32 */
    return d == DT_f32   ? costs[in->sop].f32
           : d == DT_f64 ? costs[in->sop].f64
                         : costs[in->sop].integer * wide;
}

/* Which instructions anything that is stored depends on. */
static void find_live(const nnc_kernel *k, bool *live)
{
    memset(live, 0, (size_t)k->n_ins);
    for (int i = k->n_ins - 1; i >= 0; i--) {
        const nnc_kins *in = &k->ins[i];
        live[i] |= in->op == KO_store;
        for (int j = 0; j < 3 && live[i]; j++)
            if (in->arg[j] >= 0)
                live[in->arg[j]] = true;
    }
}

static double sum_cost(const nnc_kernel *k, const bool *live, int begin, int end)
{
    double n = 0;
    for (int i = begin; i < end; i++)
        n += live[i] ? cost_of(k, &k->ins[i]) : 0;
    return n;
}

static double path_budget(const nnc_kernel *k, const cu_rows *rows, const bool *live)
{
    const nnc_kgrid *g = &k->grid;
    double n = 0;
    for (int i = 0; i < k->n_stage; i++) {
        const nnc_kstage *s = &k->stage[i];
        const shape x = shape_of(k, rows, i);
        const int own = __builtin_popcount(s->axes);
        const int places = g->cls == KC_row && own > 1 ? COST_place * own : 0;
        n += x.vec * (x.body * (places + sum_cost(k, live, s->body0, s->body1)) +
                         x.post * sum_cost(k, live, s->post0, s->post1));
    }
    return schedules[g->cls].fixed + g->flight * (COST_place * k->n_outer + n);
}

/* ---- widths -------------------------------------------------------------------------------------------------------- */

typedef struct widths { /* of loads, or of stores: bits */
    unsigned wide; /* there are such accesses of whole vectors */
    bool others; /* there are accesses that are no whole vectors */
} widths;

static int log_width(int64_t bytes)
{
    int w = 0;
    while (w < 4 && (2 << w) <= bytes)
        w++;
    return w;
}

static widths widths_of(const nnc_kernel *k, const cu_rows *rows, const bool *live, nnc_kop what)
{
    widths out = {0, false};
    for (int i = 0; i < k->n_stage; i++) {
        const shape x = shape_of(k, rows, i);
        if (x.axis >= 0 && k->axis[x.axis].extent % x.vec) /* the last vector is cut short */
            out.others = true;
        const bool folds = x.axis >= 0 && k->axis[x.axis].kind == KA_reduce;
        for (int id = k->stage[i].body0; id < k->stage[i].post1; id++) {
            const nnc_kins *in = &k->ins[id];
            if (in->op != what || !live[id] || k->buf[in->buf].role == KB_tmp)
                continue;
            const bool inside = id < k->stage[i].body1 || !folds;
            int axis = x.axis;
            if (k->grid.cls == KC_tile && what == KO_load &&
                nnc_kernel_tiles(k, in, k->grid.axis, k->grid.across))
                axis = k->grid.across;
            bool vector = inside && x.vec > 1 && axis >= 0 && cu_vector(k, in, axis, x.vec) &&
                          (what == KO_store || in->arg[0] < 0);
            if (vector && x.vec * nnc_dtype_size(k->buf[in->buf].dtype) >= 8)
                out.wide |= 1u << log_width(x.vec * nnc_dtype_size(k->buf[in->buf].dtype));
            else
                out.others = true;
        }
    }
    return out;
}

/* On the usual path the vectors are accesses of their width, and nothing is narrower where all is vectors. Where there are other loads the
 * compiler may have joined what is read twice. */
static bool as_wide(const widths *w, nnc_kop what, const int bits[CUBIN_WIDTHS])
{
    for (int i = 0; i < CUBIN_WIDTHS; i++) {
        if ((w->wide >> i & 1) && !bits[i] && !(w->others && what == KO_load))
            return false;
        if (!w->others && w->wide && bits[i] && !(w->wide >> i & 1))
            return false;
    }
    return true;
}

/* ---- attention ------------------------------------------------------------------------------------------------------ */

/* Registers for the sums of scores and results, for what they are summed from, and for addresses. They are as many as the schedule
 * counts on for its resident blocks, and the reads of two steps of a loop. */
static int attend_registers(const nnc_kernel *k)
{
    nnc_attend a;
    nnc_alayout l;
    if (!nnc_attend_find(k, &a))
        return 0;
    nnc_attend_layout(k, &k->grid, &a, &l);
    const int vec = k->grid.vec, keys = l.keys / 16, columns = l.chunks * l.lanes;
    return 56 + vec * (keys + columns + 6) + 4 * (vec + keys);
}

/* Two steps of each product's loop, the row's ops for each score, copies to shared memory. */
static const char *check_attend(const nnc_kernel *k, const nnc_cubin_kernel *c, char why[256])
{
    nnc_attend a;
    nnc_alayout l;
    if (!nnc_attend_find(k, &a))
        return "is not attention";
    nnc_attend_layout(k, &k->grid, &a, &l);
    const int vec = k->grid.vec, keys = l.keys / 16, columns = l.chunks * l.lanes;
    const int products = 2 * (4 * vec * (keys + columns) + 2 * vec + keys + 4 * l.chunks);
    const int rows = vec * (keys * 60 + columns * 30 + 60), copies = 3 * 16 * 20;
    if (c->instructions > products + rows + copies + CODE_FIXED)
        snprintf(why, 256, "%d instructions, %d allowed", c->instructions,
            products + rows + copies + CODE_FIXED);
    else if (c->n[CC_real] < products / 2)
        snprintf(why, 256,
            "%d multiply-adds and the like, fewer than one step of each product's loop",
            c->n[CC_real]);
    else
        return NULL;
    return why;
}

/* ---- contractions -------------------------------------------------------------------------------------------------- */

/* A step's products on tensor cores, 16 rows by 8 columns by 16 terms each. The ops before and after them, for each element that a thread
 * has, are unrolled. Nothing is in local memory. */
static const char *check_contract(const nnc_kernel *k, const nnc_cubin_kernel *c, char why[256])
{
    cu_contract x;
    cu_ctile t;
    if (!cu_contract_of(k, &x) || !cu_contract_tile(&k->grid, &x, &t))
        return "is no contraction";
    const int products = t.terms / 16 * 2 * t.wide / 8,
              before = t.threads * k->grid.group / k->grid.threads * 8,
              after = 2 * 16 * t.wide / 32;
    double body = 0, post = 0;
    for (int i = 0; i < k->n_ins; i++)
        *(i < x.sum ? &body : &post) += cost_of(k, &k->ins[i]);
    const double most = 20 * products + before * (body + 8) + after * (post + 8) + CODE_FIXED;
    if (c->n[CC_tensor] < products || c->n[CC_tensor] % products)
        snprintf(why, 256, "%d products, a step has %d", c->n[CC_tensor], products);
    else if (c->stack_bytes || c->n[CC_load_local] || c->n[CC_store_local])
        snprintf(why, 256, "%d bytes of stack", c->stack_bytes);
    else if (c->instructions > most)
        snprintf(why, 256, "%d instructions, %.0f allowed", c->instructions, most);
    else
        return NULL;
    return why;
}

/* ---- one kernel ---------------------------------------------------------------------------------------------------- */

static int64_t arrays(const nnc_kernel *k)
{
    return k->grid.cls == KC_point ? nnc_kernel_scratch(k) : 0;
}

/* Are there lanes of 8 or 16 bits that are loaded, stored or computed one by one? */
static bool has_narrow_lanes(const nnc_kernel *k)
{
    bool narrow = false;
    for (int i = 0; i < k->n_ins && k->grid.cls == KC_point && k->grid.vec > 1; i++) {
        const nnc_kins *in = &k->ins[i];
        const bool access = in->op == KO_load || in->op == KO_store;
        narrow |= nnc_dtype_size(access ? k->buf[in->buf].dtype : (nnc_dtype)in->dtype) < 4;
    }
    return narrow;
}

/* Does the machine code call a routine? Division, roots, mod and other functions do for operands that the short way does not serve. */
static bool calls(const nnc_cubin_kernel *c)
{
    return c->op[OP_CALL] > 0;
}

/* A routine of f64 has its operands in registers of its own, beside those of the loops around it. */
static int called_registers(const nnc_kernel *k, const nnc_cubin_kernel *c)
{
    bool real64 = false;
    for (int i = 0; i < k->n_ins; i++)
        real64 = real64 || (k->ins[i].op == KO_sop && k->ins[i].dtype == DT_f64);
    return real64 && calls(c) ? ROUTINE_REGISTERS : 0;
}

/* Local memory that the usual path reads or writes. Off that path it costs little: the digits of 2/pi in a slow sine of f64, registers
 * saved where a rare operand needs a routine. On it are arrays where the kernel IR has tmp buffers. Any other array is one that NVRTC could
 * not keep in registers, and the CUDA C is to blame. ptxas spills some registers so that more threads are resident, though it might use
 * more. Local memory serves 32 lanes a clock and arithmetic 128: one access in eight instructions takes a third of the time, and means that
 * registers ran out. */
static const char *check_local(
    const nnc_kernel *k, const nnc_cubin_kernel *c, const nnc_cubin_usual *p, char why[256])
{
    enum { SPILLED_OF = 8 };
    const bool found = p->stored > 0, own = arrays(k) > REGISTER_TMP;
    const int *n = found ? p->n : c->n;
    const int touched = n[CC_load_local] + n[CC_store_local],
              all = found ? p->length : c->instructions, in_arrays = found ? p->arrays : 0;
    if (own || (!in_arrays && touched * SPILLED_OF <= all))
        return NULL;
    snprintf(why, 256,
        "%d of %d instructions on the usual path are loads and stores of local memory, %d of them "
        "of arrays; %d bytes, %d registers",
        touched, all, in_arrays, c->stack_bytes, c->registers);
    return why;
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n > m && !strcmp(name + n - m, end);
}

static const char *check_work(const nnc_kernel *k, const nnc_cubin_kernel *c,
    const nnc_cubin_usual *p, const cu_rows *rows, const bool *live, bool fitted, char why[256])
{
    widths load = widths_of(k, rows, live, KO_load), store = widths_of(k, rows, live, KO_store);
    const double path = (fitted ? 1 : UNFITTED_TIMES) * path_budget(k, rows, live),
                 code = CODE_TIMES * path + CODE_FIXED;
    /* Where the way goes back through code laid out before it, the reader finds none that stores: then all of the code stands for it. */
    const bool found = p->stored > 0;
    const int *s = found ? p->store_bits : c->store_bits, *l = found ? p->load_bits : c->load_bits;
    bool loads = false; /* where loops may be skipped, the shortest path has no loads */
    for (int i = 0; i < CUBIN_WIDTHS; i++)
        loads |= l[i] > 0;
    l = loads ? l : c->load_bits;
    load.others |= !found || !loads; /* the rests of rows are among them */
    load.others |= has_narrow_lanes(k) && calls(c); /* NVRTC loads a vector again in pieces */
    store.others |= !found;
    if (k->grid.finish > 0) /* it stores parts; the second launch stores results, one by one */
        store = (widths){0, true};
    if (found && p->length > path)
        snprintf(why, 256, "%d instructions on the usual path, %.0f allowed", p->length, path);
    else if (c->instructions > code)
        snprintf(why, 256, "%d instructions, %.0f allowed", c->instructions, code);
    else if (fitted && !as_wide(&store, KO_store, s))
        snprintf(why, 256, "stores of %dx8 %dx16 %dx32 %dx64 %dx128 bits are not the schedule's",
            s[0], s[1], s[2], s[3], s[4]);
    else if (fitted && !as_wide(&load, KO_load, l) &&
             !as_wide(&load, KO_load, c->load_bits)) /* in a loop */
        snprintf(why, 256, "loads of %dx8 %dx16 %dx32 %dx64 %dx128 bits are not the schedule's",
            l[0], l[1], l[2], l[3], l[4]);
    else
        why[0] = 0;
    pthread_mutex_lock(&lock);
    if (p->length / path > seen[k->grid.cls].used) {
        seen[k->grid.cls].used = p->length / path;
        snprintf(seen[k->grid.cls].name, sizeof seen[k->grid.cls].name, "%.79s", c->name);
    }
    seen[k->grid.cls].unfound += !found;
    seen[k->grid.cls].wide += p->store_bits[4] + p->load_bits[4] > 0;
    pthread_mutex_unlock(&lock);
    return why[0] ? why : NULL;
}

/* Instructions that the reader does not know are counted as any other, and printed. But it must know those that branch and those that reach
 * memory, whose opcodes lie together: what is checked here depends on them. */
static bool must_be_known(int bits)
{
    return (bits >= 0x140 && bits < 0x160) || (bits >= 0x180 && bits < 0x1b0);
}

/* The first unknown instruction that must be known; 0: there is none. Notes the others. */
static int note_unknown(const nnc_cubin_kernel *c)
{
    int first = 0;
    for (int op = 1; op < CUBIN_OPS && c->n[CC_unknown]; op++)
        if (c->op[op] && !nnc_cubin_op(op)) {
            first = first || !must_be_known(op) ? first : op;
            atomic_fetch_add(&unknown[op], 1);
        }
    return first;
}

const char *budget_check(const nnc_kernel *k, const nnc_cubin_kernel *c, bool fitted, char why[256])
{
    const int cls = k->grid.cls, strange = note_unknown(c);
    nnc_walk w;
    const int registers = cls == KC_attend     ? attend_registers(k)
                          : nnc_walk_of(k, &w) ? WALK_REGISTERS
                          : arrays(k)          ? ARRAY_REGISTERS
                          : nnc_window_kernel(k)
                              ? WINDOW_REGISTERS
                              : schedules[cls].registers + called_registers(k, c);
    cu_rows rows = {0};
    bool *live = nnc_malloc((size_t)k->n_ins + 1);
    nnc_cubin_usual p;
    if (!live || !nnc_cubin_usual_of(c, &p) ||
        (cls < KC_attend && !cu_rows_plan(&rows, k, &k->grid))) {
        nnc_free(live);
        return "out of memory";
    }
    find_live(k, live);
    pthread_mutex_lock(&lock);
    seen[cls].kernels++;
    seen[cls].local += c->stack_bytes > 0;
    seen[cls].spill += p.n[CC_store_local] > 0;
    if (seen[cls].limit == 0 || c->registers * seen[cls].limit > seen[cls].registers * registers) {
        seen[cls].registers = c->registers; /* nearest to what it may have */
        seen[cls].limit = registers;
    }
    pthread_mutex_unlock(&lock);
    const char *bad = check_local(k, c, &p, why);
    if (strange) {
        snprintf(why, 256, "an unknown instruction, with bits %03x", strange);
        bad = why;
    } else if (!bad && c->registers > (fitted ? 1 : UNFITTED_TIMES) * registers) {
        snprintf(why, 256, "%d registers, %d allowed", c->registers, registers);
        bad = why;
    } else if (!bad) {
        bad = ends_in(c->name, "_finish") ? NULL
              : cls == KC_attend          ? check_attend(k, c, why)
              : cls == KC_contract        ? check_contract(k, c, why)
                                          : check_work(k, c, &p, &rows, live, fitted, why);
    }
    cu_rows_deinit(&rows);
    nnc_free(live);
    return bad;
}

/* ---- plans --------------------------------------------------------------------------------------------------------- */

/* Does the kernel launch this function? A split one has two. */
static bool launches_it(const nnc_pkernel *k, const char *name)
{
    const char *own;
    size_t n = strlen(name) - (ends_in(name, "_finish") ? strlen("_finish") : 0);
    return nnc_pkernel_function(k, &own) == n && !strncmp(own, name, n);
}

static void fail(const char *what, const char *name, const char *why, const char *text)
{
    pthread_mutex_lock(&lock);
    test_fail(__FILE__, __LINE__, "%s: %s: %s\n%s", what, name, why, text);
    pthread_mutex_unlock(&lock);
}

/* Holds a function against all kernels that launch it. */
static void check_function(
    const char *what, const nnc_plan *p, const nnc_cubin_kernel *c, bool fitted, nnc_arena *a)
{
    char why[256];
    int kernels = 0;
    for (int i = 0; i < p->n_kernel; i++) {
        const nnc_pkernel *pk = &p->kernel[i];
        if (!launches_it(pk, c->name))
            continue;
        nnc_scan s;
        nnc_scan_init(&s, pk->symbol, pk->ir, strlen(pk->ir));
        const nnc_kernel *k = nnc_schedule_parse(&s, a, NULL);
        const char *bad = k ? budget_check(k, c, fitted, why) : "its text does not parse";
        if (bad)
            fail(what, pk->symbol, bad, pk->ir);
        kernels++;
    }
    if (!kernels)
        fail(what, c->name, "is no kernel of the plan", "");
}

int budget_plan(const char *what, const nnc_plan *p, bool fitted)
{
    nnc_arena a;
    int launches = 0;
    nnc_arena_init(&a, 0);
    for (int o = 0; o < p->n_object; o++) {
        nnc_cubin_kernel *c;
        int n, sm;
        if (nnc_cubin_read(p->object[o].data, p->object[o].n, &a, &c, &n, &sm, NULL)) {
            fail(what, "a unit", "is no cubin", "");
            continue;
        }
        for (int i = 0; i < n; i++, launches++)
            check_function(what, p, &c[i], fitted, &a);
    }
    nnc_arena_deinit(&a);
    return launches;
}

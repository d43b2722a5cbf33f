/* tests/cudac/ct.c -- see ct.h. */
#include "ct.h"
#include "cxx.h"
#include "gen/gen.h"
#include "gen/rounding.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

const nnc_target *ct_h200(void)
{
    static nnc_target t;
    if (!t.name && nnc_target_cuda(&t, "cuda:sm_90", test_sink) != NNC_OK)
        test_fail(__FILE__, __LINE__, "no target cuda:sm_90");
    return &t;
}

const nnc_target *ct_tiny(void)
{
    static nnc_target t;
    t = *ct_h200();
    t.sms = t.cores = 1;
    t.sm_threads = 32;
    return &t;
}

static const nnc_target *target_of(const ct_set *s)
{
    static nnc_target t;
    if (s->sms == 0)
        return s->tiny ? ct_tiny() : ct_h200();
    t = *ct_h200();
    t.sms = t.cores = s->sms;
    return &t;
}

nnc_graph *ct_parse(const char *text)
{
    nnc_scan s;
    nnc_scan_init(&s, "t", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&s, test_sink);
    if (!g) {
        test_fail(__FILE__, __LINE__, "does not parse:\n%s", text);
        nnc_sink_print(test_sink, stderr);
    }
    return g;
}

nnc_graph *ct_fuse(const nnc_graph *g)
{
    return gen_fused(g, test_sink);
}

/* ---- sets ---- */

/* parse(print(k)) prints the same and is the same to the hash. */
static bool round_trip(const nnc_kernel *k)
{
    nnc_text t = {0}, u = {0};
    nnc_arena a;
    nnc_scan s;
    nnc_arena_init(&a, 0);
    nnc_kernel_print(&t, k);
    nnc_scan_init(&s, "k", nnc_text_str(&t), t.n);
    nnc_kernel *p = nnc_schedule_parse(&s, &a, test_sink);
    if (p)
        nnc_kernel_print(&u, p);
    nnc_hash128 h = nnc_kernel_hash(k), i = p ? nnc_kernel_hash(p) : (nnc_hash128){0};
    bool ok = p && strcmp(nnc_text_str(&t), nnc_text_str(&u)) == 0 && h.lo == i.lo && h.hi == i.hi;
    if (!ok) {
        test_fail(__FILE__, __LINE__, "round trip\n%s\n%s", nnc_text_str(&t), nnc_text_str(&u));
        nnc_sink_print(test_sink, stderr);
    }
    nnc_text_deinit(&t);
    nnc_text_deinit(&u);
    nnc_arena_deinit(&a);
    return ok;
}

void ct_add(ct_set *s, const nnc_kernel *k)
{
    for (int i = 0; i < s->n; i++)
        if (strcmp(s->k[i]->name, k->name) == 0)
            return;
    CHECK(k->grid.cls != KC_none);
    if (nnc_schedule_verify(k, test_sink) != NNC_OK) {
        nnc_text t = {0};
        nnc_kernel_print(&t, k);
        test_fail(__FILE__, __LINE__, "not verified:\n%s", nnc_text_str(&t));
        nnc_sink_print(test_sink, stderr);
        nnc_text_deinit(&t);
    } else if (round_trip(k) && s->n < CT_KERNELS) {
        s->k[s->n++] = k;
    }
}

static bool is_call(const nnc_graph *g, const nnc_node *n)
{
    return nnc_op_class((nnc_op)n->op) == CL_contract && !nnc_is_depthwise(g, n);
}

void ct_add_graph(ct_set *s, const nnc_graph *g)
{
    if (!s->open)
        nnc_arena_init(&s->arena, 0);
    s->open = true;
    for (uint32_t i = 0; i < g->n_node; i++) {
        const nnc_node *n = &g->node[i];
        nnc_class c = nnc_op_class((nnc_op)n->op);
        if ((c == CL_leaf && n->op != OP_iota) || (!s->sums && is_call(g, n)) || nnc_is_view(g, n))
            continue;
        bool calls = false; /* a contraction with its epilogue is a library's */
        for (uint32_t j = 0; n->op == OP_fused && j < n->body->n_node; j++)
            calls |= !s->sums && is_call(n->body, &n->body->node[j]);
        if (calls || (s->most && nnc_type_numel(nnc_typeof(g, n->out)) > s->most))
            continue;
        const nnc_kernel *k = nnc_lower(g, n, target_of(s), MATH_ulp2, &s->arena, test_sink);
        if (k)
            ct_add(s, k);
        else {
            test_fail(__FILE__, __LINE__, "%s is not lowered", nnc_ops[n->op].name);
            nnc_sink_print(test_sink, stderr);
        }
    }
}

void ct_add_text(ct_set *s, const char *text)
{
    nnc_graph *g = ct_parse(text);
    if (g)
        ct_add_graph(s, g);
    nnc_graph_destroy(g);
}

void ct_add_fused(ct_set *s, const char *text)
{
    nnc_graph *g = ct_parse(text), *f = g ? ct_fuse(g) : NULL;
    if (f)
        ct_add_graph(s, f);
    nnc_graph_destroy(g);
    nnc_graph_destroy(f);
}

void ct_set_deinit(ct_set *s)
{
    if (s->lib)
        dlclose(s->lib);
    if (s->open)
        nnc_arena_deinit(&s->arena);
    *s = (ct_set){0};
}

bool ct_build(ct_set *s, void (*edit)(char *text))
{
    char *text = NULL;
    size_t n = 0;
    if (!*NNC_TEST_CXX) {
        test_skip("no C++ compiler to build kernels for the CPU");
        return false;
    }
    if (s->n == 0)
        return false;
    CHECK_OK(nnc_emitter_cuda.emit(s->k, s->n, ct_h200(), EMIT_cuda, &text, &n, test_sink));
    if (text && edit)
        edit(text);
    /* compiling takes longer than running, and unoptimised nothing undefined is dropped */
    s->lib = text ? cxx_build(text, strlen(text), "-O0 " NNC_TEST_CXX_TRAPS) : NULL;
    nnc_free(text);
    if (s->lib) {
        void *p = dlsym(s->lib, "shim_launch");
        memcpy(&s->launch, &p, sizeof p);
    }
    CHECK(s->launch != NULL);
    return s->launch != NULL;
}

/* ---- running ---- */

enum { PAGE = 4096 };

void *ct_guarded(size_t bytes, void **base)
{
    size_t size = nnc_align_up((int64_t)bytes, PAGE) + 2 * PAGE;
    char *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + PAGE, size - 2 * PAGE, PROT_READ | PROT_WRITE) != 0)
        abort();
    memset(p + PAGE, 0xa5, size - 2 * PAGE);
    *base = p;
    return p + size - PAGE - nnc_align_up((int64_t)bytes, 16);
}

void ct_unguard(void *base, size_t bytes)
{
    munmap(base, nnc_align_up((int64_t)bytes, PAGE) + 2 * PAGE);
}

/* got is right when it is as near to the answer in f64 as f32 arithmetic can be. Allowed are a few ulps for each operation, and four
 * times the error of the interpreter in f32. f64 has no wider answer: its limit leaves room for recurrences of sums that cancel, and is
 * far below f32's rounding. */
static bool close_to(nnc_dtype d, const void *got, const void *f32, const void *f64, int64_t i)
{
    if (!nnc_is_float(d))
        return nnc_get_i64(d, got, i) == nnc_get_i64(d, f32, i);
    double a = nnc_get_f64(d, got, i), r = nnc_get_f64(d, f32, i);
    double w = f64 ? ((const double *)f64)[i] : r;
    double eps = d == DT_bf16 ? 0x1p-7 : d == DT_f16 ? 0x1p-10 : d == DT_f64 ? 1e-11 : 2e-6;
    return (isnan(a) && isnan(r)) || a == r ||
           fabs(a - w) <= eps * fabs(w) + eps * 4 + 4 * fabs(r - w);
}

typedef struct args {
    int n;
    const nnc_kbuf *buf[64];
    void *got[65], *base[65], *want[64], *wide[64]; /* wide: f64, NULL where there is none */
    size_t bytes[65];
} args;

static void make_args(args *a, const nnc_kernel *k)
{
    for (int i = 0; i < k->n_buf && a->n < 64; i++) {
        if (k->buf[i].role == KB_tmp)
            continue;
        int j = a->n++;
        a->buf[j] = &k->buf[i];
        a->bytes[j] = (size_t)(k->buf[i].numel * nnc_dtype_size(k->buf[i].dtype));
        a->got[j] = ct_guarded(a->bytes[j], &a->base[j]);
        a->want[j] = nnc_aligned_alloc(64, a->bytes[j] + 64);
    }
    a->bytes[a->n] = (size_t)k->grid.work;
    a->got[a->n] = ct_guarded((size_t)k->grid.work, &a->base[a->n]);
}

/* As they are before a launch. */
static void fill_args(args *a, const nnc_kernel *k, uint64_t seed)
{
    for (int j = 0; j < a->n; j++)
        gen_fill_operand(a->buf[j], seed + (uint64_t)(a->buf[j] - k->buf), a->got[j]);
    memset(a->got[a->n], 0xa5, a->bytes[a->n]);
}

static void free_args(args *a)
{
    for (int i = 0; i <= a->n; i++) {
        ct_unguard(a->base[i], a->bytes[i]);
        if (i < a->n) {
            nnc_free(a->want[i]);
            nnc_free(a->wide[i]);
        }
    }
}

static void find_answers(const nnc_kernel *k, args *a)
{
    nnc_arena arena;
    nnc_arena_init(&arena, 0);
    nnc_kernel *w = gen_widened(k, &arena);
    for (int j = 0; j < a->n; j++) {
        memcpy(a->want[j], a->got[j], a->bytes[j]);
        a->wide[j] = w ? gen_widen(a->buf[j], a->want[j]) : NULL;
    }
    gen_interpret(k, a->want);
    if (w)
        gen_interpret(w, a->wide);
    nnc_arena_deinit(&arena);
}

/* A kernel that leaves its buffers, or does what C leaves undefined, is stopped by a signal. */
static sigjmp_buf rescue;
static void stopped(int sig)
{
    siglongjmp(rescue, sig);
}

static const char *launch_one(ct_set *s, void (*thunk)(void *const *), const nnc_kernel *k,
    void *const *arg, bool finish, int reverse)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP};
    struct sigaction old[NNC_COUNT(signals)], now = {.sa_handler = stopped};
    for (size_t i = 0; i < NNC_COUNT(signals); i++)
        sigaction(signals[i], &now, &old[i]);
    const char *volatile bad;
    int sig = sigsetjmp(rescue, 1);
    long long blocks = finish ? k->grid.finish : k->grid.blocks;
    if (sig == 0)
        bad = s->launch(thunk, arg, blocks, s->first, s->count ? s->count : blocks, k->grid.threads,
            finish ? 0 : k->grid.shared, reverse);
    else
        bad = sig == SIGILL || sig == SIGTRAP ? "does what C++ leaves undefined"
                                              : "leaves its buffers";
    for (size_t i = 0; i < NNC_COUNT(signals); i++)
        sigaction(signals[i], &old[i], NULL);
    return bad;
}

static const char *launch(ct_set *s, const nnc_kernel *k, void *const *arg, int reverse)
{
    char name[200];
    void (*thunk)(void *const *);
    for (int finish = 0; finish <= (k->grid.finish > 0); finish++) {
        snprintf(name, sizeof name, "%s%s_thunk", k->name, finish ? "_finish" : "");
        void *p = dlsym(s->lib, name);
        if (!p)
            return "no such kernel";
        memcpy(&thunk, &p, sizeof p);
        const char *bad = launch_one(s, thunk, k, arg, finish, reverse);
        if (bad)
            return bad;
    }
    return NULL;
}

const char *ct_call(ct_set *s, int i, void *const *arg)
{
    return launch(s, s->k[i], arg, 0);
}

static bool is_right(const args *a, const nnc_kernel *k, uint64_t seed, int b, int64_t i)
{
    const nnc_dtype d = a->buf[b]->dtype;
    return close_to(d, a->got[b], a->want[b], a->wide[b], i) ||
           (nnc_is_float(d) &&
               gen_is_rounding(k, seed, a->buf[b], i, nnc_get_f64(d, a->got[b], i)));
}

static bool compare(const args *a, const nnc_kernel *k, uint64_t seed, char why[256])
{
    for (int b = 0; b < a->n; b++)
        for (int64_t i = 0; i < a->buf[b]->numel; i++)
            if (!is_right(a, k, seed, b, i)) {
                snprintf(why, 256, "%s: argument %d (%s) [%lld] is %.9g, interpreted %.9g", k->name,
                    b, nnc_dtype_name(a->buf[b]->dtype), (long long)i,
                    nnc_get_f64(a->buf[b]->dtype, a->got[b], i),
                    nnc_get_f64(a->buf[b]->dtype, a->want[b], i));
                return false;
            }
    for (int b = 0; b <= a->n; b++) /* what is left of the last 16 bytes */
        for (size_t i = a->bytes[b]; i < (size_t)nnc_align_up((int64_t)a->bytes[b], 16); i++)
            if (((unsigned char *)a->got[b])[i] != 0xa5) {
                snprintf(why, 256, "%s: writes past argument %d", k->name, b);
                return false;
            }
    return true;
}

/* Results over the operands that they may overwrite, as plans place them. The operands are as before at the end. */
static const char *launch_in_place(ct_set *s, const nnc_kernel *k, args *a, int reverse)
{
    void *arg[NNC_COUNT(a->got)];
    int over[NNC_COUNT(a->got)];
    bool taken[NNC_COUNT(a->got)] = {false};
    memcpy(arg, a->got, sizeof arg);
    for (int o = 0; o < a->n; o++) {
        over[o] = -1;
        for (int i = 0; i < a->n && over[o] < 0; i++)
            if (!taken[i] && nnc_kernel_in_place(k, i, o))
                over[o] = i;
        if (over[o] >= 0) {
            taken[over[o]] = true;
            arg[o] = a->got[over[o]];
        }
    }
    const char *bad = launch(s, k, arg, reverse);
    for (int o = 0; o < a->n; o++)
        if (over[o] >= 0) {
            memcpy(a->got[o], a->got[over[o]], a->bytes[o]);
            memcpy(a->got[over[o]], a->want[over[o]], a->bytes[over[o]]);
        }
    return bad;
}

bool ct_run(ct_set *s, int i, uint64_t seed, char why[256])
{
    const nnc_kernel *k = s->k[i];
    bool ok = true;
    args a = {0};
    make_args(&a, k);
    fill_args(&a, k, seed);
    find_answers(k, &a);
    for (int reverse = 0; reverse < 2 && ok; reverse++) {
        if (reverse)
            fill_args(&a, k, seed);
        const char *bad = launch_in_place(s, k, &a, reverse);
        if (bad)
            snprintf(why, 256, "%s: %s", k->name, bad);
        ok = !bad && compare(&a, k, seed, why);
    }
    free_args(&a);
    return ok;
}

int ct_run_all(ct_set *s, uint64_t seed)
{
    int good = 0;
    char why[256] = "";
    for (int i = 0; i < s->n; i++) {
        if (ct_run(s, i, seed, why)) {
            good++;
            continue;
        }
        nnc_text t = {0};
        nnc_kernel_print(&t, s->k[i]);
        test_fail(__FILE__, __LINE__, "%s", why);
        fprintf(stderr, "%s\n", nnc_text_str(&t));
        nnc_text_deinit(&t);
        break;
    }
    return good;
}

void ct_all_agree(ct_set *s)
{
    enum { FEW = 4 };
    const int all = s->n;
    s->n = 0;
    for (int i = 0; i < all; i++)
        if (all < FEW || test_takes((uint64_t)i, 3))
            s->k[s->n++] = s->k[i];
    const int good = ct_build(s, NULL) ? ct_run_all(s, test_seed) : 0;
    CHECK(good == s->n || !*NNC_TEST_CXX);
    ct_set_deinit(s);
}

const nnc_kernel *ct_add_one(ct_set *s, const char *fmt, ...)
{
    char text[1000];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const int n = s->n;
    ct_add_text(s, text);
    CHECK_INT(s->n, n + 1);
    return s->n > n ? s->k[n] : NULL;
}

/* tests/llvm/kb.c -- see kb.h */
#include <pthread.h>
#include "kb.h"
#include "gen/rounding.h"

#include <math.h>

void kb_init(kb *b, const char *name)
{
    memset(b, 0, sizeof *b);
    b->k = (nnc_kernel){.name = name, .buf = b->buf, .stage = b->stage, .ins = b->ins};
}

int kb_axis(kb *b, nnc_kaxis_kind kind, int64_t extent)
{
    int a = b->k.n_axis++;
    b->k.axis[a] = (nnc_kaxis){kind, extent, "a"};
    b->k.n_outer += kind == KA_outer;
    return a;
}

int kb_buf(kb *b, nnc_kbuf_role role, nnc_dtype d, int64_t numel)
{
    b->buf[b->k.n_buf] = (nnc_kbuf){role, d, numel, "b"};
    if (role == KB_tmp)
        b->k.scratch_bytes += nnc_align_up(numel * nnc_dtype_size(d), 64);
    return b->k.n_buf++;
}

static void close_stage(kb *b)
{
    nnc_kstage *s = &b->stage[b->k.n_stage - 1];
    if (s->post0 < 0)
        s->body1 = s->post0 = b->k.n_ins;
    s->post1 = b->k.n_ins;
}

void kb_stage(kb *b, uint32_t axes)
{
    if (b->k.n_stage)
        close_stage(b);
    b->stage[b->k.n_stage++] = (nnc_kstage){axes, b->k.n_ins, 0, -1, 0};
}

void kb_post(kb *b)
{
    nnc_kstage *s = &b->stage[b->k.n_stage - 1];
    s->body1 = s->post0 = b->k.n_ins;
}

static int add(kb *b, nnc_kins ins)
{
    ins.lo = 1;
    ins.hi = 0;
    ins.maybe_nan = true;
    b->ins[b->k.n_ins] = ins;
    return b->k.n_ins++;
}

int kb_fconst(kb *b, nnc_dtype d, double v)
{
    return add(b, (nnc_kins){.op = KO_const, .dtype = d, .f = v, .arg = {-1, -1, -1}});
}

int kb_iconst(kb *b, nnc_dtype d, int64_t v)
{
    return add(b, (nnc_kins){.op = KO_const, .dtype = d, .i = v, .arg = {-1, -1, -1}});
}

int kb_index(kb *b, int axis)
{
    return add(b, (nnc_kins){.op = KO_index, .dtype = DT_i64, .i = axis, .arg = {-1, -1, -1}});
}

static nnc_dtype loaded(nnc_dtype d)
{
    return d == DT_f16 || d == DT_bf16 ? DT_f32 : d;
}

int kb_load(kb *b, int buf, nnc_affine at)
{
    return add(b, (nnc_kins){.op = KO_load,
                      .dtype = loaded(b->buf[buf].dtype),
                      .buf = (int16_t)buf,
                      .at = at,
                      .arg = {-1, -1, -1}});
}

int kb_load_if(kb *b, int buf, nnc_affine at, int fill, const nnc_kguard *g, int n)
{
    int i = kb_load(b, buf, at);
    b->ins[i].arg[1] = fill;
    b->ins[i].n_guard = (uint8_t)n;
    b->ins[i].guard = &b->guard[b->n_guard];
    memcpy(&b->guard[b->n_guard], g, (size_t)n * sizeof *g);
    b->n_guard += n;
    return i;
}

int kb_load_at(kb *b, int buf, nnc_affine at, int index, int64_t scale, int64_t limit)
{
    int i = kb_load(b, buf, at);
    b->ins[i].arg[0] = index;
    b->ins[i].scale = scale;
    b->ins[i].limit = limit;
    return i;
}

void kb_store(kb *b, int buf, nnc_affine at, int value)
{
    add(b, (nnc_kins){.op = KO_store,
               .dtype = b->ins[value].dtype,
               .buf = (int16_t)buf,
               .at = at,
               .arg = {value, -1, -1}});
}

int kb_op(kb *b, nnc_sop op, nnc_dtype d, int x, int y, int z)
{
    return add(b, (nnc_kins){.op = KO_sop, .dtype = d, .sop = op, .cast_to = d, .arg = {x, y, z}});
}

int kb_reduce(kb *b, nnc_kred r, nnc_dtype d, int x, int mask)
{
    return add(b, (nnc_kins){.op = KO_reduce, .dtype = d, .sop = r, .arg = {x, mask, -1}});
}

void kb_done(kb *b, int vec_axis, int width, int64_t chunk)
{
    close_stage(b);
    int64_t domain = 1;
    for (int a = 0; a < b->k.n_outer; a++) {
        int64_t n = b->k.axis[a].extent;
        if (a == vec_axis)
            n = chunk > 0 ? (n + chunk - 1) / chunk : 1;
        domain *= n;
    }
    b->k.sched = (nnc_kschedule){.domain = domain, .grain = 1};
    if (vec_axis >= 0)
        nnc_sched_put(&b->k.sched, KD_vector, vec_axis, width);
    if (chunk > 0)
        nnc_sched_put(&b->k.sched, KD_tile, vec_axis, chunk);
}

const nnc_emitter *kb_emitter(void)
{
    const char *why = "";
    const nnc_emitter *e = nnc_plugin("llvm", "nnc_emitter_llvm", &why);
    if (!e)
        test_skip("no LLVM plug-in: %s", why);
    return e;
}

static nnc_target host;

static void find_host(void)
{
    CHECK_OK(nnc_target_host(&host, 0, 1, true, test_sink));
}

const nnc_target *kb_host(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_host);
    return &host;
}

nnc_target kb_plain(void)
{
    nnc_target t = *kb_host();
    if (!nnc_target_core(t.core))
        t.cpu = "x86-64";
    t.features = "";
    t.vector_bits = 128;
    t.fma = t.f16c = t.avx512_bf16 = false;
    return t;
}

bool kb_compile(const kb *b, const nnc_target *t, kb_code *c)
{
    return kb_compile_kernel(&b->k, t, c);
}

bool kb_compile_kernel(const nnc_kernel *k, const nnc_target *t, kb_code *c)
{
    const nnc_emitter *e = kb_emitter();
    const char *why = "";
    memset(c, 0, sizeof *c);
    if (!e)
        return false;
    nnc_status s = e->emit(&k, 1, t, EMIT_object, &c->bytes, &c->n, test_sink);
    CHECK_OK(s);
    if (s != NNC_OK)
        return false;
    c->o = nnc_object_load(c->bytes, c->n, &why);
    if (!c->o) {
        test_fail(__FILE__, __LINE__, "%s: %s", k->name, why);
        kb_free(c);
        return false;
    }
    void *p = nnc_object_symbol(c->o, k->name);
    memcpy(&c->fn, &p, sizeof p);
    CHECK(p != NULL);
    return p != NULL;
}

void kb_free(kb_code *c)
{
    nnc_object_unload(c->o);
    nnc_free(c->bytes);
    memset(c, 0, sizeof *c);
}

/* ---- running both ways -------------------------------------------------------------------------------------------- */

#define PAD 64 /* bytes after each buffer that must stay as they were */

static size_t bytes_of(const nnc_kbuf *b)
{
    return (size_t)(b->numel * nnc_dtype_size(b->dtype));
}

static bool same(nnc_dtype d, const void *x, const void *y, int64_t i, double rel, double abs)
{
    if (!nnc_is_float(d))
        return nnc_get_i64(d, x, i) == nnc_get_i64(d, y, i);
    double a = nnc_get_f64(d, x, i), r = nnc_get_f64(d, y, i);
    return (isnan(a) && isnan(r)) || a == r || fabs(a - r) <= rel * fabs(r) + abs;
}

static void run_code(const kb *b, const kb_code *c, void *const *args, void *scratch, int64_t split)
{
    int64_t n = b->k.sched.domain;
    for (int64_t u = 0; u < n; u += split)
        c->fn(args, u, u + split < n ? u + split : n, scratch);
}

static bool compare(const kb *b, void **got, void **want, double rel, double abs)
{
    for (int i = 0, n = 0; i < b->k.n_buf; i++) {
        const nnc_kbuf *f = &b->buf[i];
        if (f->role == KB_tmp)
            continue;
        for (int64_t j = 0; j < f->numel; j++)
            if (!same(f->dtype, got[n], want[n], j, rel, abs)) {
                test_fail(__FILE__, __LINE__, "%s: buffer %d (%s) [%lld] is %.9g, not %.9g",
                    b->k.name, i, nnc_dtype_name(f->dtype), (long long)j,
                    nnc_get_f64(f->dtype, got[n], j), nnc_get_f64(f->dtype, want[n], j));
                return false;
            }
        if (memcmp((char *)got[n] + bytes_of(f), (char *)want[n] + bytes_of(f), PAD)) {
            test_fail(__FILE__, __LINE__, "%s: writes beyond buffer %d", b->k.name, i);
            return false;
        }
        n++;
    }
    return true;
}

bool kb_check(const kb *b, const nnc_target *t, double rel, double abs, int64_t split)
{
    kb_code c;
    void *got[16] = {0}, *want[16] = {0}, *third[16] = {0};
    int n = 0;
    if (!kb_compile(b, t, &c))
        return false;
    for (int i = 0; i < b->k.n_buf; i++) {
        size_t size = bytes_of(&b->buf[i]) + PAD;
        if (b->buf[i].role == KB_tmp)
            continue;
        got[n] = nnc_aligned_alloc(64, size);
        want[n] = nnc_aligned_alloc(64, size);
        memset(got[n], 0x55, size);
        gen_fill_operand(&b->buf[i], test_seed + (uint64_t)i, got[n]);
        memcpy(want[n], got[n], size);
        third[n] = nnc_aligned_alloc(64, size);
        memcpy(third[n], got[n], size);
        n++;
    }
    void *scratch = nnc_aligned_alloc(64, (size_t)b->k.scratch_bytes + 64);
    run_code(b, &c, got, scratch, split);
    kb_reference(&b->k, want, scratch);
    bool ok = compare(b, got, want, rel, abs);
    nnc_interp *s = nnc_interp_create(&b->k); /* nnc's own interpreter: the same contract */
    if (ok && s) {
        for (int64_t u = 0; u < b->k.sched.domain; u += split)
            nnc_interp_run(s, third, u, nnc_min64(u + split, b->k.sched.domain), scratch);
        ok = compare(b, third, want, rel, abs);
        if (!ok)
            test_fail(__FILE__, __LINE__, "(interpreter)");
    }
    CHECK(s != NULL);
    nnc_interp_destroy(s);
    for (int i = 0; i < n; i++) {
        nnc_free(got[i]);
        nnc_free(want[i]);
        nnc_free(third[i]);
    }
    nnc_free(scratch);
    kb_free(&c);
    return ok;
}

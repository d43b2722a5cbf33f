/* tests/gen/hostile.c -- see hostile.h. */
#include "gen/hostile.h"

#include <ctype.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, MOST_BYTES = 1 << 20, MOST_WORK = 300000 };

/* ---- texts ---- */

static const char *const graphs[] = {
    "%x = input : f32[40,24]\n%y = transpose %x {perm=[1,0]}\nreturn %y",
    "%x = input : f32[6,37]\n%y = softmax %x {axis=1}\nreturn %y",
    "%x = input : f32[2,5,9,9]\n%y = maxpool %x {kernel=[3,3], strides=[2,2], "
    "pads=[1,1,1,1]}\nreturn %y",
    "%x = input : f32[9,20]\n%i = input : i64[5]\n%y = gather %x, %i {axis=0}\nreturn %y",
    "%a = input : f16[4,5]\n%b = input : f16[4,7]\n%y = concat %a, %b {axis=1}\nreturn %y",
    "%x = input : i32[8,33]\n%y = argmax %x {axis=1}\nreturn %y",
    "%x = input : f32[7,12]\n%y = pad %x {pads=[1,2,3,0], value=2}\nreturn %y",
    "%x = input : f64[50,6]\n%y = reduce_sum %x {axes=[0]}\nreturn %y",
    "%x = input : u8[300]\n%y = flip %x {axes=[0]}\nreturn %y",
    "%x = input : f32[2,6,5,5]\n%y = avgpool %x {kernel=[2,2], pads=[0,0,1,1]}\nreturn %y",
    "%x = input : f32[30]\n%c = cast %x {to=i16}\n%s = sin %x\n%y = cast %c {to=bool}\nreturn %y, "
    "%s",
    "%q = input : f32[3,4]\n%k = input : f32[4,4]\n%v = input : f32[4,5]\n%y = fused %q, %k, %v {\n"
    "%a = input : f32[3,4]\n%b = input : f32[4,4]\n%c = input : f32[4,5]\n%s = matmul %a, %b\n"
    "%m = reduce_max %s {axes=[1], keepdims=1}\n%p = sub %s, %m\n%z = matmul %p, %c\nreturn %z }\n"
    "return %y",
};

static bool print_one(
    nnc_text *t, uint64_t seed, const nnc_target *target, nnc_arena *a, nnc_sink *sink)
{
    char text[600];
    nnc_scan s;
    const nnc_kernel *k = NULL;
    snprintf(text, sizeof text, "graph @t {\n%s }", graphs[seed % NNC_COUNT(graphs)]);
    nnc_scan_init(&s, "t", text, strlen(text));
    nnc_graph *g = nnc_graph_parse(&s, sink);
    for (uint32_t i = 0; g && i < g->n_node && !k; i++)
        if (nnc_op_class((nnc_op)g->node[i].op) != CL_leaf)
            k = nnc_lower(g, &g->node[i], target, MATH_ulp2, a, sink);
    if (k)
        nnc_kernel_print(t, k);
    nnc_graph_destroy(g);
    return k != NULL;
}

/* ---- changes ---- */

static const char *const numbers[] = {"0", "1", "-1", "2", "3", "7", "8", "16", "31", "64", "100",
    "4096", "2147483647", "2147483648", "-2147483648", "4294967296", "9223372036854775807",
    "-9223372036854775808", "-9223372036854775807", "4611686018427387904", "-4611686018427387904",
    "1152921504606846976", "inf", "nan", "1e308", "-0"};
static const char *const words[] = {"f64", "f32", "f16", "bf16", "i8", "i64", "u64", "bool", "i0",
    "i1", "m0", "r0", "r1", "x0", "y0", "t0", "in", "out", "tmp", "outer", "map", "reduce", "sum",
    "argmax", "max", "prod", "none", "post", "stage", "exp", "pow", "select", "and", "not", "cast",
    "div", "mod", "%0", "%1", "%2", "%3", "%4", "%5"};

/* Replaces the word or number that begins at or after a random place. */
static void change(nnc_text *t, nnc_text *out, uint64_t key, uint64_t *at)
{
    const char *s = nnc_text_str(t);
    size_t from = nnc_rng_u32(key, (*at)++) % (t->n + 1), to;
    while (from < t->n && !isalnum((unsigned char)s[from]))
        from++;
    while (from > 0 &&
           (isalnum((unsigned char)s[from - 1]) || s[from - 1] == '-' || s[from - 1] == '%'))
        from--;
    for (to = from; to < t->n &&
                    (isalnum((unsigned char)s[to]) || s[to] == '-' || s[to] == '%' || s[to] == '.');
         to++)
        ;
    bool number = from < t->n && (isdigit((unsigned char)s[from]) || s[from] == '-');
    uint32_t r = nnc_rng_u32(key, (*at)++);
    nnc_putn(out, s, from);
    nnc_puts(out, number ? numbers[r % NNC_COUNT(numbers)] : words[r % NNC_COUNT(words)]);
    nnc_puts(out, s + to);
}

/* Times an instruction runs, over all of them; too many: MOST_WORK + 1. */
static int64_t work(const nnc_kernel *k)
{
    int64_t n = k->n_ins, bytes = 0;
    for (int a = 0; a < k->n_axis; a++)
        if (!nnc_mul_ok(n, k->axis[a].extent, &n) || n > MOST_WORK)
            return MOST_WORK + 1;
    for (int b = 0; b < k->n_buf; b++)
        if (k->buf[b].numel > MOST_BYTES || (bytes += k->buf[b].numel * 8) > MOST_BYTES)
            return MOST_WORK + 1;
    return n;
}

nnc_kernel *gen_hostile(
    uint64_t seed, const nnc_target *t, nnc_text *text, nnc_arena *a, nnc_sink *sink)
{
    nnc_text other = {0};
    nnc_kernel *k = NULL;
    nnc_scan s;
    uint64_t key = nnc_rng_key("hostile", seed), at = 0;
    nnc_text_clear(text);
    if (print_one(text, nnc_rng_u32(key, at++), t, a, sink)) {
        for (uint32_t n = 1 + nnc_rng_u32(key, at++) % 3; n > 0; n--) {
            nnc_text_clear(&other);
            change(text, &other, key, &at);
            nnc_text_clear(text);
            nnc_putn(text, nnc_text_str(&other), other.n);
        }
        nnc_scan_init(&s, "k", nnc_text_str(text), text->n);
        k = nnc_schedule_parse(&s, a, sink);
    }
    nnc_text_deinit(&other);
    return k && work(k) <= MOST_WORK ? k : NULL;
}

/* ---- memory ---- */

static void *guarded(gen_guarded *g, int i, int64_t bytes)
{
    size_t body = (size_t)nnc_align_up(bytes ? bytes : 1, PAGE);
    g->size[i] = body + 2 * PAGE;
    char *p = mmap(NULL, g->size[i], PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    g->base[i] = p;
    if (mprotect(p + PAGE, body, PROT_READ | PROT_WRITE))
        return NULL;
    return p + PAGE + body - nnc_align_up(bytes ? bytes : 1, 64);
}

bool gen_guard(gen_guarded *g, const nnc_kernel *k)
{
    *g = (gen_guarded){0};
    for (int b = 0; b < k->n_buf; b++) {
        if (k->buf[b].role == KB_tmp)
            continue;
        if (g->n == 64)
            return false;
        int64_t bytes = k->buf[b].numel * nnc_dtype_size(k->buf[b].dtype);
        if (!(g->arg[g->n] = guarded(g, g->n, bytes)))
            return false;
        memset(g->arg[g->n++], 1, (size_t)bytes); /* a bool is 0 or 1, an index small */
    }
    return (g->scratch = guarded(g, 64, k->scratch_bytes)) != NULL;
}

void gen_unguard(gen_guarded *g)
{
    for (int i = 0; i < 65; i++)
        if (g->base[i])
            munmap(g->base[i], g->size[i]);
}

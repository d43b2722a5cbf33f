/* tests/gen/window.c -- random windows: depthwise convolutions and pooling of every stride, dilation, border, memory order and
 * element type, with ops that often follow them. */
#include "gen.h"

#include <string.h>

typedef struct dice {
    uint64_t s;
} dice;

static int64_t roll(dice *d, int64_t n)
{
    d->s = d->s * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((d->s >> 33) % (uint64_t)n);
}

typedef struct window {
    int rank; /* of the picture: 1..3 */
    int64_t n, c, each, in[3], k[3], stride[3], dil[3], lo[3], hi[3], out[3];
} window;

static void draw(dice *d, window *w)
{
    static const int64_t kernels[] = {3, 5, 2, 3, 1, 7, 4};
    static const int64_t strides[] = {1, 1, 1, 2, 2, 2, 3, 4};
    bool same = roll(d, 2); /* borders that keep the picture's size */
    w->rank = roll(d, 8) == 0 ? 1 : roll(d, 12) == 0 ? 3 : 2;
    w->n = 1 + roll(d, 2);
    w->c = roll(d, 3) ? 8 * (1 + roll(d, 3)) : roll(d, 6) ? 1 + roll(d, 13) : 1;
    w->each = roll(d, 5) ? 1 : 2 + roll(d, 3);
    for (int i = 0; i < w->rank; i++) {
        w->k[i] = i && roll(d, 4) ? w->k[0] : kernels[roll(d, w->rank == 3 ? 4 : 7)];
        w->stride[i] = i && roll(d, 4) ? w->stride[0] : strides[roll(d, 8)];
        w->dil[i] = roll(d, 5) ? 1 : 2 + roll(d, 2);
        int64_t reach = (w->k[i] - 1) * w->dil[i] + 1;
        int64_t edge = roll(d, 8) ? nnc_min64(reach, 4) : reach + 3; /* wider than the window */
        w->lo[i] = same ? reach / 2 : roll(d, edge);
        w->hi[i] = same ? (reach - 1) / 2 : roll(d, edge);
        w->in[i] = reach + roll(d, w->rank == 3 ? 5 : 17);
        if (roll(d, 6) == 0) /* no larger than what it takes */
            w->in[i] = nnc_max64(1, reach - w->lo[i] - w->hi[i]) + roll(d, 2);
        w->out[i] = (w->in[i] + w->lo[i] + w->hi[i] - reach) / w->stride[i] + 1;
    }
}

static void list(nnc_text *t, const char *name, const int64_t *v, int n, const int64_t *more)
{
    nnc_printf(t, "%s=[", name);
    for (int i = 0; i < (more ? 2 * n : n); i++)
        nnc_printf(t, "%s%lld", i ? "," : "", (long long)(i < n ? v[i] : more[i - n]));
    nnc_puts(t, "]");
}

static void dims(nnc_text *t, const char *type, int64_t n, int64_t c, const int64_t *d, int rank)
{
    nnc_printf(t, "%s[%lld,%lld", type, (long long)n, (long long)c);
    for (int i = 0; i < rank; i++)
        nnc_printf(t, ",%lld", (long long)d[i]);
    nnc_puts(t, "]");
}

/* Dimensions by decreasing stride: channels last, or of weights channels innermost. */
static void order(nnc_text *t, int rank, bool weights)
{
    static const char *const last[2][4] = {
        {"", "{0,2,1}", "{0,2,3,1}", "{0,2,3,4,1}"}, {"", "{1,2,0}", "{2,3,1,0}", "{2,3,4,1,0}"}};
    nnc_puts(t, last[weights][rank]);
}

static void put_conv(nnc_text *t, dice *d, const window *w, const char *type, bool last)
{
    bool bias = roll(d, 2);
    nnc_puts(t, "%w = input : ");
    dims(t, type, w->c * w->each, 1, w->k, w->rank);
    if (roll(d, 2))
        order(t, w->rank, true);
    if (bias)
        nnc_printf(t, "\n%%b = input : %s[%lld]", type, (long long)(w->c * w->each));
    nnc_printf(t, "\n%%c = conv %%x, %%w%s {groups=%lld, ", bias ? ", %b" : "", (long long)w->c);
    list(t, "strides", w->stride, w->rank, NULL);
    nnc_puts(t, ", ");
    list(t, "pads", w->lo, w->rank, w->hi);
    nnc_puts(t, ", ");
    list(t, "dilations", w->dil, w->rank, NULL);
    nnc_puts(t, "} : ");
    dims(t, type, w->n, w->c * w->each, w->out, w->rank);
    if (last)
        order(t, w->rank, false);
    nnc_puts(t, "\n");
}

static bool is_int(const char *type)
{
    return strchr("iu", type[0]) != NULL;
}

/* No window of a pooling stands in the border alone. */
static void lean_in(window *w, int i)
{
    int64_t most = (w->k[i] - 1) * w->dil[i];
    w->lo[i] = nnc_min64(w->lo[i], most);
    w->hi[i] = nnc_min64(w->hi[i], most);
}

static void put_pool(nnc_text *t, dice *d, window *w, const char *type, bool last)
{
    bool max = is_int(type) || roll(d, 2), ceil = roll(d, 3) == 0;
    for (int i = 0; i < w->rank; i++) {
        int64_t st = w->stride[i];
        w->dil[i] = max ? w->dil[i] : 1; /* an avgpool has none */
        lean_in(w, i);
        int64_t room = w->in[i] + w->lo[i] + w->hi[i] - (w->k[i] - 1) * w->dil[i] - 1;
        w->out[i] = (ceil ? nnc_ceildiv(room, st) : room / st) + 1;
        if (ceil && (w->out[i] - 1) * st >= w->in[i] + w->lo[i])
            w->out[i]--;
    }
    nnc_printf(t, "%%c = %s %%x {", max ? "maxpool" : "avgpool");
    list(t, "kernel", w->k, w->rank, NULL);
    nnc_puts(t, ", ");
    list(t, "strides", w->stride, w->rank, NULL);
    nnc_puts(t, ", ");
    list(t, "pads", w->lo, w->rank, w->hi);
    if (max) {
        nnc_puts(t, ", ");
        list(t, "dilations", w->dil, w->rank, NULL);
    }
    if (ceil)
        nnc_puts(t, ", ceil_mode=1");
    if (!max && roll(d, 2))
        nnc_puts(t, ", count_include_pad=1");
    nnc_puts(t, "} : ");
    dims(t, type, w->n, w->c, w->out, w->rank);
    if (last)
        order(t, w->rank, false);
    nnc_puts(t, "\n");
}

/* %x, computed from inputs. */
static void put_producer(nnc_text *t, dice *d, const window *w, const char *type, bool last)
{
    static const char *const act[] = {"relu", "relu6", "silu", "sin", "abs", "hardswish"};
    int64_t one[3] = {1, 1, 1}, kind = roll(d, 3);
    nnc_puts(t, "%a = input : ");
    dims(t, type, w->n, w->c, w->in, w->rank);
    if (last)
        order(t, w->rank, false);
    if (kind > 0) {
        nnc_puts(t, "\n%q = input : ");
        dims(t, type, 1, w->c, kind == 1 ? one : w->in, w->rank);
    }
    const char *in = kind ? "q" : "a";
    if (kind)
        nnc_printf(t, "\n%%%s = %s %%a, %%q", kind == 1 ? "p" : "x", roll(d, 2) ? "add" : "mul");
    in = kind == 1 ? "p" : in;
    if (kind < 2)
        nnc_printf(t, "\n%%x = %s %%%s", act[roll(d, is_int(type) ? 1 : 6)], in);
}

static void window_graph(nnc_text *t, uint64_t seed, bool pool, bool fed)
{
    static const char *const types[] = {
        "f32", "f32", "f32", "f16", "f16", "bf16", "bf16", "f64", "i32", "i64", "i8", "u8"};
    static const char *const after[] = {
        "%y = relu %c", "%y = silu %c", "%y = hardswish %c", "%y = relu6 %c"};
    dice d = {seed * 0x9e3779b97f4a7c15u + 1};
    window w = {0};
    for (int i = 0; i < 4; i++)
        roll(&d, 2);
    draw(&d, &w);
    for (int i = 0; pool && i < w.rank; i++) {
        lean_in(&w, i);
        w.each = 1;
        w.in[i] = nnc_max64(w.in[i], w.dil[i]);
    }
    bool last = roll(&d, 3) > 0;
    const char *type = types[roll(&d, roll(&d, 3) ? 7 : 12)];
    nnc_puts(t, fed ? "graph @window {\n" : "graph @window {\n%x = input : ");
    if (fed)
        put_producer(t, &d, &w, type, last);
    else
        dims(t, type, w.n, w.c, w.in, w.rank);
    if (last && !fed)
        order(t, w.rank, false);
    nnc_puts(t, "\n");
    if (pool)
        put_pool(t, &d, &w, type, last);
    else
        put_conv(t, &d, &w, type, last);
    int64_t end = is_int(type) ? 4 + roll(&d, 2) : roll(&d, 6);
    if (end < 4) {
        nnc_printf(t, "%s\nreturn %%y }\n", after[end]);
    } else if (end == 4) {
        nnc_puts(t, "%r = input : ");
        dims(t, type, w.n, w.c * w.each, w.out, w.rank);
        if (last)
            order(t, w.rank, false);
        nnc_puts(t, "\n%s = add %c, %r\n%y = relu %s\nreturn %y }\n");
    } else {
        nnc_puts(t, "return %c }\n");
    }
}

void gen_window(nnc_text *t, uint64_t seed, bool pool)
{
    window_graph(t, seed, pool, false);
}

void gen_fed_window(nnc_text *t, uint64_t seed, bool pool)
{
    window_graph(t, seed, pool, true);
}

/* ---- windows among movement --------------------------------------------------------------------------------------------- */

typedef struct shape {
    int rank;
    int64_t dim[5];
} shape;

typedef struct mover {
    nnc_text *t;
    dice *d;
    const char *type;
    int n; /* values so far: %m0, %m1, ... */
} mover;

static void put_list(nnc_text *t, const char *name, const int64_t *v, int n)
{
    list(t, name, v, n, NULL);
}

static int put_input(mover *m, const shape *s)
{
    nnc_printf(m->t, "%%m%d = input : %s[", m->n, m->type);
    for (int i = 0; i < s->rank; i++)
        nnc_printf(m->t, "%s%lld", i ? "," : "", (long long)s->dim[i]);
    nnc_puts(m->t, "]\n");
    return m->n++;
}

static int source(mover *m, const shape *s, int depth);

static int put_pad(mover *m, const shape *s, int depth)
{
    static const char *const modes[] = {"", "", ", value=1.5", ", mode=edge", ", mode=reflect"};
    int64_t pads[10] = {0};
    shape from = *s;
    for (int i = 0; i < s->rank; i++) {
        int64_t most = nnc_min64(3, (s->dim[i] - 1) / 3); /* reflect: less than the operand */
        pads[i] = roll(m->d, most + 1);
        pads[s->rank + i] = roll(m->d, most + 1);
        from.dim[i] -= pads[i] + pads[s->rank + i];
    }
    int x = source(m, &from, depth);
    nnc_printf(m->t, "%%m%d = pad %%m%d {", m->n, x);
    put_list(m->t, "pads", pads, 2 * s->rank);
    nnc_printf(m->t, "%s}\n", modes[roll(m->d, 5)]);
    return m->n++;
}

static int put_slice(mover *m, const shape *s, int depth)
{
    int64_t axes[5], starts[5], ends[5], steps[5];
    shape from = *s;
    for (int i = 0; i < s->rank; i++) {
        bool cut = roll(m->d, 2);
        axes[i] = i;
        starts[i] = cut ? roll(m->d, 3) : 0;
        steps[i] = cut ? 1 + roll(m->d, 3) : 1;
        ends[i] = starts[i] + (s->dim[i] - 1) * steps[i] + 1;
        from.dim[i] = ends[i] + (cut ? roll(m->d, 3) : 0);
    }
    int x = source(m, &from, depth);
    nnc_printf(m->t, "%%m%d = slice %%m%d {", m->n, x);
    put_list(m->t, "axes", axes, s->rank);
    nnc_puts(m->t, ", ");
    put_list(m->t, "starts", starts, s->rank);
    nnc_puts(m->t, ", ");
    put_list(m->t, "ends", ends, s->rank);
    nnc_puts(m->t, ", ");
    put_list(m->t, "steps", steps, s->rank);
    nnc_puts(m->t, "}\n");
    return m->n++;
}

static int put_concat(mover *m, const shape *s, int depth)
{
    int axis = (int)roll(m->d, s->rank);
    if (s->dim[axis] < 2)
        return source(m, s, depth);
    shape a = *s, b = *s;
    a.dim[axis] = 1 + roll(m->d, s->dim[axis] - 1);
    b.dim[axis] -= a.dim[axis];
    int x = source(m, &a, depth), y = source(m, &b, depth);
    nnc_printf(m->t, "%%m%d = concat %%m%d, %%m%d {axis=%d}\n", m->n, x, y, axis);
    return m->n++;
}

/* A step with one list of numbers: its own number. */
static int put_move(mover *m, const char *op, int x, const char *key, const int64_t *list, int n)
{
    nnc_printf(m->t, "%%m%d = %s %%m%d {", m->n, op, x);
    put_list(m->t, key, list, n);
    nnc_puts(m->t, "}\n");
    return m->n++;
}

static int put_transpose(mover *m, const shape *s, int depth)
{
    int64_t perm[5];
    shape from = *s;
    for (int i = 0; i < s->rank; i++)
        perm[i] = i;
    for (int i = s->rank - 1; i > 0; i--) {
        int j = (int)roll(m->d, i + 1);
        int64_t p = perm[i];
        perm[i] = perm[j];
        perm[j] = p;
    }
    for (int i = 0; i < s->rank; i++)
        from.dim[perm[i]] = s->dim[i];
    int x = source(m, &from, depth);
    return put_move(m, "transpose", x, "perm", perm, s->rank);
}

/* Two neighbouring dimensions are one in the operand. */
static int put_reshape(mover *m, const shape *s, int depth)
{
    int at = (int)roll(m->d, s->rank - 1);
    shape from = {.rank = s->rank - 1};
    for (int i = 0; i < from.rank; i++)
        from.dim[i] = s->dim[i < at ? i : i + 1] * (i == at ? s->dim[i] : 1);
    int x = source(m, &from, depth);
    return put_move(m, "reshape", x, "shape", s->dim, s->rank);
}

static int put_broadcast(mover *m, const shape *s, int depth)
{
    shape from = *s;
    for (int i = 0; i < s->rank; i++)
        from.dim[i] = roll(m->d, 2) ? s->dim[i] : 1;
    int x = source(m, &from, depth);
    return put_move(m, "broadcast", x, "shape", s->dim, s->rank);
}

/* A value of this shape, by `depth` steps from inputs. */
static int source(mover *m, const shape *s, int depth)
{
    if (depth == 0 || s->rank < 2)
        return put_input(m, s);
    int x;
    switch (roll(m->d, 8)) {
    case 0: return put_pad(m, s, depth - 1);
    case 1: return put_slice(m, s, depth - 1);
    case 2: return put_concat(m, s, depth - 1);
    case 3: return put_transpose(m, s, depth - 1);
    case 4: return put_reshape(m, s, depth - 1);
    case 5: return put_broadcast(m, s, depth - 1);
    case 6:
        x = source(m, s, depth - 1);
        nnc_printf(m->t, "%%m%d = relu %%m%d\n", m->n, x);
        return m->n++;
    default:
        x = source(m, s, depth - 1);
        nnc_printf(
            m->t, "%%m%d = flip %%m%d {axes=[%lld]}\n", m->n, x, (long long)roll(m->d, s->rank));
        return m->n++;
    }
}

/* What reads the window's result: movement, or a reduction of it. */
static void put_after(nnc_text *t, dice *d, const window *w)
{
    int rank = w->rank + 2;
    switch (roll(d, 7)) {
    case 0: nnc_printf(t, "%%y = flip %%c {axes=[1,%d]}\n", rank - 1); break;
    case 1:
        nnc_printf(t,
            "%%y = slice %%c {axes=[1,%d], starts=[0,%d], ends=[%lld,%lld], steps=[%d,2]}\n",
            rank - 1, w->out[w->rank - 1] > 1, (long long)(w->c * w->each),
            (long long)w->out[w->rank - 1], 1 + (int)roll(d, 3));
        break;
    case 2: nnc_printf(t, "%%y = concat %%c, %%c {axis=%lld}\n", (long long)roll(d, rank)); break;
    case 3:
        nnc_printf(t, "%%y = reshape %%c {shape=[%lld", (long long)(w->n * w->c * w->each));
        for (int i = 0; i < w->rank; i++)
            nnc_printf(t, ",%lld", (long long)w->out[i]);
        nnc_puts(t, "]}\n");
        break;
    case 4: nnc_printf(t, "%%y = reduce_max %%c {axes=[%d]}\n", rank - 1); break;
    case 5: nnc_puts(t, "%z = relu %c\n%y = mul %z, %c\n"); break;
    default: nnc_puts(t, "%y = neg %c\n"); break;
    }
    nnc_puts(t, "return %y }\n");
}

void gen_moved_window(nnc_text *t, uint64_t seed, bool pool)
{
    static const char *const types[] = {"f32", "f32", "f32", "f16", "bf16"};
    dice d = {seed * 0x9e3779b97f4a7c15u + 7};
    window w = {0};
    for (int i = 0; i < 4; i++)
        roll(&d, 2);
    draw(&d, &w);
    w.c = nnc_min64(w.c, 8);
    for (int i = 0; pool && i < w.rank; i++) {
        lean_in(&w, i);
        w.each = 1;
        w.in[i] = nnc_max64(w.in[i], w.dil[i]);
    }
    shape s = {w.rank + 2, {w.n, w.c}};
    for (int i = 0; i < w.rank; i++)
        s.dim[2 + i] = w.in[i];
    const char *type = types[roll(&d, 5)];
    mover m = {t, &d, type, 0};
    nnc_puts(t, "graph @window {\n");
    int x = source(&m, &s, 1 + (int)roll(&d, 3));
    nnc_printf(t, "%%x = identity %%m%d\n", x);
    if (pool)
        put_pool(t, &d, &w, type, false);
    else
        put_conv(t, &d, &w, type, false);
    put_after(t, &d, &w);
}

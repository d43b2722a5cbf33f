/* codegen/cuda_attend.c -- attention in one pass over blocks of keys (schedule/attend.c defines the work of a block of threads).
 *
 *     q of the block's rows to shared memory.
 *     for each block of keys:
 *       k and v of these to shared memory.
 *       s[i][j] = score of the thread's row i and key j; its ops; new maximum of the row, over 16 threads by shuffles.
 *       results and sums so far times exp(old maximum - new maximum); weights exp(s - maximum) to shared memory.
 *       o[i][..] += weights times v.
 *     o / sum, and the ops that follow.
 *
 * Thread (x, y), x below 16, has rows y vec .. y vec + vec - 1, keys x + 16 j, and columns (16 n + x) lanes ... of the result. The 16
 * threads of a row are half a warp, so weights need no barrier of the block. */
#include "codegen/cuda.h"

typedef struct attend {
    nnc_attend a;
    nnc_alayout l;
    const char *row; /* name of the axis of rows */
    bool ragged_keys; /* the last block of keys is not full */
    bool ragged_rows;
} attend;

static long long extent(const cu *c, int axis)
{
    return (long long)c->k->axis[axis].extent;
}

/* ---- parts of the kernel's instructions ---- */

/* Makes live only the operands of value id, direct and indirect, among from .. to - 1. */
static void keep(cu *c, int32_t id, int32_t from, int32_t to)
{
    if (id < from || id >= to || c->v[id].live)
        return;
    c->v[id].live = true;
    for (int j = 0; j < 3; j++)
        keep(c, c->k->ins[id].arg[j], from, to);
}

static void forget(cu *c, int32_t from, int32_t to)
{
    for (int32_t i = from; i < to; i++)
        c->v[i].live = false;
}

/* Declares value id, a load from a tmp buffer or a reduction, with this text. */
static void given(cu *c, int32_t id, const char *text)
{
    cu_line(c, "const float %n = %s;", id, text);
}

/* ---- tiles in shared memory ---- */

/* Elements of an access along axis `along`, if a row has n. */
static int access_lanes(const cu *c, const nnc_kins *in, int along, int64_t n)
{
    for (int w = 4; w > 1; w /= 2)
        if (n % w == 0 && cu_vector(c->k, in, along, w))
            return w;
    return 1;
}

/* Declares the factor's value for the loaded element named by `x`, and puts it there. */
static void factor_ops(cu *c, const nnc_kstage *s, int32_t load, int32_t value, const char *x)
{
    forget(c, s->body0, s->post1);
    keep(c, value, s->body0, s->body1);
    c->v[load].live = false;
    given(c, load, x);
    cu_section(c, s, s->body0, s->body1);
    cu_line(c, "%s = %r;", x, value);
}

/* Copies `rows` rows of a load to shared memory, from `from` on along axis `across`. Each has `width` elements along axis `along`, zeros
 * beyond the tensor. Rows are `stride` elements apart. */
static void copy_tile(cu *c, const nnc_kstage *s, int32_t load, int32_t value, const char *to,
    int across, const char *from, int rows, int along, int width, int stride)
{
    const nnc_kins *in = &c->k->ins[load];
    const int vec = access_lanes(c, in, along, extent(c, along)), units = width / vec;
    const bool down = in->at.k[along] != 1 && in->at.k[across] == 1; /* rows are neighbours */
    const bool whole = extent(c, across) % rows == 0, full = extent(c, along) == width;
    const int n = rows * units, threads = c->g->threads;
    const char *r = c->axis_name[across], *d = c->axis_name[along];
    const int trips = (n + threads - 1) / threads;
    cu_line(c, trips <= 16 ? "#pragma unroll" : "#pragma unroll 8");
    cu_open(c, "for (int u = t; u < %d; u += %d) {", n, threads);
    cu_line(c, "const int row = u %s %d, at = u %s %d%s;", down ? "%" : "/", down ? rows : units,
        down ? "/" : "%", down ? rows : units,
        vec == 4   ? " * 4"
        : vec == 2 ? " * 2"
                   : "");
    cu_line(c, "const %T %s = %s + row, %s = at;", r, from, d);
    cu_typed(c, "float", vec);
    cu_put(c, vec > 1 ? "z = nnc_splat<%d>(0.0f);\n" : "z = 0.0f;\n", vec);
    cu_indent(c);
    nnc_puts(c->t, whole && full ? "{\n" : "if (");
    if (!whole)
        nnc_printf(c->t, "%s < %lld%s", r, extent(c, across), full ? "" : " && ");
    if (!full)
        nnc_printf(c->t, "%s < %lld", d, extent(c, along));
    nnc_puts(c->t, whole && full ? "" : ") {\n");
    c->depth++;
    if (vec > 1)
        cu_line(c, "z = nnc_load<%d>(%s + %a);", vec, c->buf_name[in->buf], &in->at);
    else
        cu_line(c, "z = nnc_get(%s[%a]);", c->buf_name[in->buf], &in->at);
    if (value != load && vec > 1) {
        cu_line(c, "#pragma unroll");
        cu_open(c, "for (int e = 0; e < %d; e++) {", vec);
        factor_ops(c, s, load, value, "z[e]");
        cu_close(c, "}");
    } else if (value != load) {
        factor_ops(c, s, load, value, "z");
    }
    cu_close(c, "}");
    if (vec > 1)
        cu_line(c, "nnc_store<%d>(%s + row * %d + at, z);", vec, to, stride);
    else
        cu_line(c, "%s[row * %d + at] = z;", to, stride);
    cu_close(c, "}");
}

/* auto weight = [&](float score, float top) { return exp(score - top); } */
static void weight_function(cu *c, const attend *x)
{
    const nnc_kstage *s = &c->k->stage[2];
    const int32_t exp = x->a.weight, sub = c->k->ins[exp].arg[0];
    forget(c, s->body0, s->post1);
    c->v[exp].live = c->v[sub].live = true;
    cu_indent(c);
    cu_put(c, "const auto weight = [](float score, float top) {\n");
    c->depth++;
    if (c->k->ins[x->a.score[1]].op != KO_const)
        given(c, x->a.score[1], "score");
    given(c, x->a.max, "top");
    cu_section(c, s, sub, exp + 1);
    cu_line(c, "return %r;", exp);
    cu_close(c, "};");
}

/* Computes the scores of the thread's rows and keys from the sums in s[i][j]: stage 0's ops, then stage 1's. */
static void score_ops(cu *c, const attend *x)
{
    const nnc_kernel *k = c->k;
    const nnc_kstage *first = &k->stage[0], *mask = &k->stage[1];
    const int32_t score = x->a.score[0], stored = k->ins[x->a.stored].arg[0];
    forget(c, first->body0, mask->post1);
    keep(c, score, mask->body0, mask->body1);
    keep(c, stored, first->post0, first->post1);
    if (!x->ragged_keys && score >= mask->body0 && k->ins[score].op == KO_load &&
        stored == x->a.dot)
        return; /* as they are */
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int i = 0; i < %d; i++) {", c->g->vec);
    if (x->ragged_rows)
        cu_line(c, "const %T %s = nnc_min<%T>(first + y * %d + i, %i);", x->row, c->g->vec,
            (int64_t)extent(c, x->a.row) - 1);
    else
        cu_line(c, "const %T %s = first + y * %d + i;", x->row, c->g->vec);
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int j = 0; j < %d; j++) {", x->l.keys / 16);
    cu_line(c, "const %T %s = key + x + 16 * j;", c->axis_name[x->a.key[0]]);
    if (x->a.key[1] != x->a.key[0])
        cu_line(c, "const %T %s = %s;", c->axis_name[x->a.key[1]], c->axis_name[x->a.key[0]]);
    if (x->ragged_keys)
        cu_open(c, "if (%s < %lld) {", c->axis_name[x->a.key[0]], extent(c, x->a.key[0]));
    given(c, x->a.dot, "s[i][j]");
    cu_section(c, first, first->post0, first->post1);
    /* the score as stage 1 loads it: without the rounding of a 16-bit tmp buffer */
    for (int32_t i = mask->body0; i < mask->body1; i++)
        if (c->v[i].live && k->ins[i].op == KO_load && k->buf[k->ins[i].buf].role == KB_tmp) {
            cu_line(c, "const float %n = %r;", i, stored);
            c->v[i].live = false;
        }
    cu_section(c, mask, mask->body0, mask->body1);
    cu_line(c, "s[i][j] = %r;", score);
    if (x->ragged_keys) {
        cu_close(c, "} else {");
        cu_line(c, "    s[i][j] = -nnc_inf();");
        cu_line(c, "}");
    }
    cu_close(c, "}");
    cu_close(c, "}");
}

/* ---- products ---- */

static void score_sums(cu *c, const attend *x)
{
    const int vec = c->g->vec, n = x->l.keys / 16;
    cu_line(c, "float s[%d][%d] = {};", vec, n);
    cu_line(c, "#pragma unroll 2");
    cu_open(c, "for (int d = 0; d < %d; d += 4) {", x->l.depth);
    cu_line(c, "nnc_vec<float, 4> a[%d], b[%d];", vec, n);
    cu_line(c, "#pragma unroll");
    cu_line(c, "for (int i = 0; i < %d; i++)", vec);
    cu_line(c, "    a[i] = nnc_raw<4>(qs + (y * %d + i) * %d + d);", vec, x->l.q);
    cu_line(c, "#pragma unroll");
    cu_line(c, "for (int j = 0; j < %d; j++)", n);
    cu_line(c, "    b[j] = nnc_raw<4>(ks + (x + 16 * j) * %d + d);", x->l.q);
    cu_line(c, "#pragma unroll");
    cu_line(c, "for (int e = 0; e < 4; e++)");
    cu_line(c, "#pragma unroll");
    cu_line(c, "    for (int i = 0; i < %d; i++)", vec);
    cu_line(c, "#pragma unroll");
    cu_line(c, "        for (int j = 0; j < %d; j++)", n);
    cu_line(c, "            s[i][j] = fmaf(a[i][e], b[j][e], s[i][j]);");
    cu_close(c, "}");
}

/* Computes weights from scores, and makes earlier sums relative to the new maximum. A row of only -inf so far uses maximum 0, so that its
 * weights are 0 and not NaN. If it stays so, its sum is 0 and its result 0/0, as in the stages. */
static void weights(cu *c, const attend *x)
{
    const int vec = c->g->vec, n = x->l.keys / 16, columns = x->l.chunks * x->l.lanes;
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int i = 0; i < %d; i++) {", vec);
    cu_line(c, "float most = s[i][0];");
    cu_line(c, "#pragma unroll");
    cu_line(c, "for (int j = 1; j < %d; j++)", n);
    cu_line(c, "    most = nnc_max(most, s[i][j]);");
    cu_line(c, "most = nnc_max(top[i], nnc_warp<16, nnc_combine_max>(most));");
    cu_line(c, "const float base = most == -nnc_inf() ? 0.0f : most;");
    cu_line(c, "const float fade = weight(top[i], base);");
    cu_line(c, "top[i] = most;");
    cu_line(c, "sum[i] *= fade;");
    cu_line(c, "#pragma unroll");
    cu_line(c, "for (int n = 0; n < %d; n++)", columns);
    cu_line(c, "    o[i][n] *= fade;");
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int j = 0; j < %d; j++) {", n);
    cu_line(c, "const float w = weight(s[i][j], base);");
    cu_line(c, "sum[i] += w;");
    cu_line(c, "ps[(y * %d + i) * %d + x + 16 * j] = w;", vec, x->l.p);
    cu_close(c, "}");
    cu_close(c, "}");
}

static void result_sums(cu *c, const attend *x)
{
    const int vec = c->g->vec, w = x->l.lanes;
    cu_line(c, "#pragma unroll 2");
    cu_open(c, "for (int r = 0; r < %d; r += 4) {", x->l.keys);
    cu_line(c, "nnc_vec<float, 4> a[%d];", vec);
    cu_line(c, "#pragma unroll");
    cu_line(c, "for (int i = 0; i < %d; i++)", vec);
    cu_line(c, "    a[i] = nnc_raw<4>(ps + (y * %d + i) * %d + r);", vec, x->l.p);
    cu_line(c, "#pragma unroll");
    cu_line(c, "for (int e = 0; e < 4; e++)");
    cu_line(c, "#pragma unroll");
    cu_open(c, "    for (int n = 0; n < %d; n++) {", x->l.chunks);
    cu_line(
        c, "    const auto b = nnc_raw<%d>(vs + (r + e) * %d + (16 * n + x) * %d);", w, x->l.v, w);
    cu_line(c, "#pragma unroll");
    cu_line(c, "    for (int i = 0; i < %d; i++)", vec);
    cu_line(c, "#pragma unroll");
    cu_line(c, "        for (int f = 0; f < %d; f++)", w);
    cu_line(c, "            o[i][n * %d + f] = fmaf(a[i][e], b[f], o[i][n * %d + f]);", w, w);
    cu_close(c, "    }");
    cu_close(c, "}");
}

/* Divides by the sums, and writes the result with the second product's epilogue. */
static void results(cu *c, const attend *x)
{
    const nnc_kstage *s = &c->k->stage[4];
    const int w = x->l.lanes;
    forget(c, s->body0, s->post1);
    keep(c, x->a.store, s->post0, s->post1);
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int i = 0; i < %d; i++) {", c->g->vec);
    cu_line(c, "const float all = nnc_warp<16, nnc_combine_sum>(sum[i]);");
    cu_line(c, "const %T %s = first + y * %d + i;", x->row, c->g->vec);
    if (x->ragged_rows)
        cu_open(c, "if (%s < %lld) {", x->row, extent(c, x->a.row));
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int n = 0; n < %d; n++) {", x->l.chunks);
    cu_line(c, "const %T %s = (16 * n + x) * %d;", c->axis_name[x->a.wide], w);
    if (x->l.wide != extent(c, x->a.wide))
        cu_open(c, "if (%s < %lld) {", c->axis_name[x->a.wide], extent(c, x->a.wide));
    cu_typed(c, "float", w);
    cu_put(c, "%n;\n", x->a.out);
    if (w > 1) {
        cu_line(c, "#pragma unroll");
        cu_line(c, "for (int f = 0; f < %d; f++)", w);
        cu_line(c, "    %n[f] = o[i][n * %d + f] / all;", x->a.out, w);
    } else {
        cu_line(c, "%n = o[i][n] / all;", x->a.out);
    }
    c->axis = w > 1 ? x->a.wide : -1;
    c->lanes = w;
    cu_section(c, s, s->post0, s->post1);
    if (x->l.wide != extent(c, x->a.wide))
        cu_close(c, "}");
    cu_close(c, "}");
    if (x->ragged_rows)
        cu_close(c, "}");
    cu_close(c, "}");
}

/* ---- the kernel ---- */

/* Declares the thread's place, the block's rows, and the parts of shared memory. */
static void place(cu *c, attend *x)
{
    nnc_kgrid g = *c->g;
    const nnc_kgrid *own = c->g;
    const nnc_alayout *l = &x->l;
    g.vec = (int16_t)l->rows;
    c->g = &g;
    cu_line(c, "const int t = threadIdx.x, x = t %% 16, y = t / 16;");
    cu_line(c, "const %T p = blockIdx.x;");
    {
        char name[16];
        snprintf(name, sizeof name, "%s", c->axis_name[x->a.row]);
        snprintf(c->axis_name[x->a.row], sizeof c->axis_name[0], "first");
        cu_place(c, "p");
        snprintf(c->axis_name[x->a.row], sizeof c->axis_name[0], "%s", name);
    }
    c->g = own;
    if (extent(c, x->a.row) == 1)
        cu_line(c, "const %T first = 0;");
    cu_line(c, "NNC_DYNAMIC(shared);");
    cu_line(c, "float *const qs = reinterpret_cast<float *>(shared), *const ks = qs + %d,",
        l->rows * l->q);
    cu_line(c, "    *const vs = ks + %d, *const ps = vs + %d;", l->keys * l->q, l->keys * l->v);
}

void cu_attend(cu *c)
{
    const nnc_kernel *k = c->k;
    attend x = {{0}};
    if (!nnc_attend_find(k, &x.a)) {
        c->t->oom = true; /* the schedule was verified */
        return;
    }
    nnc_attend_layout(k, c->g, &x.a, &x.l);
    x.row = c->axis_name[x.a.row];
    x.ragged_keys = extent(c, x.a.key[0]) % x.l.keys != 0;
    x.ragged_rows = extent(c, x.a.row) % x.l.rows != 0;
    for (int i = 0; i < 4; i++)
        cu_analyse(c, &k->stage[i], -1, 1);
    cu_analyse(c, &k->stage[4], x.a.wide, x.l.lanes);
    place(c, &x);
    c->axis = -1;
    c->lanes = 1;
    const int columns = x.l.chunks * x.l.lanes;
    weight_function(c, &x);
    copy_tile(c, &k->stage[0], x.a.q, x.a.from[0], "qs", x.a.row, "first", x.l.rows, x.a.depth,
        x.l.depth, x.l.q);
    cu_line(c, "float top[%d], sum[%d] = {}, o[%d][%d] = {};", c->g->vec, c->g->vec, c->g->vec,
        columns);
    cu_line(c, "#pragma unroll");
    cu_line(c, "for (int i = 0; i < %d; i++)", c->g->vec);
    cu_line(c, "    top[i] = -nnc_inf();");
    cu_open(c, "for (%T key = 0; key < %lld; key += %d) {", extent(c, x.a.key[0]), x.l.keys);
    cu_line(c, "__syncthreads(); /* the block of keys before is read */");
    copy_tile(c, &k->stage[0], x.a.k, x.a.from[1], "ks", x.a.key[0], "key", x.l.keys, x.a.depth,
        x.l.depth, x.l.q);
    copy_tile(c, &k->stage[4], x.a.v, x.a.from[2], "vs", x.a.key[4], "key", x.l.keys, x.a.wide,
        x.l.wide, x.l.v);
    cu_line(c, "__syncthreads();");
    score_sums(c, &x);
    score_ops(c, &x);
    weights(c, &x);
    cu_line(c, "__syncwarp();");
    result_sums(c, &x);
    cu_close(c, "}");
    results(c, &x);
}

/* codegen/cuda_contract.c -- the schedule class `contract`: a sum of products on tensor cores (schedule/cuda_contract.c).
 *
 *     for step                        block `step` of terms is loaded, while the one before is multiplied.
 *       w to shared memory (cp.async), loads of x to registers.
 *       fragments of x and w from shared memory (ldmatrix); sum[..] += x w (mma).
 *       prologue of x, rounded, to shared memory; a barrier.
 *     for each 16 rows of a warp: sums to shared memory, then neighbouring columns to a thread; epilogue.
 *
 * A thread loads 8 terms of each `every`-th row of the tile. A row of shared memory has a block of terms and a gap of 8. Rows beyond the
 * end are copies of the last row, terms beyond the end zeros. */
#include "codegen/cuda.h"

typedef struct contract {
    cu_contract is;
    cu_ctile tile;
    int32_t value; /* of x before its rounding, which the store to shared memory repeats */
    bool copies; /* x is a load: copied as w is */
    bool in_rows; /* the prologue's text names axes of rows */
    const char *row, *column, *term; /* names of the axes; row: NULL */
    int units, every; /* rows of x that a thread loads, and from one to the next */
} contract;

static const nnc_kstage *stage_of(const cu *c)
{
    return &c->k->stage[c->k->n_stage - 1];
}

/* Declares the axes of rows, from the number of a row. */
static void place_rows(cu *c, const contract *x, const char *number)
{
    int64_t below = 1;
    for (int a = c->k->n_outer - 1; a >= 0; a--) {
        if (!(x->is.rows >> a & 1))
            continue;
        const int64_t n = c->k->axis[a].extent, rest = x->is.m / below / n;
        cu_digit(c, c->axis_name[a], number, below, rest > 1 ? n : 0, 1);
        below *= n;
    }
}

/* Declares `name`, the number of a row, at most the last row's. */
static void clamped_row(cu *c, const contract *x, const char *name, const char *row)
{
    if (x->is.m % c->g->group == 0)
        cu_line(c, "const int %s = first + %s;", name, row);
    else
        cu_line(c, "const int %s = first + %s < %lld ? first + %s : %lld;", name, row,
            (long long)x->is.m, row, (long long)x->is.m - 1);
}

/* ---- x ---- */

/* Is id a load that depends on columns, but not on rows? */
static bool of_columns(const cu *c, const contract *x, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    return in->op == KO_load && id != x->is.w && in->at.k[x->is.column] &&
           !(nnc_affine_axes(&in->at) & x->is.rows);
}

/* Makes the operands of value id live, direct and indirect, except values that are already declared. */
static void keep(cu *c, const contract *x, int32_t id)
{
    if (id < 0 || c->v[id].live || id == x->is.sum || of_columns(c, x, id) ||
        cu_contract_ahead(c->k, &x->is, id))
        return;
    c->v[id].live = true;
    for (int j = 0; j < 3; j++)
        keep(c, x, c->k->ins[id].arg[j]);
}

/* Begins sections with lanes along this axis; nothing is live. */
static void begin_sections(cu *c, int axis, int lanes)
{
    for (int i = 0; i < c->k->n_stage; i++)
        cu_analyse(c, &c->k->stage[i], axis, lanes);
    for (int32_t i = 0; i < c->k->n_ins; i++)
        c->v[i].live = c->v[i].outside = false;
}

static void find_prologue(cu *c, contract *x)
{
    const nnc_kins *last = &c->k->ins[x->is.x];
    x->copies = last->op == KO_load;
    x->value = x->copies ? x->is.x : last->arg[0];
    begin_sections(c, x->is.term, CU_CONTRACT_VEC);
    keep(c, x, x->value);
    for (int32_t i = 0; i <= x->value; i++)
        if (c->v[i].live && (nnc_kins_axes(&c->k->ins[i]) & x->is.rows))
            x->in_rows = true;
    c->v[x->value].lanes = true;
}

/* Declares offsets of the thread's rows, for each prefetched load. */
static void row_offsets(cu *c, const contract *x)
{
    const nnc_kstage *s = stage_of(c);
    for (int32_t i = s->body0; i < s->body1; i++)
        if (cu_contract_ahead(c->k, &x->is, i))
            cu_line(c, "int at_%d[%d];", i, x->units);
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int u = 0; u < %d; u++) {", x->units);
    cu_line(c, "const int row = unit + u * %d;", x->every);
    clamped_row(c, x, "p", "row");
    place_rows(c, x, "p");
    for (int32_t i = s->body0; i < s->body1; i++)
        if (cu_contract_ahead(c->k, &x->is, i)) {
            nnc_affine at = c->k->ins[i].at;
            at.k[x->is.term] = 0;
            cu_line(c, "at_%d[u] = %a;", i, &at);
        }
    cu_close(c, "}");
    for (int32_t i = s->body0; i < s->body1 && !x->copies; i++)
        if (cu_contract_ahead(c->k, &x->is, i)) {
            const nnc_dtype d = (nnc_dtype)c->k->buf[c->k->ins[i].buf].dtype;
            cu_line(c, "nnc_vec<unsigned, %d> ahead_%d[%d];",
                CU_CONTRACT_VEC * nnc_dtype_size(d) / 4, i, x->units);
        }
}

/* Loads the block of terms from %term on: to registers, or to shared memory. */
static void load_rows(cu *c, const contract *x)
{
    const nnc_kstage *s = stage_of(c);
    const bool whole = x->is.k % x->tile.terms == 0;
    if (!x->copies && !whole)
        cu_open(c, "if (%s < %lld) {", x->term, (long long)x->is.k);
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int u = 0; u < %d; u++) {", x->units);
    for (int32_t i = s->body0; i < s->body1; i++) {
        const char *b = c->buf_name[c->k->ins[i].buf];
        if (!cu_contract_ahead(c->k, &x->is, i))
            continue;
        if (!x->copies)
            cu_line(c, "ahead_%d[u] = nnc_words<%d>(%s + at_%d[u] + %s);", i, CU_CONTRACT_VEC, b, i,
                x->term);
        else if (whole)
            cu_line(c, "nnc_copy16(to + (unit + u * %d) * %d + term, %s + at_%d[u] + %s, true);",
                x->every, x->tile.pitch, b, i, x->term);
        else
            cu_line(c,
                "nnc_copy16(to + (unit + u * %d) * %d + term, %s + at_%d[u] + (in ? %s : 0), in);",
                x->every, x->tile.pitch, b, i, x->term);
    }
    cu_close(c, "}");
    if (!x->copies && !whole)
        cu_close(c, "}");
}

/* Writes the loaded rows' prologue to shared memory. */
static void store_rows(cu *c, const contract *x)
{
    const nnc_kstage *s = stage_of(c);
    const bool whole = x->is.k % x->tile.terms == 0;
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int u = 0; u < %d; u++) {", x->units);
    cu_line(c, "const int row = unit + u * %d;", x->every);
    if (x->in_rows) {
        clamped_row(c, x, "p", "row");
        place_rows(c, x, "p");
    }
    cu_line(c, "auto z = nnc_splat<%d>(0.0f);", CU_CONTRACT_VEC);
    cu_open(c, whole ? "{" : "if (%s < %lld) {", x->term, (long long)x->is.k);
    for (int32_t i = s->body0; i < s->body1; i++)
        if (cu_contract_ahead(c->k, &x->is, i))
            cu_line(c, "const auto %n = nnc_widened<%s>(ahead_%d[u]);", i,
                cu_storage((nnc_dtype)c->k->buf[c->k->ins[i].buf].dtype), i);
    cu_section(c, s, 0, x->value + 1);
    cu_line(c, "z = %n;", x->value);
    cu_close(c, "}");
    cu_line(c, "nnc_store<%d>(to + row * %d + term, z);", CU_CONTRACT_VEC, x->tile.pitch);
    cu_close(c, "}");
}

/* ---- w and products ---- */

static void load_columns(cu *c, const contract *x)
{
    const nnc_kins *w = &c->k->ins[x->is.w];
    const int units = c->g->vec / x->every;
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int u = 0; u < %d; u++) {", units);
    cu_line(c, "const int row = unit + u * %d, %s = left + row;", x->every, x->column);
    cu_line(c, "const bool has = in && %s < %lld;", x->column, (long long)x->is.n);
    cu_line(c, "nnc_copy16(to + (%d + row) * %d + term, %s + (has ? %a : 0), has);", c->g->group,
        x->tile.pitch, c->buf_name[w->buf], &w->at);
    cu_close(c, "}");
    cu_line(c, "nnc_commit();");
}

static void multiply(cu *c, const contract *x)
{
    const int wide = x->tile.wide;
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int k = 0; k < %d; k += 16) {", x->tile.terms);
    cu_line(c, "nnc_vec<unsigned, 4> a[2];");
    cu_line(c, "#pragma unroll");
    cu_line(c, "for (int i = 0; i < 2; i++)");
    cu_line(c,
        "    a[i] = nnc_matrices(from + (down + 16 * i + lane %% 16) * %d + k + lane / 16 * 8);",
        x->tile.pitch);
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int j = 0; j < %d; j++) {", wide / 16);
    cu_line(c,
        "const auto b = nnc_matrices(from + (%d + across + 16 * j + lane %% 8 + lane / 16 * 8) * "
        "%d "
        "+ k + lane / 8 %% 2 * 8);",
        c->g->group, x->tile.pitch);
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int i = 0; i < 2; i++) {");
    cu_line(c, "nnc_mma<%s>(sum[i][2 * j], a[i], b[0], b[1]);", cu_storage(x->is.type));
    cu_line(c, "nnc_mma<%s>(sum[i][2 * j + 1], a[i], b[2], b[3]);", cu_storage(x->is.type));
    cu_close(c, "}");
    cu_close(c, "}");
    cu_close(c, "}");
}

static void steps(cu *c, const contract *x)
{
    const char *type = cu_storage(x->is.type);
    const int tile = (c->g->group + c->g->vec) * x->tile.pitch;
    const int64_t n = nnc_ceildiv(x->is.k, x->tile.terms);
    cu_line(c, "float sum[2][%d][4] = {};", x->tile.wide / 8);
    cu_open(c, "for (int step = 0; step <= %lld; step++) {", (long long)n);
    cu_line(c, "%s *const to = tiles + step %% 2 * %d;", type, tile);
    cu_line(c, "const int %s = step * %d + term;", x->term, x->tile.terms);
    cu_open(c, "if (step < %lld) {", (long long)n);
    cu_line(c, "const bool in = %s < %lld;", x->term, (long long)x->is.k);
    load_rows(c, x);
    load_columns(c, x);
    cu_close(c, "}");
    cu_open(c, "if (step > 0) {");
    cu_line(c, "const %s *const from = tiles + (step + 1) %% 2 * %d;", type, tile);
    multiply(c, x);
    cu_close(c, "}");
    if (!x->copies) {
        cu_open(c, "if (step < %lld) {", (long long)n);
        store_rows(c, x);
        cu_close(c, "}");
    }
    cu_line(c, "nnc_wait<0>();");
    cu_line(c, "__syncthreads();");
    cu_close(c, "}");
}

/* ---- results ---- */

/* Writes sums to shared memory. Of each 8 columns, lane l has the two from 2 (l % 4) on, in rows l / 4 and l / 4 + 8. */
static void share_sums(cu *c, const contract *x)
{
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int j = 0; j < %d; j++) {", x->tile.wide / 8);
    cu_line(c, "float *const to = line + lane / 4 * %d + 8 * j + lane %% 4 * 2;", x->tile.line);
    cu_line(c, "nnc_store<2>(to, nnc_vec<float, 2>{{sum[i][j][0], sum[i][j][1]}});");
    cu_line(c, "nnc_store<2>(to + %d, nnc_vec<float, 2>{{sum[i][j][2], sum[i][j][3]}});",
        8 * x->tile.line);
    cu_close(c, "}");
    cu_line(c, "__syncwarp();");
}

/* Loads values that depend only on columns, once for all rows of the thread. */
static void load_of_columns(cu *c, const contract *x)
{
    const nnc_kstage *s = stage_of(c);
    for (int32_t i = 0; i < s->post1; i++) {
        cu_value *v = &c->v[i];
        v->live = of_columns(c, x, i) && v->uses > 0;
        v->lanes |= v->live && v->varies; /* even if lanes are loaded one by one */
    }
    cu_section(c, s, 0, s->post1);
    for (int32_t i = 0; i < s->post1; i++)
        c->v[i].live = false;
    for (int32_t i = s->post0; i < s->post1; i++)
        if (c->k->ins[i].op == KO_store)
            keep(c, x, i);
}

/* The epilogue of the thread's rows, at its columns. Rows beyond the end load the last row's values, and store nothing. */
static void row_results(cu *c, const contract *x, int units)
{
    const nnc_kstage *s = stage_of(c);
    const int lanes = x->tile.lanes, each = units < 32 ? 32 / units : 1;
    const bool ragged = x->is.m % c->g->group != 0, wide = x->is.n % c->g->vec != 0;
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int u = 0; u < %d; u++) {", 16 / each);
    cu_line(
        c, each > 1 ? "const int row = lane / %d + u * %d;" : "const int row = u;", units, each);
    clamped_row(c, x, "p", "(down + 16 * i + row)");
    if (ragged || wide)
        cu_line(c,
            ragged && wide ? "const bool has = at < %lld && first + down + 16 * i + row < %lld;"
            : wide         ? "const bool has = at < %lld;"
                           : "const bool has = first + down + 16 * i + row < %lld;",
            (long long)(wide ? x->is.n : x->is.m), (long long)x->is.m);
    place_rows(c, x, "p");
    if (lanes > 1)
        cu_line(c, "const auto %n = nnc_raw<%d>(line + row * %d + place);", x->is.sum, lanes,
            x->tile.line);
    else
        cu_line(c, "const float %n = line[row * %d + place];", x->is.sum, x->tile.line);
    c->store_if = ragged || wide ? "has" : NULL;
    cu_section(c, s, 0, s->post1);
    c->store_if = NULL;
    cu_close(c, "}");
}

static void results(cu *c, const contract *x)
{
    const int lanes = x->tile.lanes, units = x->tile.wide / lanes;
    begin_sections(c, x->is.column, lanes);
    cu_line(
        c, "float *const line = reinterpret_cast<float *>(shared) + warp * %d;", 16 * x->tile.line);
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int i = 0; i < 2; i++) {");
    share_sums(c, x);
    cu_open(c, "for (int h = 0; h < %d; h += 32) {", units);
    cu_line(c, "const int place = (h + lane %% %d) * %d, at = left + across + place;",
        units < 32 ? units : 32, lanes);
    if (x->is.n % c->g->vec)
        cu_line(c, "const int %s = at < %lld ? at : %lld;", x->column, (long long)x->is.n,
            (long long)x->is.n - lanes);
    else
        cu_line(c, "const int %s = at;", x->column);
    load_of_columns(c, x);
    row_results(c, x, units);
    cu_close(c, "}");
    cu_line(c, "__syncwarp();");
    cu_close(c, "}");
}

/* ---- the kernel ---- */

/* Declares the thread's place and the block's tile. */
static void place(cu *c, const contract *x)
{
    const int64_t across = nnc_ceildiv(x->is.n, c->g->vec);
    cu_line(c, "const int t = threadIdx.x, lane = t %% 32, warp = t / 32;");
    if (across > 1)
        cu_line(c,
            "const int tile = blockIdx.x, first = tile / %lld * %d, left = tile %% %lld * %d;",
            (long long)across, c->g->group, (long long)across, c->g->vec);
    else
        cu_line(c, "const int first = (int)blockIdx.x * %d, left = 0;", c->g->group);
    cu_line(c, "const int down = warp / %d * %d, across = warp %% %d * %d;", x->tile.across,
        CU_CONTRACT_ROWS, x->tile.across, x->tile.wide);
    cu_line(c, "const int unit = t / %d, term = t %% %d * %d;", x->tile.threads, x->tile.threads,
        CU_CONTRACT_VEC);
    cu_line(c, "NNC_DYNAMIC(shared);");
    cu_line(c, "%s *const tiles = reinterpret_cast<%s *>(shared);", cu_storage(x->is.type),
        cu_storage(x->is.type));
}

void cu_contracts(cu *c)
{
    contract x = {.value = -1};
    if (!cu_contract_of(c->k, &x.is) || !cu_contract_tile(c->g, &x.is, &x.tile)) {
        c->t->oom = true; /* the schedule was verified */
        return;
    }
    x.column = c->axis_name[x.is.column];
    x.term = c->axis_name[x.is.term];
    x.every = c->g->threads / x.tile.threads;
    x.units = c->g->group / x.every;
    find_prologue(c, &x);
    place(c, &x);
    row_offsets(c, &x);
    steps(c, &x);
    results(c, &x);
}

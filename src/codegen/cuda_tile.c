/* codegen/cuda_tile.c -- kernels that transpose, where loads run along one axis and stores along another. Tiles of 32 x 32 vectors are
 * read, transposed in shared memory, and written along the other axis. Rows of a tile are padded by one element, so that columns are spread
 * over the banks. */
#include "codegen/cuda.h"

static bool tiled(const cu *c, int32_t id)
{
    const nnc_kins *in = &c->k->ins[id];
    return c->v[id].live && nnc_kernel_tiles(c->k, in, c->g->axis, c->g->across);
}

/* Declares the tile's origin and the other axes' indices from the number of the block. */
static void place_square(cu *c)
{
    const nnc_kernel *k = c->k;
    int order[NNC_KAXES] = {c->g->axis, c->g->across}, n = 2;
    int64_t below = 1, side = 32 * c->g->vec;
    for (int a = k->n_outer - 1; a >= 0; a--)
        if (a != c->g->axis && a != c->g->across && k->axis[a].extent > 1)
            order[n++] = a;
    for (int i = 0; i < n; i++) {
        int64_t extent = k->axis[order[i]].extent,
                count = i < 2 ? (extent + side - 1) / side : extent;
        char name[24];
        snprintf(name, sizeof name, "%s%s", i < 2 ? "from_" : "", c->axis_name[order[i]]);
        cu_digit(c, name, c->g->index == 64 ? "(long long)blockIdx.x" : "(int)blockIdx.x", below,
            i + 1 < n ? count : 0, i < 2 ? side : 1);
        below *= count;
    }
}

/* Opens a loop over the tile: neighbouring threads along `fast`, eight rows at a time. Returns the number of scopes. */
static int open_pass(cu *c, int fast, int slow)
{
    int vec = c->g->vec, side = 32 * vec;
    const nnc_kaxis *x = c->k->axis;
    bool cut = x[fast].extent % side || x[slow].extent % side;
    cu_line(c, "#pragma unroll");
    cu_open(c, "for (int k = 0; k < %d; k += 8) {", side);
    cu_line(c, "const %T %s = from_%s + line + k;", c->axis_name[slow], c->axis_name[slow]);
    if (cut) {
        cu_open(c, "if (%s < %lld && %s < %lld) {", c->axis_name[fast], (long long)x[fast].extent,
            c->axis_name[slow], (long long)x[slow].extent);
        return 2;
    }
    return 1;
}

static void fast_axis(cu *c, int fast)
{
    cu_line(c,
        c->g->vec > 1 ? "const %T %s = from_%s + lane * %d;" : "const %T %s = from_%s + lane;",
        c->axis_name[fast], c->axis_name[fast], c->g->vec);
}

/* Reads tiles along `across`, unconverted. */
static void read_squares(cu *c)
{
    int vec = c->g->vec;
    cu_open(c, "{");
    fast_axis(c, c->g->across);
    int scopes = open_pass(c, c->g->across, c->g->axis);
    for (int32_t id = 0; id < c->k->n_ins; id++) {
        const nnc_kins *in = &c->k->ins[id];
        if (!tiled(c, id))
            continue;
        if (vec == 1) {
            cu_line(c, "tile_%d[line + k][lane] = %s[%a];", id, c->buf_name[in->buf], &in->at);
        } else {
            cu_line(c, "const auto part_%d = nnc_raw<%d>(%s + %a);", id, vec, c->buf_name[in->buf],
                &in->at);
            cu_line(c, "#pragma unroll");
            cu_line(c, "for (int e = 0; e < %d; e++)", vec);
            cu_line(c, "    tile_%d[line + k][lane * %d + e] = part_%d[e];", id, vec, id);
        }
    }
    cu_close_all(c, scopes);
    cu_close(c, "}");
}

static void take_from_squares(cu *c)
{
    int vec = c->g->vec;
    for (int32_t id = 0; id < c->k->n_ins; id++) {
        const nnc_kins *in = &c->k->ins[id];
        const char *type = cu_type((nnc_dtype)in->dtype);
        if (!tiled(c, id))
            continue;
        if (vec == 1) {
            cu_line(c, "const %s %n = nnc_get(tile_%d[lane][line + k]);", type, id, id);
            continue;
        }
        cu_line(c, "nnc_vec<%s, %d> %n;", type, vec, id);
        cu_line(c, "#pragma unroll");
        cu_line(c, "for (int e = 0; e < %d; e++)", vec);
        cu_line(c, "    %n[e] = nnc_get(tile_%d[lane * %d + e][line + k]);", id, id, vec);
    }
}

void cu_tile(cu *c)
{
    const nnc_kernel *k = c->k;
    const nnc_kstage *s = &k->stage[0];
    int side = 32 * c->g->vec;
    cu_analyse(c, s, c->g->axis, c->g->vec);
    for (int32_t id = 0; id < k->n_ins; id++)
        if (tiled(c, id)) {
            c->v[id].tiled = true;
            c->v[id].lanes = c->g->vec > 1;
            cu_line(c, "__shared__ %s tile_%d[%d][%d];", cu_storage(k->buf[k->ins[id].buf].dtype),
                id, side, side + 1);
        }
    cu_line(c, "const int lane = threadIdx.x %% 32, line = threadIdx.x / 32;");
    place_square(c);
    read_squares(c);
    cu_line(c, "__syncthreads();");
    fast_axis(c, c->g->axis);
    int scopes = open_pass(c, c->g->axis, c->g->across);
    take_from_squares(c);
    cu_section(c, s, s->body0, s->body1);
    cu_section(c, s, s->post0, s->post1);
    cu_close_all(c, scopes);
}

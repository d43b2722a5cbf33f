/* onnx/build_spatial.c -- grids of places. */
#include "onnx/internal.h"

/* The coordinates of n places in -1..1: those of the corners, or of the centres of n parts. */
static nnc_ref places(ox_build *b, int64_t n, bool corners)
{
    double *v = ARENA_NEW(&b->x->a, double, n);
    nnc_type t = nnc_type_make(DT_f64, 1, &n);
    if (!v)
        return ox_nomem(b->x), NNC_NONE;
    for (int64_t i = 0; i < n; i++)
        v[i] = corners ? (n > 1 ? -1 + 2.0 * (double)i / (double)(n - 1) : 0)
                       : -1 + (2.0 * (double)i + 1) / (double)n;
    return nnc_constant(b->x->g, &t, v);
}

/* Each place (x, y, 1), or (x, y, z, 1), times theta's rows. */
bool ox_affine_grid(ox_build *b)
{
    nnc_ref theta = ox_in(b, 0), v[4];
    const nnc_type t = *ox_type(b, theta);
    bool corners = ox_int(b, "align_corners", 0) != 0;
    int64_t size[NNC_MAX_RANK], d[NNC_MAX_RANK], all = 1;
    int n;
    if (!ox_const_ints(b, 1, NNC_MAX_RANK, &n, size))
        return false;
    int dims = n - 2;
    if ((dims != 2 && dims != 3) || t.rank != 3 || t.dim[1] != dims || t.dim[2] != dims + 1)
        return ox_wrong(b, "its operands have shapes that do not fit");
    for (int i = 0; i < dims; i++) {
        d[i] = size[2 + i];
        if (d[i] < 1 || !nnc_mul_ok(all, d[i], &all))
            return ox_wrong(b, "an extent is %lld", (long long)d[i]);
    }
    d[dims] = 1;
    for (int i = 0; i <= dims; i++) { /* x first: the last dimension */
        nnc_ref c = i < dims ? places(b, d[dims - 1 - i], corners) : ox_num(b, DT_f64, 1);
        c = ox_to(b, c, (nnc_dtype)t.dtype);
        v[i] = ox_broadcast(b, i < dims ? ox_along(b, c, dims + 1, dims - 1 - i) : c, dims + 1, d);
    }
    nnc_attr axis = nnc_ai(AT_axis, dims), tb = nnc_ai(AT_transpose_b, 1);
    nnc_ref grid = ox_op(b, OP_concat, dims + 1, v, 1, &axis);
    nnc_ref m[2] = {ox_reshape(b, grid, 2, (int64_t[]){all, dims + 1}), theta};
    nnc_ref r = ox_op(b, OP_matmul, 2, m, 1, &tb);
    int64_t out[5] = {t.dim[0], d[0], d[1], dims == 3 ? d[2] : dims, dims};
    return ox_give(b, ox_reshape(b, r, dims + 2, out));
}

/* math/poly.c -- fits a polynomial to a function on an interval.
 *
 * Fit: Chebyshev interpolation of h(w) = g(x) / x^order at NNC_POLY_NODES points, in w = x^2 where g is odd or even, otherwise in w =
 * x - shift. It is truncated where the remaining terms are negligible against the smallest |h|, converted to powers of w and rounded
 * to f32. A g that is zero at 0 keeps its relative accuracy there. x or x^2 is a factor, whose coefficient is exact or has a
 * low-order part. A zero elsewhere makes h change its sign and is rejected, as is cancellation among the terms (Trefethen,
 * Approximation Theory and Approximation Practice, ch. 3, 7, 8).
 *
 * The fit is then measured by executing the steps of the kernel with its roundings. */
#include "math/poly.h"

#include <math.h>
#include <string.h>

enum { NODES = NNC_POLY_NODES, MAX_COEFS = NNC_POLY_COEFS };

static const double PI = 0x1.921fb54442d18p1;

/* ---- nodes ---- */

void nnc_poly_place(nnc_poly_nodes *p, double lo, double hi)
{
    p->lo = lo;
    p->hi = hi;
    p->tolerance = NNC_POLY_TOLERANCE;
    p->condition = NNC_POLY_CONDITION;
    double a = lo * lo, b = hi * hi, most = fmax(a, b), least = lo <= 0 && hi >= 0 ? 0 : fmin(a, b);
    double side = hi <= 0 ? -1 : 1;
    for (int k = 0; k < 4 * NODES; k++)
        p->cosine[k] = nnc_steady_f64(SC_cos, PI * k / (2 * NODES), 0, 0);
    for (int k = 0; k < NODES; k++) {
        double u = p->cosine[2 * k + 1];
        p->x[k] = (lo + hi) / 2 + (hi - lo) / 2 * u;
        p->x[NODES + k] = side * sqrt((most + least) / 2 + (most - least) / 2 * u);
        p->x[2 * NODES + k] = -p->x[NODES + k];
    }
}

/* ---- the series ---- */

typedef struct series {
    double a[NODES]; /* Chebyshev coefficients in u = (w - mid) / half */
    double mid, half;
    double least, most; /* of |h| at the nodes */
} series;

/* Chebyshev coefficients of values at the nodes. False: not finite. */
static bool expand(series *s, const nnc_poly_nodes *at, const double *h, double lo, double hi)
{
    s->mid = (lo + hi) / 2;
    s->half = (hi - lo) / 2;
    s->least = INFINITY;
    s->most = 0;
    for (int k = 0; k < NODES; k++) {
        if (!(fabs(h[k]) < 1e30))
            return false;
        s->least = fmin(s->least, fabs(h[k]));
        s->most = fmax(s->most, fabs(h[k]));
    }
    for (int j = 0; j < NODES; j++) {
        s->a[j] = 0;
        for (int k = 0; k < NODES; k++)
            s->a[j] += h[k] * at->cosine[(2 * k + 1) * j % (4 * NODES)];
        s->a[j] *= (j ? 2.0 : 1.0) / NODES;
    }
    return true;
}

/* True when h has one sign and the coefficients fall below the noise. */
static bool is_tame(const series *s, const double *h)
{
    double end = 0;
    for (int k = 0; k < NODES; k++)
        if (h[k] * h[0] <= 0)
            return false;
    for (int j = NODES - 4; j < NODES; j++)
        end += fabs(s->a[j]);
    return end < 0x1p-34 * s->least;
}

/* Number of terms needed for a remainder below tol |h|. */
static int terms(const series *s, double tol)
{
    double rest = 0;
    int n = NODES;
    while (n > 0 && rest + fabs(s->a[n - 1]) <= tol * s->least)
        rest += fabs(s->a[--n]);
    return n;
}

static double value_at(const series *s, int n, double w)
{
    double u = (w - s->mid) / s->half, b1 = 0, b2 = 0;
    for (int j = n - 1; j >= 1; j--) {
        double b = 2 * u * b1 - b2 + s->a[j];
        b2 = b1;
        b1 = b;
    }
    return u * b1 - b2 + s->a[0];
}

/* Converts the first n terms to powers of w - shift, by the recurrence of the Chebyshev polynomials. */
static void powers(const series *s, int n, double shift, double *c)
{
    double t0[MAX_COEFS] = {1}, t1[MAX_COEFS] = {(shift - s->mid) / s->half, 1 / s->half};
    double a0 = t1[0], a1 = t1[1];
    for (int i = 0; i < n; i++)
        c[i] = i ? 0 : s->a[0];
    for (int j = 1; j < n; j++) {
        for (int i = 0; i <= j; i++)
            c[i] += s->a[j] * t1[i];
        double t2[MAX_COEFS] = {0};
        for (int i = 0; i <= j + 1 && i < n; i++)
            t2[i] = 2 * (a0 * t1[i] + (i ? a1 * t1[i - 1] : 0)) - t0[i];
        memcpy(t0, t1, sizeof t0);
        memcpy(t1, t2, sizeof t1);
    }
}

/* ---- the polynomial ---- */

/* Finds a number of few bits near v that differs from v only by the noise of the fit. */
static bool is_short(double v, double *s)
{
    int e;
    double m = frexp(v, &e);
    *s = ldexp(nearbyint(m * 4096), e - 12);
    return fabs(*s - v) <= fabs(v) * 0x1p-36;
}

/* Largest sum |c_i w^i| / |sum c_i w^i| at sample points. */
static double condition(const nnc_poly *p, const nnc_poly_nodes *at)
{
    const double *x = p->squared ? at->x + NODES : at->x;
    double most = 0, ends[2] = {at->lo, at->hi};
    for (int k = 0; k < NODES + 2; k++) {
        double v = k < NODES ? x[k] : ends[k - NODES], w = p->squared ? v * v : v - p->shift;
        double sum = 0, all = 0;
        for (int i = p->n - 1; i >= 0; i--) {
            double c = p->c[i] + (i == 0 ? p->tail : 0);
            sum = sum * w + c;
            all = all * fabs(w) + fabs(c);
        }
        most = fmax(most, all / fabs(sum));
    }
    return most;
}

/* h = c0 + w (..): with c0 exact, the rest is fitted again, so that accuracy is kept near w = 0. */
static bool refit(nnc_poly *p, const nnc_poly_nodes *at, const double *h, const double *w,
    double lo, double hi, double c0)
{
    series s;
    double r[NODES];
    for (int k = 0; k < NODES; k++)
        r[k] = (h[k] - c0) / w[k];
    if (!expand(&s, at, r, lo, hi))
        return false;
    powers(&s, p->n - 1, 0, p->c + 1);
    p->c[0] = c0;
    return true;
}

/* A centre of few bits, so that x - shift is exact for most x. */
static double centre(double lo, double hi)
{
    int e;
    (void)frexp(hi - lo, &e);
    return ldexp(nearbyint(ldexp((lo + hi) / 2, 4 - e)), e - 4);
}

/* Fits in w over [lo, hi]; h at the nodes. */
static bool fit(nnc_poly *p, const nnc_poly_nodes *at, const double *h, const double *w, double lo,
    double hi, int loose)
{
    series s;
    if (!(lo < hi) || !expand(&s, at, h, lo, hi) || !is_tame(&s, h))
        return false;
    p->n = terms(&s, at->tolerance) + loose;
    p->n = p->n < 2 ? 2 : p->n;
    if (p->n > MAX_COEFS)
        return false;
    powers(&s, p->n, p->squared ? 0 : p->shift, p->c);
    p->tail = 0;
    bool at0 = lo <= 0 && hi >= 0 && (p->squared || p->shift == 0);
    double c0 = at0 ? value_at(&s, NODES, 0) : 0, exact;
    if (at0 && p->order < 2 && is_short(c0, &exact)) {
        if (!refit(p, at, h, w, lo, hi, exact))
            return false;
    } else if (p->order == 1 && !p->wide && p->offset == 0) {
        c0 = p->c[0];
        p->c[0] = (double)(float)c0;
        p->tail = c0 - p->c[0];
    }
    if (!p->wide) {
        for (int i = 0; i < p->n; i++)
            p->c[i] = (double)(float)p->c[i];
        p->tail = (double)(float)p->tail;
    }
    return true;
}

static void over_power(double *h, const double *y, const double *x, int order)
{
    for (int k = 0; k < NODES; k++)
        h[k] = y[k] / (order == 0 ? 1 : order == 1 ? x[k] : x[k] * x[k]);
}

typedef enum symmetry { SYM_none, SYM_odd, SYM_even, SYM_offset } symmetry;

/* offset: odd except for the value at 0, which has few bits. */
static symmetry symmetry_of(const double *y, double zero)
{
    bool odd = true, even = true;
    double s, off = 0;
    for (int k = NODES; k < 2 * NODES; k++) {
        odd &= y[k] == -y[k + NODES];
        even &= y[k] == y[k + NODES];
        off = fmax(off, fabs(y[k] + y[k + NODES] - 2 * zero));
    }
    return odd                                                              ? SYM_odd
           : even                                                           ? SYM_even
           : zero != 0 && off <= 0x1p-48 * fabs(zero) && is_short(zero, &s) ? SYM_offset
                                                                            : SYM_none;
}

static bool fit_squared(
    nnc_poly *p, const nnc_poly_nodes *at, const double *y, double zero, symmetry sym, int loose)
{
    double h[NODES], w[NODES], a = at->lo * at->lo, b = at->hi * at->hi;
    const double *x = at->x + NODES;
    p->squared = true;
    p->order = sym != SYM_even ? 1 : zero == 0 ? 2 : 0;
    p->offset = sym == SYM_offset ? zero : 0;
    for (int k = 0; k < NODES; k++) {
        w[k] = x[k] * x[k];
        h[k] = y[NODES + k] - p->offset;
    }
    over_power(h, h, x, p->order);
    return fit(p, at, h, w, at->lo <= 0 && at->hi >= 0 ? 0 : fmin(a, b), fmax(a, b), loose);
}

static bool fit_plain(
    nnc_poly *p, const nnc_poly_nodes *at, const double *y, double zero, int loose)
{
    double h[NODES], w[NODES];
    p->squared = false;
    p->order = zero == 0;
    p->shift = p->order ? 0 : centre(at->lo, at->hi);
    over_power(h, y, at->x, p->order);
    for (int k = 0; k < NODES; k++)
        w[k] = at->x[k];
    return fit(p, at, h, w, at->lo, at->hi, loose);
}

bool nnc_poly_fit(
    nnc_poly *p, const nnc_poly_nodes *at, const double *y, double zero, bool wide, int loose)
{
    symmetry sym = symmetry_of(y, zero);
    for (int i = sym ? 0 : 1; i < 2; i++) {
        *p = (nnc_poly){.lo = at->lo, .hi = at->hi, .wide = wide, .ulp = -1};
        if (!(i ? fit_plain(p, at, y, zero, loose) : fit_squared(p, at, y, zero, sym, loose)))
            continue;
        p->condition = condition(p, at);
        if (p->condition > at->condition)
            continue;
        nnc_poly_steps(p);
        return true;
    }
    return false;
}

/* ---- steps ---- */

_Static_assert(3 * NNC_POLY_COEFS + 12 <= NNC_FSTEPS, "the steps of a polynomial fit a formula");

static int16_t add_step(nnc_poly *p, nnc_fop op, int16_t a, int16_t b, int16_t c)
{
    bool wide = p->wide && op != FO_narrow;
    p->f.step[p->f.n] =
        (nnc_fstep){.op = (uint8_t)op, .type = wide ? FT_f64 : FT_f32, .arg = {a, b, c}};
    p->cost++;
    return (int16_t)p->f.n++;
}

static int16_t put_num(nnc_poly *p, double v)
{
    int16_t at = add_step(p, FO_num, -1, -1, -1);
    p->f.step[at].f = v;
    p->cost--;
    return at;
}

/* a b + c */
static int16_t muladd(nnc_poly *p, int16_t a, int16_t b, int16_t c)
{
    return p->wide ? add_step(p, FO_add, add_step(p, FO_mul, a, b, -1), c, -1)
                   : add_step(p, FO_fma, a, b, c);
}

/* c[first] + c[first+1] w + .. */
static int16_t horner(nnc_poly *p, int16_t w, int first)
{
    int16_t y = put_num(p, p->c[p->n - 1]);
    for (int i = p->n - 2; i >= first; i--)
        y = muladd(p, y, w, put_num(p, p->c[i]));
    return y;
}

void nnc_poly_steps(nnc_poly *p)
{
    p->f.step[0] = (nnc_fstep){.op = FO_arg, .type = FT_f32, .arg = {-1, -1, -1}};
    p->f.n = 1;
    p->cost = 0;
    int16_t x = p->wide ? add_step(p, FO_wide, 0, -1, -1) : 0, w = x, y;
    if (p->squared)
        w = add_step(p, FO_mul, x, x, -1);
    else if (p->shift != 0)
        w = add_step(p, FO_sub, x, put_num(p, p->shift), -1);
    if (p->order == 0) {
        y = horner(p, w, 0);
    } else if (p->offset != 0) {
        y = horner(p, w, 0);
        y = muladd(p, x, y, put_num(p, p->offset));
    } else if (p->order == 2) {
        int16_t f = p->squared ? w : add_step(p, FO_mul, x, x, -1);
        y = add_step(p, FO_mul, f, horner(p, w, 0), -1);
    } else if (p->tail != 0 || p->wide) {
        int16_t q = p->wide ? horner(p, w, 0) : muladd(p, horner(p, w, 1), w, put_num(p, p->tail));
        y = add_step(p, FO_mul, x, q, -1);
        if (!p->wide)
            y = add_step(p, FO_fma, x, put_num(p, p->c[0]), y);
    } else {
        int16_t q = horner(p, w, 1), xw = add_step(p, FO_mul, x, w, -1);
        if (p->c[0] == 1)
            y = add_step(p, FO_fma, xw, q, x);
        else
            y = add_step(p, FO_fma, x, put_num(p, p->c[0]), add_step(p, FO_mul, xw, q, -1));
    }
    if (p->wide) {
        add_step(p, FO_narrow, y, -1, -1);
        p->cost *= 2; /* half as many lanes */
    }
}

/* ---- measuring ---- */

int nnc_poly_sample(double lo, double hi, int n, float *x)
{
    int m = 0;
    for (int i = 0; i < n; i++) {
        float v = (float)(lo + (hi - lo) * i / (n - 1));
        x[m++] = (double)v < lo   ? nextafterf(v, INFINITY)
                 : (double)v > hi ? nextafterf(v, -INFINITY)
                                  : v;
    }
    for (int e = 1; e <= 149 && lo <= 0 && hi >= 0; e++) {
        double v = ldexp(1 + (e * 37 % 64) / 64.0, -e);
        if (v <= hi)
            x[m++] = (float)v;
        if (-v >= lo)
            x[m++] = (float)-v;
    }
    return m;
}

double nnc_ulp_error(float y, double want)
{
    int e;
    (void)frexp(want, &e);
    return fabs((double)y - want) / ldexp(1, (want == 0 || e < -125 ? -125 : e) - 24);
}

double nnc_poly_check(nnc_poly *p, const float *x, const double *want, int n)
{
    float y[512];
    p->ulp = 0;
    for (int at = 0; at < n; at += 512) {
        int m = n - at < 512 ? n - at : 512;
        nnc_formula_run(&p->f, m, x + at, NULL, y);
        for (int i = 0; i < m; i++) {
            double e = nnc_ulp_error(y[i], want[at + i]);
            p->ulp = e <= p->ulp ? p->ulp : e == e ? e : INFINITY;
        }
    }
    return p->ulp;
}

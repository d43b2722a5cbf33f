/* plugins/onednn/product.c -- see product.h. Up to 14 rows times two vectors of columns are in registers. */
#include "plugins/onednn/product.h"
#include "base/base.h"
#include <oneapi/dnnl/dnnl.h>

bool dn_products(void)
{
#if defined(__x86_64__)
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;
#else
    return false;
#endif
}

/* n, a constant where this is inlined: rows of the block. more: c has a sum already. */
static inline __attribute__((always_inline)) DN_AVX512 void block(
    const int n, const dn_product *p, bool more)
{
    dn_vec s[DN_ROWS][2];
    const float *a = p->a, *b = p->b;
#pragma GCC unroll 14
    for (int r = 0; r < n; r++)
        s[r][0] = s[r][1] = (dn_vec){0};
    for (int64_t k = 0; k < p->terms; k++, b += DN_PANEL) {
        const dn_vec b0 = *(const dn_vec *)b, b1 = *(const dn_vec *)(b + DN_LANES);
#pragma GCC unroll 14
        for (int r = 0; r < n; r++) {
            const float x = a[r * p->a_row + k];
            s[r][0] += x * b0;
            s[r][1] += x * b1;
        }
    }
#pragma GCC unroll 14
    for (int r = 0; r < n; r++) {
        dn_vec *c = (dn_vec *)(p->c + r * p->c_row);
        if (more) {
            s[r][0] += c[0];
            s[r][1] += c[1];
        }
        c[0] = s[r][0];
        c[1] = s[r][1];
    }
}

static DN_AVX512 void block_of(int64_t n, const dn_product *p, bool more)
{
    switch (n) {
#define ROWS(n) \
    case n: block(n, p, more); break;
        ROWS(1)
        ROWS(2)
        ROWS(3)
        ROWS(4)
        ROWS(5)
        ROWS(6)
        ROWS(7)
        ROWS(8)
        ROWS(9)
        ROWS(10)
        ROWS(11)
        ROWS(12)
        ROWS(13)
        ROWS(14)
#undef ROWS
    }
}

/* Sums of 128 terms each are added: a panel of b stays in L1, and rounding errors are smaller than those of one running sum. */
void dn_multiply(const dn_product *p)
{
    enum { TERMS = 128 };
    const int64_t blocks = (p->rows + DN_ROWS - 1) / DN_ROWS, n = (p->rows + blocks - 1) / blocks;
    dn_product x = *p;
    for (int64_t k = 0; k < p->terms; k += TERMS) {
        x.b = p->b + k * DN_PANEL;
        x.terms = nnc_min64(TERMS, p->terms - k);
        for (int64_t i = 0; i < p->rows; i += n) {
            x.a = p->a + i * p->a_row + k;
            x.c = p->c + i * p->c_row;
            block_of(nnc_min64(n, p->rows - i), &x, k > 0);
        }
    }
}

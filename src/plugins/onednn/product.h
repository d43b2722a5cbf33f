/* plugins/onednn/product.h -- products of panels in registers, for algorithms that oneDNN lacks. AVX-512 only. Internal to the plug-in. */
#ifndef NNC_ONEDNN_PRODUCT_H
#define NNC_ONEDNN_PRODUCT_H

#include <stdbool.h>
#include <stdint.h>

enum { DN_LANES = 16, DN_PANEL = 32, DN_ROWS = 14 }; /* floats of a vector; columns and most rows of a register block */

typedef float dn_vec __attribute__((vector_size(64), aligned(4), may_alias));

#if defined(__x86_64__)
#define DN_AVX512 __attribute__((target("avx512f")))
#else
#define DN_AVX512
#endif

/* c[i c_row + j] = sum over k < terms of a[i a_row + k] b[k DN_PANEL + j], for i < rows, j < DN_PANEL. */
typedef struct dn_product {
    const float *a, *b;
    float *c;
    int64_t a_row, c_row, rows, terms;
} dn_product;

bool dn_products(void); /* does the CPU, as oneDNN may use it, have AVX-512? */
void dn_multiply(const dn_product *p);

#endif

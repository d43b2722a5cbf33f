/* tests/tensors/fuzz.c -- whole files with random damage: each is read, or refused with a message, and nothing else happens. A failure
 * is repeated with --seed N. NNC_FUZZ_SECONDS: for so long per kind of file,
 * otherwise a few thousand rounds. */
#include "help.h"
#include <stdlib.h>

enum { ROUNDS = 3000, MOST = 1 << 20 };

/* Numbers at which checks of sizes and offsets may fail. */
static uint64_t tempting(uint64_t r, size_t n)
{
    const uint64_t v[] = {0, 1, n, n - 1, n + 1, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffffe,
        UINT64_MAX, UINT64_MAX - n, (uint64_t)1 << 63, 0x06054b50, 0x02014b50, 1 << 16, r};
    return v[r % NNC_COUNT(v)];
}

static void damage(nnc_text *x, uint64_t key)
{
    uint64_t at = 0;
#define DRAW(n) ((n) ? nnc_rng_u32(key, at++) % (uint32_t)(n) : 0)
    for (uint32_t times = 1 + DRAW(4); times && x->n; times--) {
        const size_t i = DRAW(x->n), k = DRAW(x->n);
        switch (DRAW(6)) {
        case 0: x->s[i] ^= (char)(1 << DRAW(8)); break;
        case 1: x->s[i] = (char)DRAW(256); break;
        case 2: x->n = i; break;
        case 3: { /* a number */
            const uint64_t v = tempting(nnc_rng_u32(key, at++), x->n);
            const size_t bytes = (size_t)2 << DRAW(3);
            for (size_t b = 0; b < bytes && i + b < x->n; b++)
                x->s[i + b] = (char)(v >> 8 * b);
            break;
        }
        case 4: { /* bytes from elsewhere */
            const size_t n = 1 + DRAW(32);
            for (size_t b = 0; b < n && i + b < x->n && k + b < x->n; b++)
                x->s[i + b] = x->s[k + b];
            break;
        }
        default: { /* a digit of a text */
            size_t j = i;
            while (j < x->n && (x->s[j] < '0' || x->s[j] > '9'))
                j++;
            if (j < x->n)
                x->s[j] = (char)('0' + DRAW(10));
        }
        }
    }
#undef DRAW
}

static void open_damaged(const char *ext, const nnc_text *whole, uint64_t seed)
{
    nnc_text x = {0};
    nnc_tensors *t = NULL;
    nnc_putn(&x, whole->s, whole->n);
    damage(&x, nnc_rng_key(ext, seed));
    nnc_sink_clear(test_sink);
    nnc_status st = nnc_tensors_open(tt_file(ext, x.s, x.n), NULL, &t, test_sink);
    bool told = !st == (t != NULL) && (st == NNC_E_MODEL) == (nnc_sink_errors(test_sink) > 0);
    for (int i = 0; t && i < nnc_tensors_count(t); i++) {
        const nnc_tensor_entry *e = nnc_tensors_at(t, i);
        NNC_FREED void *dst = !e->why && e->size <= MOST ? malloc((size_t)e->size) : NULL;
        told &= e->why || nnc_type_bytes(&e->type) == e->size;
        nnc_sink_clear(test_sink);
        if (dst && nnc_tensors_read(t, e, dst, test_sink))
            told &= nnc_sink_errors(test_sink) == 1;
    }
    nnc_tensors_close(t);
    if (!told)
        test_fail(__FILE__, __LINE__, "%s, --seed %llu: refused without a message, or both", ext,
            (unsigned long long)seed);
    nnc_text_deinit(&x);
}

/* Damages each of the n files in turn. */
static void fuzz(const char *ext, int n, const nnc_text *whole)
{
    const char *seconds = getenv("NNC_FUZZ_SECONDS");
    const int64_t until = seconds ? nnc_now_ns() + strtoll(seconds, NULL, 10) * 1000000000 : 0;
    uint64_t i = 0;
    for (; seconds ? nnc_now_ns() < until : i < ROUNDS; i++)
        open_damaged(ext, &whole[i % (uint64_t)n], test_seed + i);
    if (seconds)
        printf("%s: %llu rounds\n", ext, (unsigned long long)i);
    tt_remove();
}

TEST(fuzz_npy)
{
    nnc_text x[2] = {0};
    tt_npy(&x[0], 1, "{'descr': '>f8', 'fortran_order': True, 'shape': (2, 3, 4), }", NULL, 192);
    tt_npy(&x[1], 2, "{'descr': '|b1', 'fortran_order': False, 'shape': (), }", NULL, 1);
    fuzz(".npy", 2, x);
    nnc_text_deinit(&x[0]);
    nnc_text_deinit(&x[1]);
}

TEST(fuzz_safetensors)
{
    NNC_LOCAL(nnc_text) x = {0};
    tt_safetensors(&x,
        "{\"__metadata__\":{\"format\":\"pt\"},\"a.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],"
        "\"data_offsets\":[0,24]},\"b\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]},"
        "\"c\":{\"dtype\":\"BOOL\",\"shape\":[0],\"data_offsets\":[26,26]}}",
        26);
    fuzz(".safetensors", 1, &x);
}

TEST(fuzz_npz)
{
    NNC_LOCAL(nnc_text) npy = {0};
    nnc_text zip[2] = {0};
    tt_small(&npy);
    tt_zip(&zip[0], 2, (tt_entry[]){{"a.npy", npy.s, npy.n}, {"b.npy", npy.s, npy.n, true}}, NULL);
    nnc_putn(&zip[1], tt_numpy, tt_numpy_bytes);
    fuzz(".npz", 2, zip);
    nnc_text_deinit(&zip[0]);
    nnc_text_deinit(&zip[1]);
}

/* tests/cudac/shim.h -- lets a C++ compiler build what the CUDA emitter writes: what CUDA declares and kernels use. Included before the
 * kernels' text (-include shim.h), and linked with shim.cpp, which runs them: one block at a time, every thread a fiber. Fibers change
 * hands only at barriers and shuffles. It includes nothing: reading the headers of the C++ library took most of a kernel's compile time. */
#ifndef NNC_SHIM_H
#define NNC_SHIM_H

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __shared__ static __attribute__((section("shim_shared")))
#define NNC_THUNKS
#define NNC_DYNAMIC(name) char *const name = shim_dynamic
#define NNC_CLUSTER(blocks)
#define NNC_CLUSTER_SYNC(blocks) shim_cluster_sync(blocks)
#define NNC_APPROX(y, bits) shim_approx(y, bits)
#define NNC_TENSOR(name) shim_##name

#ifndef SHIM_RUNS /* shim.cpp includes the C library's headers */
typedef __SIZE_TYPE__ size_t;
extern "C" {
void *memcpy(void *, const void *, size_t) noexcept;
#define SHIM_UNARY(name) double name(double) noexcept; float name##f(float) noexcept;
#define SHIM_BINARY(name) double name(double, double) noexcept; float name##f(float, float) noexcept;
SHIM_UNARY(acos) SHIM_UNARY(acosh) SHIM_UNARY(asin) SHIM_UNARY(asinh) SHIM_UNARY(atan) SHIM_UNARY(atanh) SHIM_UNARY(cbrt) SHIM_UNARY(ceil)
SHIM_UNARY(cos) SHIM_UNARY(cosh) SHIM_UNARY(erf) SHIM_UNARY(erfc) SHIM_UNARY(exp) SHIM_UNARY(exp2) SHIM_UNARY(expm1) SHIM_UNARY(fabs)
SHIM_UNARY(floor) SHIM_UNARY(log) SHIM_UNARY(log10) SHIM_UNARY(log1p) SHIM_UNARY(log2) SHIM_UNARY(rint) SHIM_UNARY(round) SHIM_UNARY(sin)
SHIM_UNARY(sinh) SHIM_UNARY(sqrt) SHIM_UNARY(tan) SHIM_UNARY(tanh) SHIM_UNARY(trunc)
SHIM_BINARY(atan2) SHIM_BINARY(copysign) SHIM_BINARY(fmax) SHIM_BINARY(fmin) SHIM_BINARY(fmod) SHIM_BINARY(pow)
double fma(double, double, double) noexcept;
float fmaf(float, float, float) noexcept;
}
#endif

#pragma GCC visibility push(hidden)

struct shim_dim { unsigned x, y, z; };
extern shim_dim threadIdx, blockIdx, blockDim, gridDim;
extern char *shim_dynamic;

void __syncthreads();
void __syncwarp(unsigned = ~0u);
int __syncthreads_or(int x);
unsigned __ballot_sync(unsigned, bool x);
void shim_cluster_sync(int blocks);
unsigned long long shim_exchange(unsigned long long bits, int from); /* those that lane `from` of the warp shows */
int shim_lane();
float shim_approx(double y, double bits);
void shim_copy16(void *to, const void *from, bool in);
void shim_commit();
void shim_wait(int left);
void shim_matrices(unsigned x[4], const void *p);
struct shim_fragments { unsigned a[4], b[2]; };
const shim_fragments *shim_show(const unsigned a[4], unsigned b0, unsigned b1); /* of the warp's lanes; valid until the next call */

#pragma GCC visibility pop

template <typename T> static T shim_shuffle(T x, int from)
{
    static_assert(sizeof(T) <= 8, "a shuffled value");
    unsigned long long bits = 0;
    memcpy(&bits, &x, sizeof x);
    bits = shim_exchange(bits, from);
    memcpy(&x, &bits, sizeof x);
    return x;
}
template <typename T> static T __shfl_xor_sync(unsigned, T x, int o) { return shim_shuffle(x, shim_lane() ^ o); }
template <typename T> static T __shfl_sync(unsigned, T x, int l, int w = 32)
{
    return shim_shuffle(x, (shim_lane() & ~(w - 1)) | (l & (w - 1)));
}

template <typename A, typename B> static A shim_bits(B b)
{
    A a;
    memcpy(&a, &b, sizeof a);
    return a;
}
/* c += a b, as mma.m16n8k16 has its fragments. Of c, lane l has row l / 4 (c[2] and c[3]: + 8), column 2 (l % 4) (c[1] and c[3]: + 1).
 * Of a, it has row l / 4, terms 2 (l % 4) and the next, in its words 0, 1 (row + 8), 2 (terms + 8) and 3; of b column l / 4 likewise. */
template <typename F> static void shim_mma(float (&c)[4], const unsigned a[4], unsigned b0, unsigned b1, F get)
{
    const int lane = shim_lane();
    const shim_fragments *all = shim_show(a, b0, b1);
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4, column = lane % 4 * 2 + i % 2;
        double sum = c[i];
        for (int k = 0; k < 16; k++) {
            const unsigned x = all[row * 4 + k % 8 / 2].a[k / 8 * 2 + i / 2], y = all[column * 4 + k % 8 / 2].b[k / 8];
            sum += (double)get(k % 2 ? x >> 16 : x & 0xffffu) * get(k % 2 ? y >> 16 : y & 0xffffu);
        }
        c[i] = (float)sum;
    }
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
static inline unsigned __float_as_uint(float x) { return shim_bits<unsigned>(x); }
static inline float __uint_as_float(unsigned x) { return shim_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return shim_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return shim_bits<double>(x); }

#endif

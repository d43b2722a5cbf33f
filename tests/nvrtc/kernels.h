/* tests/nvrtc/kernels.h -- kernels as a person would write them, in the style of the generated ones. */
#ifndef TEST_NVRTC_KERNELS_H
#define TEST_NVRTC_KERNELS_H

#define K_RELU \
    "extern \"C\" __global__ void __launch_bounds__(256) k_relu(const float4 *__restrict__ x, float4 *__restrict__ y)\n" \
    "{\n" \
    "    unsigned i = blockIdx.x * 256 + threadIdx.x;\n" \
    "    float4 v = x[i];\n" \
    "    v.x = fmaxf(v.x, 0.f); v.y = fmaxf(v.y, 0.f); v.z = fmaxf(v.z, 0.f); v.w = fmaxf(v.w, 0.f);\n" \
    "    y[i] = v;\n" \
    "}\n"

/* one sin of which the slow path keeps a table in local memory */
#define K_SIN \
    "extern \"C\" __global__ void __launch_bounds__(256) k_sin(const float *__restrict__ x, float *__restrict__ y)\n" \
    "{\n" \
    "    unsigned i = blockIdx.x * 256 + threadIdx.x;\n" \
    "    y[i] = sinf(x[i]);\n" \
    "}\n"

/* rows of 1024 in registers, one block each: shuffles, shared memory, barriers */
#define K_SOFTMAX \
    "__device__ __forceinline__ float all(float v, float *s, bool top)\n" \
    "{\n" \
    "    for (int o = 16; o; o >>= 1) { float w = __shfl_xor_sync(~0u, v, o); v = top ? fmaxf(v, w) : v + w; }\n" \
    "    __syncthreads();\n" \
    "    if (!(threadIdx.x & 31)) s[threadIdx.x >> 5] = v;\n" \
    "    __syncthreads();\n" \
    "    v = s[threadIdx.x & 7];\n" \
    "    for (int o = 4; o; o >>= 1) { float w = __shfl_xor_sync(~0u, v, o); v = top ? fmaxf(v, w) : v + w; }\n" \
    "    return v;\n" \
    "}\n" \
    "extern \"C\" __global__ void __launch_bounds__(256) k_softmax(const float4 *__restrict__ x, float4 *__restrict__ y)\n" \
    "{\n" \
    "    __shared__ float s[8];\n" \
    "    unsigned i = blockIdx.x * 256 + threadIdx.x;\n" \
    "    float4 v = x[i];\n" \
    "    float m = all(fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)), s, true);\n" \
    "    v.x = __expf(v.x - m); v.y = __expf(v.y - m); v.z = __expf(v.z - m); v.w = __expf(v.w - m);\n" \
    "    float r = __frcp_rn(all(v.x + v.y + v.z + v.w, s, false));\n" \
    "    y[i] = make_float4(v.x * r, v.y * r, v.z * r, v.w * r);\n" \
    "}\n"

/* many sums alive at once in few registers: they spill */
#define K_SPILL \
    "extern \"C\" __global__ void __launch_bounds__(1024, 2) k_spill(const float *__restrict__ x, float *__restrict__ y)\n" \
    "{\n" \
    "    float s[96];\n" \
    "    for (int j = 0; j < 96; j++) s[j] = x[j * 1024 + threadIdx.x];\n" \
    "    __syncthreads();\n" \
    "    for (int k = 0; k < 96; k++) { float t = 0;\n" \
    "#pragma unroll\n" \
    "        for (int j = 0; j < 96; j++) t += s[j] * s[(j * 7 + 1) % 96];\n" \
    "#pragma unroll\n" \
    "        for (int j = 0; j < 96; j++) s[j] = s[j] * t + (float)j;\n" \
    "    }\n" \
    "    for (int j = 0; j < 96; j++) y[j * 1024 + threadIdx.x] = s[j];\n" \
    "}\n"

/* loads and stores of every width */
#define K_WIDTHS \
    "extern \"C\" __global__ void k_widths(const unsigned char *__restrict__ a, const unsigned short *__restrict__ b,\n" \
    "    const float *__restrict__ c, const float2 *__restrict__ d, const float4 *__restrict__ e, unsigned char *p,\n" \
    "    unsigned short *q, float *r, float2 *s, float4 *t)\n" \
    "{\n" \
    "    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;\n" \
    "    p[i] = a[i]; q[i] = b[i]; r[i] = c[i]; s[i] = d[i]; t[i] = e[i];\n" \
    "}\n"

#endif

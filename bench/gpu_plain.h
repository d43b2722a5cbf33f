/* bench/gpu_plain.h -- the benchmark's functions as a person writes them in CUDA C. A thread has an element, or a block of 256 a row,
 * with CUDA's sinf, expf and erff. Types of 16 bits go through f32. */
#ifndef BENCH_GPU_PLAIN_H
#define BENCH_GPU_PLAIN_H

#define PLAIN_POINT(type, args, get, value, put) \
    "extern \"C\" __global__ void __launch_bounds__(256) plain(const " type " *__restrict__ x, " args type " *__restrict__ y)\n" \
    "{\n" \
    "    int i = blockIdx.x * 256 + threadIdx.x;\n" \
    "    float v = " get ";\n" \
    "    v = " value ";\n" \
    "    y[i] = " put ";\n" \
    "}\n"
#define PLAIN_HALF \
    "__device__ float wide(unsigned short h) { float f; asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(f) : \"h\"(h)); return f; }\n" \
    "__device__ unsigned short half(float f) { unsigned short h; asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(f)); return h; }\n"

#define PLAIN_F32(value) PLAIN_POINT("float", "", "x[i]", value, "v")
#define PLAIN_F16(value) PLAIN_HALF PLAIN_POINT("unsigned short", "", "wide(x[i])", value, "half(v)")
#define SIN4_OF(v) "sinf(sinf(sinf(sinf(" v "))))"
#define SIN16_OF(v) SIN4_OF(SIN4_OF(SIN4_OF(SIN4_OF(v))))
#define GELU_OF "0.5f * v * (1.0f + erff(v * 0.70710678f))"

#define PLAIN_RELU PLAIN_F32("fmaxf(v, 0.0f)")
#define PLAIN_SIN4 PLAIN_F32(SIN4_OF("v"))
#define PLAIN_SIN4_F16 PLAIN_F16(SIN4_OF("v"))
#define PLAIN_SIN16 PLAIN_F32(SIN16_OF("v"))
#define PLAIN_SIN16_F16 PLAIN_F16(SIN16_OF("v"))
#define PLAIN_GELU PLAIN_POINT("float", "const float *__restrict__ b, ", "x[i] + b[i % 4096]", GELU_OF, "v")
#define PLAIN_GELU_F16 \
    PLAIN_HALF PLAIN_POINT("unsigned short", "const unsigned short *__restrict__ b, ", "wide(x[i]) + wide(b[i % 4096])", GELU_OF, "half(v)")

/* Sum or maximum over a block of 256. */
#define PLAIN_BLOCK \
    "template <bool top> __device__ float block(float v)\n" \
    "{\n" \
    "    __shared__ float part[8];\n" \
    "    for (int d = 16; d; d /= 2) { float w = __shfl_xor_sync(~0u, v, d); v = top ? fmaxf(v, w) : v + w; }\n" \
    "    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;\n" \
    "    __syncthreads();\n" \
    "    v = part[threadIdx.x % 8];\n" \
    "    for (int d = 4; d; d /= 2) { float w = __shfl_xor_sync(~0u, v, d); v = top ? fmaxf(v, w) : v + w; }\n" \
    "    __syncthreads();\n" \
    "    return v;\n" \
    "}\n"

#define PLAIN_SOFTMAX \
    PLAIN_BLOCK \
    "extern \"C\" __global__ void __launch_bounds__(256) plain(const float *__restrict__ x, float *__restrict__ y)\n" \
    "{\n" \
    "    float v[4], m = -__int_as_float(0x7f800000), s = 0;\n" \
    "    for (int k = 0, i = threadIdx.x; k < 4; k++, i += 256)\n" \
    "        m = fmaxf(m, v[k] = i < 1000 ? x[blockIdx.x * 1000 + i] : -__int_as_float(0x7f800000));\n" \
    "    m = block<true>(m);\n" \
    "    for (int k = 0; k < 4; k++)\n" \
    "        s += v[k] = expf(v[k] - m);\n" \
    "    s = block<false>(s);\n" \
    "    for (int k = 0, i = threadIdx.x; k < 4; k++, i += 256)\n" \
    "        if (i < 1000)\n" \
    "            y[blockIdx.x * 1000 + i] = v[k] / s;\n" \
    "}\n"

#define PLAIN_LAYERNORM \
    PLAIN_BLOCK \
    "extern \"C\" __global__ void __launch_bounds__(256) plain(const float *__restrict__ x, const float *__restrict__ g,\n" \
    "    const float *__restrict__ b, float *__restrict__ y)\n" \
    "{\n" \
    "    float v[4], m = 0, s = 0;\n" \
    "    for (int k = 0, i = threadIdx.x; k < 4; k++, i += 256)\n" \
    "        m += v[k] = x[blockIdx.x * 1024 + i];\n" \
    "    m = block<false>(m) / 1024;\n" \
    "    for (int k = 0; k < 4; k++)\n" \
    "        s += (v[k] - m) * (v[k] - m);\n" \
    "    s = rsqrtf(block<false>(s) / 1024 + 1e-5f);\n" \
    "    for (int k = 0, i = threadIdx.x; k < 4; k++, i += 256)\n" \
    "        y[blockIdx.x * 1024 + i] = (v[k] - m) * s * g[i] + b[i];\n" \
    "}\n"

#endif

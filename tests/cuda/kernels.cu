// Kernels that are right: what the emulator must get right, in the forms that nvcc gives it (kernels.h).
#include "tests/cuda/kernels.h"
#include "tests/cuda/warp.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

enum { THREADS = 256, WARPS = THREADS / 32 };

static __device__ float warp_sum(float x) {
    for (int by = 16; by; by >>= 1) x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}

static __device__ float block_sum(float x, float *scratch) {
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    x = warp_sum(threadIdx.x % 32 < WARPS ? scratch[threadIdx.x % 32] : 0.0f);
    __syncthreads();
    return x;
}

static __global__ void reduce_kernel(const float *x, float *y, int n) {
    __shared__ float scratch[WARPS];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < n; i += THREADS) sum += x[(size_t)blockIdx.x * n + i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

void launch_reduce(const float *x, float *y, int rows, int n, cudaStream_t stream) {
    reduce_kernel<<<rows, THREADS, 0, stream>>>(x, y, n);
}

static __global__ void sum_kernel(const float *x, float *y, float *partials, unsigned *ticket, int n) {
    __shared__ float scratch[WARPS];
    __shared__ bool last;
    float sum = 0.0f;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) sum += x[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(ticket, 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last) return;
    sum = 0.0f;
    for (int i = threadIdx.x; i < gridDim.x; i += THREADS) sum += partials[i];
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) *y = sum;
}

void launch_sum(const float *x, float *y, float *partials, unsigned *ticket, int n, int blocks, cudaStream_t stream) {
    sum_kernel<<<blocks, THREADS, 0, stream>>>(x, y, partials, ticket, n);
}

// 1 + what was there. By fences around an atomic, or by an atomic that is one.
static __device__ unsigned take_ticket(unsigned *ticket, bool in_one) {
    unsigned before;
    if (in_one) {
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(ticket) : "memory");
        return before + 1;
    }
    __threadfence();
    before = atomicAdd(ticket, 1);
    __threadfence();
    return before + 1;
}

static __global__ void publish_kernel(const float *x, float *left, float *y, unsigned *ticket, bool in_one) {
    __shared__ bool last;
    left[blockIdx.x * THREADS + threadIdx.x] = 2.0f * x[blockIdx.x * THREADS + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) last = take_ticket(ticket, in_one) == gridDim.x;
    __syncthreads();
    if (!last) return;
    float sum = 0.0f;
    for (int i = 0; i < gridDim.x; i++) sum += left[i * THREADS + THREADS - 1 - threadIdx.x];
    y[threadIdx.x] = sum;
    if (threadIdx.x == 0) *ticket = 0;
}

void launch_publish(const float *x, float *left, float *y, unsigned *ticket, bool in_one, int blocks, cudaStream_t stream) {
    publish_kernel<<<blocks, THREADS, 0, stream>>>(x, left, y, ticket, in_one);
}

static __global__ void __launch_bounds__(THREADS)
    layer_norm_kernel(const float *x, const float *gain, const float *bias, __nv_bfloat16 *y, int d, float epsilon) {
    extern __shared__ float row[];
    __shared__ float scratch[WARPS];
    const float *in = x + (size_t)blockIdx.x * d;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < d; i += THREADS) sum += row[i] = in[i];
    float mean = block_sum(sum, scratch) / d;
    sum = 0.0f;
    for (int i = threadIdx.x; i < d; i += THREADS) sum += (row[i] - mean) * (row[i] - mean);
    float inverse = rsqrtf(block_sum(sum, scratch) / d + epsilon);
    for (int i = threadIdx.x; i < d; i += THREADS) {
        y[(size_t)blockIdx.x * d + i] = __float2bfloat16((row[i] - mean) * inverse * gain[i] + bias[i]);
    }
}

void launch_layer_norm(const float *x, const float *gain, const float *bias, uint16_t *y, int rows, int d, float epsilon,
                       cudaStream_t stream) {
    layer_norm_kernel<<<rows, THREADS, d * sizeof(float), stream>>>(x, gain, bias, (__nv_bfloat16 *)y, d, epsilon);
}

static __constant__ float coefficients[4] = {0.5f, -1.25f, 3.0f, 0.125f};

static __global__ void functions_kernel(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    int row = 0;
    y[row++ * n + i] = expf(v);
    y[row++ * n + i] = erff(v);
    y[row++ * n + i] = tanhf(v);
    y[row++ * n + i] = sinf(v);
    y[row++ * n + i] = cosf(1000.0f * v); // by the slow path, whose table is in local memory
    y[row++ * n + i] = logf(fabsf(v) + 1e-3f);
    y[row++ * n + i] = sqrtf(fabsf(v));
    y[row++ * n + i] = rsqrtf(fabsf(v) + 1e-3f);
    y[row++ * n + i] = v / (fabsf(v) + 1.0f);
    y[row++ * n + i] = powf(fabsf(v) + 1.0f, 2.5f);
    y[row++ * n + i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
    y[row++ * n + i] = __bfloat162float(__float2bfloat16(v));
    y[row++ * n + i] = __half2float(__float2half(v));
    y[row++ * n + i] = rintf(v) + floorf(v) + truncf(v) + (float)(int)v;
    y[row++ * n + i] = coefficients[i % 4] * v;
    y[row++ * n + i] = (float)((double)v / 3.0 + sqrt((double)fabsf(v)));
}

void launch_functions(const float *x, float *y, int n, cudaStream_t stream) {
    functions_kernel<<<(n + 127) / 128, 128, 0, stream>>>(x, y, n);
}

// A warp a tile of 16 x 16, operands through shared memory with padded rows.
template <product_kind KIND> static __global__ void product_kernel(const uint16_t *a, const uint16_t *b, float *c, int n, int k) {
    enum { K = 16, PITCH = K + 8 };
    __shared__ __align__(16) uint16_t as[16][PITCH], bs[16][PITCH];
    int lane = threadIdx.x, row = blockIdx.y * 16, column = blockIdx.x * 16;
    float sum[2][4] = {};
    for (int at = 0; at < k; at += K) {
        int r = lane / 2, half = lane % 2 * 8;
        copy_async_16(&as[r][half], a + (size_t)(row + r) * k + at + half);
        if (KIND == PRODUCT_BF16_TRANSPOSED) copy_async_16(&bs[r][half], b + (size_t)(at + r) * n + column + half);
        else copy_async_16(&bs[r][half], b + (size_t)(column + r) * k + at + half);
        copy_async_commit();
        copy_async_wait<0>();
        __syncthreads();
        uint32_t x[4], y[4];
        ldmatrix_x4(x, &as[lane % 16][lane / 16 * 8]);
        if (KIND == PRODUCT_BF16_TRANSPOSED) ldmatrix_x4_trans(y, &bs[lane % 16][lane / 16 * 8]);
        else ldmatrix_x4(y, &bs[lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8]);
        for (int j = 0; j < 2; j++) {
            if (KIND == PRODUCT_F16) mma_f16(sum[j], x, y[2 * j], y[2 * j + 1]);
            else mma_bf16(sum[j], x, y[2 * j], y[2 * j + 1]);
        }
        __syncthreads();
    }
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < 4; i++)
            c[(size_t)(row + lane / 4 + i / 2 * 8) * n + column + j * 8 + lane % 4 * 2 + i % 2] = sum[j][i];
}

static __global__ void product_tf32_kernel(const float *a, const float *b, float *c, int n, int k) {
    int lane = threadIdx.x, row = blockIdx.y * 16, column = blockIdx.x * 16;
    float sum[2][4] = {};
    for (int at = 0; at < k; at += 8) {
        uint32_t x[4];
        for (int i = 0; i < 4; i++)
            x[i] = __float_as_uint(a[(size_t)(row + lane / 4 + i % 2 * 8) * k + at + lane % 4 + i / 2 * 4]);
        for (int j = 0; j < 2; j++) {
            const float *from = b + (size_t)(column + j * 8 + lane / 4) * k + at + lane % 4;
            mma_tf32(sum[j], x, __float_as_uint(from[0]), __float_as_uint(from[4]));
        }
    }
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < 4; i++)
            c[(size_t)(row + lane / 4 + i / 2 * 8) * n + column + j * 8 + lane % 4 * 2 + i % 2] = sum[j][i];
}

void launch_product(product_kind kind, const void *a, const void *b, float *c, int m, int n, int k, cudaStream_t stream) {
    dim3 grid(n / 16, m / 16);
    const uint16_t *x = (const uint16_t *)a, *y = (const uint16_t *)b;
    if (kind == PRODUCT_BF16) product_kernel<PRODUCT_BF16><<<grid, 32, 0, stream>>>(x, y, c, n, k);
    if (kind == PRODUCT_F16) product_kernel<PRODUCT_F16><<<grid, 32, 0, stream>>>(x, y, c, n, k);
    if (kind == PRODUCT_BF16_TRANSPOSED) product_kernel<PRODUCT_BF16_TRANSPOSED><<<grid, 32, 0, stream>>>(x, y, c, n, k);
    if (kind == PRODUCT_TF32)
        product_tf32_kernel<<<grid, 32, 0, stream>>>((const float *)a, (const float *)b, c, n, k);
}

// The next tile is under way while one is scaled; threads read what other threads brought.
static __global__ void staged_kernel(const float *x, float *y, float factor, int n) {
    enum { TILE = 1024 };
    __shared__ __align__(16) float tiles[2][TILE];
    int t = threadIdx.x, stage = 0;
    copy_async_16(&tiles[0][4 * t], x + (size_t)blockIdx.x * TILE + 4 * t);
    copy_async_commit();
    for (int at = blockIdx.x * TILE; at < n; at += gridDim.x * TILE, stage ^= 1) {
        int next = at + gridDim.x * TILE;
        if (next < n) copy_async_16(&tiles[stage ^ 1][4 * t], x + next + 4 * t);
        copy_async_commit();
        copy_async_wait<1>();
        __syncthreads();
        for (int i = t; i < TILE; i += THREADS) y[at + TILE - 1 - i] = factor * tiles[stage][TILE - 1 - i];
        __syncthreads();
    }
    copy_async_wait<0>();
}

void launch_staged(const float *x, float *y, float factor, int n, cudaStream_t stream) {
    staged_kernel<<<2, THREADS, 0, stream>>>(x, y, factor, n);
}

static __global__ void add_kernel(float *y, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += by;
}
static __global__ void scale_kernel(float *y, float by, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] *= by;
}
void launch_add(float *y, float by, int n, cudaStream_t stream) {
    add_kernel<<<(n + 127) / 128, 128, 0, stream>>>(y, by, n);
}
void launch_scale(float *y, float by, int n, cudaStream_t stream) {
    scale_kernel<<<(n + 127) / 128, 128, 0, stream>>>(y, by, n);
}

static __global__ void integers_kernel(const int32_t *a, const int32_t *b, uint64_t *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int32_t s = a[i], t = b[i];
    uint32_t u = s, v = t;
    int row = 0;
    y[row++ * n + i] = (uint64_t)(int64_t)(s / t);
    y[row++ * n + i] = (uint64_t)(int64_t)(s % t);
    y[row++ * n + i] = u / v;
    y[row++ * n + i] = u % v;
    y[row++ * n + i] = (uint64_t)((int64_t)s * t);
    y[row++ * n + i] = (uint64_t)u * v;
    y[row++ * n + i] = __umulhi(u, v) ^ (uint32_t)__mulhi(s, t);
    y[row++ * n + i] = (uint32_t)(s >> (v & 31)) ^ (u << (v & 31));
    y[row++ * n + i] = (uint64_t)(int64_t)(int8_t)s + (uint64_t)(int64_t)(int16_t)t;
    y[row++ * n + i] = __popc(u) * 100 + __clz(u);
    y[row++ * n + i] = __byte_perm(u, v, 0x5140);
    y[row++ * n + i] = __funnelshift_l(u, v, 7) ^ __funnelshift_r(u, v, 9);
    y[row++ * n + i] = (uint64_t)(int64_t)min(s, t) ^ max(u, v);
    y[row++ * n + i] = (u & v) ^ (~u | v);
    y[row++ * n + i] = __brev(u) ^ (uint32_t)abs(t);
    y[row++ * n + i] = ((uint64_t)u << 32 | v) / ((uint64_t)v + 12345678901ull);
}

void launch_integers(const int32_t *a, const int32_t *b, uint64_t *y, int n, cudaStream_t stream) {
    integers_kernel<<<(n + 127) / 128, 128, 0, stream>>>(a, b, y, n);
}

static __global__ void warp_kernel(uint32_t *y) {
    int t = threadIdx.x, row = 0;
    const uint32_t all = 0xffffffffu;
    y[row++ * 64 + t] = __ballot_sync(all, t % 3 == 0);
    y[row++ * 64 + t] = __any_sync(all, t == 40) + 2 * __all_sync(all, t < 32);
    y[row++ * 64 + t] = __shfl_down_sync(all, t, 5);
    y[row++ * 64 + t] = __shfl_up_sync(all, t, 3, 8);
    y[row++ * 64 + t] = __shfl_sync(all, t, 9, 16);
    y[row++ * 64 + t] = __shfl_xor_sync(all, t, 6);
    y[row++ * 64 + t] = __syncthreads_count(t % 5 == 0);
    y[row++ * 64 + t] = __syncthreads_or(t == 63) + 2 * __syncthreads_and(t < 64);
    if (t == 0) y[row * 64] = 0, y[row * 64 + 1] = 7;
    __syncthreads();
    atomicAdd(&y[row * 64], t);
    atomicMax(&y[row * 64 + 1], t);
    row++;
    uint32_t half = t % 32 < 16 ? 0xffffu : 0xffff0000u; // two halves of a warp, apart
    if (t % 32 < 16) y[row * 64 + t] = __shfl_xor_sync(half, 2 * t, 1);
    else y[row * 64 + t] = __shfl_xor_sync(half, 3 * t, 1);
}

void launch_warp(uint32_t *y, cudaStream_t stream) {
    warp_kernel<<<1, 64, 0, stream>>>(y);
}

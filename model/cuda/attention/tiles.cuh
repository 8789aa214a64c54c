// Products of tiles in shared memory, by a block of TILE_THREADS threads: by tensor cores in bf16 and fp16 (matrix_tiles),
// by float32 arithmetic (plain_tiles). Both have the same members, so that a kernel is written once.
//
// A block owns a tile of OWN rows and meets tiles of STREAM rows; rows have D columns and are PITCH elements apart, so that
// eight of them lie in different banks. Of the OWN x STREAM scores a thread holds ROWS x COLUMNS, of an OWN x D result
// ROWS x RESULTS: rows row(i), columns column(j) and result_column(j). GROUP neighbouring lanes have the same rows.
#pragma once
#include "model/cuda/matrices/shared.cuh"

enum { TILE_THREADS = 128 };

// A warp has 16 rows; its fragments are those of mma.m16n8k16 (PTX ISA): of lane l rows l / 4 and l / 4 + 8, and in every
// eight columns 2 (l % 4) and the next.
template <ups_dtype TYPE, int WIDTH> struct matrix_tiles {
    typedef uint16_t element;
    static constexpr bool HALF = true;
    static constexpr ups_dtype DTYPE = TYPE;
    static constexpr int D = WIDTH, PITCH = WIDTH + 8, OWN = 64, STREAM = WIDTH > 64 ? 32 : 64;
    static constexpr int ROWS = 2, GROUP = 4, COLUMNS = STREAM / GROUP, RESULTS = WIDTH / GROUP;
    static constexpr int UNIT = 2;     // elements that are read from a tile at once
    static constexpr int EXCHANGE = 1; // floats of shared memory that mix() takes: none

    static __device__ __forceinline__ int row(int i) {
        return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * i;
    }
    static __device__ __forceinline__ int column(int j) {
        return j / 2 * 8 + threadIdx.x % 4 * 2 + j % 2;
    }
    static __device__ __forceinline__ int result_column(int j) {
        return column(j);
    }

    static __device__ __forceinline__ void read_unit(const element *from, float (&x)[UNIT]) {
        float2 pair = unpack_pair<TYPE>(*(const uint32_t *)from);
        x[0] = pair.x, x[1] = pair.y;
    }
    static __device__ __forceinline__ void write_unit(element *to, const float (&x)[UNIT]) {
        *(uint32_t *)to = pack_pair<TYPE>(x[0], x[1]);
    }

    // Columns j and j + 1 of both rows.
    template <int N>
    static __device__ __forceinline__ void multiply(float (&d)[ROWS][N], int j, const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
        if (TYPE == UPS_BF16)
            asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                "{%0, %1, %2, %3};"
                : "+f"(d[0][j]), "+f"(d[0][j + 1]), "+f"(d[1][j]), "+f"(d[1][j + 1])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
        else
            asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                "{%0, %1, %2, %3};"
                : "+f"(d[0][j]), "+f"(d[0][j + 1]), "+f"(d[1][j]), "+f"(d[1][j + 1])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }

    // s = own stream^T
    static __device__ __forceinline__ void scores(const element *own, const element *stream, float (&s)[ROWS][COLUMNS]) {
        int lane = threadIdx.x % 32;
        own += (threadIdx.x / 32 * 16 + lane % 16) * PITCH + lane / 16 * 8;
        stream += (lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * 8;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) s[i][j] = 0.0f;
        }
#pragma unroll
        for (int k = 0; k < D; k += 16) {
            uint32_t a[4];
            load_matrices(a, own + k);
#pragma unroll
            for (int n = 0; n < STREAM; n += 16) {
                uint32_t b[4];
                load_matrices(b, stream + n * PITCH + k);
                multiply(s, n / 4, a, b[0], b[1]);
                multiply(s, n / 4 + 2, a, b[2], b[3]);
            }
        }
    }

    // sums += p stream, p rounded to the elements' dtype
    static __device__ __forceinline__ void mix(const float (&p)[ROWS][COLUMNS], float *exchange, const element *stream,
                                               float (&sums)[ROWS][RESULTS]) {
        int lane = threadIdx.x % 32;
        stream += lane % 16 * PITCH + lane / 16 * 8;
#pragma unroll
        for (int k = 0; k < STREAM; k += 16) {
            const int j = k / 4;
            uint32_t a[4] = {pack_pair<TYPE>(p[0][j], p[0][j + 1]), pack_pair<TYPE>(p[1][j], p[1][j + 1]),
                             pack_pair<TYPE>(p[0][j + 2], p[0][j + 3]), pack_pair<TYPE>(p[1][j + 2], p[1][j + 3])};
#pragma unroll
            for (int n = 0; n < D; n += 16) {
                uint32_t b[4];
                load_matrices_transposed(b, stream + k * PITCH + n);
                multiply(sums, n / 4, a, b[0], b[1]);
                multiply(sums, n / 4 + 2, a, b[2], b[3]);
            }
        }
    }
};

// Elements of any dtype become float32 in shared memory. A thread's rows and columns are far apart, so that the rows of a
// warp lie in different banks.
template <int WIDTH> struct plain_tiles {
    typedef float element;
    static constexpr bool HALF = false;
    static constexpr ups_dtype DTYPE = UPS_F32;
    static constexpr int D = WIDTH, PITCH = WIDTH + 4, OWN = WIDTH > 64 ? 32 : 64, STREAM = OWN / 2;
    static constexpr int ROWS = 4, GROUP = TILE_THREADS * ROWS / OWN, COLUMNS = STREAM / GROUP, RESULTS = WIDTH / GROUP;
    static constexpr int UNIT = 1, EXCHANGE_PITCH = STREAM + 4, EXCHANGE = OWN * EXCHANGE_PITCH;

    static __device__ __forceinline__ int row(int i) {
        return threadIdx.x / GROUP + i * (OWN / ROWS);
    }
    static __device__ __forceinline__ int column(int j) {
        return threadIdx.x % GROUP + j * GROUP;
    }
    static __device__ __forceinline__ int result_column(int j) {
        return j / 2 * 2 * GROUP + threadIdx.x % GROUP * 2 + j % 2;
    }

    static __device__ __forceinline__ void read_unit(const element *from, float (&x)[UNIT]) {
        x[0] = *from;
    }
    static __device__ __forceinline__ void write_unit(element *to, const float (&x)[UNIT]) {
        *to = x[0];
    }

    static __device__ __forceinline__ void scores(const element *own, const element *stream, float (&s)[ROWS][COLUMNS]) {
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) s[i][j] = 0.0f;
        }
#pragma unroll 2
        for (int k = 0; k < D; k += 4) {
            float4 b[COLUMNS];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) b[j] = *(const float4 *)(stream + column(j) * PITCH + k);
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                float4 a = *(const float4 *)(own + row(i) * PITCH + k);
#pragma unroll
                for (int j = 0; j < COLUMNS; j++) s[i][j] += a.x * b[j].x + a.y * b[j].y + a.z * b[j].z + a.w * b[j].w;
            }
        }
    }

    // p goes through shared memory: the lanes that need a row of it are those that have it.
    static __device__ __forceinline__ void mix(const float (&p)[ROWS][COLUMNS], float *exchange, const element *stream,
                                               float (&sums)[ROWS][RESULTS]) {
        __syncwarp();
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) exchange[row(i) * EXCHANGE_PITCH + column(j)] = p[i][j];
        }
        __syncwarp();
#pragma unroll 1
        for (int k = 0; k < STREAM; k += 4) {
            float a[ROWS][4];
#pragma unroll
            for (int i = 0; i < ROWS; i++) *(float4 *)a[i] = *(const float4 *)(exchange + row(i) * EXCHANGE_PITCH + k);
#pragma unroll
            for (int e = 0; e < 4; e++) {
#pragma unroll
                for (int j = 0; j < RESULTS; j += 2) {
                    float2 b = *(const float2 *)(stream + (k + e) * PITCH + result_column(j));
#pragma unroll
                    for (int i = 0; i < ROWS; i++) {
                        sums[i][j] += a[i][e] * b.x;
                        sums[i][j + 1] += a[i][e] * b.y;
                    }
                }
            }
        }
    }
};

// Over the lanes that have the same rows.
template <typename TILES> static __device__ __forceinline__ float group_sum(float x) {
#pragma unroll
    for (int by = TILES::GROUP / 2; by; by >>= 1) x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}
template <typename TILES> static __device__ __forceinline__ float group_largest(float x) {
#pragma unroll
    for (int by = TILES::GROUP / 2; by; by >>= 1) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, by));
    return x;
}

// What the kernels of attention of short sequences share: at most MOST_TOKENS queries and keys, heads of at most 64 features
// in bf16 or fp16, without windows, rotated places or bias. All keys and values of a head rest in a block's shared memory; a
// warp takes its own queries through them and waits for nobody. Other calls have the kernels of attention.cu and
// attention_backward.cu.
//
// Rows are normalised on their way into shared memory, h = x / rms(x), rounded to their dtype. Gains are a factor of the
// columns of the product, scale gain_q gain_k log2(e), which a warp gives to its own rows in registers: probabilities are
// powers of two.
#pragma once
#include "model/cuda/approximate.cuh"
#include "model/cuda/attention/attention.cuh"

enum { MOST_TOKENS = 512 };
// The matrix units take every operand from shared memory by way of registers (ldmatrix). With 32 own rows a warp reads half as
// much as with sixteen, but a processor has registers for half as many such warps. On an H200 forward was faster with
// sixteen, backward with 32.
enum { FORWARD_TILES = 1, BACKWARD_TILES = 2 }; // of sixteen own rows

// Over the four lanes that have the same rows of a result.
static __device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// What a warp does with its own rows, M times sixteen: what is read of the other side serves all of them. From memory to
// shared memory and back two lanes have a row of sixteen, and of every 32 bytes sixteen each. Fragments and results are
// those of matrix_tiles: of lane l rows l / 4 and l / 4 + 8; columns of a result j / 2 * 8 + l % 4 * 2 + j % 2.
template <ups_dtype TYPE, int WIDTH, int M> struct short_rows {
    typedef uint16_t element;
    typedef matrix_tiles<TYPE, WIDTH> tiles;
    static constexpr ups_dtype DTYPE = TYPE;
    static constexpr int D = WIDTH, PITCH = tiles::PITCH, STEPS = D / 16, RESULTS = D / 4, PIECES = D / WIDE / 2;
    static constexpr int TILES = M, OWN = 16 * M, WARPS = 8 / M; // own rows; warps of a block of 128 rows
    static constexpr bool HELD = D <= 48; // registers suffice for own rows beside the sums
    typedef uint32_t fragments[M][STEPS][4];
    typedef float results[M][2][RESULTS];
    typedef uint4 pieces[PIECES]; // of a lane

    static __device__ __forceinline__ int lane() {
        return threadIdx.x % 32;
    }
    static __device__ __forceinline__ int column_of(int piece) {
        return (2 * piece + lane() % 2) * WIDE;
    }
    static __device__ __forceinline__ element *place_of(element *rows) {
        return rows + lane() / 2 * PITCH + lane() % 2 * WIDE;
    }

    // Sixteen rows from `first` on, of which those below `count` are there; the others are zeros.
    static __device__ __forceinline__ void fetch(const head_rows &from, int width, int first, int count, pieces &x) {
        const int row = first + lane() / 2;
        const element *data = (const element *)from.from.data + from.base + (int64_t)row * from.stride + lane() % 2 * WIDE;
#pragma unroll
        for (int i = 0; i < PIECES; i++)
            x[i] = row < count && column_of(i) < width ? *(const uint4 *)(data + i * 2 * WIDE) : make_uint4(0, 0, 0, 0);
    }
    static __device__ __forceinline__ void put(const pieces &x, element *rows) {
        rows = place_of(rows);
#pragma unroll
        for (int i = 0; i < PIECES; i++) *(uint4 *)(rows + i * 2 * WIDE) = x[i];
    }
    // Both, behind the warp's back.
    static __device__ __forceinline__ void copy(const head_rows &from, int width, int first, int count, element *rows) {
        const int row = first + lane() / 2;
        const element *data = (const element *)from.from.data + from.base, *at = data + (int64_t)row * from.stride + lane() % 2 * WIDE;
        rows = place_of(rows);
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const bool present = row < count && column_of(i) < width;
            copy_async_16(rows + i * 2 * WIDE, present ? at + i * 2 * WIDE : data, present);
        }
    }
    // Rows to where they belong, if anywhere. All lanes have written theirs.
    static __device__ __forceinline__ void store(element *rows, const head_rows &to, int width, int first, int count) {
        const int row = first + lane() / 2;
        element *data = (element *)to.from.data + to.base + (int64_t)row * to.stride + lane() % 2 * WIDE;
        rows = place_of(rows);
        __syncwarp();
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            if (row < count && column_of(i) < width && to.from.data)
                *(uint4 *)(data + i * 2 * WIDE) = *(const uint4 *)(rows + i * 2 * WIDE);
        }
        __syncwarp();
    }
    static __device__ __forceinline__ void keep(const float (&x)[2][RESULTS], element *rows) {
        rows += lane() / 4 * PITCH + lane() % 4 * 2;
#pragma unroll
        for (int j = 0; j < RESULTS; j += 2) {
            *(uint32_t *)(rows + j * 4) = pack_pair<TYPE>(x[0][j], x[0][j + 1]);
            *(uint32_t *)(rows + 8 * PITCH + j * 4) = pack_pair<TYPE>(x[1][j], x[1][j + 1]);
        }
    }

    // x . y of a row, to both of its lanes.
    static __device__ __forceinline__ float product(const pieces &x, const pieces &y) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float2 a = unpack_pair<TYPE>((&x[i].x)[k]), b = unpack_pair<TYPE>((&y[i].x)[k]);
                sum += a.x * b.x + a.y * b.y;
            }
        }
        return sum + __shfl_xor_sync(0xffffffffu, sum, 1);
    }
    // Divides rows by their root mean squares; returns 1/rms.
    static __device__ __forceinline__ float normalise(pieces &x, float inverse_width, float epsilon) {
        const float by = inverse_root_fast(product(x, x) * inverse_width + epsilon);
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float2 pair = unpack_pair<TYPE>((&x[i].x)[k]);
                (&x[i].x)[k] = pack_pair<TYPE>(pair.x * by, pair.y * by);
            }
        }
        return by;
    }

    static __device__ __forceinline__ void read(const element *rows, fragments &a) {
        rows += lane() % 16 * PITCH + lane() / 16 * 8;
#pragma unroll
        for (int m = 0; m < M; m++) {
#pragma unroll
            for (int k = 0; k < STEPS; k++) load_matrices(a[m][k], rows + m * 16 * PITCH + k * 16);
        }
    }
    static __device__ __forceinline__ void write(const fragments &a, element *rows) {
        rows += lane() / 4 * PITCH + lane() % 4 * 2;
#pragma unroll
        for (int m = 0; m < M; m++) {
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
#pragma unroll
                for (int r = 0; r < 4; r++)
                    *(uint32_t *)(rows + (m * 16 + r % 2 * 8) * PITCH + k * 16 + r / 2 * 8) = a[m][k][r];
            }
        }
    }
    // Columns times a factor each.
    static __device__ __forceinline__ void scale(fragments &a, const float *factor) {
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float2 f = *(const float2 *)(factor + k * 16 + half * 8 + lane() % 4 * 2);
#pragma unroll
                for (int i = 0; i < 2 * M; i++) {
                    uint32_t &pair = a[i / 2][k][half * 2 + i % 2];
                    const float2 x = unpack_pair<TYPE>(pair);
                    pair = pack_pair<TYPE>(x.x * f.x, x.y * f.y);
                }
            }
        }
    }

    // Columns j and j + 1 of both rows: a product, and what `begin` is.
    template <int N>
    static __device__ __forceinline__ void multiply_first(float (&d)[2][N], int j, const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                                          float4 begin) {
        if (TYPE == UPS_BF16)
            asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                "{%10, %11, %12, %13};"
                : "=f"(d[0][j]), "=f"(d[0][j + 1]), "=f"(d[1][j]), "=f"(d[1][j + 1])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(begin.x), "f"(begin.y), "f"(begin.z), "f"(begin.w));
        else
            asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                "{%10, %11, %12, %13};"
                : "=f"(d[0][j]), "=f"(d[0][j + 1]), "=f"(d[1][j]), "=f"(d[1][j + 1])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(begin.x), "f"(begin.y), "f"(begin.z), "f"(begin.w));
    }
    // s = begin(m, j) + own rows^T, COUNT rows. own: fragments or, where registers do not suffice, rows in shared memory.
    template <int COUNT, typename BEGIN>
    static __device__ __forceinline__ void multiply(const fragments &held, const element *own, const element *rows,
                                                    float (&s)[M][2][COUNT / 4], BEGIN begin) {
        if (own) own += lane() % 16 * PITCH + lane() / 16 * 8;
        rows += (lane() % 8 + lane() / 16 * 8) * PITCH + lane() / 8 % 2 * 8;
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            uint32_t a[M][4];
#pragma unroll
            for (int m = 0; m < M; m++) {
#pragma unroll
                for (int r = 0; r < 4; r++) a[m][r] = held[m][k][r];
                if (own) load_matrices(a[m], own + m * 16 * PITCH + k * 16);
            }
#pragma unroll
            for (int n = 0; n < COUNT; n += 16) {
                const int j = n / 4;
                uint32_t b[4];
                load_matrices(b, rows + n * PITCH + k * 16);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    if (k == 0) {
                        multiply_first(s[m], j, a[m], b[0], b[1], begin(m, j));
                        multiply_first(s[m], j + 2, a[m], b[2], b[3], begin(m, j + 2));
                    } else {
                        tiles::multiply(s[m], j, a[m], b[0], b[1]);
                        tiles::multiply(s[m], j + 2, a[m], b[2], b[3]);
                    }
                }
            }
        }
    }
    // sums += p rows, p rounded to the rows' dtype
    template <int COUNT>
    static __device__ __forceinline__ void mix(const float (&p)[M][2][COUNT / 4], const element *rows, results &sums) {
        rows += lane() % 16 * PITCH + lane() / 16 * 8;
#pragma unroll
        for (int k = 0; k < COUNT; k += 16) {
            const int j = k / 4;
            uint32_t a[M][4];
#pragma unroll
            for (int m = 0; m < M; m++) {
#pragma unroll
                for (int r = 0; r < 4; r++) a[m][r] = pack_pair<TYPE>(p[m][r % 2][j + r / 2 * 2], p[m][r % 2][j + r / 2 * 2 + 1]);
            }
#pragma unroll
            for (int n = 0; n < D; n += 16) {
                uint32_t b[4];
                load_matrices_transposed(b, rows + k * PITCH + n);
#pragma unroll
                for (int m = 0; m < M; m++) {
                    tiles::multiply(sums[m], n / 4, a[m], b[0], b[1]);
                    tiles::multiply(sums[m], n / 4 + 2, a[m], b[2], b[3]);
                }
            }
        }
    }
};

// Factors of columns; gains are ones where there are none.
template <int D> struct short_factors {
    float product[D];          // scale log2(e) gain_q gain_k
    float gain[2][D];          // of queries, of keys
    float other[2][D];         // scale times the gain of the other side
};

template <int D> static __device__ __forceinline__ void find_factors(const attention_call &c, short_factors<D> &f) {
    for (int i = threadIdx.x; i < D; i += blockDim.x) {
        const float q = c.gain_q && i < c.width ? c.gain_q[i] : 1.0f, k = c.gain_k && i < c.width ? c.gain_k[i] : 1.0f;
        f.product[i] = c.scale * LOG2E * q * k;
        f.gain[0][i] = q, f.gain[1][i] = k;
        f.other[0][i] = c.scale * k, f.other[1][i] = c.scale * q;
    }
}

// Sixteen rows of queries or keys as attention sees them, with 1/rms of each to where it is kept.
template <typename ROWS>
static __device__ __forceinline__ void normalise_and_keep(const attention_call &c, typename ROWS::pieces &x, float *rms, int first,
                                                          int count) {
    const int row = first + threadIdx.x % 32 / 2;
    const float by = ROWS::normalise(x, 1.0f / (float)c.width, c.epsilon);
    if (threadIdx.x % 2 == 0 && row < count && rms) rms[(int64_t)row * c.heads] = by;
}

template <typename MEMORY> static __device__ __forceinline__ uint16_t *rows_behind(MEMORY &m) {
    return (uint16_t *)(&m + 1);
}

// Where a head's rows are. Kept in shared memory, so that they take no registers while products are made.
struct short_places {
    head_rows queries, keys, values, outputs, upstream;
    float *lse, *rms_of_queries, *rms_of_keys; // of its first row
};

static __device__ __forceinline__ short_places find_places(const attention_call &c, int64_t sample, int head) {
    const head_side q = queries_of(c, sample, head), k = keys_of(c, sample, head);
    return {q.rows,
            k.rows,
            values_of(c, sample, head),
            outputs_of(c, c.out, sample, head),
            outputs_of(c, c.upstream, sample, head),
            c.lse ? c.lse + (sample * c.heads + head) * c.queries : nullptr,
            (float *)q.rms,
            (float *)k.rms};
}

static constexpr __host__ __device__ int padded(int count, int to) {
    return (count + to - 1) / to * to;
}

template <int M, typename LAUNCH> static ups_status with_rows(const attention_call &c, LAUNCH launch) {
    if (c.q.dtype == UPS_BF16) {
        if (c.width <= 32) return launch(short_rows<UPS_BF16, 32, M>());
        if (c.width <= 48) return launch(short_rows<UPS_BF16, 48, M>());
        return launch(short_rows<UPS_BF16, 64, M>());
    }
    if (c.width <= 32) return launch(short_rows<UPS_F16, 32, M>());
    if (c.width <= 48) return launch(short_rows<UPS_F16, 48, M>());
    return launch(short_rows<UPS_F16, 64, M>());
}

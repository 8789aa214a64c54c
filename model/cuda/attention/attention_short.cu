// Attention of short sequences: at most MOST_TOKENS queries and keys, heads of at most 64 features in bf16 or fp16, without
// windows, rotated places or bias. All keys and values of a head rest in a block's shared memory; a warp takes sixteen
// queries through them and waits for nobody. Other calls have the kernels of attention.cu and attention_backward.cu.
//
// Rows are normalised where they lie, h = x / rms(x), rounded to their dtype. Gains are a factor of the columns of the
// product, scale gain_q gain_k log2(e), which a warp gives to its own rows in registers: probabilities are powers of two.
//
// Backward (FlashAttention, arXiv 2205.14135, section 3.1, with D the row sums of dO O):
//   P = exp(S - lse)   dV = P^T dO   dP = dO V^T   dS = P (dP - D)   dQ = dS K   dK = dS^T Q
// A warp owns sixteen queries and makes their dQ, then sixteen keys and makes their dK and dV: scores are found twice, and
// nothing is added to from two sides. Sums begin as -lse and -D, so that the matrix units subtract. Up to TOGETHER tokens a
// block does both, and reads a head once; of longer sequences one kernel owns queries and another keys.
// Gradients of gains are partial sums by block, added in the order of blocks.
#include "model/cuda/attention/attention_short.h"
#include <stdlib.h>

enum { MOST_TOKENS = 512, TOGETHER = 128, KEY_TILE = 64, GRADIENT_TILE = 32 };

static __device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float inverse_root(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Over the four lanes that have the same rows of a result.
static __device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// What a warp does with its own rows, M times sixteen: what is read of the other side serves all of them. From memory to
// shared memory and back two lanes have a row of sixteen, and of every 32 bytes sixteen each. Fragments and results are those of matrix_tiles: of lane l rows l / 4 and l / 4 + 8; columns of a result
// j / 2 * 8 + l % 4 * 2 + j % 2.
template <ups_dtype TYPE, int WIDTH, int M> struct short_rows {
    typedef uint16_t element;
    typedef matrix_tiles<TYPE, WIDTH> tiles;
    static constexpr ups_dtype DTYPE = TYPE;
    static constexpr int D = WIDTH, PITCH = tiles::PITCH, STEPS = D / 16, RESULTS = D / 4, PIECES = D / WIDE / 2;
    static constexpr int TILES = M, OWN = 16 * M, WARPS = 8 / M; // own rows; warps of a block of 128 rows
    static constexpr bool HELD = D <= 48, BOTH_HELD = M > 1 ? HELD : D <= 32; // registers suffice for own rows of one tensor, of two
    static constexpr int QUERY_TILE = M > 1 || D > 48 ? 16 : 32; // that keys' gradients take at once: so many that none are spilled
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

    // Rows from `first` on, of which `count` are there; the others are zeros.
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
        const float by = inverse_root(product(x, x) * inverse_width + epsilon);
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

// ---- forward ----------------------------------------------------------------------------------------------------------

// Behind it rows: keys, values, a tile of each warp's.
template <int WIDTH> struct __align__(16) forward_memory {
    short_factors<WIDTH> factors;
    short_places at;
};

template <typename ROWS, int WARPS> static constexpr size_t forward_bytes(int keys) {
    return sizeof(forward_memory<ROWS::D>) + (size_t)(2 * padded(keys, KEY_TILE) + WARPS * ROWS::OWN) * ROWS::PITCH * 2;
}

// Sixteen rows of queries or keys as attention sees them, with 1/rms of each to where it is kept.
template <typename ROWS>
static __device__ __forceinline__ void normalise_and_keep(const attention_call &c, typename ROWS::pieces &x, float *rms, int first,
                                                          int count) {
    const int row = first + threadIdx.x % 32 / 2;
    const float by = ROWS::normalise(x, 1.0f / (float)c.width, c.epsilon);
    if (threadIdx.x % 2 == 0 && row < count && rms) rms[(int64_t)row * c.heads] = by;
}

// A tile of scores, and what it gives to the running maximum, sum and result of the warp's rows. MASKED: some keys are not there.
template <bool MASKED, int TILE, typename ROWS>
static __device__ __forceinline__ void add_key_tile(const typename ROWS::fragments &a, const uint16_t *own, const uint16_t *of_keys,
                                                    const uint16_t *values, int left, typename ROWS::results &sums,
                                                    float (&largest)[ROWS::TILES][2], float (&total)[ROWS::TILES][2], bool begins) {
    enum { COLUMNS = TILE / 4 };
    float s[ROWS::TILES][2][COLUMNS];
    ROWS::template multiply<TILE>(a, ROWS::HELD ? nullptr : own, of_keys, s, [](int, int) { return make_float4(0.0f, 0.0f, 0.0f, 0.0f); });
#pragma unroll
    for (int row = 0; row < 2 * ROWS::TILES; row++) {
        const int m = row / 2, i = row % 2;
        float most = largest[m][i];
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            if (MASKED && ROWS::tiles::column(j) >= left) s[m][i][j] = -INFINITY;
            most = fmaxf(most, s[m][i][j]);
        }
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2)); // finite: each tile has a key
        const float before = power_of_two(largest[m][i] - most);
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) sum += s[m][i][j] = power_of_two(s[m][i][j] - most);
        largest[m][i] = most;
        total[m][i] = total[m][i] * before + sum;
        if (begins) continue;
#pragma unroll
        for (int j = 0; j < ROWS::RESULTS; j++) sums[m][i][j] *= before;
    }
    ROWS::template mix<TILE>(s, values, sums);
}

// `shares`: blocks of a head, each with some of the queries.
template <typename ROWS, int WARPS, int BLOCKS, int TILE>
static __global__ void __launch_bounds__(WARPS * 32, BLOCKS) attention_short_rows(const __grid_constant__ attention_call c, int shares) {
    extern __shared__ __align__(16) unsigned char attention_memory[];
    auto &m = *(forward_memory<ROWS::D> *)attention_memory;
    enum { PITCH = ROWS::PITCH, STEP = WARPS * ROWS::OWN, TILES = ROWS::TILES };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, keys = padded(c.keys, KEY_TILE), share = blockIdx.x % shares;
    uint16_t *of_keys = rows_behind(m), *values = of_keys + keys * PITCH, *own = values + (keys + warp * ROWS::OWN) * PITCH;
    int first = (share * WARPS + warp) * ROWS::OWN;
    typename ROWS::pieces x[TILES];
    {
        const short_places at = find_places(c, blockIdx.x / shares / c.heads, blockIdx.x / shares % c.heads);
        if (threadIdx.x == 0) m.at = at;
        for (int row = warp * 16; row < keys; row += WARPS * 16) ROWS::copy(at.values, c.width, row, c.keys, values + row * PITCH);
        copy_async_commit();
#pragma unroll
        for (int t = 0; t < TILES; t++) ROWS::fetch(at.queries, c.width, first + 16 * t, c.queries, x[t]);
        find_factors(c, m.factors);
#pragma unroll 2
        for (int row = warp * 16; row < keys; row += WARPS * 16) {
            typename ROWS::pieces k;
            ROWS::fetch(at.keys, c.width, row, c.keys, k);
            if (c.rms) normalise_and_keep<ROWS>(c, k, share == 0 ? at.rms_of_keys : nullptr, row, c.keys);
            ROWS::put(k, of_keys + row * PITCH);
        }
    }
    copy_async_wait<0>();
    __syncthreads();

    while (first < c.queries) {
        typename ROWS::fragments a;
        typename ROWS::results sums = {};
        float largest[TILES][2], total[TILES][2] = {};
#pragma unroll
        for (int t = 0; t < TILES; t++) {
            largest[t][0] = largest[t][1] = -INFINITY;
            if (c.rms) normalise_and_keep<ROWS>(c, x[t], m.at.rms_of_queries, first + 16 * t, c.queries);
            ROWS::put(x[t], own + 16 * t * PITCH);
        }
        __syncwarp();
        ROWS::read(own, a);
        ROWS::scale(a, m.factors.product);
        if (!ROWS::HELD) {
            __syncwarp();
            ROWS::write(a, own);
            __syncwarp();
        }
        int start = 0;
#pragma unroll 1
        for (; start + TILE <= c.keys; start += TILE)
            add_key_tile<false, TILE, ROWS>(a, own, of_keys + start * PITCH, values + start * PITCH, TILE, sums, largest, total,
                                            start == 0);
        if (start < c.keys)
            add_key_tile<true, TILE, ROWS>(a, own, of_keys + start * PITCH, values + start * PITCH, c.keys - start, sums, largest,
                                           total, start == 0);
        __syncwarp(); // all lanes have read the queries
#pragma unroll
        for (int t = 0; t < TILES; t++) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float sum = quad_sum(total[t][i]), inverse = 1.0f / sum;
                const int row = first + 16 * t + lane / 4 + 8 * i;
                if (m.at.lse && lane % 4 == 0 && row < c.queries) m.at.lse[row] = LN2 * (largest[t][i] + log2f(sum));
#pragma unroll
                for (int j = 0; j < ROWS::RESULTS; j++) sums[t][i][j] *= inverse;
            }
            ROWS::keep(sums[t], own + 16 * t * PITCH);
            ROWS::store(own + 16 * t * PITCH, m.at.outputs, c.width, first + 16 * t, c.queries);
        }
        first += shares * STEP;
        if (first < c.queries) {
#pragma unroll
            for (int t = 0; t < TILES; t++) ROWS::fetch(m.at.queries, c.width, first + 16 * t, c.queries, x[t]);
        }
    }
}

// ---- backward ---------------------------------------------------------------------------------------------------------

// Of SIDES: queries and keys, or the one that a block owns. Behind it rows: all of both sides and a tile of each warp's; or
// all of the other side and two tiles of each warp's.
template <int WIDTH, int WARPS, int OWN, int SIDES, int TOKENS> struct __align__(16) backward_memory {
    short_factors<WIDTH> factors;
    float sums[SIDES][WARPS][WIDTH];            // of the gradients of gains
    float inverse[SIDES][WARPS * OWN];          // 1/rms
    float lse[TOKENS], delta[TOKENS];           // -log2(e) lse and -D of queries; -infinity, 0 beyond them
    short_places at;
};
template <typename ROWS> using memory_together = backward_memory<ROWS::D, ROWS::WARPS, ROWS::OWN, 2, TOGETHER>;
template <typename ROWS> using memory_apart = backward_memory<ROWS::D, 2 * ROWS::WARPS, ROWS::OWN, 1, MOST_TOKENS>;

template <typename ROWS> static constexpr size_t backward_bytes(int queries, int keys, bool together) {
    const int of_queries = padded(queries, GRADIENT_TILE), of_keys = padded(keys, GRADIENT_TILE);
    const int rows = together ? 2 * of_queries + 2 * of_keys + ROWS::WARPS * 16
                              : 2 * (of_queries > of_keys ? of_queries : of_keys) + 2 * 2 * ROWS::WARPS * ROWS::OWN;
    return (together ? sizeof(memory_together<ROWS>) : sizeof(memory_apart<ROWS>)) + (size_t)rows * ROWS::PITCH * 2;
}

// What belongs to a warp's own sixteen rows.
struct own_numbers {
    const float *inverse; // 1/rms
    float *gain_sums;
};

// Sixteen rows of queries or keys into shared memory, normalised; 1/rms to inverse[row], where it is wanted.
template <typename ROWS>
static __device__ __forceinline__ void put_normalised(const attention_call &c, typename ROWS::pieces &x, float *inverse, uint16_t *rows) {
    if (c.rms) {
        const float by = ROWS::normalise(x, 1.0f / (float)c.width, c.epsilon);
        if (inverse && threadIdx.x % 2 == 0) inverse[threadIdx.x % 32 / 2] = by;
    }
    ROWS::put(x, rows);
}

// -D of sixteen queries.
template <typename ROWS>
static __device__ __forceinline__ void find_delta(const typename ROWS::pieces &out, const typename ROWS::pieces &upstream, float *delta) {
    const float sum = ROWS::product(out, upstream);
    if (threadIdx.x % 2 == 0) delta[threadIdx.x % 32 / 2] = -sum;
}

static __device__ __forceinline__ head_rows moved(head_rows rows, elements to) {
    rows.from = to;
    return rows;
}

// Sums of a gain's gradient over the warp's rows, of which a lane has those of two: by `staging`, where nothing is yet.
template <typename ROWS>
static __device__ __forceinline__ void add_to_gain(const float (&of_gain)[ROWS::RESULTS], float *staging, float *sums) {
    enum { PITCH = ROWS::D + 4 };
    static_assert(8 * PITCH * sizeof(float) <= 16 * ROWS::PITCH * 2, "sums are larger than the tile");
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < ROWS::RESULTS; j += 2)
        *(float2 *)(staging + lane / 4 * PITCH + ROWS::tiles::column(j)) = make_float2(of_gain[j], of_gain[j + 1]);
    __syncwarp();
#pragma unroll
    for (int column = lane; column < ROWS::D; column += 32) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) sum += staging[i * PITCH + column];
        sums[column] += sum;
    }
    __syncwarp();
}

// Gradient of the warp's rows, back through the norm, to `staging`. With y = h gain, h = x / rms(x) and dy from the product:
// g = dy gain, dx = (g - h mean(g h)) / rms(x), dgain += dy h. WHICH: queries, keys. Of a tile of sixteen rows, from `first` on.
template <int WHICH, typename ROWS, typename MEMORY>
static __device__ __forceinline__ void finish_short(const attention_call &c, MEMORY &m, float (&d)[2][ROWS::RESULTS],
                                                    const typename ROWS::fragments &h, int tile, int first, own_numbers of,
                                                    uint16_t *staging) {
    const int lane = threadIdx.x % 32, left = (WHICH ? c.keys : c.queries) - first;
    const bool wanted = WHICH ? c.gains_of_k : c.gains_of_q;
    if (!c.rms) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int j = 0; j < ROWS::RESULTS; j++) d[i][j] *= c.scale;
        }
        ROWS::keep(d, staging);
        return;
    }
    float product[2] = {}, of_gain[ROWS::RESULTS];
    if (left < 16) { // rows that are not there may have any
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int j = 0; j < ROWS::RESULTS; j++) d[i][j] = lane / 4 + 8 * i < left ? d[i][j] : 0.0f;
        }
    }
#pragma unroll
    for (int j = 0; j < ROWS::RESULTS; j += 2) {
        const int column = ROWS::tiles::column(j);
        const float2 g = *(const float2 *)(m.factors.gain[WHICH] + column), o = *(const float2 *)(m.factors.other[WHICH] + column);
        of_gain[j] = of_gain[j + 1] = 0.0f;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float2 x = unpack_pair<ROWS::DTYPE>(h[tile][j / 4][j / 2 % 2 * 2 + i]);
            const float first_dy = d[i][j] * o.x, second_dy = d[i][j + 1] * o.y;
            of_gain[j] += first_dy * x.x;
            of_gain[j + 1] += second_dy * x.y;
            d[i][j] = first_dy * g.x;
            d[i][j + 1] = second_dy * g.y;
            product[i] += d[i][j] * x.x + d[i][j + 1] * x.y;
        }
    }
    if (wanted) add_to_gain<ROWS>(of_gain, (float *)staging, of.gain_sums);
    const float inverse_width = 1.0f / (float)c.width;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float by = of.inverse[lane / 4 + 8 * i], mean = quad_sum(product[i]) * inverse_width;
#pragma unroll
        for (int j = 0; j < ROWS::RESULTS; j += 2) {
            const float2 x = unpack_pair<ROWS::DTYPE>(h[tile][j / 4][j / 2 % 2 * 2 + i]);
            d[i][j] = by * (d[i][j] - x.x * mean);
            d[i][j + 1] = by * (d[i][j + 1] - x.y * mean);
        }
    }
    ROWS::keep(d, staging);
}

// A tile's gradient of scores, and what it gives to dQ. MASKED: some keys are not there, and their probabilities may be infinite.
template <bool MASKED, int TILE, typename ROWS>
static __device__ __forceinline__ void add_to_queries(const typename ROWS::fragments &a, const typename ROWS::fragments &g,
                                                      const uint16_t *upstream, const uint16_t *of_keys, const uint16_t *values,
                                                      int left, const float4 (&lse)[ROWS::TILES], const float4 (&delta)[ROWS::TILES],
                                                      typename ROWS::results &sums) {
    float s[ROWS::TILES][2][TILE / 4], d[ROWS::TILES][2][TILE / 4];
    ROWS::template multiply<TILE>(a, nullptr, of_keys, s, [&](int m, int) { return lse[m]; });
    ROWS::template multiply<TILE>(g, ROWS::BOTH_HELD ? nullptr : upstream, values, d, [&](int m, int) { return delta[m]; });
#pragma unroll
    for (int row = 0; row < 2 * ROWS::TILES; row++) {
#pragma unroll
        for (int j = 0; j < TILE / 4; j++) {
            float &x = d[row / 2][row % 2][j];
            x *= power_of_two(s[row / 2][row % 2][j]);
            if (MASKED && ROWS::tiles::column(j) >= left) x = 0.0f;
        }
    }
    ROWS::template mix<TILE>(d, of_keys, sums);
}

// dQ of sixteen queries from `first` on, from all keys. `queries` and `upstream`: their rows, h and dO.
template <typename ROWS, typename MEMORY>
static __device__ __forceinline__ void short_query_gradients(const attention_call &c, MEMORY &m, int first, const uint16_t *queries,
                                                             const uint16_t *upstream, const uint16_t *of_keys,
                                                             const uint16_t *values, own_numbers of, uint16_t *staging) {
    enum { TILE = GRADIENT_TILE, PITCH = ROWS::PITCH };
    float4 lse[ROWS::TILES], delta[ROWS::TILES];
#pragma unroll
    for (int t = 0; t < ROWS::TILES; t++) {
        const int row = first + 16 * t + threadIdx.x % 32 / 4;
        lse[t] = make_float4(m.lse[row], m.lse[row], m.lse[row + 8], m.lse[row + 8]);
        delta[t] = make_float4(m.delta[row], m.delta[row], m.delta[row + 8], m.delta[row + 8]);
    }
    typename ROWS::fragments a, g;
    typename ROWS::results sums = {};
    ROWS::read(queries, a);
    if (ROWS::BOTH_HELD) ROWS::read(upstream, g);
    ROWS::scale(a, m.factors.product);
    int start = 0;
#pragma unroll 1
    for (; start + TILE <= c.keys; start += TILE)
        add_to_queries<false, TILE, ROWS>(a, g, upstream, of_keys + start * PITCH, values + start * PITCH, TILE, lse, delta, sums);
    if (start < c.keys)
        add_to_queries<true, TILE, ROWS>(a, g, upstream, of_keys + start * PITCH, values + start * PITCH, c.keys - start, lse, delta,
                                         sums);
    __syncwarp(); // staging may be the warp's dO
    ROWS::read(queries, a);
#pragma unroll
    for (int t = 0; t < ROWS::TILES; t++) {
        finish_short<0, ROWS>(c, m, sums[t], a, t, first + 16 * t, {of.inverse + 16 * t, of.gain_sums}, staging);
        ROWS::store(staging, moved(m.at.queries, c.dq), c.width, first + 16 * t, c.queries);
    }
}

// dK and dV of sixteen keys, from all queries, TILE at once: so many that no registers are spilled.
template <int TILE, typename ROWS, typename MEMORY>
static __device__ __forceinline__ void short_key_gradients(const attention_call &c, MEMORY &m, int first, const uint16_t *of_keys,
                                                           const uint16_t *values, const uint16_t *queries,
                                                           const uint16_t *upstream, own_numbers of, uint16_t *staging) {
    typename ROWS::fragments a, v;
    typename ROWS::results dk = {}, dv = {};
    ROWS::read(of_keys, a);
    if (ROWS::BOTH_HELD) ROWS::read(values, v);
    ROWS::scale(a, m.factors.product);
#pragma unroll 1
    for (int start = 0; start < c.queries; start += TILE) {
        const auto of_columns = [start](const float *of_queries) {
            return [=](int, int j) {
                const float2 x = *(const float2 *)(of_queries + start + ROWS::tiles::column(j));
                return make_float4(x.x, x.y, x.x, x.y);
            };
        };
        float s[ROWS::TILES][2][TILE / 4], d[ROWS::TILES][2][TILE / 4];
        ROWS::template multiply<TILE>(a, nullptr, queries + start * ROWS::PITCH, s, of_columns(m.lse));
        ROWS::template multiply<TILE>(v, ROWS::BOTH_HELD ? nullptr : values, upstream + start * ROWS::PITCH, d, of_columns(m.delta));
#pragma unroll
        for (int row = 0; row < 2 * ROWS::TILES; row++) {
#pragma unroll
            for (int j = 0; j < TILE / 4; j++) {
                float &p = s[row / 2][row % 2][j];
                d[row / 2][row % 2][j] *= p = power_of_two(p);
            }
        }
        ROWS::template mix<TILE>(s, upstream + start * ROWS::PITCH, dv);
        ROWS::template mix<TILE>(d, queries + start * ROWS::PITCH, dk);
    }
    __syncwarp(); // staging may be the warp's values
#pragma unroll
    for (int t = 0; t < ROWS::TILES; t++) {
        ROWS::keep(dv[t], staging);
        ROWS::store(staging, moved(m.at.values, c.dkv), c.width, first + 16 * t, c.keys);
    }
    ROWS::read(of_keys, a);
#pragma unroll
    for (int t = 0; t < ROWS::TILES; t++) {
        finish_short<1, ROWS>(c, m, dk[t], a, t, first + 16 * t, {of.inverse + 16 * t, of.gain_sums}, staging);
        ROWS::store(staging, moved(m.at.keys, c.dkv), c.width, first + 16 * t, c.keys);
    }
}

template <typename MEMORY>
static __device__ __forceinline__ void begin_backward(const attention_call &c, MEMORY &m, const short_places &at) {
    constexpr int COUNT = sizeof m.sums / sizeof(float);
    if (threadIdx.x == 0) m.at = at;
    for (int i = threadIdx.x; i < padded(c.queries, GRADIENT_TILE); i += blockDim.x)
        m.lse[i] = i < c.queries ? -LOG2E * at.lse[i] : -INFINITY;
    for (int i = threadIdx.x; i < COUNT; i += blockDim.x) (&m.sums[0][0][0])[i] = 0.0f;
    find_factors(c, m.factors);
}

// Sums of a block's warps, in order, to a row of a gain's.
template <typename MEMORY>
static __device__ __forceinline__ void add_gains(const attention_call &c, const MEMORY &m, int which, int warps, float *to) {
    if (!to) return;
    for (int i = threadIdx.x; i < c.width; i += blockDim.x) {
        float sum = 0.0f;
        for (int warp = 0; warp < warps; warp++) sum += m.sums[which][warp][i];
        to[(int64_t)blockIdx.x * c.width + i] = sum;
    }
}

template <typename ROWS>
static __global__ void __launch_bounds__(ROWS::WARPS * 32, 2) attention_short_gradients(const __grid_constant__ attention_call c) {
    extern __shared__ __align__(16) unsigned char attention_memory[];
    auto &m = *(memory_together<ROWS> *)attention_memory;
    enum { PITCH = ROWS::PITCH, OWN = ROWS::OWN };
    const int warp = threadIdx.x / 32, first = warp * OWN, at_own = first * PITCH;
    const int all_queries = padded(c.queries, GRADIENT_TILE), all_keys = padded(c.keys, GRADIENT_TILE);
    uint16_t *queries = rows_behind(m), *upstream = queries + all_queries * PITCH, *of_keys = upstream + all_queries * PITCH;
    uint16_t *values = of_keys + all_keys * PITCH, *staging = values + (all_keys + warp * 16) * PITCH;
    {
        const short_places at = find_places(c, blockIdx.x / c.heads, blockIdx.x % c.heads);
        for (int row = first; row < min(first + OWN, all_keys); row += 16)
            ROWS::copy(at.values, c.width, row, c.keys, values + row * PITCH);
        copy_async_commit();
        begin_backward(c, m, at);
        for (int row = first; row < first + OWN; row += 16) {
            typename ROWS::pieces q, k, given, out;
            if (row < all_queries) {
                ROWS::fetch(at.queries, c.width, row, c.queries, q);
                ROWS::fetch(at.upstream, c.width, row, c.queries, given);
                ROWS::fetch(at.outputs, c.width, row, c.queries, out);
            }
            if (row < all_keys) ROWS::fetch(at.keys, c.width, row, c.keys, k);
            if (row < all_queries) {
                put_normalised<ROWS>(c, q, m.inverse[0] + row, queries + row * PITCH);
                find_delta<ROWS>(out, given, m.delta + row);
                ROWS::put(given, upstream + row * PITCH);
            }
            if (row < all_keys) put_normalised<ROWS>(c, k, m.inverse[1] + row, of_keys + row * PITCH);
        }
    }
    copy_async_wait<0>();
    __syncthreads();
    if (first < c.keys)
        short_key_gradients<ROWS::QUERY_TILE, ROWS>(c, m, first, of_keys + at_own, values + at_own, queries, upstream,
                                                      {m.inverse[1] + first, m.sums[1][warp]}, staging);
    if (first < c.queries)
        short_query_gradients<ROWS>(c, m, first, queries + at_own, upstream + at_own, of_keys, values,
                                    {m.inverse[0] + first, m.sums[0][warp]}, staging);
    __syncthreads();
    add_gains(c, m, 0, ROWS::WARPS, c.gains_of_q);
    add_gains(c, m, 1, ROWS::WARPS, c.gains_of_k);
}

// Of longer sequences: of the rows that a head's block owns, queries or keys, a warp's tiles; the others rest.
template <typename ROWS, bool OWN_QUERIES>
static __global__ void __launch_bounds__(2 * ROWS::WARPS * 32, 1)
    attention_short_gradients_apart(const __grid_constant__ attention_call c) {
    extern __shared__ __align__(16) unsigned char attention_memory[];
    auto &m = *(memory_apart<ROWS> *)attention_memory;
    enum { PITCH = ROWS::PITCH, OWN = ROWS::OWN, WARPS = 2 * ROWS::WARPS, STEP = WARPS * OWN };
    const int warp = threadIdx.x / 32, count = OWN_QUERIES ? c.queries : c.keys, others = OWN_QUERIES ? c.keys : c.queries;
    const int rows = padded(others, GRADIENT_TILE);
    uint16_t *resting = rows_behind(m), *second = resting + rows * PITCH;
    uint16_t *own = second + (rows + warp * OWN) * PITCH, *own_second = own + STEP * PITCH;
    {
        const short_places at = find_places(c, blockIdx.x / c.heads, blockIdx.x % c.heads);
        begin_backward(c, m, at);
        for (int row = warp * 16; row < rows; row += WARPS * 16) {
            typename ROWS::pieces x, given, out;
            ROWS::fetch(OWN_QUERIES ? at.keys : at.queries, c.width, row, others, x);
            if (OWN_QUERIES) {
                ROWS::copy(at.values, c.width, row, others, second + row * PITCH);
            } else {
                ROWS::fetch(at.upstream, c.width, row, others, given);
                ROWS::fetch(at.outputs, c.width, row, others, out);
                find_delta<ROWS>(out, given, m.delta + row);
                ROWS::put(given, second + row * PITCH);
            }
            put_normalised<ROWS>(c, x, nullptr, resting + row * PITCH);
        }
        copy_async_commit();
    }
    copy_async_wait<0>();
    __syncthreads();
    for (int first = warp * OWN; first < count; first += STEP) {
        const own_numbers of = {m.inverse[0] + warp * OWN, m.sums[0][warp]};
        for (int t = 0; t < OWN; t += 16) {
            typename ROWS::pieces x, y;
            ROWS::fetch(OWN_QUERIES ? m.at.queries : m.at.keys, c.width, first + t, count, x);
            ROWS::fetch(OWN_QUERIES ? m.at.upstream : m.at.values, c.width, first + t, count, y);
            if (OWN_QUERIES && first + t < padded(count, GRADIENT_TILE)) {
                typename ROWS::pieces out;
                ROWS::fetch(m.at.outputs, c.width, first + t, count, out);
                find_delta<ROWS>(out, y, m.delta + first + t);
            }
            put_normalised<ROWS>(c, x, m.inverse[0] + warp * OWN + t, own + t * PITCH);
            ROWS::put(y, own_second + t * PITCH);
        }
        __syncwarp();
        if (OWN_QUERIES) short_query_gradients<ROWS>(c, m, first, own, own_second, resting, second, of, own_second);
        else short_key_gradients<ROWS::QUERY_TILE, ROWS>(c, m, first, own, own_second, resting, second, of, own_second);
    }
    __syncthreads();
    add_gains(c, m, 0, WARPS, OWN_QUERIES ? c.gains_of_q : c.gains_of_k);
}

// ---- host -------------------------------------------------------------------------------------------------------------

static bool is_together(const attention_call &c) {
    return c.queries <= TOGETHER && c.keys <= TOGETHER;
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

bool attention_is_short(ups_device *device, const attention_call &c, bool backward) {
    typedef short_rows<UPS_BF16, 64, 2> widest;
    const bool half = c.q.dtype == UPS_BF16 || c.q.dtype == UPS_F16;
    if (!half || !c.wide || !is_of_one_dtype(c) || c.windows.dims || c.rotary || c.bias || c.width > widest::D) return false;
    if (c.queries > MOST_TOKENS || c.keys > MOST_TOKENS) return false;
    if (backward && (c.accumulate_q || c.accumulate_kv)) return false;
    if (c.gain_q && !(c.epsilon > 0.0f)) return false; // rows beyond the last are zeros, and stay so
    const size_t wanted = backward ? backward_bytes<widest>(c.queries, c.keys, is_together(c)) : forward_bytes<widest, 2 * widest::WARPS>(c.keys);
    return wanted <= ups_cuda_most_shared(device);
}

template <typename ROWS, int WARPS, int BLOCKS, int TILE>
static ups_status launch_forward(ups_device *device, const attention_call &c, ups_error *error) {
    enum { ENOUGH = FULL_CARD / 4 }; // blocks
    const size_t bytes = forward_bytes<ROWS, WARPS>(c.keys);
    const int64_t heads = c.batch * c.heads, tiles = tiles_in(c.queries, WARPS * ROWS::OWN);
    const int64_t wanted = tiles_in(ENOUGH, (int)heads), shares = wanted < tiles ? wanted : tiles;
    UPS_TRY(reserve_shared(attention_short_rows<ROWS, WARPS, BLOCKS, TILE>, bytes, error));
    attention_short_rows<ROWS, WARPS, BLOCKS, TILE>
        <<<(unsigned)(heads * shares), WARPS * 32, bytes, ups_cuda_stream(device)>>>(c, (int)shares);
    return ups_cuda_launched("attention of a short sequence", error);
}

// A block of twice as many warps where two would not fit beside each other.
template <typename ROWS, int BLOCKS, int TILE>
static ups_status choose_forward(ups_device *device, const attention_call &c, ups_error *error) {
    enum { OF_THE_DRIVER = 1 << 10 };
    const size_t bytes = forward_bytes<ROWS, ROWS::WARPS>(c.keys) + OF_THE_DRIVER;
    if (2 * bytes > ups_cuda_most_shared(device) + OF_THE_DRIVER)
        return launch_forward<ROWS, 2 * ROWS::WARPS, 1, TILE>(device, c, error);
    return launch_forward<ROWS, ROWS::WARPS, BLOCKS, TILE>(device, c, error);
}

template <typename ROWS> static ups_status launch_backward(ups_device *device, const attention_call &c, ups_error *error) {
    cudaStream_t stream = ups_cuda_stream(device);
    const bool together = is_together(c);
    const unsigned blocks = (unsigned)(c.batch * c.heads), threads = (together ? 1 : 2) * ROWS::WARPS * 32;
    const size_t bytes = backward_bytes<ROWS>(c.queries, c.keys, together);
    const auto kernel = together ? attention_short_gradients<ROWS> : attention_short_gradients_apart<ROWS, true>;
    UPS_TRY(reserve_shared(kernel, bytes, error));
    kernel<<<blocks, threads, bytes, stream>>>(c);
    UPS_TRY(ups_cuda_launched("a short sequence's gradients", error));
    if (together) return UPS_OK;
    UPS_TRY(reserve_shared(attention_short_gradients_apart<ROWS, false>, bytes, error));
    attention_short_gradients_apart<ROWS, false><<<blocks, threads, bytes, stream>>>(c);
    return ups_cuda_launched("a short sequence's gradients of keys and values", error);
}

static int variant(const char *name) {
    const char *given = getenv(name);
    return given ? atoi(given) : 0;
}

ups_status attention_short_forward(ups_device *device, const attention_call &c, ups_error *error) {
    const int v = variant("UPS_ATT_F");
    if (v == 1) return with_rows<2>(c, [&](auto rows) { return choose_forward<decltype(rows), 3, 32>(device, c, error); });
    if (v == 2) return with_rows<2>(c, [&](auto rows) { return choose_forward<decltype(rows), 2, 64>(device, c, error); });
    return with_rows<1>(c, [&](auto rows) { return choose_forward<decltype(rows), 2, 64>(device, c, error); });
}

ups_status attention_short_backward(ups_device *device, const attention_call &c, ups_error *error) {
    if (variant("UPS_ATT_B") == 1) return with_rows<2>(c, [&](auto rows) { return launch_backward<decltype(rows)>(device, c, error); });
    return with_rows<1>(c, [&](auto rows) { return launch_backward<decltype(rows)>(device, c, error); });
}

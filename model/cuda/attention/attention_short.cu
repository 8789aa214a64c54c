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

enum { MOST_TOKENS = 512, TOGETHER = 128, WARP_ROWS = 16, FEW_WARPS = 8, MANY_WARPS = 16, KEY_TILE = 64, GRADIENT_TILE = 32 };

static __device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Over the four lanes that have the same rows of a result.
static __device__ __forceinline__ float quad_sum(float x) {
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// What a warp does with rows in shared memory. Fragments and results are those of matrix_tiles: of lane l rows l / 4 and
// l / 4 + 8; columns of a result j / 2 * 8 + l % 4 * 2 + j % 2.
template <ups_dtype TYPE, int WIDTH> struct short_rows {
    typedef uint16_t element;
    typedef matrix_tiles<TYPE, WIDTH> tiles;
    static constexpr ups_dtype DTYPE = TYPE;
    static constexpr int D = WIDTH, PITCH = tiles::PITCH, STEPS = D / 16, RESULTS = D / 4, CHUNKS = D / WIDE;
    static constexpr bool HELD = D <= 48, BOTH_HELD = D <= 32; // registers suffice for a warp's own rows of one tensor, of two
    typedef uint32_t fragments[STEPS][4];

    static __device__ __forceinline__ int lane() {
        return threadIdx.x % 32;
    }

    // `rows` rows of a head, of which `count` are there and the others zeros, by `threads` threads.
    static __device__ __forceinline__ void load(const head_rows &from, int width, int first, int count, element *to, int rows,
                                                int thread, int threads) {
        const element *data = (const element *)from.from.data + from.base;
        for (int i = thread; i < rows * CHUNKS; i += threads) {
            const int row = i / CHUNKS, column = i % CHUNKS * WIDE;
            const bool present = first + row < count && column < width;
            copy_async_16(to + row * PITCH + column, data + (present ? (int64_t)(first + row) * from.stride + column : 0), present);
        }
    }

    // Sixteen rows to where they belong, sixteen bytes a lane. `to` may be absent.
    static __device__ __forceinline__ void store(const element *rows, const head_rows &to, int width, int first, int count) {
        __syncwarp();
        element *data = (element *)to.from.data + to.base;
        for (int i = lane(); i < WARP_ROWS * CHUNKS && to.from.data; i += 32) {
            const int row = i / CHUNKS, column = i % CHUNKS * WIDE;
            if (first + row < count && column < width)
                *(uint4 *)(data + (int64_t)(first + row) * to.stride + column) = *(const uint4 *)(rows + row * PITCH + column);
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

    // Sixteen rows divided by their root mean squares, two lanes a row; 1/rms to inverse[row].
    static __device__ __forceinline__ void normalise(element *rows, int width, float epsilon, float *inverse) {
        const int row = lane() / 2;
        uint4 words[CHUNKS / 2];
        float squares = 0.0f;
        rows += row * PITCH + lane() % 2 * (D / 2);
#pragma unroll
        for (int i = 0; i < CHUNKS / 2; i++) {
            words[i] = *(const uint4 *)(rows + i * WIDE);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float2 x = unpack_pair<TYPE>((&words[i].x)[k]);
                squares += x.x * x.x + x.y * x.y;
            }
        }
        squares += __shfl_xor_sync(0xffffffffu, squares, 1);
        const float by = 1.0f / sqrtf(squares / (float)width + epsilon);
#pragma unroll
        for (int i = 0; i < CHUNKS / 2; i++) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                const float2 x = unpack_pair<TYPE>((&words[i].x)[k]);
                (&words[i].x)[k] = pack_pair<TYPE>(x.x * by, x.y * by);
            }
            *(uint4 *)(rows + i * WIDE) = words[i];
        }
        if (lane() % 2 == 0) inverse[row] = by;
    }

    static __device__ __forceinline__ void read(const element *rows, fragments &a) {
        rows += lane() % 16 * PITCH + lane() / 16 * 8;
#pragma unroll
        for (int k = 0; k < STEPS; k++) load_matrices(a[k], rows + k * 16);
    }
    // Columns times one factor, and those of two vectors.
    static __device__ __forceinline__ void scale(fragments &a, float by, const float *gain, const float *other) {
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int column = k * 16 + half * 8 + lane() % 4 * 2;
                const float2 g = *(const float2 *)(gain + column), o = *(const float2 *)(other + column);
                const float first = by * g.x * o.x, second = by * g.y * o.y;
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const float2 x = unpack_pair<TYPE>(a[k][half * 2 + i]);
                    a[k][half * 2 + i] = pack_pair<TYPE>(x.x * first, x.y * second);
                }
            }
        }
    }

    static __device__ __forceinline__ void write(const fragments &a, element *rows) {
        rows += lane() / 4 * PITCH + lane() % 4 * 2;
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
#pragma unroll
            for (int r = 0; r < 4; r++) *(uint32_t *)(rows + r % 2 * 8 * PITCH + k * 16 + r / 2 * 8) = a[k][r];
        }
    }

    // s += own rows^T, where a lane has registers for `own`
    template <int COUNT>
    static __device__ __forceinline__ void multiply(const fragments &own, const element *rows, float (&s)[2][COUNT / 4]) {
        rows += (lane() % 8 + lane() / 16 * 8) * PITCH + lane() / 8 % 2 * 8;
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
#pragma unroll
            for (int n = 0; n < COUNT; n += 16) {
                uint32_t b[4];
                load_matrices(b, rows + n * PITCH + k * 16);
                tiles::multiply(s, n / 4, own[k], b[0], b[1]);
                tiles::multiply(s, n / 4 + 2, own[k], b[2], b[3]);
            }
        }
    }
    // and where it has not: of sixteen rows in shared memory
    template <int COUNT>
    static __device__ __forceinline__ void multiply(const element *own, const element *rows, float (&s)[2][COUNT / 4]) {
        own += lane() % 16 * PITCH + lane() / 16 * 8;
        rows += (lane() % 8 + lane() / 16 * 8) * PITCH + lane() / 8 % 2 * 8;
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            uint32_t a[4];
            load_matrices(a, own + k * 16);
#pragma unroll
            for (int n = 0; n < COUNT; n += 16) {
                uint32_t b[4];
                load_matrices(b, rows + n * PITCH + k * 16);
                tiles::multiply(s, n / 4, a, b[0], b[1]);
                tiles::multiply(s, n / 4 + 2, a, b[2], b[3]);
            }
        }
    }
    // sums += p rows, p rounded to the rows' dtype
    template <int COUNT>
    static __device__ __forceinline__ void mix(const float (&p)[2][COUNT / 4], const element *rows, float (&sums)[2][RESULTS]) {
        rows += lane() % 16 * PITCH + lane() / 16 * 8;
#pragma unroll
        for (int k = 0; k < COUNT; k += 16) {
            const int j = k / 4;
            const uint32_t a[4] = {pack_pair<TYPE>(p[0][j], p[0][j + 1]), pack_pair<TYPE>(p[1][j], p[1][j + 1]),
                                   pack_pair<TYPE>(p[0][j + 2], p[0][j + 3]), pack_pair<TYPE>(p[1][j + 2], p[1][j + 3])};
#pragma unroll
            for (int n = 0; n < D; n += 16) {
                uint32_t b[4];
                load_matrices_transposed(b, rows + k * PITCH + n);
                tiles::multiply(sums, n / 4, a, b[0], b[1]);
                tiles::multiply(sums, n / 4 + 2, a, b[2], b[3]);
            }
        }
    }
};

// Gains of queries and keys, ones where there are none.
template <int D> static __device__ __forceinline__ void load_gains(const attention_call &c, float (&gains)[2][D]) {
    for (int i = threadIdx.x; i < D; i += blockDim.x) {
        gains[0][i] = c.gain_q && i < c.width ? c.gain_q[i] : 1.0f;
        gains[1][i] = c.gain_k && i < c.width ? c.gain_k[i] : 1.0f;
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
template <int WIDTH, int WARPS> struct __align__(16) forward_memory {
    float gains[2][WIDTH];
    float inverse[MOST_TOKENS]; // of keys
    float own_inverse[WARPS][WARP_ROWS];
    short_places at;
};

template <typename ROWS, int WARPS> static constexpr size_t forward_bytes(int keys) {
    return sizeof(forward_memory<ROWS::D, WARPS>) + (size_t)(2 * padded(keys, KEY_TILE) + WARPS * WARP_ROWS) * ROWS::PITCH * 2;
}

// `shares`: blocks of a head, each with some of the queries.
template <typename ROWS, int WARPS>
static __global__ void __launch_bounds__(WARPS * 32, MANY_WARPS / WARPS)
    attention_short_rows(const __grid_constant__ attention_call c, int shares) {
    extern __shared__ __align__(16) unsigned char attention_memory[];
    auto &m = *(forward_memory<ROWS::D, WARPS> *)attention_memory;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, keys = padded(c.keys, KEY_TILE);
    const int share = blockIdx.x % shares;
    const short_places at = find_places(c, blockIdx.x / shares / c.heads, blockIdx.x / shares % c.heads);
    if (threadIdx.x == 0) m.at = at;
    uint16_t *of_keys = rows_behind(m), *values = of_keys + keys * ROWS::PITCH;
    uint16_t *own = values + keys * ROWS::PITCH + warp * WARP_ROWS * ROWS::PITCH;
    int first = (share * WARPS + warp) * WARP_ROWS;
    ROWS::load(at.keys, c.width, 0, c.keys, of_keys, keys, threadIdx.x, WARPS * 32);
    ROWS::load(at.queries, c.width, first, c.queries, own, WARP_ROWS, lane, 32);
    copy_async_commit();
    ROWS::load(at.values, c.width, 0, c.keys, values, keys, threadIdx.x, WARPS * 32);
    copy_async_commit();
    load_gains(c, m.gains);
    if (c.rms) {
        copy_async_wait<1>();
        __syncthreads();
        for (int row = warp * WARP_ROWS; row < keys; row += WARPS * WARP_ROWS) {
            ROWS::normalise(of_keys + row * ROWS::PITCH, c.width, c.epsilon, m.inverse + row);
            __syncwarp();
            const int key = row + lane;
            if (share == 0 && lane < WARP_ROWS && key < c.keys) m.at.rms_of_keys[(int64_t)key * c.heads] = m.inverse[key];
        }
    }
    copy_async_wait<0>();
    __syncthreads();

    for (; first < c.queries; first += shares * WARPS * WARP_ROWS) {
        typename ROWS::fragments a;
        float sums[2][ROWS::RESULTS] = {}, largest[2] = {-INFINITY, -INFINITY}, total[2] = {};
        if (c.rms) {
            ROWS::normalise(own, c.width, c.epsilon, m.own_inverse[warp]);
            __syncwarp();
            if (lane < WARP_ROWS && first + lane < c.queries)
                m.at.rms_of_queries[(int64_t)(first + lane) * c.heads] = m.own_inverse[warp][lane];
        }
        ROWS::read(own, a);
        ROWS::scale(a, c.scale * LOG2E, m.gains[0], m.gains[1]);
        if (!ROWS::HELD) {
            __syncwarp();
            ROWS::write(a, own);
            __syncwarp();
        }
#pragma unroll 1
        for (int start = 0; start < keys; start += KEY_TILE) {
            float s[2][KEY_TILE / 4] = {};
            if (ROWS::HELD) ROWS::template multiply<KEY_TILE>(a, of_keys + start * ROWS::PITCH, s);
            else ROWS::template multiply<KEY_TILE>(own, of_keys + start * ROWS::PITCH, s);
            if (start + KEY_TILE > c.keys) {
#pragma unroll
                for (int j = 0; j < KEY_TILE / 4; j++) {
                    if (start + ROWS::tiles::column(j) >= c.keys) s[0][j] = s[1][j] = -INFINITY;
                }
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                float most = largest[i];
#pragma unroll
                for (int j = 0; j < KEY_TILE / 4; j++) most = fmaxf(most, s[i][j]);
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2)); // finite: each tile has a key
                const float before = power_of_two(largest[i] - most);
                float sum = 0.0f;
#pragma unroll
                for (int j = 0; j < KEY_TILE / 4; j++) sum += s[i][j] = power_of_two(s[i][j] - most);
                largest[i] = most;
                total[i] = total[i] * before + sum;
                if (start == 0) continue;
#pragma unroll
                for (int j = 0; j < ROWS::RESULTS; j++) sums[i][j] *= before;
            }
            ROWS::template mix<KEY_TILE>(s, values + start * ROWS::PITCH, sums);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float sum = quad_sum(total[i]), inverse = 1.0f / sum;
            const int row = first + lane / 4 + 8 * i;
            if (m.at.lse && lane % 4 == 0 && row < c.queries)
                m.at.lse[row] = LN2 * (largest[i] + log2f(sum));
#pragma unroll
            for (int j = 0; j < ROWS::RESULTS; j++) sums[i][j] *= inverse;
        }
        __syncwarp(); // all lanes have read the queries
        ROWS::keep(sums, own);
        ROWS::store(own, m.at.outputs, c.width, first, c.queries);
        const int next = first + shares * WARPS * WARP_ROWS;
        if (next < c.queries) {
            ROWS::load(m.at.queries, c.width, next, c.queries, own, WARP_ROWS, lane, 32);
            copy_async_commit();
            copy_async_wait<0>();
            __syncwarp();
        }
    }
}

// ---- backward ---------------------------------------------------------------------------------------------------------

// Behind it rows: all of both sides and a tile of each warp's; or all of one side and two tiles of each warp's.
template <int WIDTH, int WARPS> struct __align__(16) backward_memory {
    float gains[2][WIDTH];                                 // of queries, of keys
    float sums[2][WARPS][WIDTH];                           // of the gradients of gains
    float inverse[2][MOST_TOKENS];                         // 1/rms of queries, of keys
    float lse[MOST_TOKENS], delta[MOST_TOKENS];            // -log2(e) lse and -D of queries; -infinity, 0 beyond them
    short_places at;
};

template <typename ROWS, int WARPS> static constexpr size_t backward_bytes(int queries, int keys, bool together) {
    const int of_queries = padded(queries, GRADIENT_TILE), of_keys = padded(keys, GRADIENT_TILE), tiles = WARPS * WARP_ROWS;
    const int rows = together ? 2 * of_queries + 2 * of_keys + tiles
                              : 2 * (of_queries > of_keys ? of_queries : of_keys) + 2 * tiles;
    return sizeof(backward_memory<ROWS::D, WARPS>) + (size_t)rows * ROWS::PITCH * 2;
}

// -D of sixteen queries, two lanes a row, whose dO is in shared memory.
template <typename ROWS>
static __device__ __forceinline__ void find_delta(const uint16_t *upstream, const uint4 (&out)[ROWS::CHUNKS / 2], float *delta) {
    const int row = threadIdx.x % 32 / 2;
    float sum = 0.0f;
    upstream += row * ROWS::PITCH + threadIdx.x % 2 * (ROWS::D / 2);
#pragma unroll
    for (int i = 0; i < ROWS::CHUNKS / 2; i++) {
        const uint4 words = *(const uint4 *)(upstream + i * WIDE);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float2 x = unpack_pair<ROWS::DTYPE>((&words.x)[k]), y = unpack_pair<ROWS::DTYPE>((&out[i].x)[k]);
            sum += x.x * y.x + x.y * y.y;
        }
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    if (threadIdx.x % 2 == 0) delta[row] = -sum;
}
// The outputs that it wants: of sixteen rows.
template <typename ROWS>
static __device__ __forceinline__ void read_outputs(const head_rows &from, int width, int first, int count,
                                                    uint4 (&out)[ROWS::CHUNKS / 2]) {
    const int row = first + threadIdx.x % 32 / 2, start = threadIdx.x % 2 * (ROWS::D / 2);
    const uint16_t *data = (const uint16_t *)from.from.data + from.base + (int64_t)row * from.stride;
#pragma unroll
    for (int i = 0; i < ROWS::CHUNKS / 2; i++) {
        const int column = start + i * WIDE;
        out[i] = row < count && column < width ? *(const uint4 *)(data + column) : make_uint4(0, 0, 0, 0);
    }
}

static __device__ __forceinline__ void load_lse(const attention_call &c, const float *from, float *to, int count) {
    for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = i < c.queries ? -LOG2E * from[i] : -INFINITY;
}

static __device__ __forceinline__ head_rows moved(head_rows rows, elements to) {
    rows.from = to;
    return rows;
}

// Gradient of the warp's rows, back through the norm, to `staging`. With y = h gain, h = x / rms(x) and dy from the product:
// g = dy gain, dx = (g - h mean(g h)) / rms(x), dgain += dy h.
template <typename ROWS>
static __device__ __forceinline__ void finish_short(const attention_call &c, float (&d)[2][ROWS::RESULTS], const uint16_t *own,
                                                    const float *inverse, const float *gain, const float *other, int present,
                                                    float *gain_sums, uint16_t *staging) {
    const int lane = threadIdx.x % 32;
    typename ROWS::fragments h;
    float product[2] = {};
    ROWS::read(own, h);
    __syncwarp(); // before anything is written
#pragma unroll
    for (int j = 0; j < ROWS::RESULTS; j += 2) {
        const int column = ROWS::tiles::column(j), k = j / 4, half = j / 2 % 2;
        const float2 g = *(const float2 *)(gain + column), o = *(const float2 *)(other + column);
        float of_gain[2] = {};
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const bool there = lane / 4 + 8 * i < present;
            const float2 x = unpack_pair<ROWS::DTYPE>(h[k][half * 2 + i]);
            const float first = there ? d[i][j] * c.scale * o.x : 0.0f, second = there ? d[i][j + 1] * c.scale * o.y : 0.0f;
            of_gain[0] += first * x.x;
            of_gain[1] += second * x.y;
            d[i][j] = first * g.x;
            d[i][j + 1] = second * g.y;
            product[i] += d[i][j] * x.x + d[i][j + 1] * x.y;
        }
        if (!gain_sums) continue;
#pragma unroll
        for (int e = 0; e < 2; e++) {
#pragma unroll
            for (int by = 4; by < 32; by *= 2) of_gain[e] += __shfl_xor_sync(0xffffffffu, of_gain[e], by);
        }
        if (lane < 4) gain_sums[column] += of_gain[0], gain_sums[column + 1] += of_gain[1];
    }
    if (inverse) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float mean = quad_sum(product[i]) / (float)c.width, by = inverse[lane / 4 + 8 * i];
#pragma unroll
            for (int j = 0; j < ROWS::RESULTS; j += 2) {
                const float2 x = unpack_pair<ROWS::DTYPE>(h[j / 4][j / 2 % 2 * 2 + i]);
                d[i][j] = by * (d[i][j] - x.x * mean);
                d[i][j + 1] = by * (d[i][j + 1] - x.y * mean);
            }
        }
    }
    ROWS::keep(d, staging);
}

// dQ of sixteen queries from `first` on, from all keys. own: their rows and dO; lse, delta: theirs.
template <typename ROWS, typename MEMORY>
static __device__ __forceinline__ void short_query_gradients(const attention_call &c, MEMORY &m, int first, const uint16_t *queries,
                                                             const uint16_t *upstream, const uint16_t *of_keys,
                                                             const uint16_t *values, uint16_t *staging) {
    enum { TILE = GRADIENT_TILE };
    const int row = first + threadIdx.x % 32 / 4;
    typename ROWS::fragments a, g;
    float sums[2][ROWS::RESULTS] = {};
    ROWS::read(queries, a);
    if (ROWS::HELD) ROWS::read(upstream, g);
    ROWS::scale(a, c.scale * LOG2E, m.gains[0], m.gains[1]);
#pragma unroll 1
    for (int start = 0; start < c.keys; start += TILE) {
        float s[2][TILE / 4], d[2][TILE / 4];
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int j = 0; j < TILE / 4; j++) s[i][j] = m.lse[row + 8 * i], d[i][j] = m.delta[row + 8 * i];
        }
        ROWS::template multiply<TILE>(a, of_keys + start * ROWS::PITCH, s);
        if (ROWS::HELD) ROWS::template multiply<TILE>(g, values + start * ROWS::PITCH, d);
        else ROWS::template multiply<TILE>(upstream, values + start * ROWS::PITCH, d);
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int j = 0; j < TILE / 4; j++) d[i][j] *= power_of_two(s[i][j]);
        }
        if (start + TILE > c.keys) { // probabilities of keys that are not there may be infinite
#pragma unroll
            for (int j = 0; j < TILE / 4; j++) {
                if (start + ROWS::tiles::column(j) >= c.keys) d[0][j] = d[1][j] = 0.0f;
            }
        }
        ROWS::template mix<TILE>(d, of_keys + start * ROWS::PITCH, sums);
    }
    finish_short<ROWS>(c, sums, queries, c.rms ? m.inverse[0] + first : nullptr, m.gains[0], m.gains[1], c.queries - first,
                       c.gains_of_q ? m.sums[0][threadIdx.x / 32] : nullptr, staging);
    ROWS::store(staging, moved(m.at.queries, c.dq), c.width, first, c.queries);
}

// dK and dV of sixteen keys, from all queries, TILE at once: so many that no registers are spilled.
template <int TILE, typename ROWS, typename MEMORY>
static __device__ __forceinline__ void short_key_gradients(const attention_call &c, MEMORY &m, int first, const uint16_t *of_keys,
                                                           const uint16_t *values, const uint16_t *queries,
                                                           const uint16_t *upstream, uint16_t *staging) {
    typename ROWS::fragments a, v;
    float dk[2][ROWS::RESULTS] = {}, dv[2][ROWS::RESULTS] = {};
    ROWS::read(of_keys, a);
    if (ROWS::BOTH_HELD) ROWS::read(values, v);
    ROWS::scale(a, c.scale * LOG2E, m.gains[0], m.gains[1]);
#pragma unroll 1
    for (int start = 0; start < c.queries; start += TILE) {
        float s[2][TILE / 4], d[2][TILE / 4];
#pragma unroll
        for (int j = 0; j < TILE / 4; j += 2) {
            const float2 l = *(const float2 *)(m.lse + start + ROWS::tiles::column(j));
            const float2 e = *(const float2 *)(m.delta + start + ROWS::tiles::column(j));
            s[0][j] = s[1][j] = l.x, s[0][j + 1] = s[1][j + 1] = l.y;
            d[0][j] = d[1][j] = e.x, d[0][j + 1] = d[1][j + 1] = e.y;
        }
        ROWS::template multiply<TILE>(a, queries + start * ROWS::PITCH, s);
        if (ROWS::BOTH_HELD) ROWS::template multiply<TILE>(v, upstream + start * ROWS::PITCH, d);
        else ROWS::template multiply<TILE>(values, upstream + start * ROWS::PITCH, d);
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int j = 0; j < TILE / 4; j++) d[i][j] *= s[i][j] = power_of_two(s[i][j]);
        }
        ROWS::template mix<TILE>(s, upstream + start * ROWS::PITCH, dv);
        ROWS::template mix<TILE>(d, queries + start * ROWS::PITCH, dk);
    }
    __syncwarp(); // staging may be the warp's values
    ROWS::keep(dv, staging);
    ROWS::store(staging, moved(m.at.values, c.dkv), c.width, first, c.keys);
    finish_short<ROWS>(c, dk, of_keys, c.rms ? m.inverse[1] + first : nullptr, m.gains[1], m.gains[0], c.keys - first,
                       c.gains_of_k ? m.sums[1][threadIdx.x / 32] : nullptr, staging);
    ROWS::store(staging, moved(m.at.keys, c.dkv), c.width, first, c.keys);
}

// Sums of a block's warps, in order, to row `block` of a gain's.
template <typename MEMORY>
static __device__ __forceinline__ void add_gains(const attention_call &c, const MEMORY &m, int which, int warps, float *to,
                                                 unsigned block) {
    if (!to) return;
    for (int i = threadIdx.x; i < c.width; i += blockDim.x) {
        float sum = 0.0f;
        for (int warp = 0; warp < warps; warp++) sum += m.sums[which][warp][i];
        to[(int64_t)block * c.width + i] = sum;
    }
}

template <typename MEMORY>
static __device__ __forceinline__ void begin_backward(const attention_call &c, MEMORY &m, const short_places &at) {
    if (threadIdx.x == 0) m.at = at;
    load_lse(c, at.lse, m.lse, padded(c.queries, GRADIENT_TILE));
    constexpr int COUNT = sizeof m.sums / sizeof(float);
    for (int i = threadIdx.x; i < COUNT; i += blockDim.x) (&m.sums[0][0][0])[i] = 0.0f;
    load_gains(c, m.gains);
}

template <typename ROWS>
static __global__ void __launch_bounds__(FEW_WARPS * 32, 2) attention_short_gradients(const __grid_constant__ attention_call c) {
    extern __shared__ __align__(16) unsigned char attention_memory[];
    auto &m = *(backward_memory<ROWS::D, FEW_WARPS> *)attention_memory;
    enum { THREADS_HERE = FEW_WARPS * 32, PITCH = ROWS::PITCH };
    const int first = threadIdx.x / 32 * WARP_ROWS, of_queries = padded(c.queries, GRADIENT_TILE);
    const int all_keys = padded(c.keys, GRADIENT_TILE);
    const short_places at = find_places(c, blockIdx.x / c.heads, blockIdx.x % c.heads);
    uint16_t *queries = rows_behind(m), *of_keys = queries + of_queries * PITCH, *upstream = of_keys + all_keys * PITCH;
    uint16_t *values = upstream + of_queries * PITCH, *staging = values + all_keys * PITCH + first * PITCH;
    ROWS::load(at.queries, c.width, 0, c.queries, queries, of_queries, threadIdx.x, THREADS_HERE);
    ROWS::load(at.keys, c.width, 0, c.keys, of_keys, all_keys, threadIdx.x, THREADS_HERE);
    copy_async_commit();
    ROWS::load(at.upstream, c.width, 0, c.queries, upstream, of_queries, threadIdx.x, THREADS_HERE);
    ROWS::load(at.values, c.width, 0, c.keys, values, all_keys, threadIdx.x, THREADS_HERE);
    copy_async_commit();
    uint4 outputs[ROWS::CHUNKS / 2];
    read_outputs<ROWS>(at.outputs, c.width, first, c.queries, outputs);
    begin_backward(c, m, at);
    copy_async_wait<1>();
    __syncthreads();
    if (c.rms) {
        if (first < of_queries) ROWS::normalise(queries + first * PITCH, c.width, c.epsilon, m.inverse[0] + first);
        if (first < all_keys) ROWS::normalise(of_keys + first * PITCH, c.width, c.epsilon, m.inverse[1] + first);
    }
    copy_async_wait<0>();
    __syncthreads();
    if (first < of_queries) find_delta<ROWS>(upstream + first * PITCH, outputs, m.delta + first);
    __syncthreads();
    if (first < c.queries)
        short_query_gradients<ROWS>(c, m, first, queries + first * PITCH, upstream + first * PITCH, of_keys, values, staging);
    if (first < c.keys)
        short_key_gradients<(ROWS::D > 48 ? 16 : 32), ROWS>(c, m, first, of_keys + first * PITCH, values + first * PITCH, queries, upstream, staging);
    __syncthreads();
    add_gains(c, m, 0, FEW_WARPS, c.gains_of_q, blockIdx.x);
    add_gains(c, m, 1, FEW_WARPS, c.gains_of_k, blockIdx.x);
}

// Of longer sequences: of the rows that a head's block owns, queries or keys, a warp's tiles; the others rest.
template <typename ROWS, int WARPS, bool OWN_QUERIES>
static __global__ void __launch_bounds__(WARPS * 32, MANY_WARPS / WARPS)
    attention_short_gradients_apart(const __grid_constant__ attention_call c) {
    extern __shared__ __align__(16) unsigned char attention_memory[];
    auto &m = *(backward_memory<ROWS::D, WARPS> *)attention_memory;
    enum { THREADS_HERE = WARPS * 32, PITCH = ROWS::PITCH, STEP = WARPS * WARP_ROWS };
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const short_places at = find_places(c, blockIdx.x / c.heads, blockIdx.x % c.heads);
    const int count = OWN_QUERIES ? c.queries : c.keys, others = OWN_QUERIES ? c.keys : c.queries;
    const int rows = padded(others, GRADIENT_TILE);
    uint16_t *resting = rows_behind(m), *second = resting + rows * PITCH;
    uint16_t *own = second + rows * PITCH + warp * WARP_ROWS * PITCH, *own_second = own + STEP * PITCH;
    ROWS::load(OWN_QUERIES ? at.keys : at.queries, c.width, 0, others, resting, rows, threadIdx.x, THREADS_HERE);
    ROWS::load(OWN_QUERIES ? at.values : at.upstream, c.width, 0, others, second, rows, threadIdx.x, THREADS_HERE);
    copy_async_commit();
    begin_backward(c, m, at);
    copy_async_wait<0>();
    __syncthreads();
    for (int row = warp * WARP_ROWS; row < rows; row += STEP) {
        if (c.rms) ROWS::normalise(resting + row * PITCH, c.width, c.epsilon, m.inverse[OWN_QUERIES] + row);
        if (OWN_QUERIES) continue;
        uint4 outputs[ROWS::CHUNKS / 2];
        read_outputs<ROWS>(m.at.outputs, c.width, row, c.queries, outputs);
        find_delta<ROWS>(second + row * PITCH, outputs, m.delta + row);
    }
    __syncthreads();
    for (int first = warp * WARP_ROWS; first < count; first += STEP) {
        ROWS::load(OWN_QUERIES ? m.at.queries : m.at.keys, c.width, first, count, own, WARP_ROWS, lane, 32);
        ROWS::load(OWN_QUERIES ? m.at.upstream : m.at.values, c.width, first, count, own_second, WARP_ROWS, lane, 32);
        copy_async_commit();
        uint4 outputs[ROWS::CHUNKS / 2];
        if (OWN_QUERIES) read_outputs<ROWS>(m.at.outputs, c.width, first, c.queries, outputs);
        copy_async_wait<0>();
        __syncwarp();
        if (c.rms) ROWS::normalise(own, c.width, c.epsilon, m.inverse[!OWN_QUERIES] + first);
        if (OWN_QUERIES) find_delta<ROWS>(own_second, outputs, m.delta + first);
        __syncwarp();
        if (OWN_QUERIES)
            short_query_gradients<ROWS>(c, m, first, own, own_second, resting, second, own_second);
        else
            short_key_gradients<(ROWS::D > 32 ? 16 : 32), ROWS>(c, m, first, own, own_second, resting, second, own_second);
    }
    __syncthreads();
    add_gains(c, m, !OWN_QUERIES, WARPS, OWN_QUERIES ? c.gains_of_q : c.gains_of_k, blockIdx.x);
}

// ---- host -------------------------------------------------------------------------------------------------------------

static bool is_together(const attention_call &c) {
    return c.queries <= TOGETHER && c.keys <= TOGETHER;
}

// A block of many warps where two of few would not fit beside each other.
static bool wants_many_warps(size_t bytes, size_t shared) {
    enum { OF_THE_DRIVER = 1 << 10 };
    return 2 * (bytes + OF_THE_DRIVER) > shared + OF_THE_DRIVER;
}

template <typename LAUNCH> static ups_status with_rows(const attention_call &c, LAUNCH launch) {
    if (c.q.dtype == UPS_BF16) {
        if (c.width <= 32) return launch(short_rows<UPS_BF16, 32>());
        if (c.width <= 48) return launch(short_rows<UPS_BF16, 48>());
        return launch(short_rows<UPS_BF16, 64>());
    }
    if (c.width <= 32) return launch(short_rows<UPS_F16, 32>());
    if (c.width <= 48) return launch(short_rows<UPS_F16, 48>());
    return launch(short_rows<UPS_F16, 64>());
}

bool attention_is_short(ups_device *device, const attention_call &c, bool backward) {
    typedef short_rows<UPS_BF16, 64> widest;
    const bool half = c.q.dtype == UPS_BF16 || c.q.dtype == UPS_F16;
    if (!half || !c.wide || !is_of_one_dtype(c) || c.windows.dims || c.rotary || c.bias || c.width > widest::D) return false;
    if (c.queries > MOST_TOKENS || c.keys > MOST_TOKENS) return false;
    if (backward && (c.accumulate_q || c.accumulate_kv)) return false;
    if (c.gain_q && !(c.epsilon > 0.0f)) return false; // rows beyond the last are zeros, and stay so
    const bool together = is_together(c);
    const size_t wanted = !backward  ? forward_bytes<widest, MANY_WARPS>(c.keys)
                          : together ? backward_bytes<widest, FEW_WARPS>(c.queries, c.keys, true)
                                     : backward_bytes<widest, MANY_WARPS>(c.queries, c.keys, false);
    return wanted <= ups_cuda_most_shared(device);
}

ups_status attention_short_forward(ups_device *device, const attention_call &c, ups_error *error) {
    enum { ENOUGH = FULL_CARD / 4 }; // blocks
    return with_rows(c, [&](auto rows) -> ups_status {
        typedef decltype(rows) ROWS;
        const bool many = wants_many_warps(forward_bytes<ROWS, FEW_WARPS>(c.keys), ups_cuda_most_shared(device));
        const int64_t heads = c.batch * c.heads, tiles = tiles_in(c.queries, (many ? MANY_WARPS : FEW_WARPS) * WARP_ROWS);
        const int64_t wanted = tiles_in(ENOUGH, (int)heads), shares = wanted < tiles ? wanted : tiles;
        const size_t bytes = many ? forward_bytes<ROWS, MANY_WARPS>(c.keys) : forward_bytes<ROWS, FEW_WARPS>(c.keys);
        const auto kernel = many ? attention_short_rows<ROWS, MANY_WARPS> : attention_short_rows<ROWS, FEW_WARPS>;
        UPS_TRY(reserve_shared(kernel, bytes, error));
        kernel<<<(unsigned)(heads * shares), (many ? MANY_WARPS : FEW_WARPS) * 32, bytes, ups_cuda_stream(device)>>>(c, (int)shares);
        return ups_cuda_launched("attention of a short sequence", error);
    });
}

template <typename ROWS, int WARPS>
static ups_status launch_apart(cudaStream_t stream, const attention_call &c, ups_error *error) {
    const size_t bytes = backward_bytes<ROWS, WARPS>(c.queries, c.keys, false);
    const unsigned blocks = (unsigned)(c.batch * c.heads);
    UPS_TRY(reserve_shared(attention_short_gradients_apart<ROWS, WARPS, true>, bytes, error));
    UPS_TRY(reserve_shared(attention_short_gradients_apart<ROWS, WARPS, false>, bytes, error));
    attention_short_gradients_apart<ROWS, WARPS, true><<<blocks, WARPS * 32, bytes, stream>>>(c);
    UPS_TRY(ups_cuda_launched("a short sequence's gradient of queries", error));
    attention_short_gradients_apart<ROWS, WARPS, false><<<blocks, WARPS * 32, bytes, stream>>>(c);
    return ups_cuda_launched("a short sequence's gradient of keys and values", error);
}

ups_status attention_short_backward(ups_device *device, const attention_call &c, ups_error *error) {
    cudaStream_t stream = ups_cuda_stream(device);
    return with_rows(c, [&](auto rows) -> ups_status {
        typedef decltype(rows) ROWS;
        const size_t bytes = backward_bytes<ROWS, FEW_WARPS>(c.queries, c.keys, is_together(c));
        if (!is_together(c)) {
            const bool many = wants_many_warps(bytes, ups_cuda_most_shared(device));
            return many ? launch_apart<ROWS, MANY_WARPS>(stream, c, error) : launch_apart<ROWS, FEW_WARPS>(stream, c, error);
        }
        UPS_TRY(reserve_shared(attention_short_gradients<ROWS>, bytes, error));
        attention_short_gradients<ROWS><<<(unsigned)(c.batch * c.heads), FEW_WARPS * 32, bytes, stream>>>(c);
        return ups_cuda_launched("the gradients of attention of a short sequence", error);
    });
}

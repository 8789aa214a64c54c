// Attention of short sequences, backward (FlashAttention, arXiv 2205.14135, section 3.1, with D the row sums of dO O):
//   P = exp(S - lse)   dV = P^T dO   dP = dO V^T   dS = P (dP - D)   dQ = dS K   dK = dS^T Q
// A warp makes dK and dV of its own keys, and dQ of its own queries: scores are found twice, and nothing is added to from two
// sides. Sums begin as -lse and -D, so that the matrix units subtract. Up to TOGETHER tokens a block does both, and reads a
// head once; of longer sequences one kernel owns queries and another keys. Gradients of gains are partial sums by block,
// added in the order of blocks.
#include "model/cuda/attention/attention_short.cuh"

// Rows of the other side that are taken at once: for keys fewer, whose two results take more registers.
enum { TOGETHER = 128, GRADIENT_TILE = 32, QUERY_TILE = 16 };

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
    ROWS::template multiply<TILE>(g, ROWS::HELD ? nullptr : upstream, values, d, [&](int m, int) { return delta[m]; });
#pragma unroll
    for (int row = 0; row < 2 * ROWS::TILES; row++) {
#pragma unroll
        for (int j = 0; j < TILE / 4; j++) {
            float &x = d[row / 2][row % 2][j];
            x *= exp2_fast(s[row / 2][row % 2][j]);
            if (MASKED && ROWS::tiles::column(j) >= left) x = 0.0f;
        }
    }
    ROWS::template mix<TILE>(d, of_keys, sums);
}

// dQ of the warp's queries from `first` on, from all keys. `queries` and `upstream`: their rows, h and dO.
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
    if (ROWS::HELD) ROWS::read(upstream, g);
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

// dK and dV of the warp's keys, from all queries, TILE at once.
template <int TILE, typename ROWS, typename MEMORY>
static __device__ __forceinline__ void short_key_gradients(const attention_call &c, MEMORY &m, int first, const uint16_t *of_keys,
                                                           const uint16_t *values, const uint16_t *queries,
                                                           const uint16_t *upstream, own_numbers of, uint16_t *staging) {
    typename ROWS::fragments a, v;
    typename ROWS::results dk = {}, dv = {};
    ROWS::read(of_keys, a);
    if (ROWS::HELD) ROWS::read(values, v);
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
        ROWS::template multiply<TILE>(v, ROWS::HELD ? nullptr : values, upstream + start * ROWS::PITCH, d, of_columns(m.delta));
#pragma unroll
        for (int row = 0; row < 2 * ROWS::TILES; row++) {
#pragma unroll
            for (int j = 0; j < TILE / 4; j++) {
                float &p = s[row / 2][row % 2][j];
                d[row / 2][row % 2][j] *= p = exp2_fast(p);
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
        short_key_gradients<QUERY_TILE, ROWS>(c, m, first, of_keys + at_own, values + at_own, queries, upstream,
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
        else short_key_gradients<QUERY_TILE, ROWS>(c, m, first, own, own_second, resting, second, of, own_second);
    }
    __syncthreads();
    add_gains(c, m, 0, WARPS, OWN_QUERIES ? c.gains_of_q : c.gains_of_k);
}

// ---- host -------------------------------------------------------------------------------------------------------------

static bool is_together(const attention_call &c) {
    return c.queries <= TOGETHER && c.keys <= TOGETHER;
}

size_t attention_short_backward_bytes(const attention_call &c) {
    size_t bytes = 0;
    with_rows<BACKWARD_TILES>(c, [&](auto rows) {
        bytes = backward_bytes<decltype(rows)>(c.queries, c.keys, is_together(c));
        return UPS_OK;
    });
    return bytes;
}

ups_status attention_short_backward(ups_device *device, const attention_call &c, ups_error *error) {
    cudaStream_t stream = ups_cuda_stream(device);
    const bool together = is_together(c);
    return with_rows<BACKWARD_TILES>(c, [&](auto rows) -> ups_status {
        typedef decltype(rows) ROWS;
        const unsigned blocks = (unsigned)(c.batch * c.heads), threads = (together ? 1 : 2) * ROWS::WARPS * 32;
        const size_t bytes = backward_bytes<ROWS>(c.queries, c.keys, together);
        const auto kernel = together ? attention_short_gradients<ROWS> : attention_short_gradients_apart<ROWS, true>;
        if (together || c.dq.data || c.gains_of_q) {
            UPS_TRY(reserve_shared(kernel, bytes, error));
            kernel<<<blocks, threads, bytes, stream>>>(c);
            UPS_TRY(ups_cuda_launched("a short sequence's gradients", error));
        }
        if (together || !(c.dkv.data || c.gains_of_k)) return UPS_OK;
        UPS_TRY(reserve_shared(attention_short_gradients_apart<ROWS, false>, bytes, error));
        attention_short_gradients_apart<ROWS, false><<<blocks, threads, bytes, stream>>>(c);
        return ups_cuda_launched("a short sequence's gradients of keys and values", error);
    });
}

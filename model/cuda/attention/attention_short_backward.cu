// Attention of short sequences, backward (FlashAttention, arXiv 2205.14135, section 3.1, with D the row sums of dO O):
//   P = exp(S - lse)   dV = P^T dO   dP = dO V^T   dS = P (dP - D)   dQ = dS K   dK = dS^T Q
// A warp makes dK and dV of its own keys, and dQ of its own queries: scores are found twice, and nothing is added to from two
// sides. Sums begin as -lse and -D, so that the matrix units subtract. Up to TOGETHER tokens a block does both, and reads a
// head once; of longer sequences one kernel owns queries and another keys. Gradients of gains are partial sums by block,
// added in the order of blocks.
#include "model/cuda/attention/attention_short_backward.cuh"

// Rows of the other side that are taken at once: for keys fewer, whose two results take more registers.
enum { GRADIENT_TILE = 32, QUERY_TILE = 16 };

// Behind them rows: all of both sides and a tile of each warp's; all of the other side and two tiles of each warp's.
template <typename ROWS> using memory_together = backward_memory<ROWS::D, ROWS::WARPS, ROWS::OWN, 2, TOGETHER>;
template <typename ROWS> using memory_apart = backward_memory<ROWS::D, 2 * ROWS::WARPS, ROWS::OWN, 1, MOST_TOKENS>;

template <typename ROWS> static constexpr size_t backward_bytes(int queries, int keys, bool together) {
    const int of_queries = padded(queries, GRADIENT_TILE), of_keys = padded(keys, GRADIENT_TILE);
    const int rows = together ? 2 * of_queries + 2 * of_keys + ROWS::WARPS * 16
                              : 2 * (of_queries > of_keys ? of_queries : of_keys) + 2 * 2 * ROWS::WARPS * ROWS::OWN;
    return (together ? sizeof(memory_together<ROWS>) : sizeof(memory_apart<ROWS>)) + (size_t)rows * ROWS::PITCH * 2;
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

size_t attention_short_backward_bytes(const attention_call &c) {
    size_t bytes = 0;
    with_rows<BACKWARD_TILES>(c, [&](auto rows) {
        bytes = backward_bytes<decltype(rows)>(c.queries, c.keys, attention_is_together(c));
        return UPS_OK;
    });
    return bytes;
}

ups_status attention_short_backward(ups_device *device, const attention_call &c, ups_error *error) {
    cudaStream_t stream = ups_cuda_stream(device);
    const bool together = attention_is_together(c);
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

// Attention of short sequences by products of four warps, backward: as attention_short_backward.cu, with rows in slabs. A group
// owns 64 keys, then 64 queries; the other side's rows are taken a tile at once. What sums run over is always in shared memory.
#include "model/cuda/attention/attention_short_backward.cuh"
#include "model/cuda/attention/groups.cuh"

// Rows of the other side that are taken at once. Of blocks that make all gradients two are beside each other on a processor where
// registers suffice: with a smaller tile, and scaled queries in shared memory beside the others.
enum { TILE_APART = 64 };
template <typename ROWS> struct together {
    static constexpr int TILE = ROWS::D <= 48 ? 32 : 64, BLOCKS = ROWS::D <= 48 ? 2 : 1;
};

// Behind them slabs: all rows of both sides, and scaled queries; all of the other side, and of each group's own 64 three. Then
// sixteen rows of each warp's.
template <typename ROWS> using group_memory_together = backward_memory<ROWS::D, BLOCK_WARPS, 16, 2, TOGETHER>;
template <typename ROWS> using group_memory_apart = backward_memory<ROWS::D, BLOCK_WARPS, 16, 1, MOST_TOKENS>;

template <typename ROWS> static constexpr size_t group_backward_bytes(int queries, int keys, bool together) {
    const int of_queries = padded(queries, GROUP_ROWS), of_keys = padded(keys, GROUP_ROWS);
    const int others = of_queries > of_keys ? of_queries : of_keys;
    const size_t slabs = together ? 3 * slabs_bytes(of_queries, ROWS::D) + 2 * slabs_bytes(of_keys, ROWS::D)
                                  : 2 * slabs_bytes(others, ROWS::D) + 3 * BLOCK_GROUPS * slabs_bytes(GROUP_ROWS, ROWS::D);
    return (together ? sizeof(group_memory_together<ROWS>) : sizeof(group_memory_apart<ROWS>)) + slabs +
           (size_t)BLOCK_WARPS * 16 * ROWS::PITCH * 2;
}

#if HAS_GROUPS
template <typename ROWS>
static __device__ __forceinline__ void put_normalised(const attention_call &c, typename ROWS::pieces &x, float *inverse,
                                                      slab_rows rows) {
    if (c.rms) {
        const float by = ROWS::normalise(x, 1.0f / (float)c.width, c.epsilon);
        if (inverse && threadIdx.x % 2 == 0) inverse[threadIdx.x % 32 / 2] = by;
    }
    put_in_slabs<ROWS>(x, rows);
}

// Rows times the factors of the columns of scores.
template <typename ROWS, typename MEMORY>
static __device__ __forceinline__ void scale_rows(const MEMORY &m, typename ROWS::pieces &x) {
#pragma unroll
    for (int i = 0; i < ROWS::PIECES; i++) {
        const float2 *factors = (const float2 *)(m.factors.product + ROWS::column_of(i));
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float2 pair = unpack_pair<ROWS::DTYPE>((&x[i].x)[k]), f = factors[k];
            (&x[i].x)[k] = pack_pair<ROWS::DTYPE>(pair.x * f.x, pair.y * f.y);
        }
    }
}

// Both products of a tile, s = own other^T and d = own_second second^T, and waits for them.
template <int TILE, typename ROWS>
static __device__ __forceinline__ void find_both(slab_rows own, slab_rows other, slab_rows own_second, slab_rows second,
                                                 float (&s)[2][TILE / 4], float (&d)[2][TILE / 4]) {
    hold(s);
    hold(d);
    group_begin();
    begin_product<ROWS, TILE>(own, other, s);
    begin_product<ROWS, TILE>(own_second, second, d);
    group_commit();
    group_wait<0>();
    hold(s);
    hold(d);
}

// dQ of the warp's queries from `first` on, from all keys. `queries`: the warp's rows; `scaled` and `upstream`: the group's.
template <int TILE, typename ROWS, typename MEMORY>
static __device__ __forceinline__ void group_query_gradients(const attention_call &c, MEMORY &m, int first, slab_rows queries,
                                                             slab_rows scaled, slab_rows upstream, slab_rows of_keys,
                                                             slab_rows values, own_numbers of, uint16_t *staging) {
    const int row = first + threadIdx.x % 32 / 4;
    const float lse[2] = {m.lse[row], m.lse[row + 8]}, delta[2] = {m.delta[row], m.delta[row + 8]};
    typename ROWS::results sums = {};
#pragma unroll 1
    for (int start = 0; start < c.keys; start += TILE) {
        float s[2][TILE / 4] = {}, d[2][TILE / 4] = {};
        uint32_t p[TILE / 16][4];
        find_both<TILE, ROWS>(scaled, of_keys.from(start), upstream, values.from(start), s, d);
        hold(sums[0]);
#pragma unroll
        for (int i = 0; i < 2; i++) {
#pragma unroll
            for (int j = 0; j < TILE / 4; j++) d[i][j] = (d[i][j] + delta[i]) * exp2_fast(s[i][j] + lse[i]);
        }
        if (c.keys - start < TILE) { // of keys that are not there probabilities may be infinite
#pragma unroll
            for (int j = 0; j < TILE / 4; j++) {
                if (ROWS::tiles::column(j) >= c.keys - start) d[0][j] = d[1][j] = 0.0f;
            }
        }
        pack_results<ROWS>(d, p);
        hold(sums[0]);
        group_begin();
        begin_mix<ROWS, TILE>(p, of_keys.from(start), sums[0]);
        group_commit();
    }
    group_wait<0>();
    hold(sums[0]);
    typename ROWS::fragments a;
    read_slabs<ROWS>(queries, a);
    finish_short<0, ROWS>(c, m, sums[0], a, 0, first, of, staging);
    ROWS::store(staging, moved(m.at.queries, c.dq), c.width, first, c.queries);
}

// dK and dV of the warp's keys, from all queries. `of_keys`: the warp's rows; `values`: the group's. Of the two that make scores,
// `own` and `other`, one is scaled.
template <int TILE, typename ROWS, typename MEMORY>
static __device__ __forceinline__ void group_key_gradients(const attention_call &c, MEMORY &m, int first, slab_rows of_keys,
                                                           slab_rows own, slab_rows other, slab_rows values,
                                                           slab_rows queries, slab_rows upstream, own_numbers of,
                                                           uint16_t *staging) {
    typename ROWS::results dk = {}, dv = {};
    hold(dk[0]);
    hold(dv[0]);
#pragma unroll 1
    for (int start = 0; start < c.queries; start += TILE) {
        float s[2][TILE / 4] = {}, d[2][TILE / 4] = {};
        uint32_t p[TILE / 16][4], of_scores[TILE / 16][4];
        find_both<TILE, ROWS>(own, other.from(start), values, upstream.from(start), s, d);
        hold(dk[0]);
        hold(dv[0]);
#pragma unroll
        for (int j = 0; j < TILE / 4; j++) {
            const int column = start + ROWS::tiles::column(j);
#pragma unroll
            for (int i = 0; i < 2; i++) d[i][j] = (d[i][j] + m.delta[column]) * (s[i][j] = exp2_fast(s[i][j] + m.lse[column]));
        }
        pack_results<ROWS>(s, p);
        pack_results<ROWS>(d, of_scores);
        hold(dk[0]);
        hold(dv[0]);
        group_begin();
        begin_mix<ROWS, TILE>(p, upstream.from(start), dv[0]);
        begin_mix<ROWS, TILE>(of_scores, queries.from(start), dk[0]);
        group_commit();
    }
    group_wait<0>();
    hold(dk[0]);
    hold(dv[0]);
    ROWS::keep(dv[0], staging);
    ROWS::store(staging, moved(m.at.values, c.dkv), c.width, first, c.keys);
    typename ROWS::fragments a;
    read_slabs<ROWS>(of_keys, a);
    finish_short<1, ROWS>(c, m, dk[0], a, 0, first, of, staging);
    ROWS::store(staging, moved(m.at.keys, c.dkv), c.width, first, c.keys);
}
#endif

template <typename ROWS>
static __global__ void __launch_bounds__(BLOCK_WARPS * 32, together<ROWS>::BLOCKS)
    attention_group_gradients(const __grid_constant__ attention_call c) {
#if HAS_GROUPS
    extern __shared__ __align__(16) unsigned char attention_memory[];
    auto &m = *(group_memory_together<ROWS> *)attention_memory;
    enum { TILE = together<ROWS>::TILE };
    const int warp = uniform(threadIdx.x / 32), first = warp * 16, of_group = warp / 4 * GROUP_ROWS;
    const int all_queries = padded(c.queries, GROUP_ROWS), all_keys = padded(c.keys, GROUP_ROWS);
    const slab_rows queries = {(unsigned char *)(&m + 1), slab_stride(all_queries)};
    const slab_rows upstream = {queries.data + slabs_bytes(all_queries, ROWS::D), queries.stride};
    const slab_rows scaled = {upstream.data + slabs_bytes(all_queries, ROWS::D), queries.stride};
    const slab_rows of_keys = {scaled.data + slabs_bytes(all_queries, ROWS::D), slab_stride(all_keys)};
    const slab_rows values = {of_keys.data + slabs_bytes(all_keys, ROWS::D), of_keys.stride};
    uint16_t *staging = (uint16_t *)(values.data + slabs_bytes(all_keys, ROWS::D)) + warp * 16 * ROWS::PITCH;
    {
        const short_places at = find_places(c, blockIdx.x / c.heads, blockIdx.x % c.heads);
        typename ROWS::pieces q, k, given, out;
        if (first < all_keys) copy_to_slabs<ROWS>(at.values, c.width, first, c.keys, values.from(first));
        copy_async_commit();
        if (first < all_queries) {
            ROWS::fetch(at.queries, c.width, first, c.queries, q);
            ROWS::fetch(at.upstream, c.width, first, c.queries, given);
            ROWS::fetch(at.outputs, c.width, first, c.queries, out);
        }
        if (first < all_keys) ROWS::fetch(at.keys, c.width, first, c.keys, k);
        begin_backward(c, m, at); // while rows are on their way
        __syncthreads();
        if (first < all_queries) {
            put_normalised<ROWS>(c, q, m.inverse[0] + first, queries.from(first));
            scale_rows<ROWS>(m, q);
            put_in_slabs<ROWS>(q, scaled.from(first));
            find_delta<ROWS>(out, given, m.delta + first);
            put_in_slabs<ROWS>(given, upstream.from(first));
        }
        if (first < all_keys) put_normalised<ROWS>(c, k, m.inverse[1] + first, of_keys.from(first));
    }
    copy_async_wait<0>();
    show_to_groups();
    __syncthreads();
    if (of_group < c.keys)
        group_key_gradients<TILE, ROWS>(c, m, first, of_keys.from(first), of_keys.from(of_group), scaled,
                                              values.from(of_group), queries, upstream,
                                              {m.inverse[1] + first, m.sums[1][warp]}, staging);
    if (of_group < c.queries)
        group_query_gradients<TILE, ROWS>(c, m, first, queries.from(first), scaled.from(of_group),
                                              upstream.from(of_group), of_keys, values,
                                              {m.inverse[0] + first, m.sums[0][warp]}, staging);
    __syncthreads();
    add_gains(c, m, 0, BLOCK_WARPS, c.gains_of_q);
    add_gains(c, m, 1, BLOCK_WARPS, c.gains_of_k);
#endif
}

// Of longer sequences: of the rows that a head's block owns, queries or keys, a group's 64; the others rest.
template <typename ROWS, bool OWN_QUERIES>
static __global__ void __launch_bounds__(BLOCK_WARPS * 32, 1)
    attention_group_gradients_apart(const __grid_constant__ attention_call c) {
#if HAS_GROUPS
    extern __shared__ __align__(16) unsigned char attention_memory[];
    auto &m = *(group_memory_apart<ROWS> *)attention_memory;
    enum { TILE = TILE_APART, STEP = BLOCK_GROUPS * GROUP_ROWS };
    const int warp = uniform(threadIdx.x / 32), group = warp / 4, in_group = warp % 4 * 16;
    const int count = OWN_QUERIES ? c.queries : c.keys, others = OWN_QUERIES ? c.keys : c.queries;
    const int rows = padded(others, GROUP_ROWS);
    const slab_rows resting = {(unsigned char *)(&m + 1), slab_stride(rows)};
    const slab_rows second = {resting.data + slabs_bytes(rows, ROWS::D), resting.stride};
    constexpr int OWN_BYTES = slabs_bytes(GROUP_ROWS, ROWS::D);
    unsigned char *of_groups = second.data + slabs_bytes(rows, ROWS::D);
    const slab_rows own = {of_groups + 3 * group * OWN_BYTES, slab_stride(GROUP_ROWS)};
    const slab_rows own_second = {own.data + OWN_BYTES, own.stride}, scaled = {own_second.data + OWN_BYTES, own.stride};
    uint16_t *staging = (uint16_t *)(of_groups + 3 * BLOCK_GROUPS * OWN_BYTES) + warp * 16 * ROWS::PITCH;
    {
        const short_places at = find_places(c, blockIdx.x / c.heads, blockIdx.x % c.heads);
        begin_backward(c, m, at);
        for (int row = warp * 16; row < rows; row += BLOCK_WARPS * 16) {
            typename ROWS::pieces x, given, out;
            ROWS::fetch(OWN_QUERIES ? at.keys : at.queries, c.width, row, others, x);
            if (OWN_QUERIES) {
                copy_to_slabs<ROWS>(at.values, c.width, row, others, second.from(row));
            } else {
                ROWS::fetch(at.upstream, c.width, row, others, given);
                ROWS::fetch(at.outputs, c.width, row, others, out);
                find_delta<ROWS>(out, given, m.delta + row);
                put_in_slabs<ROWS>(given, second.from(row));
            }
            put_normalised<ROWS>(c, x, nullptr, resting.from(row));
        }
        copy_async_commit();
    }
    copy_async_wait<0>();
    show_to_groups();
    __syncthreads();
    for (int of_group = group * GROUP_ROWS; of_group < count; of_group += STEP) {
        const int first = of_group + in_group;
        typename ROWS::pieces x, y;
        ROWS::fetch(OWN_QUERIES ? m.at.queries : m.at.keys, c.width, first, count, x);
        ROWS::fetch(OWN_QUERIES ? m.at.upstream : m.at.values, c.width, first, count, y);
        if (OWN_QUERIES) {
            typename ROWS::pieces out;
            ROWS::fetch(m.at.outputs, c.width, first, count, out);
            find_delta<ROWS>(out, y, m.delta + first);
        }
        put_normalised<ROWS>(c, x, m.inverse[0] + warp * 16, own.from(in_group));
        put_in_slabs<ROWS>(y, own_second.from(in_group));
        scale_rows<ROWS>(m, x);
        put_in_slabs<ROWS>(x, scaled.from(in_group));
        show_to_groups();
        meet_group(group);
        const own_numbers of = {m.inverse[0] + warp * 16, m.sums[0][warp]};
        if (OWN_QUERIES)
            group_query_gradients<TILE, ROWS>(c, m, first, own.from(in_group), scaled, own_second, resting, second, of, staging);
        else
            group_key_gradients<TILE, ROWS>(c, m, first, own.from(in_group), scaled, resting, own_second, resting, second, of,
                                            staging);
        meet_group(group); // all have read the group's rows
    }
    __syncthreads();
    add_gains(c, m, 0, BLOCK_WARPS, OWN_QUERIES ? c.gains_of_q : c.gains_of_k);
#endif
}

// ---- host -------------------------------------------------------------------------------------------------------------

size_t attention_groups_backward_bytes(const attention_call &c) {
    size_t bytes = 0;
    with_rows<1>(c, [&](auto rows) {
        bytes = group_backward_bytes<decltype(rows)>(c.queries, c.keys, attention_is_together(c));
        return UPS_OK;
    });
    return bytes;
}

ups_status attention_groups_backward(ups_device *device, const attention_call &c, ups_error *error) {
    cudaStream_t stream = ups_cuda_stream(device);
    const bool together = attention_is_together(c);
    return with_rows<1>(c, [&](auto rows) -> ups_status {
        typedef decltype(rows) ROWS;
        const unsigned blocks = (unsigned)(c.batch * c.heads), threads = BLOCK_WARPS * 32;
        const size_t bytes = group_backward_bytes<ROWS>(c.queries, c.keys, together);
        const auto kernel = together ? attention_group_gradients<ROWS> : attention_group_gradients_apart<ROWS, true>;
        if (together || c.dq.data || c.gains_of_q) {
            UPS_TRY(reserve_shared(kernel, bytes, error));
            kernel<<<blocks, threads, bytes, stream>>>(c);
            UPS_TRY(ups_cuda_launched("gradients of attention by groups of warps", error));
        }
        if (together || !(c.dkv.data || c.gains_of_k)) return UPS_OK;
        UPS_TRY(reserve_shared(attention_group_gradients_apart<ROWS, false>, bytes, error));
        attention_group_gradients_apart<ROWS, false><<<blocks, threads, bytes, stream>>>(c);
        return ups_cuda_launched("gradients of keys and values by groups of warps", error);
    });
}

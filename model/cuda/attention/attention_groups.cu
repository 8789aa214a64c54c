// Attention of short sequences by products of four warps, forward: as attention_short.cu, with keys and values in slabs. A group
// of four warps has 64 queries, in registers, and meets tiles of 64 keys. While it gives the values of one tile to its sums, the
// scores of the next are made.
#include "model/cuda/attention/groups.cuh"

enum { KEY_TILE = 64 };

// Behind it the slabs of keys, of values, and sixteen rows of each warp's.
template <int WIDTH> struct __align__(16) group_forward_memory {
    short_factors<WIDTH> factors;
    short_places at;
};

template <typename ROWS> static constexpr size_t group_forward_bytes(int keys) {
    return sizeof(group_forward_memory<ROWS::D>) + 2 * slabs_bytes(padded(keys, KEY_TILE), ROWS::D) +
           (size_t)BLOCK_WARPS * ROWS::OWN * ROWS::PITCH * 2;
}

#if HAS_GROUPS
// s = the group's queries by a tile of keys. It is done after a wait.
template <typename ROWS>
static __device__ __forceinline__ void begin_scores(const typename ROWS::fragments &a, slab_rows of_keys,
                                                    float (&s)[2][KEY_TILE / 4]) {
    hold(s);
    group_begin();
    begin_product<ROWS, KEY_TILE>(a, of_keys, s);
    group_commit();
}

// Scores become powers of two, with the running maximum and sum of each row; keys from `left` on are not there.
template <typename ROWS>
static __device__ __forceinline__ void find_powers(float (&s)[2][KEY_TILE / 4], int left, float (&largest)[2], float (&total)[2],
                                                   float (&sums)[2][ROWS::RESULTS]) {
    if (left < KEY_TILE) {
#pragma unroll
        for (int j = 0; j < KEY_TILE / 4; j++) {
            if (ROWS::tiles::column(j) >= left) s[0][j] = s[1][j] = -INFINITY;
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float most = largest[i], sum = 0.0f;
#pragma unroll
        for (int j = 0; j < KEY_TILE / 4; j++) most = fmaxf(most, s[i][j]);
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2)); // finite: each tile has a key
        const float before = exp2_fast(largest[i] - most);
#pragma unroll
        for (int j = 0; j < KEY_TILE / 4; j++) sum += s[i][j] = exp2_fast(s[i][j] - most);
        largest[i] = most;
        total[i] = total[i] * before + sum;
#pragma unroll
        for (int j = 0; j < ROWS::RESULTS; j++) sums[i][j] *= before;
    }
}

// 64 queries of the group, from those that its warps hold; what each row is to be divided by is left in `total`.
template <typename ROWS>
static __device__ __forceinline__ void attend(const typename ROWS::fragments &a, slab_rows of_keys, slab_rows values, int keys,
                                              float (&sums)[2][ROWS::RESULTS], float (&largest)[2],
                                              float (&total)[2]) {
    float s[2][KEY_TILE / 4] = {};
    begin_scores<ROWS>(a, of_keys, s);
#pragma unroll 1
    for (int start = 0; start < keys; start += KEY_TILE) {
        group_wait<0>();
        hold(s);
        hold(sums);
        find_powers<ROWS>(s, keys - start, largest, total, sums);
        uint32_t p[KEY_TILE / 16][4];
        pack_results<ROWS>(s, p);
        hold(sums);
        group_begin();
        begin_mix<ROWS, KEY_TILE>(p, values.from(start), sums);
        group_commit();
        if (start + KEY_TILE < keys) begin_scores<ROWS>(a, of_keys.from(start + KEY_TILE), s);
    }
    group_wait<0>();
    hold(sums);
}
#endif

// `shares`: blocks of a head, each with some of the queries.
template <typename ROWS>
static __global__ void __launch_bounds__(BLOCK_WARPS * 32, 2)
    attention_group_rows(const __grid_constant__ attention_call c, int shares) {
#if HAS_GROUPS
    extern __shared__ __align__(128) unsigned char attention_memory[];
    auto &m = *(group_forward_memory<ROWS::D> *)attention_memory;
    enum { PITCH = ROWS::PITCH, STEP = BLOCK_GROUPS * GROUP_ROWS };
    const int warp = uniform(threadIdx.x / 32), lane = threadIdx.x % 32, keys = padded(c.keys, KEY_TILE), share = blockIdx.x % shares;
    const slab_rows of_keys = {(unsigned char *)(&m + 1), slab_stride(keys)};
    const slab_rows values = {of_keys.data + slabs_bytes(keys, ROWS::D), of_keys.stride};
    uint16_t *own = (uint16_t *)(values.data + slabs_bytes(keys, ROWS::D)) + warp * ROWS::OWN * PITCH;
    int of_group = (share * BLOCK_GROUPS + warp / 4) * GROUP_ROWS; // its first query
    typename ROWS::pieces x;
    {
        const short_places at = find_places(c, blockIdx.x / shares / c.heads, blockIdx.x / shares % c.heads);
        if (threadIdx.x == 0) m.at = at;
        for (int row = warp * 16; row < keys; row += BLOCK_WARPS * 16)
            copy_to_slabs<ROWS>(at.values, c.width, row, c.keys, values.from(row));
        copy_async_commit();
        ROWS::fetch(at.queries, c.width, of_group + warp % 4 * 16, c.queries, x);
        typename ROWS::pieces k; // rows of keys, sixteen ahead
        ROWS::fetch(at.keys, c.width, warp * 16, c.keys, k);
        find_factors(c, m.factors);
        for (int row = warp * 16; row < keys; row += BLOCK_WARPS * 16) {
            typename ROWS::pieces next;
            if (row + BLOCK_WARPS * 16 < keys) ROWS::fetch(at.keys, c.width, row + BLOCK_WARPS * 16, c.keys, next);
            if (c.rms) normalise_and_keep<ROWS>(c, k, share == 0 ? at.rms_of_keys : nullptr, row, c.keys);
            put_in_slabs<ROWS>(k, of_keys.from(row));
#pragma unroll
            for (int i = 0; i < ROWS::PIECES; i++) k[i] = next[i];
        }
    }
    copy_async_wait<0>();
    show_to_groups();
    __syncthreads();

    while (of_group < c.queries) {
        const int first = of_group + warp % 4 * 16; // queries beyond the last are zeros
        typename ROWS::fragments a;
        typename ROWS::results sums = {};
        float largest[2] = {-INFINITY, -INFINITY}, total[2] = {};
        if (c.rms) normalise_and_keep<ROWS>(c, x, m.at.rms_of_queries, first, c.queries);
        ROWS::put(x, own);
        __syncwarp();
        ROWS::read(own, a);
        ROWS::scale(a, m.factors.product);
        attend<ROWS>(a, of_keys, values, c.keys, sums[0], largest, total);
        __syncwarp(); // all lanes have read the queries
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float sum = quad_sum(total[i]), inverse = 1.0f / sum;
            const int row = first + lane / 4 + 8 * i;
            if (m.at.lse && lane % 4 == 0 && row < c.queries) m.at.lse[row] = LN2 * (largest[i] + log2f(sum));
#pragma unroll
            for (int j = 0; j < ROWS::RESULTS; j++) sums[0][i][j] *= inverse;
        }
        ROWS::keep(sums[0], own);
        ROWS::store(own, m.at.outputs, c.width, first, c.queries);
        of_group += shares * STEP;
        if (of_group < c.queries) ROWS::fetch(m.at.queries, c.width, of_group + warp % 4 * 16, c.queries, x);
    }
#endif
}

// ---- host -------------------------------------------------------------------------------------------------------------

size_t attention_groups_forward_bytes(const attention_call &c) {
    size_t bytes = 0;
    with_rows<1>(c, [&](auto rows) {
        bytes = group_forward_bytes<decltype(rows)>(c.keys);
        return UPS_OK;
    });
    return bytes;
}

ups_status attention_groups_forward(ups_device *device, const attention_call &c, ups_error *error) {
    return with_rows<1>(c, [&](auto rows) -> ups_status {
        typedef decltype(rows) ROWS;
        const size_t bytes = group_forward_bytes<ROWS>(c.keys);
        const int64_t heads = c.batch * c.heads, tiles = tiles_in(c.queries, BLOCK_GROUPS * GROUP_ROWS);
        const int64_t wanted = tiles_in(2 * ups_cuda_processors(device), (int)heads), shares = wanted < tiles ? wanted : tiles;
        UPS_TRY(reserve_shared(attention_group_rows<ROWS>, bytes, error));
        attention_group_rows<ROWS>
            <<<(unsigned)(heads * shares), BLOCK_WARPS * 32, bytes, ups_cuda_stream(device)>>>(c, (int)shares);
        return ups_cuda_launched("attention by groups of warps", error);
    });
}

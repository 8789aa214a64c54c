// Attention of short sequences, forward: each warp's rows of queries against tiles of keys, with the running maximum and sum
// of each row of scores, as in attention.cu.
#include "model/cuda/attention/attention_short.cuh"

enum { KEY_TILE = 64 };

// Behind it rows: keys, values, a tile of each warp's.
template <int WIDTH> struct __align__(16) forward_memory {
    short_factors<WIDTH> factors;
    short_places at;
};

template <typename ROWS, int WARPS> static constexpr size_t forward_bytes(int keys) {
    return sizeof(forward_memory<ROWS::D>) + (size_t)(2 * padded(keys, KEY_TILE) + WARPS * ROWS::OWN) * ROWS::PITCH * 2;
}

// A tile of scores, and what it gives to the running maximum, sum and result of the warp's rows. MASKED: some keys are not there.
template <bool MASKED, typename ROWS>
static __device__ __forceinline__ void add_key_tile(const typename ROWS::fragments &a, const uint16_t *own, const uint16_t *of_keys,
                                                    const uint16_t *values, int left, typename ROWS::results &sums,
                                                    float (&largest)[ROWS::TILES][2], float (&total)[ROWS::TILES][2], bool begins) {
    enum { COLUMNS = KEY_TILE / 4 };
    float s[ROWS::TILES][2][COLUMNS];
    ROWS::template multiply<KEY_TILE>(a, ROWS::HELD ? nullptr : own, of_keys, s, [](int, int) { return make_float4(0.0f, 0.0f, 0.0f, 0.0f); });
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
        const float before = exp2_fast(largest[m][i] - most);
        float sum = 0.0f;
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) sum += s[m][i][j] = exp2_fast(s[m][i][j] - most);
        largest[m][i] = most;
        total[m][i] = total[m][i] * before + sum;
        if (begins) continue;
#pragma unroll
        for (int j = 0; j < ROWS::RESULTS; j++) sums[m][i][j] *= before;
    }
    ROWS::template mix<KEY_TILE>(s, values, sums);
}

// `shares`: blocks of a head, each with some of the queries.
template <typename ROWS, int WARPS>
static __global__ void __launch_bounds__(WARPS * 32, 2 * ROWS::WARPS / WARPS)
    attention_short_rows(const __grid_constant__ attention_call c, int shares) {
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
        for (; start + KEY_TILE <= c.keys; start += KEY_TILE)
            add_key_tile<false, ROWS>(a, own, of_keys + start * PITCH, values + start * PITCH, KEY_TILE, sums, largest, total,
                                      start == 0);
        if (start < c.keys)
            add_key_tile<true, ROWS>(a, own, of_keys + start * PITCH, values + start * PITCH, c.keys - start, sums, largest, total,
                                     start == 0);
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

// ---- host -------------------------------------------------------------------------------------------------------------

bool attention_is_short(ups_device *device, const attention_call &c, bool backward) {
    enum { WIDEST = 64 };
    const bool half = c.q.dtype == UPS_BF16 || c.q.dtype == UPS_F16;
    if (!half || !c.wide || !is_of_one_dtype(c) || c.windows.dims || c.rotary || c.bias || c.width > WIDEST) return false;
    if (c.queries > MOST_TOKENS || c.keys > MOST_TOKENS) return false;
    if (backward && (c.accumulate_q || c.accumulate_kv)) return false;
    if (c.gain_q && !(c.epsilon > 0.0f)) return false; // rows beyond the last are zeros, and stay so
    size_t wanted = backward ? attention_short_backward_bytes(c) : 0;
    if (!backward) {
        with_rows<FORWARD_TILES>(c, [&](auto rows) {
            wanted = forward_bytes<decltype(rows), 2 * decltype(rows)::WARPS>(c.keys);
            return UPS_OK;
        });
    }
    return wanted <= ups_cuda_most_shared(device);
}

template <typename ROWS, int WARPS>
static ups_status launch_forward(ups_device *device, const attention_call &c, ups_error *error) {
    const int enough = 2 * ups_cuda_processors(device); // blocks
    const size_t bytes = forward_bytes<ROWS, WARPS>(c.keys);
    const int64_t heads = c.batch * c.heads, tiles = tiles_in(c.queries, WARPS * ROWS::OWN);
    const int64_t wanted = tiles_in(enough, (int)heads), shares = wanted < tiles ? wanted : tiles;
    UPS_TRY(reserve_shared(attention_short_rows<ROWS, WARPS>, bytes, error));
    attention_short_rows<ROWS, WARPS><<<(unsigned)(heads * shares), WARPS * 32, bytes, ups_cuda_stream(device)>>>(c, (int)shares);
    return ups_cuda_launched("attention of a short sequence", error);
}

// A block of twice as many warps where two would not fit beside each other.
ups_status attention_short_forward(ups_device *device, const attention_call &c, ups_error *error) {
    return with_rows<FORWARD_TILES>(c, [&](auto rows) -> ups_status {
        enum { OF_THE_DRIVER = 1 << 10 };
        typedef decltype(rows) ROWS;
        const size_t bytes = forward_bytes<ROWS, ROWS::WARPS>(c.keys) + OF_THE_DRIVER;
        if (2 * bytes > ups_cuda_most_shared(device) + OF_THE_DRIVER)
            return launch_forward<ROWS, 2 * ROWS::WARPS>(device, c, error);
        return launch_forward<ROWS, ROWS::WARPS>(device, c, error);
    });
}

// Attention's gradients. Probabilities are made again from the log-sum-exp that forward kept (FlashAttention, arXiv
// 2205.14135, section 3.1), with D the row sums of dO O:
//   P = exp(S - lse)   dV = P^T dO   dP = dO V^T   dS = P (dP - D)   dQ = dS K / sqrt d   dK = dS^T Q / sqrt d
// One kernel owns queries and makes dQ, another owns keys and makes dK and dV: scores are found twice, and nothing is added to
// from two sides. Gradients of the bias are a third kernel, whose blocks add dS over samples before they sort it by
// offset. Gradients of gains and of the bias are partial sums by block, added in the order of blocks.
#include "model/cuda/attention/attention.cuh"

// The bias's gradients: blocks that are enough to fill a card, and samples that a block takes at least where there are as many.
enum { BIAS_BLOCKS = 1024, BIAS_SAMPLES = 4 };

// D by token; eight lanes a row. Four blocks a processor: with what the compiler takes by itself it spills for sm_80.
static __global__ void __launch_bounds__(THREADS, 4) attention_delta(const __grid_constant__ attention_call c, int64_t count) {
    const int64_t stride = (int64_t)gridDim.x * (THREADS / LANES_A_ROW);
    for (int64_t first = (int64_t)blockIdx.x * (THREADS / LANES_A_ROW); first < count; first += stride) {
        int64_t at = first + threadIdx.x / LANES_A_ROW; // (batch, queries, heads)
        float sum = 0.0f;
        if (at < count) {
            for (int column = threadIdx.x % LANES_A_ROW * WIDE; column < c.width; column += LANES_A_ROW * WIDE) {
                float x[WIDE], y[WIDE];
                read_chunk(c.out, at * c.width + column, c.width - column, c.wide, x);
                read_chunk(c.upstream, at * c.width + column, c.width - column, c.wide, y);
#pragma unroll
                for (int i = 0; i < WIDE; i++) sum += x[i] * y[i];
            }
        }
        sum = row_sum(sum);
        if (at < count && threadIdx.x % LANES_A_ROW == 0) {
            int64_t row = at / c.heads, sample = row / c.queries;
            c.delta[(sample * c.heads + at % c.heads) * c.queries + row % c.queries] = sum;
        }
    }
}

// A result to where it belongs, back through the rotation and the norm. With y = x / rms(x) * gain, h = x / rms(x) and g = dy
// gain: dx = (g - h mean(g h)) / rms(x), and dgain = dy h, of the block's rows, to `gains`.
template <typename TILES, typename MEMORY>
static __device__ __forceinline__ void finish_rows(const attention_call &c, MEMORY &m, const float *result, const head_side &own,
                                                   const float *other_gain, elements gradient, bool accumulate, float *gains) {
    constexpr int PITCH = TILES::D + RESULT_PADDING, CHUNKS = (TILES::D + LANES_A_ROW * WIDE - 1) / (LANES_A_ROW * WIDE);
    const int part = threadIdx.x % LANES_A_ROW, half = c.width / 2;
    float gain_sums[CHUNKS][WIDE] = {};
    for (int row = threadIdx.x / LANES_A_ROW; row < TILES::OWN; row += ROWS_AT_ONCE) {
        const int token = m.own_token[row];
        const float *from = result + row * PITCH, *angles = own.angles ? own.angles + (int64_t)max(token, 0) * c.width : nullptr;
        const float inverse = own.rms ? m.own_inverse[row] : 1.0f;
        const int64_t at = own.rows.base + (int64_t)token * own.rows.stride;
        float d[CHUNKS][WIDE], h[CHUNKS][WIDE], product = 0.0f;
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int column = (k * LANES_A_ROW + part) * WIDE;
            if (token < 0 || column >= c.width) continue;
            if (own.gain) read_chunk(known<TILES>(own.rows.from), at + column, c.width - column, known_wide<TILES>(c), h[k]);
#pragma unroll
            for (int i = 0; i < WIDE; i++) {
                const int e = column + i;
                d[k][i] = 0.0f;
                if (e >= c.width) continue;
                float x = from[e];
                if (angles) {
                    const bool low = e < half;
                    const int angle = low ? e : e - half;
                    float partner = from[low ? e + half : angle], sine = angles[half + angle];
                    x = x * angles[angle] + (low ? partner : -partner) * sine;
                } else if (own.gain) {
                    x *= other_gain[e];
                }
                x *= c.scale;
                if (own.gain) {
                    h[k][i] *= inverse;
                    gain_sums[k][i] += x * h[k][i];
                    x *= own.gain[e];
                    product += x * h[k][i];
                }
                d[k][i] = x;
            }
        }
        if (own.gain) product = row_sum(product) / (float)c.width;
        if (token < 0 || !gradient.data) continue;
#pragma unroll
        for (int k = 0; k < CHUNKS; k++) {
            const int column = (k * LANES_A_ROW + part) * WIDE;
            if (column >= c.width) continue;
            if (own.gain) {
#pragma unroll
                for (int i = 0; i < WIDE; i++) d[k][i] = inverse * (d[k][i] - h[k][i] * product);
            }
            write_chunk(known<TILES>(gradient), at + column, c.width - column, known_wide<TILES>(c), accumulate, d[k]);
        }
    }
    if (!gains) return;
    // Over the rows of a warp, then over warps, in order.
    float *by_warp = (float *)m.own;
    static_assert(TILE_THREADS / 32 * TILES::D * sizeof(float) <= sizeof m.own, "sums are larger than the tiles");
#pragma unroll
    for (int k = 0; k < CHUNKS; k++) {
#pragma unroll
        for (int i = 0; i < WIDE; i++) {
            float sum = gain_sums[k][i];
            sum += __shfl_xor_sync(0xffffffffu, sum, LANES_A_ROW);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2 * LANES_A_ROW);
            const int column = (k * LANES_A_ROW + part) * WIDE + i;
            if (threadIdx.x % 32 < LANES_A_ROW && column < TILES::D) by_warp[threadIdx.x / 32 * TILES::D + column] = sum;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < c.width; i += TILE_THREADS) {
        float sum = 0.0f;
        for (int warp = 0; warp < TILE_THREADS / 32; warp++) sum += by_warp[warp * TILES::D + i];
        gains[(int64_t)blockIdx.x * c.width + i] = sum;
    }
}

// A block without rows: its window is shorter than the largest.
static __device__ __forceinline__ void write_no_gains(const attention_call &c, float *gains) {
    if (!gains) return;
    for (int i = threadIdx.x; i < c.width; i += TILE_THREADS) gains[(int64_t)blockIdx.x * c.width + i] = 0.0f;
}

// Log-sum-exp, times log2(e), and D of a thread's own queries.
template <typename TILES, typename MEMORY>
static __device__ __forceinline__ void read_own_sums(const attention_call &c, const MEMORY &m, int64_t start,
                                                     float (&lse)[TILES::ROWS], float (&delta)[TILES::ROWS]) {
#pragma unroll
    for (int i = 0; i < TILES::ROWS; i++) {
        int token = m.own_token[TILES::row(i)];
        lse[i] = token < 0 ? 0.0f : LOG2E * c.lse[start + token];
        delta[i] = token < 0 ? 0.0f : c.delta[start + token];
    }
}

template <typename TILES, typename = block_shared<TILES, 2>>
static __global__ void __launch_bounds__(TILE_THREADS, TILES::HALF && TILES::D > 64 ? GRADIENT_BLOCKS : FORWARD_BLOCKS)
    attention_query_gradients(const __grid_constant__ attention_call c, int tiles) {
    extern __shared__ __align__(16) unsigned char attention_memory[];
    auto &m = *(block_memory<TILES, 2> *)attention_memory;
    constexpr int ROWS = TILES::ROWS, COLUMNS = TILES::COLUMNS;
    const block_place place = place_of(c, tiles);
    const head_side own = queries_of(c, place.sample, place.head), side = keys_of(c, place.sample, place.head);
    const head_rows values = values_of(c, place.sample, place.head);
    const int2 counts = begin_block<TILES>(c, m, place.window, own, side);
    const int first = place.tile * TILES::OWN, stream_tiles = (counts.y + TILES::STREAM - 1) / TILES::STREAM;
    if (first >= counts.x) return write_no_gains(c, c.gains_of_q);
    find_own_rows<TILES>(c, m, first, counts.x);
    load_own_rows<TILES>(c, m, 0, own.rows, own.rms);
    load_own_rows<TILES>(c, m, 1, outputs_of(c, c.upstream, place.sample, place.head), nullptr);
    copy_async_commit();
    load_stream<TILES>(c, m, 0, 0, counts.y, side, values, nullptr, nullptr);
    float lse[ROWS], delta[ROWS], sums[ROWS][TILES::RESULTS] = {};
    read_own_sums<TILES>(c, m, (place.sample * c.heads + place.head) * c.queries, lse, delta);
    copy_async_wait<1>();
    __syncthreads();
    treat_own_rows<TILES>(c, m, own);

    for (int t = 0, stage = 0; t < stream_tiles; t++, stage ^= 1) {
        if (t + 1 < stream_tiles) load_stream<TILES>(c, m, stage ^ 1, t + 1, counts.y, side, values, nullptr, nullptr);
        else copy_async_commit();
        await_stream<TILES>(c, m, stage, side);
        float p[ROWS][COLUMNS], ds[ROWS][COLUMNS];
        find_scores<TILES>(c, m, stage, place.head, side, true, p);
        TILES::scores(m.own[1], m.stream[stage][1], ds);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                bool present = t * TILES::STREAM + TILES::column(j) < counts.y;
                ds[i][j] = present ? exp2f(p[i][j] - lse[i]) * (ds[i][j] - delta[i]) : 0.0f;
            }
        }
        weigh_by_norms<TILES>(c, m, stage, side, ds);
        TILES::mix(ds, m.exchange, m.stream[stage][0], sums);
        __syncthreads(); // the stage is free
    }
    float *result = result_of<TILES>(m);
    keep_result<TILES>(sums, result);
    __syncthreads();
    finish_rows<TILES>(c, m, result, own, c.gain_k, c.dq, c.accumulate_q, c.gains_of_q);
}

template <typename TILES, typename = block_shared<TILES, 2>>
static __global__ void __launch_bounds__(TILE_THREADS, GRADIENT_BLOCKS)
    attention_key_gradients(const __grid_constant__ attention_call c, int tiles) {
    extern __shared__ __align__(16) unsigned char attention_memory[];
    auto &m = *(block_memory<TILES, 2> *)attention_memory;
    constexpr int ROWS = TILES::ROWS, COLUMNS = TILES::COLUMNS;
    const block_place place = place_of(c, tiles);
    const head_side own = keys_of(c, place.sample, place.head), side = queries_of(c, place.sample, place.head);
    const head_rows upstream = outputs_of(c, c.upstream, place.sample, place.head);
    const int64_t start = (place.sample * c.heads + place.head) * c.queries;
    const int2 counts = begin_block<TILES>(c, m, place.window, own, side);
    const int first = place.tile * TILES::OWN, stream_tiles = (counts.y + TILES::STREAM - 1) / TILES::STREAM;
    if (first >= counts.x) return write_no_gains(c, c.gains_of_k);
    head_rows values = values_of(c, place.sample, place.head);
    find_own_rows<TILES>(c, m, first, counts.x);
    load_own_rows<TILES>(c, m, 0, own.rows, own.rms);
    load_own_rows<TILES>(c, m, 1, values, nullptr);
    copy_async_commit();
    load_stream<TILES>(c, m, 0, 0, counts.y, side, upstream, c.lse + start, c.delta + start);
    copy_async_wait<1>();
    __syncthreads();
    treat_own_rows<TILES>(c, m, own);

    float of_keys[ROWS][TILES::RESULTS] = {}, of_values[ROWS][TILES::RESULTS] = {};
    for (int t = 0, stage = 0; t < stream_tiles; t++, stage ^= 1) {
        if (t + 1 < stream_tiles)
            load_stream<TILES>(c, m, stage ^ 1, t + 1, counts.y, side, upstream, c.lse + start, c.delta + start);
        else copy_async_commit();
        await_stream<TILES>(c, m, stage, side);
        float p[ROWS][COLUMNS], ds[ROWS][COLUMNS];
        find_scores<TILES>(c, m, stage, place.head, side, false, p);
        TILES::scores(m.own[1], m.stream[stage][1], ds);
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            const int column = TILES::column(j);
            const bool present = t * TILES::STREAM + column < counts.y;
            const float lse = LOG2E * m.lse[stage][column], delta = m.delta[stage][column];
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                p[i][j] = present ? exp2f(p[i][j] - lse) : 0.0f;
                ds[i][j] = present ? p[i][j] * (ds[i][j] - delta) : 0.0f;
            }
        }
        TILES::mix(p, m.exchange, m.stream[stage][1], of_values);
        weigh_by_norms<TILES>(c, m, stage, side, ds);
        TILES::mix(ds, m.exchange, m.stream[stage][0], of_keys);
        __syncthreads(); // the stage is free
    }
    float *result = result_of<TILES>(m);
    if (c.dkv.data) {
        keep_result<TILES>(of_values, result);
        __syncthreads();
        values.from = c.dkv;
        write_result<TILES>(c, m, result, values, c.accumulate_kv);
        __syncthreads();
    }
    keep_result<TILES>(of_keys, result);
    __syncthreads();
    finish_rows<TILES>(c, m, result, own, c.gain_q, c.dkv, c.accumulate_kv, c.gains_of_k);
}

// Gradients of the bias from a tile of queries and one of keys, of a window of a head, over some of the samples. Offset o of
// head h goes to partials[(block of the head * offsets + o) * heads + h].
template <typename TILES, typename = block_shared<TILES, 2>>
static __global__ void __launch_bounds__(TILE_THREADS, GRADIENT_BLOCKS)
    attention_bias_gradients(const __grid_constant__ attention_call c, float *partials, int query_tiles, int key_tiles, int chunks) {
    extern __shared__ __align__(16) unsigned char attention_memory[];
    auto &m = *(block_memory<TILES, 2> *)attention_memory;
    constexpr int ROWS = TILES::ROWS, COLUMNS = TILES::COLUMNS, PITCH = TILES::STREAM + 1;
    unsigned at = blockIdx.x;
    const int head = at % c.heads;
    const unsigned of_head = at /= c.heads; // which block of a head
    const int key_tile = at % key_tiles, query_tile = at / key_tiles % query_tiles;
    at /= key_tiles * query_tiles;
    const int window = at % c.windows.all, chunk = at / c.windows.all;
    const int2 counts = begin_block<TILES>(c, m, window, queries_of(c, 0, head), keys_of(c, 0, head));
    const int first = query_tile * TILES::OWN, first_key = key_tile * TILES::STREAM;
    const bool empty = first >= counts.x || first_key >= counts.y;
    find_own_rows<TILES>(c, m, first, counts.x);

    float sums[ROWS][COLUMNS] = {};
    int64_t sample = empty ? c.batch : row_block_start(c.batch, chunks, chunk), end = row_block_start(c.batch, chunks, chunk + 1);
    for (; sample < end; sample++) {
        const head_side own = queries_of(c, sample, head), side = keys_of(c, sample, head);
        float lse[ROWS], delta[ROWS], p[ROWS][COLUMNS], ds[ROWS][COLUMNS];
        load_own_rows<TILES>(c, m, 0, own.rows, own.rms);
        load_own_rows<TILES>(c, m, 1, outputs_of(c, c.upstream, sample, head), nullptr);
        load_stream<TILES>(c, m, 0, key_tile, counts.y, side, values_of(c, sample, head), nullptr, nullptr);
        read_own_sums<TILES>(c, m, (sample * c.heads + head) * c.queries, lse, delta);
        copy_async_wait<0>();
        __syncthreads();
        treat_own_rows<TILES>(c, m, own);
        copy_async_commit(); // the group that is left under way: none
        await_stream<TILES>(c, m, 0, side);
        find_scores<TILES>(c, m, 0, head, side, true, p);
        TILES::scores(m.own[1], m.stream[0][1], ds);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                if (first + TILES::row(i) < counts.x && first_key + TILES::column(j) < counts.y)
                    sums[i][j] += exp2f(p[i][j] - lse[i]) * (ds[i][j] - delta[i]);
            }
        }
        __syncthreads(); // the tiles are free
    }

    // Where a key lies in its window, along each axis.
    int *const places[3] = {m.token[1], m.code[1], (int *)m.inverse[1]};
    float *scores = result_of<TILES>(m);
    for (int j = threadIdx.x; j < TILES::STREAM; j += TILE_THREADS) {
        int rest = first_key + j;
#pragma unroll
        for (int axis = 2; axis >= 0; axis--) {
            places[axis][j] = rest % m.window.length[axis];
            rest /= m.window.length[axis];
        }
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) scores[TILES::row(i) * PITCH + TILES::column(j)] = sums[i][j];
    }
    __syncthreads();
    const int lengths[3] = {m.window.length[0], m.window.length[1], m.window.length[2]};
    const int keys = empty ? 0 : min(TILES::STREAM, counts.y - first_key);
    for (int offset = threadIdx.x; offset < c.windows.offsets; offset += TILE_THREADS) {
        int by[3];
#pragma unroll
        for (int axis = 0; axis < 3; axis++) {
            int size = c.windows.size[axis];
            by[axis] = offset / c.windows.step[axis] % (2 * size - 1) - (size - 1);
        }
        float sum = 0.0f;
        for (int j = 0; j < keys; j++) {
            int query = 0;
            bool within = true;
#pragma unroll
            for (int axis = 0; axis < 3; axis++) {
                int cell = places[axis][j] + by[axis];
                within = within && cell >= 0 && cell < lengths[axis];
                query = query * lengths[axis] + cell;
            }
            query -= first;
            if (within && query >= 0 && query < TILES::OWN) sum += scores[query * PITCH + j];
        }
        partials[((int64_t)of_head * c.windows.offsets + offset) * c.heads + head] = sum;
    }
}

// ---- host -------------------------------------------------------------------------------------------------------------

// Blocks of a head that make gradients of the bias.
struct bias_blocks {
    int64_t query_tiles, key_tiles, chunks, count;
};

static bias_blocks bias_blocks_of(const attention_call &c, int own, int stream) {
    bias_blocks b = {query_tiles(c, own), key_tiles(c, stream), 1, 0};
    int64_t tiles = b.query_tiles * b.key_tiles * c.windows.all;
    b.chunks = (BIAS_BLOCKS + tiles * c.heads - 1) / (tiles * c.heads);
    int64_t most = (c.batch + BIAS_SAMPLES - 1) / BIAS_SAMPLES;
    if (b.chunks > most) b.chunks = most;
    b.count = tiles * b.chunks;
    return b;
}

// Whichever tiles a call will have (with_tiles), which its addresses decide.
static int64_t most_bias_blocks(const attention_call &c) {
    int64_t most = 0;
    if (c.windows.dims == 0) return 0;
    const int sizes[][2] = {{matrix_tiles<UPS_BF16, 64>::OWN, matrix_tiles<UPS_BF16, 64>::STREAM},
                            {matrix_tiles<UPS_BF16, 128>::OWN, matrix_tiles<UPS_BF16, 128>::STREAM},
                            {plain_tiles<64>::OWN, plain_tiles<64>::STREAM},
                            {plain_tiles<128>::OWN, plain_tiles<128>::STREAM}};
    for (const int(&size)[2] : sizes) {
        int64_t blocks = bias_blocks_of(c, size[0], size[1]).count;
        if (blocks > most) most = blocks;
    }
    return most;
}

// Blocks that own queries or keys, at most.
static int64_t most_row_blocks(const attention_call &c) {
    const int own = plain_tiles<128>::OWN;
    int64_t queries = query_tiles(c, own), keys = key_tiles(c, own);
    return c.batch * c.heads * c.windows.all * (queries > keys ? queries : keys);
}

int64_t attention_backward_blocks(const attention_call &c) {
    int64_t rows = most_row_blocks(c), of_bias = most_bias_blocks(c) * c.heads;
    return rows > of_bias ? rows : of_bias;
}

// Sums by block, then what ups_cuda_sum_rows takes.
static int64_t sums_floats(int64_t blocks, int64_t width) {
    return blocks * width + ups_cuda_column_partials(blocks, width);
}

// Delta; then, one after the other, the gains' sums and the bias's.
static int64_t delta_floats(const attention_call &c) {
    return c.batch * c.heads * c.queries;
}

int64_t attention_backward_floats(const attention_call &c) {
    int64_t gains = sums_floats(most_row_blocks(c), c.width);
    int64_t bias = sums_floats(most_bias_blocks(c), (int64_t)c.windows.offsets * c.heads);
    int64_t all = delta_floats(c) + (gains > bias ? gains : bias), in_short = 2 * sums_floats(c.batch * c.heads, c.width);
    return all > in_short ? all : in_short;
}

static ups_status add_sums(ups_device *device, float *sums, int64_t blocks, int64_t width, const ups_op_call *call, int input,
                           ups_error *error) {
    ups_tensor rows = {};
    rows.data = sums;
    rows.dtype = UPS_F32;
    rows.shape.rank = 2;
    rows.shape.size[0] = blocks;
    rows.shape.size[1] = width;
    return ups_cuda_sum_rows(device, &rows, sums + blocks * width, (float *)call->input_gradients[input].data,
                             call->accumulate[input], error);
}

template <typename TILES>
static ups_status make_gradients(ups_device *device, const ups_op_call *call, attention_call c, float *sums, ups_error *error) {
    const size_t shared = block_shared<TILES, 2>::BYTES;
    const int64_t windows = c.batch * c.heads * c.windows.all;
    cudaStream_t stream = ups_cuda_stream(device);
    const bool gain_q = c.gain_q && is_present(&call->input_gradients[2]);
    const bool gain_k = c.gain_k && is_present(&call->input_gradients[3]);
    if (c.dq.data || gain_q) {
        const int64_t tiles = query_tiles(c, TILES::OWN);
        c.gains_of_q = gain_q ? sums : nullptr;
        UPS_TRY(reserve_shared(attention_query_gradients<TILES>, shared, error));
        attention_query_gradients<TILES><<<(unsigned)(windows * tiles), TILE_THREADS, shared, stream>>>(c, (int)tiles);
        UPS_TRY(ups_cuda_launched("attention's gradient of queries", error));
        if (gain_q) UPS_TRY(add_sums(device, sums, windows * tiles, c.width, call, 2, error));
    }
    if (c.dkv.data || gain_k) {
        const int64_t tiles = key_tiles(c, TILES::OWN);
        c.gains_of_k = gain_k ? sums : nullptr;
        UPS_TRY(reserve_shared(attention_key_gradients<TILES>, shared, error));
        attention_key_gradients<TILES><<<(unsigned)(windows * tiles), TILE_THREADS, shared, stream>>>(c, (int)tiles);
        UPS_TRY(ups_cuda_launched("attention's gradient of keys and values", error));
        if (gain_k) UPS_TRY(add_sums(device, sums, windows * tiles, c.width, call, 3, error));
    }
    if (!c.bias || !is_present(&call->input_gradients[5])) return UPS_OK;
    const bias_blocks b = bias_blocks_of(c, TILES::OWN, TILES::STREAM);
    UPS_TRY(reserve_shared(attention_bias_gradients<TILES>, shared, error));
    attention_bias_gradients<TILES><<<(unsigned)(b.count * c.heads), TILE_THREADS, shared, stream>>>(
        c, sums, (int)b.query_tiles, (int)b.key_tiles, (int)b.chunks);
    UPS_TRY(ups_cuda_launched("attention's gradient of the bias", error));
    return add_sums(device, sums, b.count, (int64_t)c.windows.offsets * c.heads, call, 5, error);
}

// Of short sequences: the sums of both gains beside each other.
static ups_status make_short_gradients(ups_device *device, const ups_op_call *call, attention_call c, ups_error *error) {
    const int64_t blocks = c.batch * c.heads;
    float *const sums[] = {(float *)call->workspace, (float *)call->workspace + sums_floats(blocks, c.width)};
    const bool gain_q = c.gain_q && is_present(&call->input_gradients[2]);
    const bool gain_k = c.gain_k && is_present(&call->input_gradients[3]);
    if (gain_q) c.gains_of_q = sums[0];
    if (gain_k) c.gains_of_k = sums[1];
    const attention_plan *plan = (const attention_plan *)call->state;
    UPS_TRY((plan->groups_backward ? attention_groups_backward : attention_short_backward)(device, c, error));
    if (gain_q) UPS_TRY(add_sums(device, sums[0], blocks, c.width, call, 2, error));
    return gain_k ? add_sums(device, sums[1], blocks, c.width, call, 3, error) : UPS_OK;
}

ups_status attention_backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    attention_call c = attention_call_of(call);
    if (attention_is_short(device, c, true)) return make_short_gradients(device, call, c, error);
    const int64_t count = delta_floats(c);
    c.delta = (float *)call->workspace;
    attention_delta<<<blocks_for(count * LANES_A_ROW, 1), THREADS, 0, ups_cuda_stream(device)>>>(c, count);
    UPS_TRY(ups_cuda_launched("attention's sums of the output's gradient", error));
    return with_tiles(c, [&](auto tiles) -> ups_status {
        return make_gradients<decltype(tiles)>(device, call, c, c.delta + count, error);
    });
}

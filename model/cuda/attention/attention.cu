// Attention by head: softmax(q k^T / sqrt d + bias) v, as model/cpu/attention.c says it; forward. Scores stay on the chip: a
// block takes keys and values tile by tile, with the running maximum and sum of each row of scores (FlashAttention, arXiv
// 2205.14135, algorithm 1), and keeps the log-sum-exp for backward (attention_backward.cu).
//
// 1/rms of all rows is found first, by a kernel that reads them once: blocks that share keys would find it again and again.
#include "model/cuda/attention/attention.cuh"

// 1/rms of a row of a head; eight lanes a row.
static __global__ void __launch_bounds__(THREADS) attention_norms(const __grid_constant__ attention_call c, int64_t count) {
    const int64_t stride = (int64_t)gridDim.x * (THREADS / LANES_A_ROW), of_queries = c.batch * c.queries * c.heads;
    for (int64_t first = (int64_t)blockIdx.x * (THREADS / LANES_A_ROW); first < count; first += stride) {
        int64_t at = first + threadIdx.x / LANES_A_ROW, base;
        float squares = 0.0f;
        if (at < count) {
            int head = (int)(at % c.heads);
            bool query = at < of_queries;
            if (query) base = at / c.heads * c.q_stride + packed_offset(c, head);
            else base = (at - of_queries) / c.heads * c.kv_stride + c.k_offset + packed_offset(c, head);
            for (int column = threadIdx.x % LANES_A_ROW * WIDE; column < c.width; column += LANES_A_ROW * WIDE) {
                float x[WIDE];
                read_chunk(query ? c.q : c.kv, base + column, c.width - column, c.wide, x);
#pragma unroll
                for (int i = 0; i < WIDE; i++) squares += x[i] * x[i];
            }
        }
        squares = row_sum(squares);
        if (at < count && threadIdx.x % LANES_A_ROW == 0) c.rms[at] = 1.0f / sqrtf(squares / (float)c.width + c.epsilon);
    }
}

template <typename TILES, typename = block_shared<TILES, 1>>
static __global__ void __launch_bounds__(TILE_THREADS, FORWARD_BLOCKS) attention_rows(const __grid_constant__ attention_call c, int tiles) {
    extern __shared__ __align__(16) unsigned char attention_memory[];
    auto &m = *(block_memory<TILES, 1> *)attention_memory;
    constexpr int ROWS = TILES::ROWS, COLUMNS = TILES::COLUMNS;
    const block_place place = place_of(c, tiles);
    const head_side own = queries_of(c, place.sample, place.head), side = keys_of(c, place.sample, place.head);
    const head_rows values = values_of(c, place.sample, place.head);
    const int2 counts = begin_block<TILES>(c, m, place.window, own, side);
    const int first = place.tile * TILES::OWN, stream_tiles = (counts.y + TILES::STREAM - 1) / TILES::STREAM;
    if (first >= counts.x) return;
    find_own_rows<TILES>(c, m, first, counts.x);
    load_own_rows<TILES>(c, m, 0, own.rows, own.rms);
    copy_async_commit();
    load_stream<TILES>(c, m, 0, 0, counts.y, side, values, nullptr, nullptr);
    copy_async_wait<1>();
    __syncthreads();
    treat_own_rows<TILES>(c, m, own);

    float sums[ROWS][TILES::RESULTS] = {}, largest[ROWS], total[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; i++) largest[i] = -INFINITY, total[i] = 0.0f;
    for (int t = 0, stage = 0; t < stream_tiles; t++, stage ^= 1) {
        if (t + 1 < stream_tiles) load_stream<TILES>(c, m, stage ^ 1, t + 1, counts.y, side, values, nullptr, nullptr);
        else copy_async_commit();
        await_stream<TILES>(c, m, stage, side);
        float s[ROWS][COLUMNS];
        find_scores<TILES>(c, m, stage, place.head, side, true, s);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            float most = largest[i];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) {
                if (t * TILES::STREAM + TILES::column(j) >= counts.y) s[i][j] = -INFINITY;
                most = fmaxf(most, s[i][j]);
            }
            most = group_largest<TILES>(most); // finite: the first tile has a key at least
            float before = exp2f(largest[i] - most), sum = 0.0f;
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) sum += s[i][j] = exp2f(s[i][j] - most);
            largest[i] = most;
            total[i] = total[i] * before + sum;
#pragma unroll
            for (int j = 0; j < TILES::RESULTS; j++) sums[i][j] *= before;
        }
        TILES::mix(s, m.exchange, m.stream[stage][1], sums);
        __syncthreads(); // the stage is free
    }

    float *lse = c.lse ? c.lse + (place.sample * c.heads + place.head) * c.queries : nullptr;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        float sum = group_sum<TILES>(total[i]), inverse = 1.0f / sum;
        int token = m.own_token[TILES::row(i)];
        if (lse && token >= 0 && threadIdx.x % TILES::GROUP == 0) lse[token] = LN2 * (largest[i] + log2f(sum));
#pragma unroll
        for (int j = 0; j < TILES::RESULTS; j++) sums[i][j] *= inverse;
    }
    float *result = result_of<TILES>(m);
    keep_result<TILES>(sums, result);
    __syncthreads();
    write_result<TILES>(c, m, result, outputs_of(c, c.out, place.sample, place.head), false);
}

// ---- host -------------------------------------------------------------------------------------------------------------

// As windows_of in model/cpu/windows.h.
static grid_windows grid_windows_of(const ups_op_attributes *a, int64_t tokens) {
    grid_windows w = {a->dims, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, {0, 0, 0}, a->periodic, 1, 1, 1, 0};
    if (w.dims == 0) w.most = (int)tokens;
    for (int i = w.dims - 1; i >= 0; i--) {
        int axis = i + 3 - w.dims, n = w.cells[axis] = (int)a->grid[i], size = w.size[axis] = (int)a->patch[i];
        int shift = w.shift[axis] = size >= n ? 0 : (int)a->shift[i];
        bool leading = !w.periodic && shift > 0; // a window before the first cut
        w.count[axis] = leading ? 1 + (n - shift + size - 1) / size : (n + size - 1) / size;
        w.all *= w.count[axis];
        w.most *= size < n ? size : n;
        w.step[axis] = w.offsets;
        w.centre += (size - 1) * w.offsets;
        w.offsets *= 2 * size - 1;
    }
    return w;
}

static bool is_cross(const ups_op_call *call) {
    return call->inputs[1].shape.rank > 0;
}

attention_call attention_call_of(const ups_op_call *call) {
    const ups_tensor *q = &call->inputs[0], *kv = is_cross(call) ? &call->inputs[1] : q;
    const ups_op_attributes *a = call->attributes;
    attention_call c = {};
    c.packed = q == kv;
    c.batch = q->shape.size[0];
    c.queries = (int)q->shape.size[1];
    c.keys = (int)kv->shape.size[1];
    c.q_stride = (int)ups_shape_last(q->shape);
    c.kv_stride = (int)ups_shape_last(kv->shape);
    c.heads = a->heads;
    c.in_group = a->heads / (a->groups > 1 ? a->groups : 1);
    c.width = (c.packed ? c.q_stride / 3 : c.q_stride) / a->heads;
    c.k_offset = c.packed ? c.in_group * c.width : 0;
    c.v_offset = c.packed ? 2 * c.k_offset : c.heads * c.width;
    c.scale = 1.0f / sqrtf((float)c.width);
    c.epsilon = a->epsilon;
    c.windows = grid_windows_of(a, c.keys);
    c.q = elements_of(q);
    c.kv = elements_of(kv);
    c.out = elements_of(&call->output);
    c.upstream = elements_of(&call->output_gradient);
    c.dq = elements_of(&call->input_gradients[0]);
    c.dkv = elements_of(&call->input_gradients[c.packed ? 0 : 1]);
    c.accumulate_q = call->accumulate[0];
    c.accumulate_kv = call->accumulate[c.packed ? 0 : 1];
    c.gain_q = (const float *)call->inputs[2].data;
    c.gain_k = (const float *)call->inputs[3].data;
    c.rotary = (const float *)call->inputs[4].data;
    c.rotary_stride = call->inputs[4].shape.rank == 3 ? (int64_t)c.keys * c.width : 0;
    c.bias = (const float *)call->inputs[5].data;
    c.lse = (float *)call->saved[0].data;
    c.rms = (float *)call->saved[1].data;
    c.wide = true;
    const void *const data[] = {c.q.data, c.kv.data, c.out.data, c.upstream.data, c.dq.data, c.dkv.data};
    for (const void *each : data) c.wide = c.wide && c.width % WIDE == 0 && (uintptr_t)each % 16 == 0;
    return c;
}

static bool has_gains(const ups_op_call *call) {
    return call->inputs[2].shape.rank > 0;
}

static int64_t norms_of(const attention_call &c) {
    return c.batch * (c.queries + c.keys) * c.heads;
}

static ups_status prepare(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel, ups_error *error) {
    const attention_call c = attention_call_of(call);
    const int64_t most_blocks = INT32_MAX, blocks = c.batch * c.heads * c.windows.all * query_tiles(c, plain_tiles<128>::OWN);
    if (c.width > MOST_WIDTH) {
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "attention heads of %d features: on CUDA they have at most %d; use more heads",
                        c.width, MOST_WIDTH);
    }
    if (blocks > most_blocks || (backward && attention_backward_blocks(c) > most_blocks)) {
        return ups_fail(error, UPS_ERR_UNSUPPORTED,
                        "attention of %lld samples with %d heads and %d tokens is more than a launch on CUDA takes; use smaller "
                        "batches",
                        (long long)c.batch, c.heads, c.queries);
    }
    // Norms are kept here where nothing is saved.
    int64_t floats = has_gains(call) ? norms_of(c) : 0, of_backward = backward ? attention_backward_floats(c) : 0;
    kernel->workspace_bytes = (size_t)(floats > of_backward ? floats : of_backward) * sizeof(float);
    attention_plan *plan = (attention_plan *)calloc(1, sizeof *plan);
    if (!plan) return ups_fail(error, UPS_ERR_MEMORY, "no memory for the plan of attention");
    kernel->state = plan;
    kernel->release = free;
    // Tensors have no data yet: what attention_is_short asks of these, shapes and dtypes have to tell.
    const bool plain = call->inputs[4].shape.rank == 0 && call->inputs[5].shape.rank == 0 &&
                       call->output.dtype == call->inputs[0].dtype &&
                       (c.packed || call->inputs[1].dtype == call->inputs[0].dtype) && (!has_gains(call) || c.epsilon > 0.0f);
    if (!plain) return UPS_OK;
    plan->groups_forward = attention_is_short(device, c, false) && attention_takes_groups(device, c, has_gains(call), false);
    plan->groups_backward =
        backward && attention_is_short(device, c, true) && attention_takes_groups(device, c, has_gains(call), true);
    return UPS_OK;
}

static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    attention_call c = attention_call_of(call);
    cudaStream_t stream = ups_cuda_stream(device);
    if (has_gains(call) && !c.rms) c.rms = (float *)call->workspace;
    if (attention_is_short(device, c, false)) {
        const attention_plan *plan = (const attention_plan *)call->state;
        return (plan->groups_forward ? attention_groups_forward : attention_short_forward)(device, c, error);
    }
    if (has_gains(call)) {
        int64_t count = norms_of(c);
        attention_norms<<<blocks_for(count * LANES_A_ROW, 1), THREADS, 0, stream>>>(c, count);
        UPS_TRY(ups_cuda_launched("norms of attention", error));
    }
    return with_tiles(c, [&](auto tiles) -> ups_status {
        typedef decltype(tiles) TILES;
        const size_t shared = block_shared<TILES, 1>::BYTES;
        const int64_t count = query_tiles(c, TILES::OWN), blocks = c.batch * c.heads * c.windows.all * count;
        UPS_TRY(reserve_shared(attention_rows<TILES>, shared, error));
        attention_rows<TILES><<<(unsigned)blocks, TILE_THREADS, shared, stream>>>(c, (int)count);
        return ups_cuda_launched("attention", error);
    });
}

const ups_cuda_kernel ups_cuda_attention = {forward, attention_backward, prepare};

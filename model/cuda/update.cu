// The training step's own, on the card: nothing inside a step waits for the host. What the CPU does in
// model/cpu/optimizer/, in the same order of operations where there is one.
#include "model/cuda/optimizer.cuh"
#include "model/cuda/reduce.cuh"

// One block. A task's windows are added by a thread, in their order, as on the CPU; a loss's terms by all threads, each its
// own windows, in the order of terms.
static __global__ void __launch_bounds__(THREADS) add_losses_kernel(ups_losses_call call) {
    static_assert(UPS_UPDATE_MAX_TASKS <= THREADS, "a thread a task");
    __shared__ float losses[THREADS];
    __shared__ int32_t tasks[THREADS];
    __shared__ double scratch[THREADS / 32];
    ups_update_result *result = &call.update->result;
    int task = threadIdx.x;
    int64_t windows = 0;
    double sum = task < UPS_UPDATE_MAX_TASKS ? result->loss[task] : 0.0;
    for (int64_t first = 0; first < call.windows; first += THREADS) {
        int64_t window = first + threadIdx.x, left = call.windows - first;
        if (window < call.windows) {
            float loss = 0.0f;
            for (int term = 0; term < call.term_count; term++) loss += call.weights[term] * call.terms[term][window];
            losses[threadIdx.x] = loss;
            tasks[threadIdx.x] = call.tasks[window];
        }
        __syncthreads();
        for (int i = 0; i < THREADS && i < left; i++) {
            if (tasks[i] != task) continue;
            sum += (double)losses[i];
            windows++;
        }
        __syncthreads();
    }
    if (windows) {
        result->loss[task] = sum;
        result->windows[task] += windows;
    }
    bool bad = __syncthreads_or(windows && !isfinite(sum));
    if (threadIdx.x == 0 && bad && !result->bad_micro_batch) result->bad_micro_batch = call.update->input.micro_batch + 1;
    for (int loss = 0; loss < UPS_UPDATE_MAX_LOSSES; loss++) {
        double part = 0.0;
        bool taken = false;
        for (int term = 0; term < call.term_count; term++) {
            if (call.loss_of[term] != loss) continue;
            taken = true;
            for (int64_t window = threadIdx.x; window < call.windows; window += THREADS)
                part += (double)(call.weights[term] * call.terms[term][window]);
        }
        if (!taken) continue;
        part = block_sum(part, scratch);
        if (threadIdx.x > 0) continue;
        result->part[loss] += part;
        result->part_windows[loss] += call.windows;
    }
}

ups_status ups_cuda_add_losses(ups_device *device, const ups_losses_call *call, ups_error *error) {
    add_losses_kernel<<<1, THREADS, 0, ups_cuda_stream(device)>>>(*call);
    return ups_cuda_launched("adding losses", error);
}

static __global__ void seed_backward_kernel(const ups_update *update, float *gradient) {
    *gradient = update->state.loss_scale * update->input.share;
}

ups_status ups_cuda_seed_backward(ups_device *device, const ups_update *update, float *gradient, ups_error *error) {
    seed_backward_kernel<<<1, 1, 0, ups_cuda_stream(device)>>>(update, gradient);
    return ups_cuda_launched("beginning backward", error);
}

// base^exponent; base 0 < base < 1
static __device__ double power(float base, double exponent) {
    return exp(exponent * log((double)base));
}

static __global__ void decide_kernel(ups_update_rules rules, ups_update *update) {
    ups_update_result *result = &update->result;
    ups_update_state *state = &update->state;
    const bool scaling = rules.growth_steps > 0, finite = !result->bad_micro_batch;
    result->gradient_norm = sqrt(result->squared_norm) / (double)state->loss_scale;
    result->skipped = result->non_finite > 0 || !finite || state->failed;
    if (result->skipped && scaling && finite && !state->failed && state->loss_scale > UPS_LOSS_SCALE_MINIMUM) {
        state->loss_scale /= 2;
        state->good_steps = 0;
        state->skipped++;
        return;
    }
    result->failed = state->failed = result->skipped;
    if (result->skipped) return;
    const double norm = result->gradient_norm;
    double clip = rules.clip > 0 && norm > rules.clip ? rules.clip / norm : 1;
    result->gradient_scale = (float)(clip / (double)state->loss_scale);
    for (int set = 0; set < UPS_UPDATE_MAX_SETS; set++) state->taken[set] += rules.trained[set];
    if (scaling && ++state->good_steps >= rules.growth_steps) {
        if (state->loss_scale < UPS_LOSS_SCALE_MAXIMUM) state->loss_scale *= 2;
        state->good_steps = 0;
    }
}

ups_status ups_cuda_decide(ups_device *device, const ups_update_rules *rules, ups_update *update, ups_error *error) {
    decide_kernel<<<1, 1, 0, ups_cuda_stream(device)>>>(*rules, update);
    return ups_cuda_launched("deciding on a step", error);
}

// ---- the norm: blocks by the number of elements, each thread its own elements, sums in a fixed order

static __device__ __forceinline__ void add_square(ups_cuda_norm_partial &own, float v) {
    own.sum += (double)v * (double)v;
    own.non_finite += !isfinite(v);
}

// All loads of a turn are under way at once, since the blocks are few.
static __global__ void __launch_bounds__(THREADS) norm_partial_kernel(const float *x, int64_t count, ups_cuda_norm_partial *to) {
    enum { TURN = 4 }; // quads a thread
    __shared__ ups_cuda_norm_partial sums[THREADS];
    ups_cuda_norm_partial own = {};
    const int64_t threads = (int64_t)gridDim.x * THREADS, me = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t quads = (uintptr_t)x % 16 == 0 ? count / QUAD : 0;
    for (int64_t first = me; first < quads; first += TURN * threads) {
        float v[TURN][QUAD] = {};
#pragma unroll
        for (int q = 0; q < TURN; q++) {
            if (first + q * threads < quads) get_floats(x + QUAD * (first + q * threads), v[q]);
        }
#pragma unroll
        for (int q = 0; q < TURN; q++) {
#pragma unroll
            for (int i = 0; i < QUAD; i++) add_square(own, v[q][i]);
        }
    }
    for (int64_t i = QUAD * quads + me; i < count; i += threads) add_square(own, x[i]);
    sums[threadIdx.x] = own;
    add_in_order(sums, THREADS);
    if (threadIdx.x == 0) to[blockIdx.x] = sums[0];
}

static __global__ void __launch_bounds__(UPS_CUDA_NORM_BLOCKS)
    norm_kernel(const ups_cuda_norm_partial *from, int count, ups_update *update) {
    __shared__ ups_cuda_norm_partial sums[UPS_CUDA_NORM_BLOCKS];
    const ups_cuda_norm_partial none = {};
    sums[threadIdx.x] = threadIdx.x < count ? from[threadIdx.x] : none;
    add_in_order(sums, UPS_CUDA_NORM_BLOCKS);
    if (threadIdx.x == 0) {
        update->result.squared_norm += sums[0].sum;
        update->result.non_finite += sums[0].non_finite;
    }
}

ups_status ups_cuda_norm(ups_device *device, ups_cuda_norm_partial *partials, const float *gradients, int64_t count,
                         ups_update *update, ups_error *error) {
    cudaStream_t stream = ups_cuda_stream(device);
    const unsigned needed = blocks_for(count, QUAD), blocks = needed < UPS_CUDA_NORM_BLOCKS ? needed : UPS_CUDA_NORM_BLOCKS;
    if (count == 0) return UPS_OK;
    norm_partial_kernel<<<blocks, THREADS, 0, stream>>>(gradients, count, partials);
    norm_kernel<<<1, UPS_CUDA_NORM_BLOCKS, 0, stream>>>(partials, (int)blocks, update);
    return ups_cuda_launched("the norm of gradients", error);
}

// ---- AdamW, its average and the compute copy, in one pass over all ranges: their pieces are dealt to the blocks in turn

enum { PIECE = QUAD * THREADS }; // elements

struct adamw_rates {
    float scale, beta1, beta2, rate, correction2, keep, decay;
};

// N weights side by side.
template <int N>
static __device__ __forceinline__ void move_weights(const ups_optimizer_call &call, const ups_range &range, int64_t place,
                                                    const adamw_rates &r) {
    const int64_t at = range.offset + place, kept_at = range.kept + place, second_at = range.second + place;
    float gradient[N], first[N], second[N], value[N];
    get_floats(call.gradients + at, gradient);
    get_floats(call.moments[0] + kept_at, first);
    get_floats(call.moments[1] + second_at, second);
    get_floats(call.values + at, value);
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float d = gradient[i] * r.scale;
        first[i] = r.beta1 * first[i] + (1.0f - r.beta1) * d;
        second[i] = r.beta2 * second[i] + (1.0f - r.beta2) * d * d;
        value[i] = value[i] * r.keep - r.rate * first[i] / (sqrtf(second[i]) * r.correction2 + call.epsilon);
    }
    put_floats(call.moments[0] + kept_at, first);
    put_floats(call.moments[1] + second_at, second);
    put_values(call, at, kept_at, value, r.decay);
}

static __global__ void __launch_bounds__(THREADS) adamw_kernel(ups_optimizer_call call) {
    const ups_update *update = call.update;
    if (update->result.skipped) return;
    __shared__ adamw_rates rates;
    int64_t all = 0; // a block without a piece ends before the powers, which cost more than an element
    for (int32_t r = 0; r < call.range_count && all <= blockIdx.x; r++) all += (call.ranges[r].count + PIECE - 1) / PIECE;
    if (all <= blockIdx.x) return;
    if (threadIdx.x == 0) { // once a block: double precision is slow on many cards
        const int64_t taken = update->state.taken[call.set];
        rates.scale = update->result.gradient_scale, rates.beta1 = call.beta1, rates.beta2 = call.beta2;
        rates.rate = (float)((double)update->input.learning_rate / (1.0 - power(call.beta1, (double)taken)));
        rates.correction2 = (float)(1.0 / sqrt(1.0 - power(call.beta2, (double)taken)));
        rates.keep = 1.0f - update->input.learning_rate * call.weight_decay;
        rates.decay = average_decay(call);
    }
    __syncthreads();
    int64_t piece = blockIdx.x; // counted from the range's first
    for (int32_t r = 0; r < call.range_count; r++) {
        const ups_range range = call.ranges[r];
        const int64_t pieces = (range.count + PIECE - 1) / PIECE;
        const bool wide = range.offset % QUAD == 0 && range.kept % QUAD == 0 && range.second % QUAD == 0;
        for (; piece < pieces; piece += gridDim.x) {
            const int64_t end = (piece + 1) * PIECE < range.count ? (piece + 1) * PIECE : range.count;
            int64_t i = piece * PIECE + (wide ? QUAD * threadIdx.x : threadIdx.x);
            if (wide && i + QUAD <= end) {
                move_weights<QUAD>(call, range, i, rates);
            } else { // the range's last ones, or all of one that begins anywhere
                for (; i < end; i += wide ? 1 : THREADS) move_weights<1>(call, range, i, rates);
            }
        }
        piece -= pieces;
    }
}

ups_status ups_cuda_optimize(ups_device *device, const ups_optimizer_call *call, ups_error *error) {
    enum { MOST = 2 * FULL_CARD };
    if (call->rule == UPS_RULE_MUON) return ups_cuda_move_matrices(device, call, error);
    if (call->range_count == 0) return UPS_OK;
    const int64_t pieces = call->range_elements / PIECE + call->range_count; // or fewer: blocks without one end at once
    adamw_kernel<<<(unsigned)(pieces < MOST ? pieces : MOST), THREADS, 0, ups_cuda_stream(device)>>>(*call);
    return ups_cuda_launched("the optimizer", error);
}

// What attention's forward and backward share: where the rows of a head lie, how they come into shared memory, and the shape
// of a block.
//
// A block owns OWN rows of one head in one window of one sample (queries, or keys), and streams tiles of the other side past
// them, in two stages: while one tile is used the next is copied. Scores never leave the block.
//
// Scores are s(i, j) = (query_i . key_j) / sqrt d, of rows that are normalised by head, x / rms(x) * gain, where there are
// gains, and then rotated by their places, where there are angles. Owned rows are treated so in shared memory, once. Of
// streamed rows the gain is moved to the owned side, which is exact algebra as long as nothing rotates between them, and
// 1/rms is a factor of the column of scores: the tile stays as it was copied. Rotated rows are treated in place. Owned rows
// also take log2(e) / sqrt d, so that probabilities are powers of two.
//
// Windows are those of model/cpu/windows.h. Without windows there is one, of all tokens.
#pragma once
#include "model/cuda/reduce.cuh"
#include "model/cuda/attention/tiles.cuh"

struct grid_windows {
    int dims; // 0: one window of all tokens. Axes that a grid lacks are one cell long, and come first
    int cells[3], size[3], shift[3], count[3], step[3];
    bool periodic;
    int all, most;       // windows; tokens of the largest
    int offsets, centre; // places of one token seen from another; the one of a token seen from itself
};

struct attention_call {
    elements q, kv, out, upstream, dq, dkv; // q and kv, dq and dkv are the same where they are packed
    const float *gain_q, *gain_k, *rotary, *bias;
    int64_t rotary_stride;             // from the angles of a sample to those of the next; 0: all share them
    float *lse, *rms, *delta;          // lse, delta: (batch, heads, queries); rms: 1/rms (batch, queries + keys, heads)
    float *gains_of_q, *gains_of_k;    // their gradients by block, (blocks, width); NULL: not wanted
    int64_t batch;
    int heads, in_group, width;        // width: of a head
    int queries, keys;
    int q_stride, kv_stride, k_offset, v_offset; // in elements of packed rows
    float scale, epsilon;
    bool packed, wide, accumulate_q, accumulate_kv; // wide: eight elements at once everywhere
    grid_windows windows;
};

// Blocks of a processor at least: without a number the compiler aims at more, and spills for it.
enum { FORWARD_BLOCKS = 3, GRADIENT_BLOCKS = 2 };

#define LOG2E 1.44269504f
#define LN2 0.693147181f

// ---- where things are -------------------------------------------------------------------------------------------------

struct window_place {
    int start[3], length[3], count;
};

static __device__ __forceinline__ window_place window_at(const grid_windows &w, int index) {
    window_place at;
    at.count = 1;
#pragma unroll
    for (int axis = 2; axis >= 0; axis--) {
        int size = w.size[axis], shift = w.shift[axis], n = w.cells[axis], start = index % w.count[axis] * size;
        index /= w.count[axis];
        if (w.periodic) {
            at.length[axis] = min(size, n - start);
            at.start[axis] = start + shift;
        } else {
            if (shift > 0) start -= size - shift; // a shorter window comes before the first cut
            at.start[axis] = max(start, 0);
            at.length[axis] = min(start + size, n) - at.start[axis];
        }
        at.count *= at.length[axis];
    }
    return at;
}

// Token `i` of `count` in a window, -1 beyond them, and the code of its place.
static __device__ __forceinline__ int token_at(const grid_windows &w, const window_place &at, int i, int count, int *code) {
    *code = 0;
    if (i >= count) return -1;
    if (w.dims == 0) return i;
    int token = 0, stride = 1;
#pragma unroll
    for (int axis = 2; axis >= 0; axis--) {
        int local = i % at.length[axis], cell = at.start[axis] + local;
        i /= at.length[axis];
        if (cell >= w.cells[axis]) cell -= w.cells[axis];
        token += cell * stride;
        stride *= w.cells[axis];
        *code += local * w.step[axis];
    }
    return token;
}

// A block's tile of rows, in which window of which head.
struct block_place {
    int tile, window, head;
    int64_t sample;
};

static __device__ __forceinline__ block_place place_of(const attention_call &c, int tiles) {
    unsigned at = blockIdx.x;
    block_place p;
    p.tile = at % tiles;
    at /= tiles;
    p.window = at % c.windows.all;
    at /= c.windows.all;
    p.head = at % c.heads;
    p.sample = at / c.heads;
    return p;
}

// Rows of one head of one sample.
struct head_rows {
    elements from;
    int64_t base;
    int stride;
};

// Queries or keys, and what is done to them.
struct head_side {
    head_rows rows;
    const float *rms, *gain; // 1/rms of token t at rms[t * heads]; NULL: none
    int count;
    const float *angles; // of its sample's tokens; NULL: none
};

static __device__ __forceinline__ int packed_offset(const attention_call &c, int head) {
    return head * c.width + (c.packed ? 2 * (head / c.in_group) * c.in_group * c.width : 0);
}

static __device__ __forceinline__ const float *angles_of(const attention_call &c, int64_t sample) {
    return c.rotary ? c.rotary + sample * c.rotary_stride : nullptr;
}

static __device__ __forceinline__ head_side queries_of(const attention_call &c, int64_t sample, int head) {
    head_side side = {{c.q, sample * c.queries * c.q_stride + packed_offset(c, head), c.q_stride}, nullptr, c.gain_q, c.queries,
                      angles_of(c, sample)};
    if (c.rms) side.rms = c.rms + sample * c.queries * c.heads + head;
    return side;
}
static __device__ __forceinline__ head_side keys_of(const attention_call &c, int64_t sample, int head) {
    int64_t base = sample * c.keys * c.kv_stride + packed_offset(c, head) + c.k_offset;
    head_side side = {{c.kv, base, c.kv_stride}, nullptr, c.gain_k, c.keys, angles_of(c, sample)};
    if (c.rms) side.rms = c.rms + (c.batch * c.queries + sample * c.keys) * c.heads + head;
    return side;
}
static __device__ __forceinline__ head_rows values_of(const attention_call &c, int64_t sample, int head) {
    return {c.kv, sample * c.keys * c.kv_stride + packed_offset(c, head) + c.v_offset, c.kv_stride};
}
static __device__ __forceinline__ head_rows outputs_of(const attention_call &c, elements of, int64_t sample, int head) {
    int stride = c.heads * c.width;
    return {of, sample * c.queries * stride + head * c.width, stride};
}

// ---- a block's memory -------------------------------------------------------------------------------------------------

template <typename TILES, int OWNED> struct block_memory {
    enum { STREAM = TILES::STREAM, OWN = TILES::OWN };
    __align__(16) typename TILES::element own[OWNED][OWN * TILES::PITCH];
    __align__(16) typename TILES::element stream[2][2][STREAM * TILES::PITCH]; // stages; tensors
    __align__(16) float exchange[TILES::EXCHANGE];
    float factor[TILES::D], stream_factor[TILES::D];                    // of the columns of rows that are treated
    float inverse[2][STREAM], lse[2][STREAM], delta[2][STREAM];         // of streamed rows
    int token[2][STREAM], code[2][STREAM];
    float own_inverse[OWN];
    int own_token[OWN], own_code[OWN];
    window_place window;
};

// A kernel's dynamic shared memory, as a part of its name: tools/gpu-static reads it there.
template <size_t COUNT> struct dynamic_shared {
    static constexpr size_t BYTES = COUNT;
};
template <typename TILES, int OWNED> using block_shared = dynamic_shared<sizeof(block_memory<TILES, OWNED>)>;

// A result in float32, in place of the streamed tiles, when they are done with.
enum { RESULT_PADDING = 4 };
template <typename TILES, typename MEMORY> static __device__ __forceinline__ float *result_of(MEMORY &m) {
    static_assert(TILES::OWN * (TILES::D + RESULT_PADDING) * sizeof(float) <= sizeof m.stream, "a result is larger than the tiles");
    static_assert(TILES::OWN * (TILES::STREAM + 1) * sizeof(float) <= sizeof m.stream, "scores are larger than the tiles");
    return (float *)m.stream;
}

// COUNT rows into shared memory; each is shared by a few neighbouring threads, whose token is given: -1 is a row of zeros.
template <typename TILES, int COUNT>
static __device__ __forceinline__ void load_rows(const attention_call &c, const head_rows &rows, int token,
                                                 typename TILES::element *to) {
    constexpr int EACH = TILE_THREADS / COUNT, CHUNK = 16 / (int)sizeof(*to);
    const int part = threadIdx.x % EACH;
    const int64_t at = token < 0 ? rows.base : rows.base + (int64_t)token * rows.stride;
    to += threadIdx.x / EACH * TILES::PITCH;
    if (TILES::HALF || (c.wide && rows.from.dtype == TILES::DTYPE)) {
        const typename TILES::element *from = (const typename TILES::element *)rows.from.data;
#pragma unroll
        for (int i = 0; i < TILES::D; i += EACH * CHUNK) {
            int column = i + part * CHUNK;
            bool present = token >= 0 && column < c.width;
            if (column < TILES::D) copy_async_16(to + column, from + (present ? at + column : 0), present);
        }
    } else if constexpr (!TILES::HALF) {
        for (int i = part; i < TILES::D; i += EACH) {
            float x[1] = {0.0f};
            if (token >= 0 && i < c.width) read_elements<1>(rows.from, at + i, x);
            to[i] = x[0];
        }
    }
}

// Rows in shared memory, normalised and rotated in place: columns times `factor`, rows times `inverse` where it is there.
template <typename TILES, int COUNT>
static __device__ __forceinline__ void treat_rows(const attention_call &c, typename TILES::element *rows, const float *inverse,
                                                  const int *token, const float *factor, const float *of_tokens) {
    constexpr int EACH = TILE_THREADS / COUNT, UNIT = TILES::UNIT;
    const int row = threadIdx.x / EACH, half = (c.width + 1) / 2;
    const float scale = inverse ? inverse[row] : 1.0f;
    const float *angles = of_tokens && token[row] >= 0 ? of_tokens + (int64_t)token[row] * c.width : nullptr;
    rows += row * TILES::PITCH;
    for (int i = threadIdx.x % EACH * UNIT; i < half; i += EACH * UNIT) {
        float a[UNIT], b[UNIT] = {};
        bool pair = half + i < c.width;
        TILES::read_unit(rows + i, a);
        if (pair) TILES::read_unit(rows + half + i, b);
#pragma unroll
        for (int u = 0; u < UNIT; u++) {
            a[u] *= scale * factor[i + u];
            if (pair) b[u] *= scale * factor[half + i + u];
            if (angles) {
                float cosine = angles[i + u], sine = angles[half + i + u], x = a[u];
                a[u] = x * cosine - b[u] * sine;
                b[u] = b[u] * cosine + x * sine;
            }
        }
        TILES::write_unit(rows + i, a);
        if (pair) TILES::write_unit(rows + half + i, b);
    }
}

// What a block knows before it loads: its window, the factors of columns. Returns the number of rows that its window has on
// the owned side, and on the other.
template <typename TILES, typename MEMORY>
static __device__ __forceinline__ int2 begin_block(const attention_call &c, MEMORY &m, int window, const head_side &own,
                                                   const head_side &other) {
    if (threadIdx.x == 0 && c.windows.dims) m.window = window_at(c.windows, window);
    for (int i = threadIdx.x; i < TILES::D; i += TILE_THREADS) {
        float factor = c.scale * LOG2E, stream_factor = 1.0f;
        if (own.gain && i < c.width) {
            factor *= own.gain[i];
            if (c.rotary) stream_factor = other.gain[i];
            else factor *= other.gain[i];
        }
        m.factor[i] = factor;
        m.stream_factor[i] = stream_factor;
    }
    __syncthreads();
    return c.windows.dims ? make_int2(m.window.count, m.window.count) : make_int2(own.count, other.count);
}

// Which rows a block owns.
template <typename TILES, typename MEMORY>
static __device__ __forceinline__ void find_own_rows(const attention_call &c, MEMORY &m, int first, int count) {
    for (int row = threadIdx.x; row < TILES::OWN; row += TILE_THREADS) {
        int code;
        m.own_token[row] = token_at(c.windows, m.window, first + row, count, &code);
        m.own_code[row] = code;
    }
    __syncthreads();
}

// Begins to load owned rows of a tensor, and of the first the norms of its rows.
template <typename TILES, typename MEMORY>
static __device__ __forceinline__ void load_own_rows(const attention_call &c, MEMORY &m, int tensor, const head_rows &rows,
                                                     const float *rms) {
    constexpr int EACH = TILE_THREADS / TILES::OWN;
    int row = threadIdx.x / EACH, token = m.own_token[row];
    load_rows<TILES, TILES::OWN>(c, rows, token, m.own[tensor]);
    if (rms && threadIdx.x % EACH == 0) copy_async_4(&m.own_inverse[row], rms + (int64_t)max(token, 0) * c.heads, token >= 0);
}

template <typename TILES, typename MEMORY>
static __device__ __forceinline__ void treat_own_rows(const attention_call &c, MEMORY &m, const head_side &own) {
    treat_rows<TILES, TILES::OWN>(c, m.own[0], own.rms ? m.own_inverse : nullptr, m.own_token, m.factor, own.angles);
}

// Begins to load a tile of two tensors into a stage, with what belongs to rows: norms; lse and delta where they are given, which
// are by token.
template <typename TILES, typename MEMORY>
static __device__ __forceinline__ void load_stream(const attention_call &c, MEMORY &m, int stage, int tile, int count,
                                                   const head_side &side, const head_rows &second, const float *lse,
                                                   const float *delta) {
    constexpr int EACH = TILE_THREADS / TILES::STREAM;
    int row = threadIdx.x / EACH, code, token = token_at(c.windows, m.window, tile * TILES::STREAM + row, count, &code);
    load_rows<TILES, TILES::STREAM>(c, side.rows, token, m.stream[stage][0]);
    load_rows<TILES, TILES::STREAM>(c, second, token, m.stream[stage][1]);
    if (threadIdx.x % EACH == 0) {
        int at = max(token, 0);
        m.token[stage][row] = token;
        m.code[stage][row] = code;
        if (side.rms) copy_async_4(&m.inverse[stage][row], side.rms + (int64_t)at * c.heads, token >= 0);
        if (lse) copy_async_4(&m.lse[stage][row], lse + at, token >= 0);
        if (delta) copy_async_4(&m.delta[stage][row], delta + at, token >= 0);
    }
    copy_async_commit();
}

// Waits for a stage; the other one goes on. All threads see its tiles afterwards.
template <typename TILES, typename MEMORY>
static __device__ __forceinline__ void await_stream(const attention_call &c, MEMORY &m, int stage, const head_side &side) {
    copy_async_wait<1>();
    __syncthreads();
    if (!c.rotary) return;
    treat_rows<TILES, TILES::STREAM>(c, m.stream[stage][0], side.rms ? m.inverse[stage] : nullptr, m.token[stage],
                                     m.stream_factor, side.angles);
    __syncthreads();
}

// Scores, times log2(e). `own_is_query`: as the bias sees it.
template <typename TILES, typename MEMORY>
static __device__ __forceinline__ void find_scores(const attention_call &c, const MEMORY &m, int stage, int head,
                                                   const head_side &side, bool own_is_query,
                                                   float (&s)[TILES::ROWS][TILES::COLUMNS]) {
    TILES::scores(m.own[0], m.stream[stage][0], s);
    if (side.rms && !c.rotary) {
#pragma unroll
        for (int j = 0; j < TILES::COLUMNS; j++) {
            float inverse = m.inverse[stage][TILES::column(j)];
#pragma unroll
            for (int i = 0; i < TILES::ROWS; i++) s[i][j] *= inverse;
        }
    }
    if (!c.bias) return;
#pragma unroll
    for (int i = 0; i < TILES::ROWS; i++) {
        int own = m.own_code[TILES::row(i)];
#pragma unroll
        for (int j = 0; j < TILES::COLUMNS; j++) {
            int other = m.code[stage][TILES::column(j)], offset = own_is_query ? own - other : other - own;
            s[i][j] += LOG2E * c.bias[(int64_t)(offset + c.windows.centre) * c.heads + head];
        }
    }
}

// What has to be done to a gradient of scores before it is mixed with rows that were not treated.
template <typename TILES, typename MEMORY>
static __device__ __forceinline__ void weigh_by_norms(const attention_call &c, const MEMORY &m, int stage, const head_side &side,
                                                      float (&ds)[TILES::ROWS][TILES::COLUMNS]) {
    if (!side.rms || c.rotary) return;
#pragma unroll
    for (int j = 0; j < TILES::COLUMNS; j++) {
        float inverse = m.inverse[stage][TILES::column(j)];
#pragma unroll
        for (int i = 0; i < TILES::ROWS; i++) ds[i][j] *= inverse;
    }
}

// ---- results ----------------------------------------------------------------------------------------------------------

// Results are read back eight elements a lane, eight lanes a row, by these.
enum { LANES_A_ROW = 8, MOST_WIDTH = 128, ROWS_AT_ONCE = TILE_THREADS / LANES_A_ROW };

static __device__ __forceinline__ void read_chunk(elements from, int64_t at, int count, bool wide, float (&x)[WIDE]) {
    if (wide) return read_elements<WIDE>(from, at, x);
#pragma unroll
    for (int i = 0; i < WIDE; i++) {
        float v[1] = {0.0f};
        if (i < count) read_elements<1>(from, at + i, v);
        x[i] = v[0];
    }
}

static __device__ __forceinline__ void write_chunk(elements to, int64_t at, int count, bool wide, bool accumulate,
                                                   float (&x)[WIDE]) {
    if (wide) return write_elements<WIDE>(to, at, x, accumulate);
#pragma unroll
    for (int i = 0; i < WIDE; i++) {
        float v[1] = {x[i]};
        if (i < count) write_elements<1>(to, at + i, v, accumulate);
    }
}

// A tensor as kernels with these tiles know it: those of matrix tiles are all of one dtype, and wide.
template <typename TILES> static __device__ __forceinline__ elements known(elements e) {
    return {e.data, TILES::HALF ? TILES::DTYPE : e.dtype};
}
template <typename TILES> static __device__ __forceinline__ bool known_wide(const attention_call &c) {
    return TILES::HALF || c.wide;
}

template <typename TILES>
static __device__ __forceinline__ void keep_result(const float (&sums)[TILES::ROWS][TILES::RESULTS], float *to) {
#pragma unroll
    for (int i = 0; i < TILES::ROWS; i++) {
#pragma unroll
        for (int j = 0; j < TILES::RESULTS; j += 2)
            *(float2 *)(to + TILES::row(i) * (TILES::D + RESULT_PADDING) + TILES::result_column(j)) =
                make_float2(sums[i][j], sums[i][j + 1]);
    }
}

// A result as it is.
template <typename TILES, typename MEMORY>
static __device__ __forceinline__ void write_result(const attention_call &c, const MEMORY &m, const float *result,
                                                    const head_rows &to, bool accumulate) {
    for (int row = threadIdx.x / LANES_A_ROW; row < TILES::OWN; row += ROWS_AT_ONCE) {
        int token = m.own_token[row];
        if (token < 0) continue;
        for (int column = threadIdx.x % LANES_A_ROW * WIDE; column < c.width; column += LANES_A_ROW * WIDE) {
            const float *from = result + row * (TILES::D + RESULT_PADDING) + column;
            float x[WIDE];
#pragma unroll
            for (int i = 0; i < WIDE; i++) x[i] = from[i];
            write_chunk(known<TILES>(to.from), to.base + (int64_t)token * to.stride + column, c.width - column,
                        known_wide<TILES>(c), accumulate, x);
        }
    }
}

// Eight lanes' sum, to all of them.
static __device__ __forceinline__ float row_sum(float x) {
#pragma unroll
    for (int by = LANES_A_ROW / 2; by; by >>= 1) x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}

// ---- host -------------------------------------------------------------------------------------------------------------

// What the launches of a call have in common (attention.cu).
attention_call attention_call_of(const ups_op_call *call);
// Of backward (attention_backward.cu): floats of workspace, and the most blocks of a launch.
int64_t attention_backward_floats(const attention_call &c);
int64_t attention_backward_blocks(const attention_call &c);
ups_status attention_backward(ups_device *device, const ups_op_call *call, ups_error *error);
// Of short sequences (attention_short.cuh): whether their kernels take a call; norms, log-sum-exps and sums of gains are those
// of the others. gains_of_q, gains_of_k: where they are wanted, one row a head of a sample.
bool attention_is_short(ups_device *device, const attention_call &c, bool backward);
size_t attention_short_backward_bytes(const attention_call &c); // of shared memory
ups_status attention_short_forward(ups_device *device, const attention_call &c, ups_error *error);
ups_status attention_short_backward(ups_device *device, const attention_call &c, ups_error *error);
// The same by groups of warps, on cards that have them (groups.cuh), of calls that are short.
size_t attention_groups_forward_bytes(const attention_call &c); // of shared memory
size_t attention_groups_backward_bytes(const attention_call &c);
ups_status attention_groups_forward(ups_device *device, const attention_call &c, ups_error *error);
ups_status attention_groups_backward(ups_device *device, const attention_call &c, ups_error *error);
// Whether groups take calls of such shapes; `gains`: there are gains (attention_choice.cu).
bool attention_takes_groups(ups_device *device, const attention_call &c, bool gains, bool backward);

// What is decided once for all calls of the same shapes.
struct attention_plan {
    bool groups_forward, groups_backward;
};

// Tiles of rows in the largest window.
static inline int64_t tiles_in(int64_t rows, int size) {
    return (rows + size - 1) / size;
}
static inline int64_t query_tiles(const attention_call &c, int size) {
    return tiles_in(c.windows.dims ? c.windows.most : c.queries, size);
}
static inline int64_t key_tiles(const attention_call &c, int size) {
    return tiles_in(c.windows.dims ? c.windows.most : c.keys, size);
}

// Whether all tensors that a call has are of the dtype of its queries.
static inline bool is_of_one_dtype(const attention_call &c) {
    bool same = true;
    const elements all[] = {c.kv, c.out, c.upstream, c.dq, c.dkv};
    for (const elements &each : all) same = same && (!each.data || each.dtype == c.q.dtype);
    return same;
}

// Calls launch(tiles) with the tiles for a call. Matrix tiles: half precision, in rows that sixteen bytes divide.
template <ups_dtype TYPE, typename LAUNCH> static ups_status with_matrix_tiles(int width, LAUNCH launch) {
    if (width <= 32) return launch(matrix_tiles<TYPE, 32>());
    if (width <= 48) return launch(matrix_tiles<TYPE, 48>());
    if (width <= 64) return launch(matrix_tiles<TYPE, 64>());
    return launch(matrix_tiles<TYPE, 128>());
}
template <typename LAUNCH> static ups_status with_tiles(const attention_call &c, LAUNCH launch) {
    const bool matrices = c.wide && is_of_one_dtype(c);
    if (matrices && c.q.dtype == UPS_BF16) return with_matrix_tiles<UPS_BF16>(c.width, launch);
    if (matrices && c.q.dtype == UPS_F16) return with_matrix_tiles<UPS_F16>(c.width, launch);
    if (c.width <= 32) return launch(plain_tiles<32>());
    if (c.width <= 48) return launch(plain_tiles<48>());
    if (c.width <= 64) return launch(plain_tiles<64>());
    return launch(plain_tiles<128>());
}

// Asks for a kernel's shared memory, which may be more than it has without.
template <typename KERNEL> static ups_status reserve_shared(KERNEL kernel, size_t bytes, ups_error *error) {
    return ups_cuda_check(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                          "asking for attention's shared memory", error);
}

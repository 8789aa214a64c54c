// Products whose first operand rests in shared memory (stationary.h).
//
// A block has a row of tiles after the other, of 128 rows and 128 columns each, which share the rows that rest. One group of warps
// copies: it fills a ring of stages, 64 terms of a tile's columns each, and with the first tile's also those of the rows. Two
// groups take tiles in turn: while one has its sums out of its products, and stores them, the other multiplies. They wait for
// each other by barriers in memory: `full` of a stage and a group that multiplies, `empty` of a stage.
//
// Rows of the next row of tiles are copied over those that rest, 64 terms with each of the first tile's stages. Whoever fills a
// stage has waited for the products of all stages a ring before it, and so, where a tile has no fewer stages than the ring, for
// those that read these terms last.
#include "model/cuda/gelu.cuh"
#include "model/cuda/matrices/groups.cuh"
#include "model/cuda/reduce.cuh"
extern "C" {
#include "model/cuda/products/stationary.h"
}

enum {
    TILE_ROWS = 2 * GROUP_ROWS,
    TILE_COLUMNS = 128,
    DEPTH = 64, // terms of a stage
    STEP = 16,  // terms of a product
    MOST_TERMS = 512,
    STAGES = 5, // at most: no more than a tile has
    FEWEST_STAGES = 4,
    MULTIPLIERS = 2,
    BLOCK_THREADS = (1 + MULTIPLIERS) * GROUP_THREADS,
    COPIER_REGISTERS = 40, // of 168 that a thread begins with; multipliers take what is left
    MULTIPLIER_REGISTERS = 232,
};

// What is to be done, as kernels see it.
struct stationary_call {
    const uint16_t *a, *b, *bias, *h;
    uint16_t *d, *y;
    float *partials; // (rows of tiles, columns); null: no sums
    int64_t rows;
    int columns, terms, stages;
    int shares, all_shares; // of a row of tiles, for several blocks, and of all
};

// Slabs lie 16 bytes apart, so that eight lanes that write a row to eight of them meet different banks.
static constexpr __host__ __device__ int stride_of(int rows) {
    return rows * 16 + 16;
}
static constexpr __host__ __device__ int stage_bytes(bool turned) {
    return turned ? stride_of(DEPTH) * (TILE_COLUMNS / 8) : stride_of(TILE_COLUMNS) * (DEPTH / 8);
}
static constexpr __host__ __device__ int resting_bytes(int terms) {
    return stride_of(TILE_ROWS) * (terms / 8);
}

// Behind it the rows that rest, and the stages.
struct __align__(128) stationary_memory {
    uint64_t full[STAGES][MULTIPLIERS], empty[STAGES];
    alignas(16) float sums[MULTIPLIERS][GROUP_THREADS / 32][TILE_COLUMNS];
};

static constexpr size_t memory_bytes(int64_t terms, bool turned) {
    return sizeof(stationary_memory) + (size_t)resting_bytes((int)terms) + (size_t)STAGES * stage_bytes(turned);
}

#if HAS_GROUPS
// Where in the order of all stages a group is. All groups count alike.
struct stage_cursor {
    int stage = 0;      // of the ring
    uint32_t round = 0; // around it
    int of_tile = 0;    // which one of a tile's
    int group = 0;      // who multiplies it

    __device__ __forceinline__ void go_on(const stationary_call &c) {
        if (++stage == c.stages) stage = 0, round++;
        if (++of_tile == c.terms / DEPTH) of_tile = 0, group ^= 1;
    }
    __device__ __forceinline__ void skip_tile(const stationary_call &c) {
        for (stage += c.terms / DEPTH; stage >= c.stages; stage -= c.stages) round++;
        group ^= 1;
    }
};

// Some or all tiles of a row of tiles. A block has every gridDim.x-th such share.
struct tile_share {
    int tile_row, first, end;
};
static __device__ __forceinline__ tile_share share_of(const stationary_call &c, int index) {
    const int tiles = c.columns / TILE_COLUMNS / c.shares, first = index % c.shares * tiles;
    return {index / c.shares, first, first + tiles};
}

// ---- copying ----------------------------------------------------------------------------------------------------------

// 64 columns of ROWS rows, `pitch` elements apart, to slabs: eight lanes have a row. Rows from `left` on are zeros.
template <int ROWS>
static __device__ __forceinline__ void copy_rows(const uint16_t *from, int64_t pitch, int64_t left, slab_rows to) {
    enum { AT_ONCE = GROUP_THREADS / 8 };
    const int piece = threadIdx.x % 8, first = threadIdx.x % GROUP_THREADS / 8;
    const uint16_t *at = from + first * pitch + piece * WIDE;
    unsigned char *place = to.from(first).data + piece * to.stride;
#pragma unroll
    for (int row = 0; row < ROWS; row += AT_ONCE) {
        const bool present = first + row < left;
        copy_async_16(place + row * 16, present ? at : from, present);
        at += AT_ONCE * pitch;
    }
}

// A stage: 64 terms of 128 columns.
template <bool TURNED>
static __device__ __forceinline__ void copy_stage(const stationary_call &c, int column, int term, slab_rows to) {
    if (!TURNED) return copy_rows<TILE_COLUMNS>(c.b + (int64_t)column * c.terms + term, c.terms, TILE_COLUMNS, to);
    const uint16_t *from = c.b + (int64_t)term * c.columns + column;
#pragma unroll
    for (int half = 0; half < TILE_COLUMNS; half += 64)
        copy_rows<DEPTH>(from + half, c.columns, DEPTH, {to.data + half / 8 * to.stride, to.stride});
}

template <bool TURNED>
static __device__ __forceinline__ void copy_all(const stationary_call &c, stationary_memory &m, slab_rows resting, slab_rows stages) {
    stage_cursor at;
    for (int index = blockIdx.x; index < c.all_shares; index += gridDim.x) {
        const tile_share share = share_of(c, index);
        const int64_t row = (int64_t)share.tile_row * TILE_ROWS;
#pragma unroll 1
        for (int tile = share.first; tile < share.end; tile++) {
#pragma unroll 1
            for (int term = 0; term < c.terms; term += DEPTH) {
                if (at.round > 0) phase_wait(&m.empty[at.stage], (at.round - 1) & 1);
                if (tile == share.first)
                    copy_rows<TILE_ROWS>(c.a + row * c.terms + term, c.terms, c.rows - row,
                                         {resting.data + term / 8 * resting.stride, resting.stride});
                copy_stage<TURNED>(c, tile * TILE_COLUMNS, term, {stages.data + at.stage * stage_bytes(TURNED), stages.stride});
                phase_arrive_when_copied(&m.full[at.stage][at.group]);
                at.go_on(c);
            }
        }
    }
    copy_async_commit();
    copy_async_wait<0>(); // nobody ends before what was begun is there
}

// ---- multiplying ------------------------------------------------------------------------------------------------------

// Sums of a thread: of each half of the tile's rows.
typedef float tile_sums[2][2][TILE_COLUMNS / 4];

static __device__ __forceinline__ void hold(tile_sums &sums) {
    hold(sums[0]);
    hold(sums[1]);
}

// The warp's products that read the stage are done: it may be copied over, without a fence.
static __device__ __forceinline__ void tell_empty(stationary_memory &m, int stage) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) phase_arrive(&m.empty[stage]);
}

// All terms of a tile. `phases`: a bit of each stage, the next phase that this group waits for.
template <ups_dtype TYPE, bool TURNED>
static __device__ __forceinline__ void multiply_tile(const stationary_call &c, stationary_memory &m, slab_rows resting,
                                                     slab_rows stages, stage_cursor &at, uint32_t &phases, tile_sums &sums) {
    const uint64_t rows = resting.place(false), of_stages = stages.place(TURNED);
    const int group = at.group, tile_stages = c.terms / DEPTH;
    int before = 0;
#pragma unroll 1
    for (int k = 0; k < tile_stages; k++) {
        const int stage = at.stage;
        phase_wait(&m.full[stage][group], phases >> stage & 1);
        phases ^= 1u << stage;
        see_for_groups();
        hold(sums);
        group_begin();
#pragma unroll
        for (int step = 0; step < DEPTH / STEP; step++) {
            const uint64_t b = stages.moved(of_stages + (uint32_t)(stage * (stage_bytes(TURNED) / 16)), TURNED ? step * STEP : 0,
                                            TURNED ? 0 : step);
#pragma unroll
            for (int half = 0; half < 2; half++)
                group_multiply<TYPE, TURNED>(sums[half], resting.moved(rows, half * GROUP_ROWS, k * (DEPTH / STEP) + step), b,
                                             k + step > 0);
        }
        group_commit();
        if (k > 0) {
            group_wait<1>();
            tell_empty(m, before);
        }
        before = stage;
        at.go_on(c);
        if (k + 1 < tile_stages) continue;
        group_wait<0>(); // here, so that the compiler does not move the news behind what becomes of the sums
        tell_empty(m, before);
    }
    group_wait<0>(); // for the compiler, which puts one here if there is none
    hold(sums);
}

// ---- results ----------------------------------------------------------------------------------------------------------

// Four lanes have the same rows, and each two columns of every eight. Of four times eight columns, a word each, a lane gets the
// eight that are its own: x[b] of the lanes in turn, b the lane's place.
static __device__ __forceinline__ uint4 gather_columns(const uint32_t (&x)[4]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    const uint32_t first = __shfl_xor_sync(0xffffffffu, odd ? x[0] : x[1], 1), second = __shfl_xor_sync(0xffffffffu, odd ? x[2] : x[3], 1);
    const uint32_t low[] = {odd ? first : x[0], odd ? x[1] : first}, up[] = {odd ? second : x[2], odd ? x[3] : second};
    const uint32_t third = __shfl_xor_sync(0xffffffffu, high ? low[0] : up[0], 2), fourth = __shfl_xor_sync(0xffffffffu, high ? low[1] : up[1], 2);
    return high ? make_uint4(third, fourth, up[0], up[1]) : make_uint4(low[0], low[1], third, fourth);
}

// Where a lane's results of a tile's first 32 columns go: rows r = 0 to 3 of it, eight columns.
// ALL: the tile's rows are all there.
template <bool ALL> struct result_place {
    int64_t row, column, rows, columns;

    __device__ __forceinline__ int64_t row_of(int r) const {
        return row + r / 2 * GROUP_ROWS + r % 2 * 8;
    }
    __device__ __forceinline__ bool has(int r) const {
        return ALL || row_of(r) < rows;
    }
    __device__ __forceinline__ int64_t element(int r) const {
        return row_of(r) * columns + column;
    }
};

template <ups_dtype TYPE> static __device__ __forceinline__ void unpack(uint4 from, float (&x)[WIDE]) {
    convert_elements<WIDE>(TYPE, {from, {}}, x);
}
template <ups_dtype TYPE> static __device__ __forceinline__ uint4 pack(const float (&x)[WIDE]) {
    return pack_elements<WIDE>(TYPE, x).low;
}

// Sums of a row, of 32 columns from 32 `part` on, with `added` of each pair of columns, rounded.
template <ups_dtype TYPE>
static __device__ __forceinline__ uint4 rounded(const tile_sums &sums, int part, int r, const uint32_t (&added)[TILE_COLUMNS / 8]) {
    uint32_t words[4];
#pragma unroll
    for (int b = 0; b < 4; b++) {
        const int block = 4 * part + b;
        const float2 bias = unpack_pair<TYPE>(added[block]);
        words[b] = pack_pair<TYPE>(sums[r / 2][r % 2][2 * block] + bias.x, sums[r / 2][r % 2][2 * block + 1] + bias.y);
    }
    return gather_columns(words);
}

template <ups_dtype TYPE, bool ALL>
static __device__ __forceinline__ void store_products(const stationary_call &c, const tile_sums &sums, const result_place<ALL> &at,
                                                      const uint32_t (&bias)[TILE_COLUMNS / 8], bool gelus) {
#pragma unroll
    for (int part = 0; part < TILE_COLUMNS / 32; part++) {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const uint4 d = rounded<TYPE>(sums, part, r, bias);
            if (!at.has(r)) continue;
            *(uint4 *)(c.d + at.element(r) + part * 32) = d;
            if (!gelus) continue;
            float x[WIDE];
            unpack<TYPE>(d, x);
#pragma unroll
            for (int i = 0; i < WIDE; i++) x[i] = gelu::value(x[i]);
            *(uint4 *)(c.y + at.element(r) + part * 32) = pack<TYPE>(x);
        }
    }
}

// What GELU's gradient is taken of, of 32 columns: two such parts are on their way at once, the first two of a tile while it is
// multiplied.
struct hidden_part {
    uint4 of_row[4];

    template <bool ALL>
    __device__ __forceinline__ void load(const stationary_call &c, const result_place<ALL> &at, int part, int r) {
        of_row[r] = at.has(r) ? *(const uint4 *)(c.h + at.element(r) + part * 32) : uint4{};
    }
};

template <ups_dtype TYPE, bool ALL>
static __device__ __forceinline__ void store_gradients(const stationary_call &c, const tile_sums &sums, const result_place<ALL> &at,
                                                       hidden_part (&h)[2],
                                                       float (&of_columns)[GROUP_THREADS / 32][TILE_COLUMNS]) {
    const uint32_t none[TILE_COLUMNS / 8] = {};
#pragma unroll
    for (int part = 0; part < TILE_COLUMNS / 32; part++) {
        float totals[WIDE] = {};
#pragma unroll
        for (int r = 0; r < 4; r++) {
            float x[WIDE], d[WIDE];
            unpack<TYPE>(h[part % 2].of_row[r], x);
            if (part + 2 < TILE_COLUMNS / 32) h[part % 2].load(c, at, part + 2, r);
            unpack<TYPE>(rounded<TYPE>(sums, part, r, none), d);
#pragma unroll
            for (int i = 0; i < WIDE; i++) x[i] = d[i] * gelu::slope(x[i]);
            const uint4 made = pack<TYPE>(x);
            if (!at.has(r)) continue;
            *(uint4 *)(c.d + at.element(r) + part * 32) = made;
            unpack<TYPE>(made, x);
#pragma unroll
            for (int i = 0; i < WIDE; i++) totals[i] += x[i];
        }
        if (!c.partials) continue;
#pragma unroll
        for (int i = 0; i < WIDE; i++) {
#pragma unroll
            for (int by = 4; by < 32; by *= 2) totals[i] += __shfl_xor_sync(0xffffffffu, totals[i], by);
        }
        if (threadIdx.x % 32 >= 4) continue;
        float4 *to = (float4 *)&of_columns[threadIdx.x / 32 % 4][part * 32 + threadIdx.x % 4 * WIDE];
        to[0] = make_float4(totals[0], totals[1], totals[2], totals[3]);
        to[1] = make_float4(totals[4], totals[5], totals[6], totals[7]);
    }
}

// Sums of the tile's rows, of what its warps have.
static __device__ __forceinline__ void store_column_sums(const stationary_call &c, int group, int tile_row, int column,
                                                         const float (&of_columns)[GROUP_THREADS / 32][TILE_COLUMNS]) {
    static_assert(TILE_COLUMNS == GROUP_THREADS, "a thread adds a column's sums");
    const int own = threadIdx.x % GROUP_THREADS;
    meet_group(group);
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < GROUP_THREADS / 32; warp++) sum += of_columns[warp][own];
    c.partials[(int64_t)tile_row * c.columns + column + own] = sum;
    meet_group(group);
}

// A tile from its first stage to its results.
template <ups_dtype TYPE, bool TURNED, ups_cuda_stationary_kind KIND, bool ALL>
static __device__ __forceinline__ void make_tile(const stationary_call &c, stationary_memory &m, slab_rows resting, slab_rows stages,
                                                 stage_cursor &at, uint32_t &phases, int tile_row, int column) {
    const int lane = threadIdx.x % 32, row_of_lane = threadIdx.x / 32 % 4 * 16 + lane / 4, group = at.group;
    const result_place<ALL> to = {(int64_t)tile_row * TILE_ROWS + row_of_lane, column + lane % 4 * WIDE, c.rows, c.columns};
    tile_sums sums;
    if (KIND == UPS_CUDA_STATIONARY_GELU_GRADIENT) {
        hidden_part h[2];
#pragma unroll
        for (int i = 0; i < 8; i++) h[i / 4].load(c, to, i / 4, i % 4);
        multiply_tile<TYPE, TURNED>(c, m, resting, stages, at, phases, sums);
        store_gradients<TYPE>(c, sums, to, h, m.sums[group]);
        if (c.partials) store_column_sums(c, group, tile_row, column, m.sums[group]);
        return;
    }
    uint32_t bias[TILE_COLUMNS / 8] = {};
#pragma unroll
    for (int b = 0; b < TILE_COLUMNS / 8; b++) {
        if (c.bias) bias[b] = *(const uint32_t *)(c.bias + column + b * 8 + lane % 4 * 2);
    }
    multiply_tile<TYPE, TURNED>(c, m, resting, stages, at, phases, sums);
    store_products<TYPE>(c, sums, to, bias, KIND == UPS_CUDA_STATIONARY_GELU);
}

template <ups_dtype TYPE, bool TURNED, ups_cuda_stationary_kind KIND>
static __device__ __forceinline__ void multiply_all(const stationary_call &c, stationary_memory &m, slab_rows resting,
                                                    slab_rows stages, int group) {
    stage_cursor at;
    uint32_t phases = 0;
    for (int index = blockIdx.x; index < c.all_shares; index += gridDim.x) {
        const tile_share share = share_of(c, index);
        const bool all = (int64_t)(share.tile_row + 1) * TILE_ROWS <= c.rows;
#pragma unroll 1
        for (int tile = share.first; tile < share.end; tile++) {
            const int column = tile * TILE_COLUMNS;
            if (at.group != group)
                at.skip_tile(c);
            else if (all)
                make_tile<TYPE, TURNED, KIND, true>(c, m, resting, stages, at, phases, share.tile_row, column);
            else
                make_tile<TYPE, TURNED, KIND, false>(c, m, resting, stages, at, phases, share.tile_row, column);
        }
    }
}
#endif

template <ups_dtype TYPE, bool TURNED, ups_cuda_stationary_kind KIND>
static __global__ void __launch_bounds__(BLOCK_THREADS, 1) stationary_rows(const __grid_constant__ stationary_call c) {
#if HAS_GROUPS
    extern __shared__ __align__(128) unsigned char stationary_shared[];
    auto &m = *(stationary_memory *)stationary_shared;
    const slab_rows resting = {(unsigned char *)(&m + 1), stride_of(TILE_ROWS)};
    const slab_rows stages = {resting.data + resting_bytes(c.terms), stride_of(TURNED ? (int)DEPTH : (int)TILE_COLUMNS)};
    const int group = uniform(threadIdx.x / GROUP_THREADS);
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; stage++) {
            for (int each = 0; each < MULTIPLIERS; each++) phases_begin(&m.full[stage][each], GROUP_THREADS);
            phases_begin(&m.empty[stage], GROUP_THREADS / 32);
        }
    }
    __syncthreads();
    if (group == MULTIPLIERS) {
        give_up_registers_but<COPIER_REGISTERS>();
        copy_all<TURNED>(c, m, resting, stages);
    } else {
        take_registers_up_to<MULTIPLIER_REGISTERS>();
        multiply_all<TYPE, TURNED, KIND>(c, m, resting, stages, group);
    }
#endif
}

// ---- host -------------------------------------------------------------------------------------------------------------

static int64_t tile_rows_of(const ups_cuda_stationary *p) {
    return (p->rows + TILE_ROWS - 1) / TILE_ROWS;
}

bool ups_cuda_stationary_fits(ups_device *device, const ups_cuda_stationary *p) {
    if (ups_cuda_only_plans(device) || !ups_cuda_has_groups(device)) return false;
    if (p->dtype != UPS_BF16 && p->dtype != UPS_F16) return false;
    if (p->terms % DEPTH || p->terms < FEWEST_STAGES * DEPTH || p->terms > MOST_TERMS) return false;
    if (p->rows <= 0 || p->columns <= 0 || p->columns % TILE_COLUMNS) return false;
    const int64_t most_columns = 1 << 20, tiles = tile_rows_of(p) * (p->columns / TILE_COLUMNS); /* which are counted as int */
    return p->columns <= most_columns && tiles < INT32_MAX / 2 && memory_bytes(p->terms, p->turned) <= ups_cuda_most_shared(device);
}

int64_t ups_cuda_stationary_partials(const ups_cuda_stationary *p) {
    return tile_rows_of(p) * p->columns;
}

// So many that processors have the same to do: a block takes its tiles' time, and that of half a tile for its rows.
static int shares_for(int64_t tile_rows, int tiles, int64_t processors) {
    int best = 1;
    int64_t least = INT64_MAX;
    for (int shares = 1; shares <= tiles; shares++) {
        if (tiles % shares) continue;
        const int64_t rounds = (tile_rows * shares + processors - 1) / processors, halves = rounds * (2 * (tiles / shares) + 1);
        if (halves < least) least = halves, best = shares;
    }
    return best;
}

template <ups_dtype TYPE, bool TURNED, ups_cuda_stationary_kind KIND>
static ups_status launch(ups_device *device, const stationary_call &c, ups_error *error) {
    const auto kernel = stationary_rows<TYPE, TURNED, KIND>;
    const size_t bytes = memory_bytes(c.terms, TURNED);
    const int processors = ups_cuda_processors(device);
    UPS_TRY(ups_cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes),
                           "reserving shared memory", error));
    kernel<<<(unsigned)(c.all_shares < processors ? c.all_shares : processors), BLOCK_THREADS, bytes, ups_cuda_stream(device)>>>(c);
    return ups_cuda_launched("a product whose rows rest", error);
}

template <ups_dtype TYPE>
static ups_status launch_kind(ups_device *device, const ups_cuda_stationary *p, const stationary_call &c, ups_error *error) {
    switch (p->kind) {
    case UPS_CUDA_STATIONARY_GELU: // of forward: its weight is not turned
        return launch<TYPE, false, UPS_CUDA_STATIONARY_GELU>(device, c, error);
    case UPS_CUDA_STATIONARY_GELU_GRADIENT: // of backward
        return launch<TYPE, true, UPS_CUDA_STATIONARY_GELU_GRADIENT>(device, c, error);
    case UPS_CUDA_STATIONARY_PRODUCT:
        break;
    }
    return p->turned ? launch<TYPE, true, UPS_CUDA_STATIONARY_PRODUCT>(device, c, error)
                     : launch<TYPE, false, UPS_CUDA_STATIONARY_PRODUCT>(device, c, error);
}

ups_status ups_cuda_stationary_run(ups_device *device, const ups_cuda_stationary *p, const ups_cuda_stationary_tensors *of,
                                   ups_error *error) {
    const void *const all[] = {of->a, of->b, of->bias, of->d, of->y, of->h, of->partials};
    for (const void *each : all) {
        if ((uintptr_t)each % 16) return ups_fail(error, UPS_ERR_ARGUMENT, "products: tensors begin at multiples of 16 bytes on CUDA");
    }
    const int tiles = (int)(p->columns / TILE_COLUMNS), depth = (int)(p->terms / DEPTH);
    const int shares = shares_for(tile_rows_of(p), tiles, ups_cuda_processors(device));
    const stationary_call c = {.a = (const uint16_t *)of->a,
                               .b = (const uint16_t *)of->b,
                               .bias = (const uint16_t *)of->bias,
                               .h = (const uint16_t *)of->h,
                               .d = (uint16_t *)of->d,
                               .y = (uint16_t *)of->y,
                               .partials = of->sums ? of->partials : nullptr,
                               .rows = p->rows,
                               .columns = (int)p->columns,
                               .terms = (int)p->terms,
                               .stages = depth < STAGES ? depth : (int)STAGES,
                               .shares = shares,
                               .all_shares = (int)tile_rows_of(p) * shares};
    UPS_TRY(p->dtype == UPS_BF16 ? launch_kind<UPS_BF16>(device, p, c, error) : launch_kind<UPS_F16>(device, p, c, error));
    if (!c.partials) return UPS_OK;
    return add_partials(device, of->partials, tile_rows_of(p), p->columns, p->columns, of->sums, of->accumulate, error);
}

/* Fourier and cosine modes of fields, an axis after the other, by fast Fourier transforms.
 *
 * A vector holds the same number of several lines, so that nothing goes across lanes. Two lines of a sample are the
 * real and the imaginary part of one transform (of one sample: a NaN stays in it); what is even and odd about its
 * result tells them apart. The transform is Stockham's, which sorts itself: a step of radix r makes of sequences of n
 * numbers r times as many of n / r, from one buffer to the other. Any length has its steps: 4, 2, 3, 5 and what other
 * primes there are, which take a fourth of their square. Cosine modes are those of the line with its even numbers first
 * and its odd ones behind, backwards (Makhoul, 1980, A fast cosine transform in one and two dimensions). */
#include "model/cpu/vector.h"

enum { PAIR = 2 * UPS_VECTOR, MOST_STEPS = 64, FINE = 32 };

/* An axis, and the fields as they lie along it: `outer` times its `n` numbers, each `inner` side by side. */
typedef struct axis {
    int64_t n, outer, inner, lines; /* lines: of a sample, where inner is 1 */
    bool periodic;
    int steps, radix[MOST_STEPS];
    const float *turns; /* cos, sin of 2 π k / n; where the axis is not periodic of π k / (2 n) behind them */
} axis;

/* Numbers of lines side by side: the real parts of a vector, and its imaginary parts. */
typedef struct number {
    f32v re, im;
} number;

/* ---- angles ----------------------------------------------------------------------------------------------------- */

static void fill_turns(double unit, int64_t count, float *to) {
    double fine[2 * FINE];
    for (int64_t k = 0; k < FINE; k++) {
        fine[2 * k] = cos(unit * (double)k);
        fine[2 * k + 1] = sin(unit * (double)k);
    }
    for (int64_t start = 0; start < count; start += FINE) {
        const double x = cos(unit * (double)start), y = sin(unit * (double)start);
        for (int64_t k = 0; k < ups_min(FINE, count - start); k++) {
            to[2 * (start + k)] = (float)(x * fine[2 * k] - y * fine[2 * k + 1]);
            to[2 * (start + k) + 1] = (float)(y * fine[2 * k] + x * fine[2 * k + 1]);
        }
    }
}

static int64_t turns_of(bool periodic, int64_t n) {
    const int64_t floats = periodic ? 2 * n : 4 * n;
    return ups_div_up(floats, UPS_LANES) * UPS_LANES;
}

static void split_into_steps(axis *a) {
    int64_t left = a->n;
    a->steps = 0;
    while (left % 4 == 0) a->radix[a->steps++] = 4, left /= 4;
    for (int64_t p = 2; left > 1; p++) {
        if (p * p > left) p = left;
        while (left % p == 0) a->radix[a->steps++] = (int)p, left /= p;
    }
}

/* ---- the transform ---------------------------------------------------------------------------------------------- */

static inline number add(number a, number b) {
    return (number){a.re + b.re, a.im + b.im};
}

static inline number subtract(number a, number b) {
    return (number){a.re - b.re, a.im - b.im};
}

/* x e^-iθ, of a pair of cos θ and sin θ */
static inline number turn(number x, const float *by) {
    return (number){x.re * by[0] + x.im * by[1], x.im * by[0] - x.re * by[1]};
}

/* -i x */
static inline number turn_back(number x) {
    return (number){x.im, (f32v){0} - x.re};
}

/* Sequences of n numbers, s of them interleaved, become those of their even and odd modes, and so on. */
static void step_of_2(const axis *a, int64_t n, int64_t s, const number *restrict x, number *restrict y) {
    const int64_t m = n / 2, unit = a->n / n;
    for (int64_t p = 0; p < m; p++) {
        const float *by = a->turns + 2 * unit * p;
        for (int64_t q = 0; q < s; q++) {
            const number first = x[q + s * p], second = x[q + s * (p + m)];
            y[q + s * 2 * p] = add(first, second);
            y[q + s * (2 * p + 1)] = turn(subtract(first, second), by);
        }
    }
}

static void step_of_4(const axis *a, int64_t n, int64_t s, const number *restrict x, number *restrict y) {
    const int64_t m = n / 4, unit = a->n / n;
    for (int64_t p = 0; p < m; p++) {
        const float *by = a->turns;
        const int64_t at = 2 * unit * p;
        for (int64_t q = 0; q < s; q++) {
            const number *from = x + q + s * p;
            const number even = add(from[0], from[2 * s * m]), odd = add(from[s * m], from[3 * s * m]);
            const number half = subtract(from[0], from[2 * s * m]);
            const number quarter = turn_back(subtract(from[s * m], from[3 * s * m]));
            number *to = y + q + s * 4 * p;
            to[0] = add(even, odd);
            to[s] = turn(add(half, quarter), by + at);
            to[2 * s] = turn(subtract(even, odd), by + 2 * at);
            to[3 * s] = turn(subtract(half, quarter), by + 3 * at);
        }
    }
}

/* Numbers j and r - j have the same cosines, and sines that differ by their sign, and so have modes k and r - k: of
 * sums and differences a fourth of the products is left. x holds these in the end. */
static void step_of_any(const axis *a, int64_t r, int64_t n, int64_t s, number *restrict x, number *restrict y) {
    const int64_t m = n / r, unit = a->n / n, part = a->n / r, apart = s * m, half = r / 2;
    for (int64_t at = 0; at < s * m; at++) {
        const int64_t p = at / s, q = at % s;
        number *from = x + at, *to = y + q + s * r * p, all = from[0];
        for (int64_t j = 1; j <= half; j++) {
            const number low = from[j * apart], high = from[(r - j) * apart];
            from[j * apart] = add(low, high);
            from[(r - j) * apart] = subtract(low, high);
            all = add(all, from[j * apart]);
        }
        to[0] = all;
        for (int64_t k = 1; k <= half; k++) {
            number even = from[0], odd = {{0}, {0}};
            for (int64_t j = 1, angle = k; j <= half; j++, angle = angle + k < r ? angle + k : angle + k - r) {
                const float *by = a->turns + 2 * part * angle;
                const number sum = from[j * apart], difference = from[(r - j) * apart];
                even.re += sum.re * by[0];
                even.im += sum.im * by[0];
                odd.re += difference.re * by[1];
                odd.im += difference.im * by[1];
            }
            odd = turn_back(odd);
            to[s * k] = turn(add(even, odd), a->turns + 2 * unit * p * k);
            to[s * (r - k)] = turn(subtract(even, odd), a->turns + 2 * unit * p * (r - k));
        }
    }
}

/* Of what is in x, which of the two holds it in the end. */
static number *transform(const axis *a, number *x, number *y) {
    int64_t n = a->n, s = 1;
    for (int i = 0; i < a->steps; i++) {
        const int r = a->radix[i];
        if (r == 4)
            step_of_4(a, n, s, x, y);
        else if (r == 2)
            step_of_2(a, n, s, x, y);
        else
            step_of_any(a, r, n, s, x, y);
        n /= r, s *= r;
        number *made = y;
        y = x, x = made;
    }
    return x;
}

/* ---- from the transform to modes, and back ---------------------------------------------------------------------- */

/* Where the cosine transform's number j lies in the line. */
static inline int64_t place_of(const axis *a, int64_t j) {
    return a->periodic ? j : j < (a->n + 1) / 2 ? 2 * j : 2 * (a->n - 1 - j) + 1;
}

/* Row 0 is the mean, times √n; then the cosine and the sine of one wave, of two, …; of an even n last what alternates.
 */
static void periodic_modes(int64_t n, const number *w, number *y) {
    const float whole = (float)sqrt(1.0 / (double)n), half = (float)sqrt(0.5 / (double)n);
    y[0] = (number){w[0].re * whole, w[0].im * whole};
    for (int64_t k = 1; 2 * k < n; k++) {
        const number a = w[k], b = w[n - k];
        y[2 * k - 1] = (number){(a.re + b.re) * half, (a.im + b.im) * half};
        y[2 * k] = (number){(b.im - a.im) * half, (a.re - b.re) * half};
    }
    if (n % 2 == 0) y[n - 1] = (number){w[n / 2].re * whole, w[n / 2].im * whole};
}

/* What the transform makes the lines of, real and imaginary parts in each other's place: so it turns the other way. */
static void of_periodic_modes(int64_t n, const number *y, number *z) {
    const float whole = (float)sqrt(1.0 / (double)n), half = (float)sqrt(0.5 / (double)n);
    z[0] = (number){y[0].im * whole, y[0].re * whole};
    for (int64_t k = 1; 2 * k < n; k++) {
        const number a = y[2 * k - 1], b = y[2 * k];
        z[k] = (number){(a.im - b.re) * half, (a.re + b.im) * half};
        z[n - k] = (number){(a.im + b.re) * half, (a.re - b.im) * half};
    }
    if (n % 2 == 0) z[n / 2] = (number){y[n - 1].im * whole, y[n - 1].re * whole};
}

/* `quarters`: cos, sin of π r / (2 n). */
static void cosine_modes(int64_t n, const float *quarters, const number *w, number *y) {
    const float whole = (float)sqrt(1.0 / (double)n), half = (float)sqrt(0.5 / (double)n);
    y[0] = (number){w[0].re * whole, w[0].im * whole};
    for (int64_t r = 1; r < n; r++) {
        const number a = w[r], b = w[n - r];
        const float cosine = quarters[2 * r] * half, sine = quarters[2 * r + 1] * half;
        y[r] = (number){(a.re + b.re) * cosine - (b.im - a.im) * sine, (a.im + b.im) * cosine - (a.re - b.re) * sine};
    }
}

static void of_cosine_modes(int64_t n, const float *quarters, const number *y, number *z) {
    const float whole = (float)sqrt(1.0 / (double)n), half = (float)sqrt(0.5 / (double)n);
    z[0] = (number){y[0].im * whole, y[0].re * whole};
    for (int64_t r = 1; r < n; r++) {
        const float cosine = quarters[2 * r] * half, sine = quarters[2 * r + 1] * half;
        const f32v u = y[r].re + y[n - r].im, v = y[r].im - y[n - r].re;
        z[r] = (number){u * sine + v * cosine, u * cosine - v * sine};
    }
}

/* ---- lines ------------------------------------------------------------------------------------------------------ */

/* What one thread takes at once: a vector of pairs of lines. Where numbers of neighbouring lines lie side by side these
 * are the lines of an outer one from `first`; otherwise pairs of a sample's lines, and of the samples behind it. */
typedef struct block {
    int64_t outer, first;
} block;

static int64_t blocks_of(const axis *a) {
    if (a->inner > 1) return a->outer * ups_div_up(a->inner, PAIR);
    return ups_div_up(a->outer / a->lines * ups_div_up(a->lines, 2), UPS_VECTOR);
}

static block block_of(const axis *a, int64_t index) {
    const int64_t chunks = ups_div_up(a->inner, PAIR);
    if (a->inner > 1) return (block){index / chunks, index % chunks * PAIR};
    return (block){0, index * UPS_VECTOR};
}

/* The first line of a lane's pair, -1 where there is none, and whether there is a second. */
static int64_t line_of(const axis *a, const block *b, int lane, bool *second) {
    const int64_t pairs = ups_div_up(a->lines, 2), pair = b->first + lane, sample = pair / pairs;
    *second = pair % pairs * 2 + 1 < a->lines;
    return sample * a->lines < a->outer ? sample * a->lines + pair % pairs * 2 : -1;
}

/* Lanes without a line are zeros. */
static void load(const axis *a, const block *b, bool sorted, const float *from, number *x) {
    if (a->inner > 1) {
        const int64_t count = a->inner - b->first, first = ups_min(count, UPS_VECTOR);
        const int64_t second = count > UPS_VECTOR ? ups_min(count - UPS_VECTOR, UPS_VECTOR) : 0;
        from += b->outer * a->n * a->inner + b->first;
        for (int64_t j = 0; j < a->n; j++) {
            const float *numbers = from + (sorted ? place_of(a, j) : j) * a->inner;
            __builtin_prefetch(numbers + PAIR); /* of the next block */
            x[j].re = f32v_load_first(numbers, first);
            x[j].im = second > 0 ? f32v_load_first(numbers + UPS_VECTOR, second) : (f32v){0};
        }
        return;
    }
    for (int lane = 0; lane < UPS_VECTOR; lane++) {
        bool two;
        const int64_t line = line_of(a, b, lane, &two);
        const float *first = line < 0 ? from : from + line * a->n, *second = first + a->n;
        float *to = (float *)x + lane;
        for (int64_t j = 0; j < a->n; j++, to += PAIR) {
            const int64_t at = sorted ? place_of(a, j) : j;
            to[0] = line < 0 ? 0.0f : first[at];
            to[UPS_VECTOR] = line < 0 || !two ? 0.0f : second[at];
        }
    }
}

static inline void put(float *to, float value, bool accumulate) {
    *to = accumulate ? *to + value : value;
}

static inline void put_first(float *to, f32v value, int64_t count, bool accumulate) {
    if (count <= 0) return;
    f32v_store_first(to, accumulate ? f32v_load_first(to, count) + value : value, count);
}

/* `back`: the numbers lie as the cosine transform sorts them, and real and imaginary parts in each other's place. */
static void store(const axis *a, const block *b, bool back, const number *x, float *to, bool accumulate) {
    if (a->inner > 1) {
        const int64_t count = a->inner - b->first, second = ups_min(count - UPS_VECTOR, UPS_VECTOR);
        to += b->outer * a->n * a->inner + b->first;
        for (int64_t j = 0; j < a->n; j++) {
            float *numbers = to + (back ? place_of(a, j) : j) * a->inner;
            put_first(numbers, back ? x[j].im : x[j].re, ups_min(count, UPS_VECTOR), accumulate);
            put_first(numbers + UPS_VECTOR, back ? x[j].re : x[j].im, second, accumulate);
        }
        return;
    }
    for (int lane = 0; lane < UPS_VECTOR; lane++) {
        bool two;
        const int64_t line = line_of(a, b, lane, &two), first = back ? UPS_VECTOR : 0;
        const float *from = (const float *)x + lane;
        if (line < 0) break;
        for (int64_t j = 0; j < a->n; j++, from += PAIR) {
            const int64_t at = line * a->n + (back ? place_of(a, j) : j);
            put(to + at, from[first], accumulate);
            if (two) put(to + a->n + at, from[UPS_VECTOR - first], accumulate);
        }
    }
}

/* ---- the op ----------------------------------------------------------------------------------------------------- */

static void block_to_modes(const axis *a, const block *b, const float *from, float *to, number *x, number *y) {
    load(a, b, true, from, x);
    const number *w = transform(a, x, y);
    number *modes = w == x ? y : x;
    if (a->periodic)
        periodic_modes(a->n, w, modes);
    else
        cosine_modes(a->n, a->turns + 2 * a->n, w, modes);
    store(a, b, false, modes, to, false);
}

static void block_of_modes(const axis *a, const block *b, const float *from, float *to, bool accumulate, number *x,
                           number *y) {
    load(a, b, false, from, y);
    if (a->periodic)
        of_periodic_modes(a->n, y, x);
    else
        of_cosine_modes(a->n, a->turns + 2 * a->n, y, x);
    store(a, b, true, transform(a, x, y), to, accumulate);
}

/* The axis before which `inner` numbers lie side by side; without its turns. */
static axis axis_of(const ups_op_call *call, int index, int64_t inner) {
    const int64_t all = ups_shape_elements(call->output.shape), sample = all / call->output.shape.size[0];
    axis a = {.n = call->attributes->grid[index], .inner = inner, .periodic = call->attributes->periodic};
    a.lines = sample / a.n;
    a.outer = all / (a.n * inner);
    split_into_steps(&a);
    return a;
}

/* Offsets in the workspace, in floats. */
typedef struct layout {
    int64_t buffers, thread, staged, floats; /* buffers of each thread; of backward what lies between two axes */
} layout;

static layout layout_of(const ups_device *device, const ups_op_call *call, bool backward) {
    const ups_op_attributes *attributes = call->attributes;
    layout l = {0};
    int64_t blocks = 1, inner = 1;
    for (int i = attributes->dims - 1; i >= 0; inner *= attributes->grid[i], i--) {
        const axis a = axis_of(call, i, inner);
        const int64_t turns = turns_of(a.periodic, a.n), thread = 2 * a.n * PAIR;
        if (turns > l.buffers) l.buffers = turns;
        if (thread > l.thread) l.thread = thread;
        if (blocks_of(&a) > blocks) blocks = blocks_of(&a);
    }
    l.staged = l.buffers + ups_min(blocks, ups_cpu_threads(device)) * l.thread;
    l.floats = l.staged;
    if (backward && attributes->dims > 1) l.floats += ups_shape_elements(call->inputs[0].shape);
    return l;
}

static size_t workspace(const ups_device *device, const ups_op_call *call, bool backward) {
    return (size_t)layout_of(device, call, backward).floats * sizeof(float);
}

static void run_axis(ups_device *device, const axis *a, bool back, const float *from, float *to, bool accumulate,
                     float *buffers, int64_t thread) {
    const int64_t blocks = blocks_of(a), threads = ups_threads_for(device, a->outer * a->n * a->inner);
#pragma omp parallel for num_threads((int)ups_min(blocks, threads)) schedule(static)
    for (int64_t i = 0; i < blocks; i++) {
        const block b = block_of(a, i);
        number *x = (number *)(void *)(buffers + omp_get_thread_num() * thread), *y = x + a->n;
        if (back)
            block_of_modes(a, &b, from, to, accumulate, x, y);
        else
            block_to_modes(a, &b, from, to, x, y);
    }
}

static void run(ups_device *device, const ups_op_call *call, bool back, const float *from, float *to, bool accumulate) {
    const ups_op_attributes *attributes = call->attributes;
    const layout l = layout_of(device, call, back);
    float *turns = call->workspace, *staged = accumulate ? turns + l.staged : to;
    int64_t inner = 1, turned = 0;
    for (int i = attributes->dims - 1; i >= 0; inner *= attributes->grid[i], i--) {
        const bool last = i == 0;
        axis a = axis_of(call, i, inner);
        a.turns = turns;
        if (turned != a.n) {
            fill_turns(2.0 * M_PI / (double)a.n, a.n, turns);
            if (!a.periodic) fill_turns(M_PI / (double)(2 * a.n), a.n, turns + 2 * a.n);
            turned = a.n;
        }
        run_axis(device, &a, back, from, last ? to : staged, last && accumulate, turns + l.buffers, l.thread);
        from = staged;
    }
}

static ups_status forward(ups_device *device, const ups_op_call *call, ups_error *error) {
    run(device, call, false, call->inputs[0].data, call->output.data, false);
    return UPS_OK;
}

static ups_status backward(ups_device *device, const ups_op_call *call, ups_error *error) {
    if (ups_present(&call->input_gradients[0]))
        run(device, call, true, call->output_gradient.data, call->input_gradients[0].data, call->accumulate[0]);
    return UPS_OK;
}

const ups_cpu_kernel UPS_CPU(field_modes) = {.workspace = workspace, .forward = forward, .backward = backward};

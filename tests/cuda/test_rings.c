/* Rings of stages between warpgroups on the emulator: mbarriers, registers that are handed on, and as many products
 * under way as a pipeline has, against float64. */
#include "base/half.h"
#include "tests/cuda/arrays.h"
#include "tests/cuda/rings.h"

static float *rounded(size_t count, uint32_t draw, void **there) {
    float *x = normal(count, draw);
    uint16_t *half = malloc(count * sizeof *half);
    ups_f32_to_bf16(x, half, count);
    ups_bf16_to_f32(half, x, count);
    *there = up(half, count * sizeof *half);
    free(half);
    return x;
}

/* d (rows, columns) is `by` times a b^T. */
static void check(const float *d, const float *a, const float *b, int rows, int columns, int k, double by) {
    for (int i = 0; i < rows * columns; i++) {
        double sum = 0.0;
        for (int j = 0; j < k; j++) sum += (double)a[i / columns * k + j] * (double)b[i % columns * k + j];
        near((double)d[i], by * sum, by * 2e-5 * (1.0 + fabs(sum)));
    }
}

static void run_ring(int tiles, int steps, void (*launch)(const ring_task *, cudaStream_t)) {
    int rows = tiles * RING_M, k = steps * RING_K;
    void *a_there, *b_there;
    float *a = rounded((size_t)(rows * k), 1, &a_there), *b = rounded((size_t)(RING_N * k), 2, &b_there);
    size_t bytes = (size_t)(rows * RING_N) * sizeof(float);
    ring_task task = {.a = a_there, .b = b_there, .d = room(bytes), .tiles = tiles, .k = k};
    launch(&task, stream);
    float *d = down(task.d, bytes);
    check(d, a, b, rows, RING_N, k, 1.0);
    free(a), free(b), free(d);
}

CLAIM(a_ring_hands_tiles_to_consumers_in_turns) {
    run_ring(5, 4, launch_ring);
    run_ring(4, 3, launch_ring); /* as many steps as stages */
}

CLAIM(a_ring_that_is_not_filled_once) {
    run_ring(1, 1, launch_ring);
    run_ring(2, 1, launch_ring);
}

CLAIM(copies_arrive_instead_of_their_threads) {
    run_ring(5, 4, launch_arriving_ring);
    run_ring(4, 3, launch_arriving_ring);
    run_ring(1, 1, launch_arriving_ring);
    run_ring(2, 1, launch_arriving_ring);
}

CLAIM(copies_arrive_beside_their_threads_and_groups) {
    enum { COUNT = 256, HALF = COUNT / 2 };
    float *x = normal(COUNT, 5), *there = up(x, COUNT * sizeof *x);
    for (int meets = 0; meets < 2; meets++) {
        float *of = room(COUNT * sizeof *of);
        launch_arrivals(there, of, meets, stream);
        float *y = down(of, COUNT * sizeof *y);
        for (int i = 0; i < HALF; i++) {
            float first = x[i] + 1.0f;
            assert_true(y[i] == first + x[2 * i]);
            assert_true(i % 2 == 0 || y[HALF + i] == x[2 * i]);
        }
        free(y);
    }
    free(x);
}

CLAIM(all_threads_arrive_and_waits_only_test) {
    enum { ROUNDS = 7, COUNT = 128 };
    float *y = room(COUNT * sizeof *y);
    launch_rounds(y, ROUNDS, stream);
    float *sums = down(y, COUNT * sizeof *y);
    for (int i = 0; i < COUNT; i++) assert_true(sums[i] == ROUNDS * (COUNT * (COUNT - 1) / 2) + COUNT * 21.0f);
    free(sums);
}

CLAIM(sixteen_products_are_under_way_at_once) {
    enum { M = 64, K = 16 };
    for (int n = 128; n <= 256; n *= 2) {
        void *a_there, *b_there;
        float *a = rounded(M * K, 3, &a_there), *b = rounded((size_t)(n * K), 4, &b_there);
        size_t bytes = (size_t)(M * n) * sizeof(float);
        float *there = room(bytes);
        launch_many_products(a_there, b_there, there, n, stream);
        float *d = down(there, bytes);
        check(d, a, b, M, n, K, PRODUCTS_AT_ONCE);
        free(a), free(b), free(d);
    }
}

int main(void) {
    return run_claims(open_streams, NULL, NULL);
}

/* Products of warpgroups on the emulator, against float64: operands in registers and in shared memory, either way
 * round, without swizzle and with it, at offsets that leave gaps. */
#include "base/half.h"
#include "tests/cuda/arrays.h"
#include "tests/cuda/groups.h"
#include <string.h>

enum { K = GROUP_K, M = 64 };

typedef struct form {
    const char *name;
    uint32_t n;
    bool f16, registers, a_major, b_major;
} form;
#define FORM(name, n, f16, registers, a_major, b_major) {#name, n, f16, registers, a_major, b_major},
static const form forms[] = {GROUP_PRODUCTS(FORM)};

/* An operand of `count` rows or columns with `gap` bytes left out wherever a descriptor allows it; `*end` is where it
 * begins, and then where it ends. */
static group_layout place(uint32_t count, bool turned, uint32_t width, uint32_t gap, uint32_t *end) {
    enum { EIGHT = 8 };
    uint32_t atom = width * 128, start = (*end + atom - 1) / atom * atom, eights = count / EIGHT;
    group_layout l = {.start = start, .width = width};
    if (width == 1 && !turned) { /* all eights of the first half of 16 columns of K, then those of the second */
        l.stride = 128 + gap;
        l.leading = eights * l.stride + gap;
        l.next = 2 * l.leading;
    } else if (width == 1) { /* all eights of M or N of eight columns of K, then those of the next */
        l.stride = 128 + gap;
        l.leading = eights * l.stride + 2 * gap;
        l.next = 2 * l.leading + gap;
    } else if (!turned) { /* whole atoms: swizzles count addresses */
        l.stride = atom + (gap ? atom : 0);
        l.next = eights * l.stride;
    } else {
        l.stride = atom;
        l.leading = 2 * atom + (gap ? atom : 0);
        l.next = (eights + width - 1) / width * l.leading;
    }
    uint32_t steps = turned || width == 1 ? K / 16 : (K + 8 * width - 1) / (8 * width);
    *end = start + steps * l.next;
    return l;
}

static float *rounded(size_t count, uint32_t draw, bool f16, void **there) {
    float *x = normal(count, draw);
    uint16_t *half = malloc(count * sizeof *half);
    (f16 ? ups_f32_to_f16 : ups_f32_to_bf16)(x, half, count);
    (f16 ? ups_f16_to_f32 : ups_bf16_to_f32)(half, x, count);
    *there = up(half, count * sizeof *half);
    free(half);
    return x;
}

static void check(group_product product, group_mode mode, int groups, uint32_t width, uint32_t gap) {
    const form *f = &forms[product];
    uint32_t rows = M * (uint32_t)groups, n = f->n;
    void *a_there, *b_there;
    float *a = rounded(rows * K, 1, f->f16, &a_there), *b = rounded(K * n, 2, f->f16, &b_there),
          *c = normal(rows * n, 3);
    group_task task = {.a = a_there,
                       .b = b_there,
                       .c = up(c, rows * n * sizeof *c),
                       .d = room(rows * n * sizeof *c),
                       .mode = mode,
                       .groups = groups};
    uint32_t end = 0;
    task.a_layout = place(M, f->a_major, width, gap, &end);
    task.shared_bytes_of_a = (end + 1023) / 1024 * 1024;
    end = f->registers ? 0 : task.shared_bytes_of_a * (uint32_t)groups;
    task.b_layout = place(n, f->b_major, width, gap, &end);
    task.shared_bytes = end;
    launch_group_product(product, &task, stream);
    float *d = down(task.d, rows * n * sizeof *d);
    for (uint32_t i = 0; i < rows * n; i++) {
        uint32_t row = i / n, column = i % n;
        double sum = mode == GROUP_FRESH ? 0.0 : (double)c[i];
        for (uint32_t k = 0; k < K; k++) sum += (double)a[row * K + k] * (double)b[k * n + column];
        if (fabs((double)d[i] - sum) <= 2e-5 * (1.0 + fabs(sum))) continue;
        fail_msg("%s, mode %d, %d warpgroups, rows of %u, a gap of %u: (%u, %u) is %.9g; %.9g was expected", f->name,
                 mode, groups, width, gap, row, column, (double)d[i], sum);
    }
    works(cudaFree(task.d));
    free(a), free(b), free(c), free(d);
}

CLAIM(products_of_dense_operands) {
    for (group_product p = 0; p < GROUP_PRODUCT_COUNT; p++) check(p, GROUP_FRESH, 1, 1, 0);
}

CLAIM(offsets_of_a_descriptor_leave_gaps) {
    for (group_product p = 0; p < GROUP_PRODUCT_COUNT; p++) check(p, GROUP_FRESH, 1, 1, 16);
    check(GROUP_n64_turned, GROUP_FRESH, 1, 1, 112);
    check(GROUP_n256, GROUP_FRESH, 1, 1, 32);
}

CLAIM(sums_go_on_from_what_was_there) {
    for (group_product p = 0; p < GROUP_PRODUCT_COUNT; p++) check(p, GROUP_ADDED, 1, 1, 16);
}

CLAIM(two_groups_under_way) {
    for (group_product p = 0; p < GROUP_PRODUCT_COUNT; p++) {
        if (forms[p].n <= 128) check(p, GROUP_IN_TWO, 1, 1, 0);
    }
}

CLAIM(two_warpgroups_of_a_block) {
    check(GROUP_n64, GROUP_ADDED, 2, 1, 16);
    check(GROUP_n64_turned, GROUP_FRESH, 2, 1, 0);
    check(GROUP_n128_registers_turned, GROUP_IN_TWO, 2, 1, 16);
}

CLAIM(swizzled_operands) {
    for (uint32_t width = 2; width <= 8; width *= 2) {
        check(GROUP_n64, GROUP_FRESH, 1, width, 0);
        check(GROUP_n64_turned, GROUP_FRESH, 1, width, 16);
        check(GROUP_n64_f16_a_turned, GROUP_FRESH, 1, width, 0);
        check(GROUP_n128_f16_b_turned, GROUP_FRESH, 1, width, 0);
        check(GROUP_n128_registers_turned, GROUP_ADDED, 2, width, 0);
    }
}

CLAIM(operands_that_are_copied_in_two_stages) {
    enum { LONG = 160 };
    void *a_there, *b_there;
    float *a = rounded(M * LONG, 1, false, &a_there), *b = rounded(M * LONG, 2, false, &b_there);
    float *there = room(M * M * sizeof *there);
    launch_staged_product(a_there, b_there, there, LONG, stream);
    float *d = down(there, M * M * sizeof *d);
    for (int i = 0; i < M * M; i++) {
        double sum = 0.0;
        for (int k = 0; k < LONG; k++) sum += (double)a[i / M * LONG + k] * (double)b[i % M * LONG + k];
        near((double)d[i], sum, 2e-5 * (1.0 + fabs(sum)));
    }
    free(a), free(b), free(d);
}

CLAIM(accumulators_that_are_copied_under_way) {
    enum { COUNT = 128 * 32 };
    float *y = room(COUNT * sizeof *y);
    launch_handed_on(y, stream);
    float *sums = down(y, COUNT * sizeof *y);
    for (int i = 0; i < COUNT; i++) assert_true(sums[i] == -256.0f);
    free(sums);
}

int main(void) {
    return run_claims(open_streams, NULL, NULL);
}

/* Contests between two ways of doing the same work. The contestants here copy what they were given, and push the
 * emulator's clock themselves. */
#include "base/half.h"
#include "model/cuda/products/contest.h"
#include "model/devices/devices.h"
#include "tests/cuda/runtime/runtime.h"
#include "tests/model/claims.h"
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COUNT = 3000 /* of a result */, RUNS = 4 * 4 /* of a contestant in a contest */ };

/* Both copy x, and are wrong as they are told. */
typedef struct trial {
    ups_dtype dtype;
    double milliseconds[2];
    size_t workspace;
    int results;
    float wrong;         /* added to each number of the second's */
    float wrong_once[2]; /* to one number */
    ups_status status;
    bool has_prepare;
    void *x, *y[2];
    int *prepared, *runs;
} trial;

static void lay_out(ups_cuda_contest_memory *memory, void *context) {
    trial *t = context;
    t->x = ups_cuda_contest_numbers(memory, COUNT, t->dtype, 0.0f, 2.0f);
    ups_cuda_contest_room(memory, t->workspace);
    for (int i = 0; i < t->results; i++) ups_cuda_contest_results(memory, COUNT, t->dtype, t->y);
}

static ups_status prepare(ups_device *device, const void *context, ups_error *error) {
    const trial *t = context;
    ++*t->prepared;
    assert_int_equal(*t->runs, 0);
    return UPS_OK;
}

static void read_numbers(ups_device *device, const trial *t, float *to) {
    char bytes[COUNT * sizeof(float)];
    ok(device->class->download(device, bytes, t->x, COUNT * ups_dtype_size(t->dtype), &failure));
    if (t->dtype == UPS_BF16)
        ups_bf16_to_f32((ups_bf16 *)(void *)bytes, to, COUNT);
    else if (t->dtype == UPS_F16)
        ups_f16_to_f32((ups_f16 *)(void *)bytes, to, COUNT);
    else
        memcpy(to, bytes, sizeof bytes);
}

static void write_numbers(ups_device *device, const trial *t, const float *from, void *to) {
    char bytes[COUNT * sizeof(float)];
    if (t->dtype == UPS_BF16)
        ups_f32_to_bf16(from, (ups_bf16 *)(void *)bytes, COUNT);
    else if (t->dtype == UPS_F16)
        ups_f32_to_f16(from, (ups_f16 *)(void *)bytes, COUNT);
    else
        memcpy(bytes, from, sizeof bytes);
    ok(device->class->upload(device, to, bytes, COUNT * ups_dtype_size(t->dtype), &failure));
    ok(device->class->synchronize(device, &failure));
}

static ups_status run(ups_device *device, const trial *t, int which) {
    float numbers[COUNT];
    read_numbers(device, t, numbers); /* what was issued before is done: the clock is that of this run */
    for (int i = 0; i < COUNT; i++) numbers[i] += which * t->wrong;
    numbers[COUNT - 1] += t->wrong_once[which];
    write_numbers(device, t, numbers, t->y[which]);
    emulated_clock += t->milliseconds[which];
    ++*t->runs;
    return UPS_OK;
}
static ups_status run_first(ups_device *device, const void *context, ups_error *error) {
    return run(device, context, 0);
}
static ups_status run_second(ups_device *device, const void *context, ups_error *error) {
    const trial *t = context;
    return t->status == UPS_OK ? run(device, t, 1) : t->status;
}

/* Whether the second wins under `name`; *runs: of both. */
static bool second_wins(ups_device *device, const char *name, trial t, int *runs) {
    int prepared = 0;
    *runs = 0;
    t.prepared = &prepared;
    t.runs = runs;
    const ups_cuda_contest contest = {
        .lay_out = lay_out, .prepare = t.has_prepare ? prepare : NULL, .run = {run_first, run_second}, .context = &t};
    const bool wins = ups_cuda_second_wins(device, name, &contest);
    assert_int_equal(prepared, t.has_prepare && *runs > 0);
    return wins;
}

static ups_device *open_device(const char *choices) {
    ups_device *device = NULL;
    setenv("UPS_CUDA_CHOICES", choices, 1);
    ok(ups_device_open(&(ups_device_options){.name = "cuda"}, &device, &failure));
    return device;
}

#define FASTER .milliseconds = {1.0, 0.96}, .results = 1
static const trial faster = {FASTER, .dtype = UPS_F32};

CLAIM(the_second_wins_where_it_is_worth_it_and_its_results_agree) {
    static const struct {
        const char *name;
        trial trial;
        bool wins;
    } cases[] = {{"faster", {FASTER}, true},
                 {"prepared", {FASTER, .has_prepare = true}, true},
                 {"slower", {.milliseconds = {1.0, 1.5}, .results = 1}, false},
                 {"little", {.milliseconds = {1.0, 0.98}, .results = 1}, false},
                 {"wrong", {FASTER, .wrong = 0.05f}, false},
                 {"rounded", {FASTER, .wrong = 0.01f}, true},
                 {"wrong-once", {FASTER, .wrong_once = {0.0f, 0.7f}}, false},
                 {"rounded-once", {FASTER, .wrong_once = {0.0f, 0.1f}}, true},
                 {"not-finite", {FASTER, .wrong_once = {INFINITY, 0.0f}}, false}};
    static const ups_dtype dtypes[] = {UPS_F32, UPS_BF16, UPS_F16};
    ups_device *device = open_device(scratch("won.txt"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int d = 0; d < 3; d++) {
            trial t = cases[i].trial;
            char name[64];
            int runs;
            t.dtype = dtypes[d];
            snprintf(name, sizeof name, "%s-1.%s", cases[i].name, ups_dtype_name(t.dtype));
            assert_int_equal(second_wins(device, name, t, &runs), cases[i].wins);
            assert_int_equal(runs, 2 * RUNS);
        }
    }
    ups_device_close(device);
}

CLAIM(a_contest_is_held_once_and_its_winner_kept) {
    const char *path = scratch("kept.txt");
    trial slower = faster;
    slower.milliseconds[1] = 1.5;
    int runs;
    for (int again = 0; again < 2; again++) {
        ups_device *device = open_device(path);
        assert_true(second_wins(device, "a-1", faster, &runs));
        assert_int_equal(runs, again ? 0 : 2 * RUNS);
        assert_false(second_wins(device, "b-1", slower, &runs));
        assert_int_equal(runs, again ? 0 : 2 * RUNS);
        assert_true(second_wins(device, "a-1", slower, &runs)); /* in the same process */
        assert_int_equal(runs, 0);
        ups_device_close(device);
    }
}

CLAIM(what_cannot_be_tried_is_not_taken_and_not_kept) {
    const char *path = scratch("failed.txt");
    ups_device *device = open_device(path);
    trial refuses = faster, large = faster, many = faster;
    refuses.status = UPS_ERR_UNSUPPORTED;
    large.workspace = (size_t)1 << 50;
    many.results = UPS_CUDA_CONTEST_RESULTS + 1;
    const trial *const all[] = {&refuses, &large, &many};
    int runs;
    for (int i = 0; i < 3; i++) assert_false(second_wins(device, "a-1", *all[i], &runs));
    assert_true(second_wins(device, "a-1", faster, &runs));
    ups_device_close(device);
}

/* A long result is compared in pieces, the last number in one of them. */
enum { LONG = 64 * (1 << 16) + 1 };
typedef struct long_trial {
    float last; /* of the second's */
    void *y[2];
} long_trial;

static void lay_out_long(ups_cuda_contest_memory *memory, void *context) {
    ups_cuda_contest_results(memory, LONG, UPS_F32, ((long_trial *)context)->y);
}
static ups_status run_long(ups_device *device, const void *context, ups_error *error) {
    UPS_TRY(device->class->synchronize(device, error));
    emulated_clock += 1.0;
    return UPS_OK;
}
static ups_status run_long_faster(ups_device *device, const void *context, ups_error *error) {
    const long_trial *t = context;
    UPS_TRY(device->class->upload(device, (float *)t->y[1] + LONG - 1, &t->last, sizeof t->last, error));
    UPS_TRY(device->class->synchronize(device, error));
    emulated_clock += 0.5;
    return UPS_OK;
}

CLAIM(long_results_are_compared_to_their_ends) {
    ups_device *device = open_device(scratch("long.txt"));
    for (int wrong = 0; wrong < 2; wrong++) {
        long_trial t = {.last = wrong ? 1.0f : 0.0f};
        const ups_cuda_contest contest = {.lay_out = lay_out_long, .run = {run_long, run_long_faster}, .context = &t};
        assert_int_equal(ups_cuda_second_wins(device, wrong ? "wrong-1" : "right-1", &contest), !wrong);
    }
    ups_device_close(device);
}

/* The second of the two faults, and what is asked of the card after that fails. */
static ups_status break_card(ups_device *device, const void *context, ups_error *error) {
    emulated_broken = true;
    return ups_fail(error, UPS_ERR_IO, "the card is broken");
}
/* It hangs, until somebody ends the process. */
static ups_status end_process(ups_device *device, const void *context, ups_error *error) {
    _exit(3);
}

CLAIM(a_kernel_that_faulted_is_not_tried_again) {
    const char *path = scratch("broken.txt");
    ups_device *device = open_device(path);
    trial t = faster;
    int runs = 0, prepared = 0;
    t.runs = &runs, t.prepared = &prepared;
    const ups_cuda_contest contest = {.lay_out = lay_out, .run = {run_first, break_card}, .context = &t};
    assert_false(ups_cuda_second_wins(device, "a-1", &contest));
    emulated_broken = false; /* for the next process */
    ups_device_close(device);
    device = open_device(path);
    assert_false(second_wins(device, "a-1", faster, &runs));
    assert_int_equal(runs, 0);
    assert_true(second_wins(device, "b-1", faster, &runs)); /* others are */
    ups_device_close(device);
}

CLAIM(who_did_not_come_back_from_a_contest_is_not_tried_again) {
    const char *path = scratch("ended.txt");
    int runs, status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        trial t = faster;
        int prepared = 0;
        t.runs = &runs, t.prepared = &prepared;
        runs = 0;
        const ups_cuda_contest contest = {.lay_out = lay_out, .run = {run_first, end_process}, .context = &t};
        ups_cuda_second_wins(open_device(path), "a-1", &contest);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    for (int again = 0; again < 2; again++) {
        ups_device *device = open_device(path);
        assert_false(second_wins(device, "a-1", faster, &runs));
        assert_int_equal(runs, 0);
        assert_true(second_wins(device, "b-1", faster, &runs)); /* others are */
        ups_device_close(device);
    }
}

CLAIM(without_a_file_nothing_is_run_and_the_first_is_taken) {
    ups_device *device = open_device("");
    int runs;
    assert_false(second_wins(device, "a-1", faster, &runs));
    assert_int_equal(runs, 0);
    ups_device_close(device);
}

int main(void) {
    return run_claims(make_scratch, remove_scratch, NULL);
}

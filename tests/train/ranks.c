#include "tests/train/ranks.h"

#include "base/system/cancel.h"
#include "tests/model/claims.h"

#include <time.h>
#include <unistd.h>

enum { LONGEST = 240 /* seconds: an exchange that somebody does not come to would never end */ };

ups_comm *comm;
int rank, size;

int meet_ranks(void) {
    if (!getenv("OMPI_COMM_WORLD_SIZE") || !getenv("UPS_MPI_MODULE")) {
        printf("SKIPPED: it is run by mpirun, with UPS_MPI_MODULE\n");
        return UPS_SKIPPED_EXIT;
    }
    alarm(LONGEST);
    setenv("CMOCKA_TEST_ABORT", "1", 1); /* the others would wait for who failed */
    if (ups_comm_open(&comm, &failure) != UPS_OK) {
        fprintf(stderr, "%s\n", failure.message);
        return 1;
    }
    rank = ups_comm_rank(comm);
    size = ups_comm_size(comm);
    return 0;
}

void sleep_ms(long ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

void forget_signals(void) {
    ok(ups_comm_barrier(comm, &failure));
    ups_cancel_reset();
    sleep_ms(300);
    ups_cancel_reset();
    ok(ups_comm_barrier(comm, &failure));
}

float term(int64_t of, int64_t i) {
    static const float sizes[] = {1e8f, 1.0f, -1e8f, 0.37f, 3e4f};
    return sizes[(size_t)((of * 3 + i) % 5)] * (1.0f + 0.125f * (float)((i * 7 + of * 11) % 13));
}

float sum_of(int64_t first, int64_t terms, int64_t i) {
    float sum = term(first, i);
    for (int64_t t = first + 1; t < first + terms; t++) sum += term(t, i);
    return sum;
}

float *fill(int64_t of, int64_t count) {
    float *values = malloc((size_t)(count + 1) * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) values[i] = term(of, i);
    return values;
}

void assert_sums(const float *values, int64_t first, int64_t terms, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const float expected = sum_of(first, terms, i);
        if (memcmp(&values[i], &expected, sizeof expected) != 0)
            fail_msg("element %lld of %lld is %.9g, not %.9g", (long long)i, (long long)count, (double)values[i],
                     (double)expected);
    }
}

ups_shares make_shares(int64_t count) {
    ups_shares shares = {.count = size, .pieces = calloc((size_t)count, sizeof *shares.pieces)};
    int32_t last = -1;
    assert_non_null(shares.pieces);
    for (int64_t at = 0, k = 0; at < count; k++) {
        int64_t length = k % 5 == 4 ? count / 3 + 1 : 1 + k * 7 % 61;
        int32_t share = (int32_t)((k * k + k / 3) % size);
        if (share == last) share = (share + 1) % size;
        if (length > count - at) length = count - at;
        shares.pieces[shares.piece_count++] = (ups_share_piece){at, length, share};
        at += length;
        last = share;
    }
    return shares;
}

int32_t owner(const ups_shares *shares, int64_t element) {
    return shares->pieces[ups_shares_piece_at(shares, element)].share;
}

void assert_number(float found, float expected, int64_t i) {
    if (memcmp(&found, &expected, sizeof found) != 0)
        fail_msg("element %lld is %.9g, not %.9g", (long long)i, (double)found, (double)expected);
}

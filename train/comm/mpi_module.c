/* MPI, as train/comm/module.h wants it. */
#include "train/comm/module.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { NOTICE = 1 }; /* a tag */

static struct {
    int rank, size;
    MPI_Request under_way;
    int *counts, *offsets, *part_counts, *part_offsets; /* (size) of an exchange of slices */
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
} mpi;

static const char *library(void) {
    int length = 0;
    if (MPI_Get_library_version(mpi.library, &length) != MPI_SUCCESS) return "MPI";
    for (char *c = mpi.library; *c; c++) {
        if (*c == ',' || *c == '\n') *c = '\0'; /* "Open MPI v4.1.4, package: …" */
    }
    return mpi.library;
}

static int begin(ups_mpi_place *place) {
    int provided, code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (code != MPI_SUCCESS) return code;
    if (provided < MPI_THREAD_FUNNELED) return MPI_ERR_OTHER;
    MPI_Comm node;
    if ((code = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)) != MPI_SUCCESS) return code;
    if ((code = MPI_Comm_rank(MPI_COMM_WORLD, &mpi.rank)) != MPI_SUCCESS) return code;
    if ((code = MPI_Comm_size(MPI_COMM_WORLD, &mpi.size)) != MPI_SUCCESS) return code;
    code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, mpi.rank, MPI_INFO_NULL, &node);
    if (code != MPI_SUCCESS) return code;
    place->rank = mpi.rank;
    place->size = mpi.size;
    MPI_Comm_size(node, &place->node_size);
    MPI_Comm_free(&node);
    mpi.counts = calloc(4 * (size_t)mpi.size, sizeof *mpi.counts);
    if (!mpi.counts) return MPI_ERR_NO_MEM;
    mpi.offsets = mpi.counts + mpi.size;
    mpi.part_counts = mpi.offsets + mpi.size;
    mpi.part_offsets = mpi.part_counts + mpi.size;
    mpi.under_way = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
}

static void end(void) {
    MPI_Finalize();
    free(mpi.counts);
    mpi.counts = NULL;
}

static void abort_all(int exit_code) {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
}

static void describe(int code, char *text, size_t bytes) {
    char told[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (MPI_Error_string(code, told, &length) != MPI_SUCCESS) snprintf(told, sizeof told, "error %d", code);
    snprintf(text, bytes, "%s", told);
}

static int barrier(void) {
    return MPI_Ibarrier(MPI_COMM_WORLD, &mpi.under_way);
}

static int broadcast(void *data, int64_t bytes) {
    return MPI_Ibcast(data, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD, &mpi.under_way);
}

static int gather(const void *own, void *all, int64_t bytes) {
    return MPI_Iallgather(own, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, &mpi.under_way);
}

static void slice(const int64_t *bounds) {
    for (int r = 0; r < mpi.size; r++) {
        mpi.offsets[r] = (int)bounds[r];
        mpi.counts[r] = (int)(bounds[r + 1] - bounds[r]);
    }
}

static int scatter(const float *values, const int64_t *bounds, float *parts) {
    slice(bounds);
    const int each = mpi.counts[mpi.rank];
    for (int r = 0; r < mpi.size; r++) {
        mpi.part_counts[r] = each;
        mpi.part_offsets[r] = r * each;
    }
    return MPI_Ialltoallv(values, mpi.counts, mpi.offsets, MPI_FLOAT, parts, mpi.part_counts, mpi.part_offsets,
                          MPI_FLOAT, MPI_COMM_WORLD, &mpi.under_way);
}

static int collect(float *values, const int64_t *bounds) {
    slice(bounds);
    return MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values, mpi.counts, mpi.offsets, MPI_FLOAT,
                           MPI_COMM_WORLD, &mpi.under_way);
}

static int bring(float *values, const int64_t *bounds) {
    slice(bounds);
    if (mpi.rank == 0)
        return MPI_Igatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values, mpi.counts, mpi.offsets, MPI_FLOAT, 0,
                            MPI_COMM_WORLD, &mpi.under_way);
    return MPI_Igatherv(values + mpi.offsets[mpi.rank], mpi.counts[mpi.rank], MPI_FLOAT, NULL, NULL, NULL, MPI_FLOAT, 0,
                        MPI_COMM_WORLD, &mpi.under_way);
}

static int test(bool *ended) {
    int done = 0, code = MPI_Test(&mpi.under_way, &done, MPI_STATUS_IGNORE);
    *ended = done != 0;
    return code;
}

static int send(int rank, const void *notice, int64_t bytes) {
    MPI_Request sent;
    int code = MPI_Isend(notice, (int)bytes, MPI_BYTE, rank, NOTICE, MPI_COMM_WORLD, &sent);
    return code == MPI_SUCCESS ? MPI_Request_free(&sent) : code;
}

static int receive(void *notice, int64_t bytes, int *from) {
    MPI_Status status;
    int there = 0, code = MPI_Iprobe(MPI_ANY_SOURCE, NOTICE, MPI_COMM_WORLD, &there, &status);
    *from = -1;
    if (code != MPI_SUCCESS || !there) return code;
    code = MPI_Recv(notice, (int)bytes, MPI_BYTE, status.MPI_SOURCE, NOTICE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS) *from = status.MPI_SOURCE;
    return code;
}

const ups_mpi_module *ups_mpi_module_3(void) {
    static const ups_mpi_module module = {.library = library,
                                          .begin = begin,
                                          .end = end,
                                          .abort = abort_all,
                                          .describe = describe,
                                          .barrier = barrier,
                                          .broadcast = broadcast,
                                          .gather = gather,
                                          .scatter = scatter,
                                          .collect = collect,
                                          .bring = bring,
                                          .test = test,
                                          .send = send,
                                          .receive = receive};
    return &module;
}

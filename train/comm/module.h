/* The module libups_mpi.so: what `ups` loads where a launcher started several processes, and its one entry.
 *
 * It is a file of its own since MPI is not there on most machines, and one program runs on all. All of its functions
 * are called by one thread, which need not be the program's first; one exchange is under way at a time. Functions that
 * may fail return MPI's error code, 0 for success. */
#ifndef UPS_TRAIN_COMM_MODULE_H
#define UPS_TRAIN_COMM_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UPS_MPI_MODULE_ENTRY "ups_mpi_module_3"

typedef struct ups_mpi_place {
    int rank, size; /* among all processes */
    int node_size;  /* how many are on this machine */
} ups_mpi_place;

typedef struct ups_mpi_module {
    const char *(*library)(void); /* "Open MPI v4.1.4": what it was built for, and the program was started by */
    int (*begin)(ups_mpi_place *place);
    void (*end)(void);
    void (*abort)(int exit_code); /* ends all processes; does not return */
    void (*describe)(int code, char *text, size_t bytes);

    /* Each starts an exchange, which has ended when `test` says so; memory is left alone until then. */
    int (*barrier)(void);
    int (*broadcast)(void *data, int64_t bytes);              /* from rank 0 */
    int (*gather)(const void *own, void *all, int64_t bytes); /* (size, bytes) on all ranks */
    /* Of slices of `values`: rank r's begins at bounds[r] and ends at bounds[r + 1]. */
    int (*scatter)(const float *values, const int64_t *bounds, float *parts); /* this rank's slice of every rank's
                                                                         `values`: (size, slice), in order of ranks */
    int (*collect)(float *values, const int64_t *bounds); /* in place: each rank's slice from that rank, on all */
    int (*bring)(float *values, const int64_t *bounds);   /* the same on rank 0 */
    int (*test)(bool *ended);

    /* Notices go from one rank to another beside exchanges, and wait until they are asked for. What is sent is left
     * alone until `end`. */
    int (*send)(int rank, const void *notice, int64_t bytes);
    int (*receive)(void *notice, int64_t bytes, int *from); /* *from −1: there is none */
} ups_mpi_module;

/* Most elements and bytes of one exchange: MPI counts in int. */
#define UPS_MPI_MOST (INT64_C(1) << 28)

typedef const ups_mpi_module *ups_mpi_module_get(void);
ups_mpi_module_get ups_mpi_module_3;

#endif

/* Matrix products on oneDNN (C API of version 2). The scratchpad is ours, so that nothing large is allocated in a step.
 */
#include "model/cpu/matmul.h"
#include "model/cpu/device.h"
#include "model/cpu/matmul_amx.h"
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct ups_matmul {
    ups_matmul_shape shape;
    int threads;
    bool amx; /* otherwise what follows is oneDNN's */
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, bias, c, scratch;
};

/* oneDNN's engine and stream hold no state of a product; one pair serves the process. */
static dnnl_engine_t engine;
static dnnl_stream_t stream;
static dnnl_status_t opened;
static pthread_once_t open_once = PTHREAD_ONCE_INIT;

static void open_engine(void) {
    opened = dnnl_engine_create(&engine, dnnl_cpu, 0);
    if (opened == dnnl_success) opened = dnnl_stream_create(&stream, engine, dnnl_stream_default_flags);
}

static dnnl_data_type_t type_of(ups_dtype dtype) {
    return dtype == UPS_BF16 ? dnnl_bf16 : dnnl_f32;
}

static dnnl_status_t matrix(dnnl_memory_desc_t *description, int64_t rows, int64_t columns, bool transposed,
                            ups_dtype dtype) {
    dnnl_dims_t size = {rows, columns}, strides = {columns, 1};
    if (transposed) strides[0] = 1, strides[1] = rows;
    return dnnl_memory_desc_init_by_strides(description, 2, size, type_of(dtype), strides);
}

static dnnl_status_t create(const ups_matmul_shape *s, ups_matmul *matmul, size_t *scratch_bytes) {
    dnnl_memory_desc_t a, b, bias, c;
    dnnl_matmul_desc_t description;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t post = NULL;
    dnnl_primitive_desc_t chosen = NULL;
    const dnnl_memory_desc_t *scratch;
    dnnl_status_t status = dnnl_success;
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((status = (call)) != dnnl_success) goto cleanup;                                                           \
    } while (0)
    TRY(matrix(&a, s->m, s->k, s->transpose_a, s->operands));
    TRY(matrix(&b, s->k, s->n, s->transpose_b, s->operands));
    TRY(matrix(&bias, 1, s->n, false, UPS_F32));
    TRY(matrix(&c, s->m, s->n, false, s->result));
    TRY(dnnl_matmul_desc_init(&description, &a, &b, s->bias ? &bias : NULL, &c));
    TRY(dnnl_primitive_attr_create(&attributes));
    TRY(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    if (s->accumulate) {
        TRY(dnnl_post_ops_create(&post));
        TRY(dnnl_post_ops_append_sum(post, 1.0f));
        TRY(dnnl_primitive_attr_set_post_ops(attributes, post));
    }
    TRY(dnnl_primitive_desc_create(&chosen, &description, attributes, engine, NULL));
    TRY(dnnl_primitive_create(&matmul->primitive, chosen));
    scratch = dnnl_primitive_desc_query_md(chosen, dnnl_query_scratchpad_md, 0);
    *scratch_bytes = dnnl_memory_desc_get_size(scratch);
    TRY(dnnl_memory_create(&matmul->a, &a, engine, DNNL_MEMORY_NONE));
    TRY(dnnl_memory_create(&matmul->b, &b, engine, DNNL_MEMORY_NONE));
    TRY(dnnl_memory_create(&matmul->bias, &bias, engine, DNNL_MEMORY_NONE));
    TRY(dnnl_memory_create(&matmul->c, &c, engine, DNNL_MEMORY_NONE));
    TRY(dnnl_memory_create(&matmul->scratch, scratch, engine, DNNL_MEMORY_NONE));
#undef TRY
cleanup:
    dnnl_primitive_desc_destroy(chosen);
    dnnl_post_ops_destroy(post);
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

ups_status ups_matmul_create(const ups_matmul_shape *shape, int threads, ups_matmul **matmul, size_t *scratch_bytes,
                             ups_error *error) {
    *matmul = calloc(1, sizeof **matmul);
    if (!*matmul) return ups_fail(error, UPS_ERR_MEMORY, "no memory is left for a matrix product");
    (*matmul)->shape = *shape;
    (*matmul)->threads = threads;
    (*matmul)->amx = shape->operands == UPS_BF16 && strcmp(ups_cpu_instruction_set(), "amx") == 0;
    if ((*matmul)->amx) {
        *scratch_bytes = ups_amx_matmul_scratch(shape, threads);
        return UPS_OK;
    }
    pthread_once(&open_once, open_engine);
    if (opened != dnnl_success) {
        ups_matmul_destroy(*matmul);
        *matmul = NULL;
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "oneDNN could not be started (status %d)", (int)opened);
    }
    int before = omp_get_max_threads();
    omp_set_num_threads(threads); /* oneDNN plans for, and runs on, what OpenMP is set to */
    dnnl_status_t status = create(shape, *matmul, scratch_bytes);
    omp_set_num_threads(before);
    if (status == dnnl_success) return UPS_OK;
    ups_matmul_destroy(*matmul);
    *matmul = NULL;
    return ups_fail(error, status == dnnl_out_of_memory ? UPS_ERR_MEMORY : UPS_ERR_UNSUPPORTED,
                    "oneDNN has no product of %lld x %lld by %lld x %lld in %s (status %d)", (long long)shape->m,
                    (long long)shape->k, (long long)shape->k, (long long)shape->n, ups_dtype_name(shape->operands),
                    (int)status);
}

void ups_matmul_destroy(ups_matmul *matmul) {
    if (!matmul) return;
    dnnl_memory_destroy(matmul->a);
    dnnl_memory_destroy(matmul->b);
    dnnl_memory_destroy(matmul->bias);
    dnnl_memory_destroy(matmul->c);
    dnnl_memory_destroy(matmul->scratch);
    dnnl_primitive_destroy(matmul->primitive);
    free(matmul);
}

ups_status ups_matmul_run(ups_matmul *matmul, const void *a, const void *b, const float *bias, void *c, void *scratch,
                          ups_error *error) {
    if (matmul->amx) {
        ups_amx_matmul_run(&matmul->shape, matmul->threads, a, b, bias, c, scratch);
        return UPS_OK;
    }
    int before = omp_get_max_threads();
    omp_set_num_threads(matmul->threads);
    /* oneDNN's handles are not const; it writes to c and scratch only. */
    dnnl_memory_set_data_handle(matmul->a, (void *)(uintptr_t)a);
    dnnl_memory_set_data_handle(matmul->b, (void *)(uintptr_t)b);
    dnnl_memory_set_data_handle(matmul->bias, (void *)(uintptr_t)bias);
    dnnl_memory_set_data_handle(matmul->c, c);
    dnnl_memory_set_data_handle(matmul->scratch, scratch);
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_SRC, matmul->a},
                                   {DNNL_ARG_WEIGHTS, matmul->b},
                                   {DNNL_ARG_DST, matmul->c},
                                   {DNNL_ARG_SCRATCHPAD, matmul->scratch},
                                   {DNNL_ARG_BIAS, matmul->bias}};
    dnnl_status_t status = dnnl_primitive_execute(matmul->primitive, stream, bias ? 5 : 4, arguments);
    if (status == dnnl_success) status = dnnl_stream_wait(stream);
    omp_set_num_threads(before);
    if (status == dnnl_success) return UPS_OK;
    return ups_fail(error, UPS_ERR_UNSUPPORTED, "oneDNN failed in a matrix product (status %d)", (int)status);
}

/* Safetensors files (huggingface/safetensors, "Format"): 8 bytes of header length, little-endian; a JSON object
 * {"name": {"dtype", "shape", "data_offsets"}, …, "__metadata__": {text: text}}; then the tensors' bytes, row-major,
 * little-endian, without holes or overlaps.
 *
 * Reading is strict: whatever the format forbids is refused with the file, the tensor and the reason, before any data
 * is read. Element types are those of base/dtype.h; a file with others is valid, but only its other tensors can be
 * read. */
#ifndef UPS_MODEL_PARAMETERS_SAFETENSORS_H
#define UPS_MODEL_PARAMETERS_SAFETENSORS_H

#include "base/dtype.h"
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

#define UPS_SAFETENSORS_MAX_RANK 8

typedef struct ups_safetensor {
    const char *name;
    const char *dtype_name; /* as the file says: "F32" */
    bool known_dtype;       /* false: an element type UPS does not have; `dtype` means nothing */
    ups_dtype dtype;
    int rank;
    int64_t size[UPS_SAFETENSORS_MAX_RANK];
    uint64_t offset, bytes; /* within the file */
} ups_safetensor;

typedef struct ups_safetensors ups_safetensors;

/* Parses and checks the header. Errors: UPS_ERR_IO, UPS_ERR_FORMAT. */
ups_status ups_safetensors_open(const char *path, ups_safetensors **file, ups_error *error);
void ups_safetensors_close(ups_safetensors *file); /* NULL is fine */
int32_t ups_safetensors_count(const ups_safetensors *file);
const ups_safetensor *ups_safetensors_get(const ups_safetensors *file, int32_t index);     /* in order of offset */
const ups_safetensor *ups_safetensors_find(const ups_safetensors *file, const char *name); /* NULL when absent */
const char *ups_safetensors_metadata(const ups_safetensors *file, const char *key);        /* NULL when absent */
/* Reads all `tensor->bytes` of a tensor of this file. */
ups_status ups_safetensors_read(const ups_safetensors *file, const ups_safetensor *tensor, void *out, ups_error *error);

/* Writing: declare all tensors, begin, append their bytes in the order declared, commit. Nothing is visible under
 * `path` before commit, and nothing remains when any of it fails or is abandoned. */
typedef struct ups_safetensors_writer ups_safetensors_writer;
ups_safetensors_writer *ups_safetensors_writer_create(void);
void ups_safetensors_writer_declare(ups_safetensors_writer *writer, const char *name, ups_dtype dtype, int rank,
                                    const int64_t *size);
void ups_safetensors_writer_metadata(ups_safetensors_writer *writer, const char *key, const char *text);
ups_status ups_safetensors_writer_begin(ups_safetensors_writer *writer, const char *path, ups_error *error);
ups_status ups_safetensors_writer_append(ups_safetensors_writer *writer, const void *bytes, size_t length,
                                         ups_error *error);
ups_status ups_safetensors_writer_commit(ups_safetensors_writer *writer, ups_error *error); /* frees, also on failure */
void ups_safetensors_writer_abandon(ups_safetensors_writer *writer);                        /* NULL is fine */

#endif

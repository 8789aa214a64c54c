#include "cache/shard.h"

#include "base/files.h"
#include "base/hash.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CRC_BYTES 4

_Static_assert(sizeof(ups_chunk_place) == 16, "places are read and written as they lie in memory");

size_t ups_shard_index_bytes(int64_t chunks) {
    return (size_t)chunks * sizeof(ups_chunk_place) + CRC_BYTES;
}

ups_status ups_shard_publish(const char *path, const uint8_t *const *bytes, const size_t *lengths, int64_t chunks,
                             ups_error *error) {
    size_t index_bytes = ups_shard_index_bytes(chunks);
    ups_chunk_place *places = malloc(index_bytes);
    if (!places) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for the shard's index", path);
    ups_publication *publication = NULL;
    ups_status status = ups_publish_begin(path, &publication, error);
    uint64_t offset = 0;
    for (int64_t i = 0; i < chunks && status == UPS_OK; i++) {
        places[i] = (ups_chunk_place){UPS_CHUNK_ABSENT, UPS_CHUNK_ABSENT};
        if (!bytes[i]) continue;
        places[i] = (ups_chunk_place){offset, lengths[i]};
        offset += lengths[i];
        status = ups_publish_append(publication, bytes[i], lengths[i], error);
    }
    if (status == UPS_OK) {
        uint32_t crc = ups_crc32c(0, places, index_bytes - CRC_BYTES);
        memcpy((uint8_t *)places + index_bytes - CRC_BYTES, &crc, CRC_BYTES);
        status = ups_publish_append(publication, places, index_bytes, error);
    }
    free(places);
    if (status != UPS_OK) {
        ups_publish_abandon(publication);
        return status;
    }
    return ups_publish_commit(publication, error);
}

/* Chunks must follow each other from byte 0 to the index. Returns the entry that breaks this, or −1. */
static int64_t first_misplaced(const ups_chunk_place *places, int64_t chunks, uint64_t data_bytes) {
    uint64_t offset = 0;
    int64_t last = -1;
    for (int64_t i = 0; i < chunks; i++) {
        if (places[i].offset == UPS_CHUNK_ABSENT && places[i].length == UPS_CHUNK_ABSENT) continue;
        if (places[i].offset != offset || places[i].length > data_bytes - offset) return i;
        offset += places[i].length;
        last = i;
    }
    return offset == data_bytes ? -1 : last < 0 ? 0 : last;
}

ups_status ups_shard_read_index(const char *path, int64_t chunks, int64_t first_sample, ups_chunk_place *places,
                                ups_error *error) {
    size_t index_bytes = ups_shard_index_bytes(chunks);
    uint64_t size;
    UPS_TRY(ups_file_size(path, &size, error));
    if (size < index_bytes) {
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: %llu bytes are too few for a shard, whose index alone takes %zu: it is truncated", path,
                        (unsigned long long)size, index_bytes);
    }
    ups_status status = UPS_OK;
    uint8_t *index = malloc(index_bytes);
    int fd = -1;
    if (!index) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for the shard's index", path);
        goto cleanup;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        status = ups_fail_errno(error, "%s: the shard cannot be opened", path);
        goto cleanup;
    }
    status = ups_read_at(fd, path, size - index_bytes, index, index_bytes, error);
    if (status != UPS_OK) goto cleanup;

    uint32_t crc;
    memcpy(places, index, index_bytes - CRC_BYTES);
    memcpy(&crc, index + index_bytes - CRC_BYTES, CRC_BYTES);
    int64_t misplaced = first_misplaced(places, chunks, size - index_bytes);
    char place[120] = "";
    if (misplaced >= 0) {
        snprintf(place, sizeof place, " at sample %lld (offset %llu, length %llu)",
                 (long long)(first_sample + misplaced), (unsigned long long)places[misplaced].offset,
                 (unsigned long long)places[misplaced].length);
    }
    if (crc != ups_crc32c(0, index, index_bytes - CRC_BYTES)) {
        status =
            ups_fail(error, UPS_ERR_CHECKSUM,
                     "%s: the shard's index changed since it was written, or the file is truncated: its CRC32C does "
                     "not match%s%s",
                     path, *place ? "; the first entry that does not fit is" : "", place);
    } else if (misplaced >= 0) {
        status = ups_fail(error, UPS_ERR_FORMAT,
                          "%s: the chunks of the shard do not lie one after the other up to its index%s", path, place);
    }
cleanup:
    if (fd >= 0) close(fd);
    free(index);
    return status;
}

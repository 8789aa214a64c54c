#include "cache/store/shard.h"

#include "base/files.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CRC_BYTES = 4, PLACE_BYTES = 16, GROUP_BYTES = 16 };

/* The seal is a CRC for each chunk, then this, then the CRC32C of both. */
typedef struct seal_end {
    char owner[UPS_SHARD_OWNER_BYTES];
    uint8_t group[GROUP_BYTES];
    uint64_t shard;
    uint32_t statistics_crc;
    uint32_t crc;
} seal_end;

_Static_assert(sizeof(seal_end) == 96, "the seal is written and read as it lies in memory");

size_t ups_shard_index_bytes(int64_t chunks) {
    return (size_t)chunks * PLACE_BYTES + CRC_BYTES;
}

static size_t seal_bytes(int64_t chunks) {
    return (size_t)chunks * CRC_BYTES + sizeof(seal_end);
}

size_t ups_shard_tail_bytes(int64_t chunks) {
    return seal_bytes(chunks) + ups_shard_index_bytes(chunks);
}

ups_shard_identity ups_shard_identity_of(const char *group, const char *task, const char *split, int64_t shard) {
    ups_shard_identity identity = {.shard = shard};
    snprintf(identity.group, sizeof identity.group, "%s", group);
    snprintf(identity.owner, sizeof identity.owner, "%s/%s", task, split);
    return identity;
}

static int digit(char hex) {
    return hex >= '0' && hex <= '9' ? hex - '0' : hex >= 'a' && hex <= 'f' ? hex - 'a' + 10 : 0;
}

static seal_end make_seal(const ups_shard_identity *identity, uint32_t statistics_crc) {
    seal_end seal = {.shard = (uint64_t)identity->shard, .statistics_crc = statistics_crc};
    memcpy(seal.owner, identity->owner, strnlen(identity->owner, sizeof seal.owner));
    for (size_t i = 0; i < GROUP_BYTES; i++)
        seal.group[i] = (uint8_t)(digit(identity->group[2 * i]) << 4 | digit(identity->group[2 * i + 1]));
    return seal;
}

/* ---- writing ---- */

/* Seal and index of chunks that follow each other, into `tail`. */
static void write_tail(const ups_shard_identity *identity, uint32_t statistics_crc, const uint8_t *const *bytes,
                       const size_t *lengths, int64_t chunks, uint8_t *tail) {
    const size_t sealed = seal_bytes(chunks), indexed = ups_shard_index_bytes(chunks);
    uint8_t *index = tail + sealed;
    uint64_t offset = 0;
    for (int64_t i = 0; i < chunks; i++) {
        uint64_t place[2] = {UPS_CHUNK_ABSENT, UPS_CHUNK_ABSENT};
        uint32_t crc = 0;
        if (bytes[i]) {
            place[0] = offset;
            place[1] = lengths[i];
            offset += lengths[i];
            memcpy(&crc, bytes[i] + lengths[i] - CRC_BYTES, CRC_BYTES);
        }
        memcpy(tail + i * CRC_BYTES, &crc, CRC_BYTES);
        memcpy(index + i * PLACE_BYTES, place, PLACE_BYTES);
    }
    seal_end end = make_seal(identity, statistics_crc);
    uint8_t *at = tail + chunks * CRC_BYTES;
    memcpy(at, &end, sizeof end);
    uint32_t crc = ups_crc32c(0, tail, sealed - CRC_BYTES);
    memcpy(tail + sealed - CRC_BYTES, &crc, CRC_BYTES);
    crc = ups_crc32c(0, index, indexed - CRC_BYTES);
    memcpy(index + indexed - CRC_BYTES, &crc, CRC_BYTES);
}

ups_status ups_shard_publish(const char *path, const ups_shard_identity *identity, uint32_t statistics_crc,
                             const uint8_t *const *bytes, const size_t *lengths, int64_t chunks, ups_error *error) {
    size_t tail_bytes = ups_shard_tail_bytes(chunks);
    uint8_t *tail = malloc(tail_bytes);
    if (!tail) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for the shard's index", path);
    ups_publication *publication = NULL;
    ups_status status = ups_publish_begin(path, &publication, error);
    for (int64_t i = 0; i < chunks && status == UPS_OK; i++) {
        if (bytes[i]) status = ups_publish_append(publication, bytes[i], lengths[i], error);
    }
    if (status == UPS_OK) {
        write_tail(identity, statistics_crc, bytes, lengths, chunks, tail);
        status = ups_publish_append(publication, tail, tail_bytes, error);
    }
    free(tail);
    if (status != UPS_OK) {
        ups_publish_abandon(publication);
        return status;
    }
    return ups_publish_commit(publication, error);
}

/* ---- reading ---- */

/* Chunks must follow each other from byte 0 to the seal. Returns the entry that breaks this, or −1. */
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

static bool crc_fits(const uint8_t *bytes, size_t length) {
    uint32_t crc;
    memcpy(&crc, bytes + length - CRC_BYTES, CRC_BYTES);
    return crc == ups_crc32c(0, bytes, length - CRC_BYTES);
}

/* Is it the shard that belongs here? */
static ups_status check_identity(const char *path, const ups_shard_identity *identity, const seal_end *found,
                                 ups_error *error) {
    const char *remedy = "`ups cache verify --repair` builds the right one";
    const seal_end wanted = make_seal(identity, 0);
    char owner[UPS_SHARD_OWNER_BYTES + 1];
    snprintf(owner, sizeof owner, "%.*s", UPS_SHARD_OWNER_BYTES, found->owner);
    bool same_owner = memcmp(found->owner, wanted.owner, sizeof wanted.owner) == 0;
    if (memcmp(found->group, wanted.group, GROUP_BYTES) != 0) {
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: is shard %llu of another cache, of %s%s; shard %lld of %s belongs here: %s", path,
                        (unsigned long long)found->shard, owner,
                        same_owner ? " as well, but of another encoder or with other settings" : "",
                        (long long)identity->shard, identity->owner, remedy);
    }
    if (found->shard != wanted.shard) {
        return ups_fail(error, UPS_ERR_FORMAT, "%s: is shard %llu of %s in the place of shard %lld: %s", path,
                        (unsigned long long)found->shard, owner, (long long)identity->shard, remedy);
    }
    return UPS_OK;
}

static ups_status parse_tail(const char *path, const ups_shard_identity *identity, const uint8_t *tail, uint64_t size,
                             int64_t chunks, int64_t first_sample, ups_chunk_place *places, ups_shard_facts *facts,
                             ups_error *error) {
    const size_t sealed = seal_bytes(chunks), indexed = ups_shard_index_bytes(chunks);
    const uint8_t *index = tail + sealed;
    for (int64_t i = 0; i < chunks; i++) {
        memcpy(&places[i], index + i * PLACE_BYTES, PLACE_BYTES);
        memcpy(&places[i].crc, tail + i * CRC_BYTES, CRC_BYTES);
    }
    int64_t misplaced = first_misplaced(places, chunks, size - sealed - indexed);
    char place[120] = "";
    if (misplaced >= 0) {
        snprintf(place, sizeof place, " at sample %lld (offset %llu, length %llu)",
                 (long long)(first_sample + misplaced), (unsigned long long)places[misplaced].offset,
                 (unsigned long long)places[misplaced].length);
    }
    if (!crc_fits(index, indexed)) {
        return ups_fail(error, UPS_ERR_CHECKSUM,
                        "%s: the shard's index changed since it was written, or the file is truncated: its CRC32C does "
                        "not match%s%s",
                        path, *place ? "; the first entry that does not fit is" : "", place);
    }
    if (!crc_fits(tail, sealed)) {
        return ups_fail(error, UPS_ERR_CHECKSUM,
                        "%s: the shard's seal, before its index, changed since it was written: its CRC32C does not "
                        "match",
                        path);
    }
    seal_end end;
    memcpy(&end, tail + chunks * CRC_BYTES, sizeof end);
    UPS_TRY(check_identity(path, identity, &end, error));
    if (misplaced >= 0) {
        return ups_fail(error, UPS_ERR_FORMAT,
                        "%s: the chunks of the shard do not lie one after the other up to its index%s", path, place);
    }
    if (facts) *facts = (ups_shard_facts){size, end.statistics_crc, ups_hash_bytes(tail, sealed + indexed)};
    return UPS_OK;
}

ups_status ups_shard_read_index(const char *path, const ups_shard_identity *identity, int64_t chunks,
                                int64_t first_sample, ups_chunk_place *places, ups_shard_facts *facts,
                                ups_error *error) {
    const size_t tail_bytes = ups_shard_tail_bytes(chunks);
    int fd;
    UPS_TRY(ups_open_regular(path, O_RDONLY, &fd, error));
    struct stat info = {0};
    ups_status status = UPS_OK;
    uint8_t *tail = NULL;
    if (fstat(fd, &info) != 0) {
        status = ups_fail_errno(error, "%s: the shard cannot be read", path);
    } else if ((uint64_t)info.st_size < tail_bytes) {
        status =
            ups_fail(error, UPS_ERR_FORMAT,
                     "%s: %llu bytes are too few for a shard, whose seal and index alone take %zu: it is truncated",
                     path, (unsigned long long)info.st_size, tail_bytes);
    } else if (!(tail = malloc(tail_bytes))) {
        status = ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for the shard's index", path);
    }
    const uint64_t size = (uint64_t)info.st_size;
    if (status == UPS_OK) status = ups_read_at(fd, path, size - tail_bytes, tail, tail_bytes, error);
    if (status == UPS_OK) {
        status = parse_tail(path, identity, tail, size, chunks, first_sample, places, facts, error);
    }
    close(fd);
    free(tail);
    return status;
}

ups_status ups_chunk_check_place(ups_chunk_place place, const uint8_t *bytes, size_t length, ups_error *error) {
    if (length >= CRC_BYTES && memcmp(bytes + length - CRC_BYTES, &place.crc, CRC_BYTES) == 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_CHECKSUM,
                    "the chunk's CRC32C is not the one that its shard was written with: its bytes changed since");
}

#include "pipeline/numpy/storage.h"

#include "base/files.h"
#include "base/system/pages.h"
#include "pipeline/numpy/zip.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One array. Of an NPY file: the whole file, as a member that is stored. */
typedef struct npy_member {
    ups_numpy_file *file;
    const char *name;
    ups_zip_member zip;
    bool described;
    ups_npy_header header;
    uint64_t offset;   /* of its bytes in the file */
    uint8_t *inflated; /* all of them; NULL: not read yet. Guarded by the file's lock */
} npy_member;

struct ups_numpy_file {
    ups_arena *arena;
    const char *path;
    int fd; /* −1 once settled */
    uint64_t bytes;
    struct timespec modified;
    bool archive;
    int64_t count;
    npy_member *members;
    pthread_mutex_t lock;
};

/* ---- opening ------------------------------------------------------------------------------------------------------
 */

/* "u" of "u.npy"; NULL of what is no array. */
static const char *array_name(ups_arena *arena, const char *name) {
    size_t length = strlen(name);
    if (length < 4 || strcmp(name + length - 4, ".npy") != 0) return NULL;
    return ups_arena_printf(arena, "%.*s", (int)length - 4, name);
}

static ups_status list_members(ups_numpy_file *file, ups_error *error) {
    char start[2] = "";
    if (file->bytes >= sizeof start) UPS_TRY(ups_read_at(file->fd, file->path, 0, start, sizeof start, error));
    file->archive = memcmp(start, "PK", 2) == 0;
    if (!file->archive) {
        file->count = 1;
        file->members = UPS_ARENA_NEW(file->arena, npy_member);
        file->members[0] = (npy_member){.file = file, .name = "", .zip = {"", false, file->bytes, file->bytes, 0, 0}};
        return UPS_OK;
    }
    const ups_zip_member *members;
    int64_t count;
    UPS_TRY(ups_zip_list(file->fd, file->path, file->bytes, file->arena, &members, &count, error));
    file->members = UPS_ARENA_ARRAY(file->arena, npy_member, count + 1);
    for (int64_t i = 0; i < count; i++) {
        const char *name = array_name(file->arena, members[i].name);
        if (name) file->members[file->count++] = (npy_member){.file = file, .name = name, .zip = members[i]};
    }
    if (file->count > 0) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT,
                    "%s is a ZIP file without arrays that UPS reads (members X.npy, stored or deflated); numpy.savez "
                    "writes such",
                    file->path);
}

ups_status ups_numpy_open(const char *path, ups_numpy_file **out, ups_error *error) {
    *out = NULL;
    ups_arena *arena = ups_arena_create(0);
    if (!arena) return ups_fail(error, UPS_ERR_MEMORY, "no memory to open %s", path);
    ups_numpy_file *file = UPS_ARENA_NEW(arena, ups_numpy_file);
    *file = (ups_numpy_file){.arena = arena, .path = ups_arena_strdup(arena, path), .fd = -1};
    pthread_mutex_init(&file->lock, NULL);
    struct stat opened;
    ups_status status = ups_open_regular(path, O_RDONLY, &file->fd, error);
    if (status == UPS_OK && fstat(file->fd, &opened) != 0)
        status = ups_fail_errno(error, "%s cannot be opened for reading", path);
    if (status == UPS_OK) {
        file->bytes = (uint64_t)opened.st_size;
        file->modified = opened.st_mtim;
        status = list_members(file, error);
    }
    if (status != UPS_OK) {
        ups_numpy_close(file);
        return status;
    }
    *out = file;
    return UPS_OK;
}

bool ups_numpy_is_archive(const ups_numpy_file *file) {
    return file->archive;
}

void ups_numpy_settle(ups_numpy_file *file) {
    if (file->fd >= 0) close(file->fd);
    file->fd = -1;
}

void ups_numpy_close(ups_numpy_file *file) {
    if (!file) return;
    ups_numpy_settle(file);
    for (int64_t i = 0; i < file->count; i++) ups_pages_free(file->members[i].inflated);
    pthread_mutex_destroy(&file->lock);
    ups_arena_destroy(file->arena);
}

int64_t ups_numpy_count(const ups_numpy_file *file) {
    return file->count;
}

const char *ups_numpy_name(const ups_numpy_file *file, int64_t index) {
    return file->members[index].name;
}

/* ---- describing ---------------------------------------------------------------------------------------------------
 */

/* The first bytes of a member, inflated where it is compressed. */
static ups_status read_start(const npy_member *member, uint8_t *bytes, size_t length, ups_error *error) {
    const ups_numpy_file *file = member->file;
    if (!member->zip.deflated) return ups_read_at(file->fd, file->path, member->offset, bytes, length, error);
    return ups_zip_inflate(file->fd, file->path, &member->zip, member->offset, bytes, length, error);
}

static ups_status read_header(npy_member *member, ups_error *error) {
    size_t length = 512, wanted;
    ups_status status;
    do {
        if (length > member->zip.bytes) length = (size_t)member->zip.bytes;
        uint8_t *bytes = malloc(length + 1);
        if (!bytes) return ups_fail(error, UPS_ERR_MEMORY, "%s: no memory to read it", member->file->path);
        wanted = 0;
        status = read_start(member, bytes, length, error);
        if (status == UPS_OK) {
            status = ups_npy_header_parse(bytes, length, &member->header, &wanted, error);
            if (status != UPS_OK && member->file->archive) ups_fail_within(error, "array '%s'", member->name);
            if (status != UPS_OK) ups_fail_within(error, "%s cannot be read", member->file->path);
        }
        free(bytes);
        length = wanted;
    } while (wanted > 0 && wanted <= member->zip.bytes);
    return status;
}

/* " 'u'" of an archive's arrays; the one array of an .npy has no name. */
static const char *named(const npy_member *member, char text[80]) {
    text[0] = '\0';
    if (member->name[0]) snprintf(text, 80, " '%.70s'", member->name);
    return text;
}

static ups_status check_size(const npy_member *member, ups_error *error) {
    const ups_npy_header *header = &member->header;
    char name[80];
    uint64_t bytes = header->numeric ? header->elements * ups_number_size(header->number) : 0;
    if (header->data <= member->zip.bytes && bytes <= member->zip.bytes - header->data) return UPS_OK;
    return ups_fail(
        error, UPS_ERR_FORMAT,
        "%s: the array%s has %llu bytes where its header announces %llu; it was cut short: copy or write it "
        "again",
        member->file->path, named(member, name), (unsigned long long)member->zip.bytes,
        (unsigned long long)(header->data + bytes));
}

ups_status ups_numpy_describe(ups_numpy_file *file, int64_t index, const ups_npy_header **header, ups_error *error) {
    npy_member *member = &file->members[index];
    *header = &member->header;
    if (member->described) return UPS_OK;
    if (file->archive) UPS_TRY(ups_zip_locate(file->fd, file->path, file->bytes, &member->zip, &member->offset, error));
    UPS_TRY(read_header(member, error));
    UPS_TRY(check_size(member, error));
    member->described = true;
    return UPS_OK;
}

/* ---- inflating ----------------------------------------------------------------------------------------------------
 */

static ups_status inflate_now(npy_member *member, ups_error *error) {
    const ups_numpy_file *file = member->file;
    int fd;
    struct stat now;
    UPS_TRY(ups_open_regular(file->path, O_RDONLY, &fd, error));
    ups_status status = UPS_OK;
    if (fstat(fd, &now) != 0 || (uint64_t)now.st_size != file->bytes || now.st_mtim.tv_sec != file->modified.tv_sec ||
        now.st_mtim.tv_nsec != file->modified.tv_nsec)
        status =
            ups_fail(error, UPS_ERR_STALE,
                     "%s: was changed while it was being read; what was read from it is not used. Start again once "
                     "nothing writes to it",
                     file->path);
    uint8_t *bytes = status == UPS_OK ? ups_pages_alloc((size_t)member->zip.bytes) : NULL;
    if (status == UPS_OK && !bytes)
        status =
            ups_fail(error, UPS_ERR_MEMORY,
                     "%s: no memory for the %llu bytes of the compressed array '%s'; numpy.savez writes it without "
                     "compression, and then it is read piece by piece",
                     file->path, (unsigned long long)member->zip.bytes, member->name);
    if (status == UPS_OK)
        status = ups_zip_inflate(fd, file->path, &member->zip, member->offset, bytes, member->zip.bytes, error);
    close(fd);
    if (status == UPS_OK) member->inflated = bytes;
    if (status != UPS_OK) ups_pages_free(bytes);
    return status;
}

static ups_status in_memory(const ups_stored_array *array, const uint8_t **elements, ups_error *error) {
    npy_member *member = array->library;
    pthread_mutex_lock(&member->file->lock);
    ups_status status = member->inflated ? UPS_OK : inflate_now(member, error);
    pthread_mutex_unlock(&member->file->lock);
    if (status == UPS_OK) *elements = member->inflated + member->header.data;
    return status;
}

/* ---- mapping ------------------------------------------------------------------------------------------------------
 */

static ups_status fail_type(const npy_member *member, ups_error *error) {
    char name[80];
    const char *type = member->header.type;
    const char *remedy = type[0] && (type[1] == 'c') ? "save real and imaginary parts as two real arrays"
                         : type[0] && type[1] == 'O'
                             ? "convert it with numpy.asarray(..., dtype='f4') and save it again"
                             : "save each field as a real array of its own";
    return ups_fail(error, UPS_ERR_UNSUPPORTED, "%s: the array%s is of type %s, which is no real number; %s",
                    member->file->path, named(member, name), type, remedy);
}

ups_status ups_numpy_map(ups_numpy_file *file, int64_t index, uint32_t file_index, ups_arena *arena,
                         ups_stored_array *array, ups_error *error) {
    const ups_npy_header *header;
    npy_member *member = &file->members[index];
    UPS_TRY(ups_numpy_describe(file, index, &header, error));
    if (!header->numeric) return fail_type(member, error);
    *array = (ups_stored_array){.name = ups_arena_strdup(arena, member->name),
                                .file = file_index,
                                .rank = header->rank,
                                .dtype = ups_number_dtype(header->number),
                                .swapped = header->swapped,
                                .filters = UPS_FILTERS_NONE,
                                .stored_bytes = member->zip.stored_bytes};
    for (int axis = 0; axis < header->rank; axis++)
        array->shape[axis] = header->shape[header->fortran ? header->rank - 1 - axis : axis];
    if (header->rank == 0) { /* a scalar */
        array->rank = 1;
        array->shape[0] = 1;
    }
    if (header->number != UPS_NUMBER_F32 && header->number != UPS_NUMBER_F64) {
        ups_packing *packing = UPS_ARENA_NEW(arena, ups_packing);
        packing->number = header->number;
        array->packing = packing;
    }
    if (member->zip.deflated) {
        array->storage = UPS_STORAGE_MEMORY;
        array->in_memory = in_memory;
        array->library = member;
    } else {
        array->storage = UPS_STORAGE_CONTIGUOUS;
        array->offset = member->offset + header->data;
    }
    return UPS_OK;
}

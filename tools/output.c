#include "tools/output.h"

#include "base/files.h"
#include "pipeline/hdf5/driver.h"
#include "tools/report/figure.h"
#include "tools/report/page.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* As ups_evaluation_make and ups_json_publish put it: of models, and of predictions. */
#define EVALUATION_BEGINNING "{\n  \"autoencoder\": {\n    \"file\": "
#define PREDICTIONS_BEGINNING "{\n  \"predictions\": [\n    {\n      \"task\": "

/* What a file of the kind has at a place of its own. */
static const struct {
    const char *name, *bytes;
    size_t at, length;
} kinds[] = {
    [UPS_OUTPUT_ROLLOUT] = {"rollout", NULL, 0, 0}, /* an attribute tells */
    [UPS_OUTPUT_EVALUATION] = {"evaluation", EVALUATION_BEGINNING, 0, sizeof EVALUATION_BEGINNING - 1},
    [UPS_OUTPUT_SCORES] = {"file of predictions' scores", PREDICTIONS_BEGINNING, 0, sizeof PREDICTIONS_BEGINNING - 1},
    [UPS_OUTPUT_PAGE] = {"page", UPS_PAGE_BEGINNING, 0, sizeof UPS_PAGE_BEGINNING - 1},
    [UPS_OUTPUT_PICTURE] = {"picture", UPS_FIGURE_MARK, UPS_FIGURE_MARK_AT, sizeof UPS_FIGURE_MARK - 1},
};

static bool has_bytes(const char *path, size_t at, const char *bytes, size_t length) {
    enum { MOST = 256 };
    char found[MOST];
    int fd;
    if (length > MOST || ups_open_regular(path, O_RDONLY, &fd, NULL) != UPS_OK) return false;
    const bool read = ups_read_at(fd, path, at, found, length, NULL) == UPS_OK;
    close(fd);
    return read && memcmp(found, bytes, length) == 0;
}

static bool is_rollout(const char *path) {
    ups_hdf5_note note = {0};
    char reason[300];
    ups_hdf5_enter();
    hid_t file = ups_hdf5_driver_open(path, &note, reason);
    const bool is = file >= 0 && H5Aexists(file, "ups.operator") > 0;
    if (file >= 0) H5Fclose(file);
    ups_hdf5_leave();
    return is;
}

static ups_status check_folder(const char *path, ups_error *error) {
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return UPS_OK;
    char *folder = strndup(path, (size_t)(slash - path));
    if (!folder) return ups_fail(error, UPS_ERR_MEMORY, "out of memory");
    struct stat there;
    ups_status status = UPS_OK;
    if (stat(folder, &there) != 0)
        status = ups_fail_errno(error, "%s: cannot be created in %s", path, folder);
    else if (!S_ISDIR(there.st_mode))
        status = ups_fail(error, UPS_ERR_IO, "%s: cannot be created: %s is no directory", path, folder);
    free(folder);
    return status;
}

/* *there: a file is, which would be replaced. */
static ups_status check_place(const char *path, bool *there, ups_error *error) {
    struct stat found;
    *there = stat(path, &found) == 0;
    if (!*there) return check_folder(path, error);
    if (S_ISREG(found.st_mode)) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT, "%s: is %s, not a file that can be replaced", path,
                    S_ISDIR(found.st_mode) ? "a directory" : "a device or a pipe");
}

static bool begins_as(const char *path, ups_output_kind kind) {
    return has_bytes(path, kinds[kind].at, kinds[kind].bytes, kinds[kind].length);
}

static bool is_own(const char *path, ups_output_kind kind) {
    if (kind == UPS_OUTPUT_ROLLOUT) return is_rollout(path);
    return begins_as(path, kind) || (kind == UPS_OUTPUT_EVALUATION && begins_as(path, UPS_OUTPUT_SCORES));
}

ups_status ups_output_check(const char *path, ups_output_kind kind, ups_error *error) {
    bool there;
    UPS_TRY(check_place(path, &there, error));
    if (!there || is_own(path, kind)) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT,
                    "%s: is there already, and is no %s that UPS wrote; name another file, or move that one away", path,
                    kinds[kind].name);
}

ups_status ups_output_check_array(const char *path, bool replace, ups_error *error) {
    bool there;
    UPS_TRY(check_place(path, &there, error));
    if (!there || replace) return UPS_OK;
    return ups_fail(error, UPS_ERR_ARGUMENT, "%s: exists already; --force replaces it", path);
}

ups_status ups_output_is_no_input(const char *path, const char *const *files, int64_t count, ups_error *error) {
    for (int64_t i = 0; i < count; i++) {
        if (!ups_path_is_same(path, files[i])) continue;
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%s: would replace %s, which the command reads; name another file to write", path, files[i]);
    }
    return UPS_OK;
}

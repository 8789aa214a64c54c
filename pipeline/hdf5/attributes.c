/* Attributes of an HDF5 file's objects: all the simple ones in turn, or one by its name. Every call of the library
 * stands under its lock. */
#include "pipeline/hdf5/attributes.h"

#include "base/log.h"
#include "pipeline/hdf5/guards.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_TEXT = 1 << 20, MAX_ENTRIES = 4096 };

hid_t ups_hdf5_open_for_attributes(const ups_hdf5_file *file, const char *name) {
    hid_t object = H5Oopen(file->id, *name ? name : "/", H5P_DEFAULT);
    if (object < 0 || ups_hdf5_guard_attributes(file, object)) return object;
    H5Oclose(object);
    H5Epush2(H5E_DEFAULT, __FILE__, __func__, __LINE__, H5E_ERR_CLS, H5E_ATTR, H5E_BADVALUE,
             "one of its attributes is damaged");
    return H5I_INVALID_HID;
}

/* Why the library could not decode an attribute in its last call, and what to do about it. */
static void say_undecodable(ups_hdf5_file *file, char why[600]) {
    unsigned major, minor, release;
    char reason[300];
    ups_hdf5_failed(&file->note, reason);
    H5get_libversion(&major, &minor, &release);
    if (!strstr(reason, "version")) {
        snprintf(why, 600, "%s", reason);
        return;
    }
    snprintf(
        why, 600,
        "%s: a later HDF5 wrote it than the %u.%u.%u that UPS uses here; have it written in an older format (h5py: "
        "libver='v108'), or build UPS with the later HDF5",
        reason, major, minor, release);
}

void ups_hdf5_each_attribute(ups_hdf5_file *file, hid_t object, H5A_operator2_t visit, void *context) {
    char name[200] = "", why[600];
    if (ups_hdf5_guard_list(object)) {
        H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, NULL, visit, context);
        return;
    }
    if (file->told_left_out) return;
    file->told_left_out = true;
    say_undecodable(file, why);
    H5Iget_name(object, name, sizeof name);
    ups_log(UPS_LOG_WARNING, "%s: the attributes of '%s' are left out, since one of them cannot be decoded (%s)",
            file->path, name, why);
}

/* The library's type for reading texts of a stored type of fixed length; *bytes of one in memory. Closed by the caller.
 */
static hid_t text_type(hid_t stored, size_t *bytes) {
    hid_t type = H5Tcopy(H5T_C_S1);
    *bytes = H5Tget_size(stored) + 1; /* room for the NUL */
    H5Tset_size(type, *bytes);
    H5Tset_cset(type, H5Tget_cset(stored));
    return type;
}

/* ---- all of them --------------------------------------------------------------------------------------------------
 */

typedef struct attribute_walk {
    ups_hdf5_file *file;
    const char *object;
    ups_hdf5_attribute_visitor visit;
    void *context;
} attribute_walk;

static void visit_text(const attribute_walk *walk, hid_t attribute, hid_t type, const char *name) {
    char *text = NULL;
    bool fine;
    if (H5Tis_variable_str(type) > 0) {
        fine = ups_hdf5_read_texts(walk->file, attribute, 1, LONGEST_TEXT, &text);
    } else {
        size_t bytes;
        hid_t memory_type = text_type(type, &bytes);
        text = bytes <= LONGEST_TEXT ? calloc(1, bytes) : NULL;
        fine = text && H5Aread(attribute, memory_type, text) >= 0;
        H5Tclose(memory_type);
    }
    if (fine && text) walk->visit(walk->context, name, 0, text);
    if (!fine && ups_hdf5_check_reads(walk->file, NULL) == UPS_OK) /* else the file is refused */
        ups_log(UPS_LOG_WARNING, "%s: attribute '%s' of '/%s' is left out: its text is damaged, or longer than 1 MiB",
                walk->file->path, name, walk->object);
    free(text);
}

static herr_t visit_attribute(hid_t object, const char *name, const H5A_info_t *info, void *context) {
    const attribute_walk *walk = context;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    if (attribute < 0) return 0;
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    if (type >= 0 && space >= 0 && H5Sget_simple_extent_npoints(space) == 1) {
        H5T_class_t class = H5Tget_class(type);
        double number;
        if (class == H5T_STRING) visit_text(walk, attribute, type, name);
        if ((class == H5T_FLOAT || class == H5T_INTEGER) && H5Aread(attribute, H5T_NATIVE_DOUBLE, &number) >= 0)
            walk->visit(walk->context, name, number, NULL);
    }
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    H5Aclose(attribute);
    return 0;
}

ups_status ups_hdf5_attributes(ups_hdf5_file *file, const char *name, ups_hdf5_attribute_visitor visit, void *context,
                               ups_error *error) {
    attribute_walk walk = {file, name, visit, context};
    char reason[300] = "";
    ups_hdf5_enter();
    hid_t object = ups_hdf5_open_for_attributes(file, name);
    if (object >= 0) {
        ups_hdf5_each_attribute(file, object, visit_attribute, &walk);
        H5Oclose(object);
    } else {
        ups_hdf5_failed(&file->note, reason);
    }
    ups_hdf5_leave();
    if (object < 0)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: the attributes of '/%s' cannot be read (%s); the file is damaged",
                        file->path, name, reason);
    return UPS_OK;
}

/* ---- one by its name ----------------------------------------------------------------------------------------------
 */

/* Texts of variable length, and of fixed; false when they cannot be read. */
static bool read_variable_texts(ups_hdf5_file *file, hid_t attribute, ups_arena *arena, ups_attribute *out) {
    char **found = calloc((size_t)out->count, sizeof *found);
    bool fine = found && ups_hdf5_read_texts(file, attribute, out->count, LONGEST_TEXT, found);
    const char **texts = UPS_ARENA_ARRAY(arena, const char *, out->count);
    for (int64_t i = 0; fine && i < out->count; i++) {
        texts[i] = ups_arena_strdup(arena, found[i] ? found[i] : "");
        free(found[i]);
    }
    free(found);
    out->texts = texts;
    return fine;
}

static bool read_fixed_texts(hid_t attribute, hid_t type, ups_arena *arena, ups_attribute *out) {
    size_t bytes;
    hid_t memory_type = text_type(type, &bytes);
    char *buffer = bytes < LONGEST_TEXT / (size_t)out->count ? calloc((size_t)out->count, bytes) : NULL;
    bool fine = buffer && H5Aread(attribute, memory_type, buffer) >= 0;
    const char **texts = UPS_ARENA_ARRAY(arena, const char *, out->count);
    for (int64_t i = 0; fine && i < out->count; i++) texts[i] = ups_arena_strdup(arena, buffer + (size_t)i * bytes);
    free(buffer);
    H5Tclose(memory_type);
    out->texts = texts;
    return fine;
}

/* Numbers, and truth values as h5py writes them: an enumeration of one byte, FALSE = 0 and TRUE = 1. */
static bool read_numbers(hid_t attribute, hid_t type, ups_arena *arena, ups_attribute *out) {
    double *numbers = UPS_ARENA_ARRAY(arena, double, out->count);
    bool fine;
    if (H5Tget_class(type) == H5T_ENUM) {
        int8_t bytes[MAX_ENTRIES];
        fine = H5Tget_size(type) == 1 && H5Aread(attribute, type, bytes) >= 0;
        for (int64_t i = 0; fine && i < out->count; i++) numbers[i] = bytes[i];
    } else {
        fine = H5Aread(attribute, H5T_NATIVE_DOUBLE, numbers) >= 0;
    }
    out->numbers = numbers;
    return fine;
}

static bool read_attribute(ups_hdf5_file *file, hid_t attribute, ups_arena *arena, ups_attribute *out) {
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    bool fine = type >= 0 && space >= 0;
    hssize_t count = fine ? H5Sget_simple_extent_npoints(space) : -1;
    out->present = true;
    if (count < 0 || count > MAX_ENTRIES) fine = false;
    out->count = fine ? count : 0;
    if (fine && count > 0) {
        H5T_class_t class = H5Tget_class(type);
        if (class == H5T_STRING) {
            fine = H5Tis_variable_str(type) > 0 ? read_variable_texts(file, attribute, arena, out)
                                                : read_fixed_texts(attribute, type, arena, out);
        } else {
            fine = (class == H5T_FLOAT || class == H5T_INTEGER || class == H5T_ENUM) &&
                   read_numbers(attribute, type, arena, out);
        }
    }
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    return fine;
}

ups_status ups_hdf5_read_attribute(ups_hdf5_file *file, const char *object_name, const char *name, ups_arena *arena,
                                   ups_attribute *out, ups_error *error) {
    *out = (ups_attribute){0};
    char reason[600] = "its type is neither text nor number";
    ups_hdf5_enter();
    hid_t object = ups_hdf5_open_for_attributes(file, object_name);
    htri_t exists = object < 0 ? -1 : H5Aexists(object, name);
    hid_t attribute = exists > 0 ? H5Aopen(object, name, H5P_DEFAULT) : -1;
    bool fine = exists == 0 || (attribute >= 0 && read_attribute(file, attribute, arena, out));
    if (exists < 0 || (exists > 0 && attribute < 0)) say_undecodable(file, reason);
    if (attribute >= 0) H5Aclose(attribute);
    if (object >= 0) H5Oclose(object);
    ups_hdf5_leave();
    if (fine) return UPS_OK;
    return ups_fail(error, UPS_ERR_FORMAT, "%s: attribute '%s' of '/%s' cannot be read (%s)", file->path, name,
                    object_name, reason);
}

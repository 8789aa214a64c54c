#include "pipeline/netcdf/hdf5.h"

#include "pipeline/hdf5/attributes.h"
#include "pipeline/hdf5/elsewhere.h"
#include "pipeline/hdf5/guards.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_DATASETS = 1 << 16, MAX_RANK = 32, LARGEST_ATTRIBUTE = 1 << 20 };

/* One dataset of the root group, as it is found out. */
typedef struct found_dataset {
    const char *name;
    bool scale;           /* a dimension */
    bool variable;        /* has numbers of its own */
    int64_t dim_id;       /* _Netcdf4Dimid, or −1 */
    int64_t number;       /* of the dimension */
    hobj_ref_t reference; /* as others refer to it */
    hsize_t shape[MAX_RANK];
    int64_t *dimensions; /* (rank): numbers, −1 while unknown */
    bool unlimited;      /* along its first axis */
    ups_netcdf_variable description;
} found_dataset;

typedef struct description {
    ups_hdf5_file *file;
    ups_arena *arena;
    const char **names;
    int64_t name_count, name_capacity;
    found_dataset *datasets;
    int64_t count;
    ups_netcdf_dimension *dimensions;
    int64_t dimension_count;
} description;

/* ---- types and attributes ------------------------------------------------------------------------------------------
 */

static ups_netcdf_type netcdf_type(hid_t type) {
    size_t size = H5Tget_size(type);
    H5T_class_t class = H5Tget_class(type);
    if (class == H5T_FLOAT && size <= 4) return UPS_NETCDF_FLOAT;
    if (class == H5T_FLOAT && size <= 16) return UPS_NETCDF_DOUBLE;
    if (class != H5T_INTEGER) return UPS_NETCDF_OTHER;
    bool has_sign = H5Tget_sign(type) != H5T_SGN_NONE;
    switch (size) {
    case 1:
        return has_sign ? UPS_NETCDF_BYTE : UPS_NETCDF_UBYTE;
    case 2:
        return has_sign ? UPS_NETCDF_SHORT : UPS_NETCDF_USHORT;
    case 4:
        return has_sign ? UPS_NETCDF_INT : UPS_NETCDF_UINT;
    case 8:
        return has_sign ? UPS_NETCDF_INT64 : UPS_NETCDF_UINT64;
    default:
        return UPS_NETCDF_OTHER;
    }
}

static hid_t memory_type(ups_netcdf_type type) {
    switch (type) {
    case UPS_NETCDF_BYTE:
        return H5T_NATIVE_INT8;
    case UPS_NETCDF_UBYTE:
        return H5T_NATIVE_UINT8;
    case UPS_NETCDF_SHORT:
        return H5T_NATIVE_INT16;
    case UPS_NETCDF_USHORT:
        return H5T_NATIVE_UINT16;
    case UPS_NETCDF_INT:
        return H5T_NATIVE_INT32;
    case UPS_NETCDF_UINT:
        return H5T_NATIVE_UINT32;
    case UPS_NETCDF_INT64:
        return H5T_NATIVE_INT64;
    case UPS_NETCDF_UINT64:
        return H5T_NATIVE_UINT64;
    case UPS_NETCDF_FLOAT:
        return H5T_NATIVE_FLOAT;
    default:
        return H5T_NATIVE_DOUBLE;
    }
}

static bool read_text(const description *to, hid_t attribute, hid_t type, ups_netcdf_attribute *out) {
    bool done = false;
    if (H5Tis_variable_str(type) > 0) {
        char *text = NULL;
        done = ups_hdf5_read_texts(to->file, attribute, 1, LARGEST_ATTRIBUTE, &text) && text;
        if (done) out->values = ups_arena_strdup(to->arena, text);
        free(text);
    } else {
        hid_t memory = H5Tcopy(H5T_C_S1);
        size_t size = H5Tget_size(type);
        H5Tset_cset(memory, H5Tget_cset(type));
        if (size > 0 && size < LARGEST_ATTRIBUTE) {
            char *text = ups_arena_alloc(to->arena, size + 1);
            H5Tset_size(memory, size + 1); /* room for the NUL */
            done = H5Aread(attribute, memory, text) >= 0;
            out->values = text;
        }
        H5Tclose(memory);
    }
    out->type = UPS_NETCDF_CHAR;
    if (done) out->count = (int64_t)strlen(out->values);
    return done;
}

/* A number, a list of numbers, or one text; false for anything else. */
static bool read_attribute(const description *to, hid_t object, const char *name, ups_netcdf_attribute *out) {
    bool done = false;
    *out = (ups_netcdf_attribute){.name = ups_arena_strdup(to->arena, name)};
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT);
    if (attribute < 0) return false;
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    hssize_t count = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    if (type >= 0 && count >= 1 && count <= LARGEST_ATTRIBUTE / 8) {
        out->type = netcdf_type(type);
        out->count = count;
        if (H5Tget_class(type) == H5T_STRING) {
            done = count == 1 && read_text(to, attribute, type, out);
        } else if (out->type != UPS_NETCDF_OTHER) {
            void *values = ups_arena_alloc(to->arena, (size_t)count * 8);
            out->values = values;
            done = H5Aread(attribute, memory_type(out->type), values) >= 0;
        }
    }
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    H5Aclose(attribute);
    return done;
}

static bool of_the_format(const char *name) {
    static const char *const names[] = {"CLASS",          "NAME",          "DIMENSION_LIST",
                                        "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates",
                                        "_NCProperties",  "_nc3_strict",   "_NCCOPY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) return true;
    }
    return false;
}

typedef struct attribute_list {
    const description *to;
    ups_netcdf_attribute *list;
    int64_t count, room;
} attribute_list;

static herr_t take_attribute(hid_t object, const char *name, const H5A_info_t *info, void *context) {
    attribute_list *attributes = context;
    if (of_the_format(name) || attributes->count == attributes->room) return 0;
    attributes->count += read_attribute(attributes->to, object, name, &attributes->list[attributes->count]);
    return 0;
}

static void read_attributes(const description *to, hid_t object, int64_t *count, const ups_netcdf_attribute **list) {
    int number = H5Aget_num_attrs(object);
    attribute_list attributes = {.to = to, .room = number > 0 ? number : 0};
    attributes.list = UPS_ARENA_ARRAY(to->arena, ups_netcdf_attribute, attributes.room + 1);
    ups_hdf5_each_attribute(to->file, object, take_attribute, &attributes);
    *count = attributes.count;
    *list = attributes.list;
}

/* ---- dimensions of a variable --------------------------------------------------------------------------------------
 */

/* An entry of a scale's REFERENCE_LIST: the scale is that dataset's dimension number `axis`. A variable's own
 * DIMENSION_LIST says the same, but lies in HDF5's global heap, where the library (1.10) does not check damaged
 * positions. */
typedef struct scale_use {
    hobj_ref_t dataset;
    unsigned axis;
} scale_use;

static void note_use(description *to, const scale_use *use, int64_t dimension) {
    for (int64_t i = 0; i < to->count; i++) {
        found_dataset *found = &to->datasets[i];
        if (found->reference == use->dataset && use->axis < (unsigned)found->description.rank)
            found->dimensions[use->axis] = dimension;
    }
}

static void read_uses(description *to, hid_t scale, int64_t dimension) {
    enum { MAX_USES = LARGEST_ATTRIBUTE / (int)sizeof(scale_use) };
    if (H5Aexists(scale, "REFERENCE_LIST") <= 0) return;
    hid_t attribute = H5Aopen(scale, "REFERENCE_LIST", H5P_DEFAULT);
    if (attribute < 0) return;
    hid_t type = H5Aget_type(attribute), space = H5Aget_space(attribute);
    hid_t wanted = H5Tcreate(H5T_COMPOUND, sizeof(scale_use));
    H5Tinsert(wanted, "dataset", HOFFSET(scale_use, dataset), H5T_STD_REF_OBJ);
    H5Tinsert(wanted, "dimension", HOFFSET(scale_use, axis), H5T_NATIVE_UINT);
    hssize_t count = space < 0 ? -1 : H5Sget_simple_extent_npoints(space);
    if (type >= 0 && H5Tget_class(type) == H5T_COMPOUND && count > 0 && count <= MAX_USES) {
        scale_use *uses = calloc((size_t)count, sizeof *uses);
        if (uses && H5Aread(attribute, wanted, uses) >= 0) {
            for (hssize_t i = 0; i < count; i++) note_use(to, &uses[i], dimension);
        }
        free(uses);
    }
    H5Tclose(wanted);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    H5Aclose(attribute);
}

/* From _Netcdf4Coordinates, which a variable has that is a dimension scale itself but of rank 2 or more. */
static bool read_coordinate_ids(const description *to, hid_t dataset, int rank, int64_t *dimensions) {
    ups_netcdf_attribute ids;
    if (H5Aexists(dataset, "_Netcdf4Coordinates") <= 0 || !read_attribute(to, dataset, "_Netcdf4Coordinates", &ids) ||
        ids.type == UPS_NETCDF_CHAR || ids.count != rank)
        return false;
    for (int axis = 0; axis < rank; axis++) {
        dimensions[axis] = -1;
        for (int64_t i = 0; i < to->count; i++) {
            const found_dataset *scale = &to->datasets[i];
            if (scale->scale && scale->dim_id >= 0 && (double)scale->dim_id == ups_netcdf_number(&ids, axis))
                dimensions[axis] = scale->number;
        }
        if (dimensions[axis] < 0) return false;
    }
    return true;
}

static bool find_dimensions(const description *to, hid_t dataset, found_dataset *found) {
    int rank = found->description.rank;
    found->description.dimensions = found->dimensions;
    if (found->scale && rank == 1) found->dimensions[0] = found->number;
    if (found->scale && rank > 1) return read_coordinate_ids(to, dataset, rank, found->dimensions);
    for (int axis = 0; axis < rank; axis++) {
        if (found->dimensions[axis] < 0) return false;
    }
    return true;
}

/* ---- datasets ------------------------------------------------------------------------------------------------------
 */

static herr_t take_name(hid_t group, const char *name, const H5L_info_t *info, void *context) {
    description *to = context;
    if (to->name_count == MAX_DATASETS) return -1;
    if (to->name_count == to->name_capacity) {
        int64_t capacity = to->name_capacity ? 2 * to->name_capacity : 64;
        const char **names = realloc(to->names, (size_t)capacity * sizeof *names);
        if (!names) return -1;
        to->names = names;
        to->name_capacity = capacity;
    }
    to->names[to->name_count++] = ups_arena_strdup(to->arena, name);
    return 0;
}

static bool text_is(const description *to, hid_t object, const char *name, const char *start) {
    ups_netcdf_attribute attribute;
    return H5Aexists(object, name) > 0 && read_attribute(to, object, name, &attribute) &&
           attribute.type == UPS_NETCDF_CHAR && strncmp(attribute.values, start, strlen(start)) == 0;
}

static bool is_scale(const description *to, hid_t dataset) {
    return text_is(to, dataset, "CLASS", "DIMENSION_SCALE");
}

/* Shape, type and kind of an open dataset; false when it is nothing for us. */
static bool examine(const description *to, hid_t dataset, const char *name, found_dataset *found) {
    static const char hidden[] = "_nc4_non_coord_"; /* before a variable that only shares a dimension's name */
    *found = (found_dataset){.name = name, .dim_id = -1};
    const bool all_there = ups_hdf5_all_is_there(&to->file->note, dataset, name); /* else the file is refused */
    hid_t type = H5Dget_type(dataset), space = all_there ? H5Dget_space(dataset) : H5I_INVALID_HID;
    int rank = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
    bool usable = type >= 0 && rank >= 0 && rank <= MAX_RANK;
    if (usable) {
        hsize_t most[MAX_RANK] = {0};
        if (rank > 0) H5Sget_simple_extent_dims(space, found->shape, most);
        found->dimensions = UPS_ARENA_ARRAY(to->arena, int64_t, rank + 1);
        for (int axis = 0; axis < rank; axis++) {
            usable &= found->shape[axis] <= INT64_MAX;
            found->dimensions[axis] = -1;
        }
        usable &= H5Rcreate(&found->reference, to->file->id, name, H5R_OBJECT, -1) >= 0;
        found->unlimited = rank > 0 && most[0] == H5S_UNLIMITED;
        found->scale = rank > 0 && is_scale(to, dataset);
        bool bare =
            found->scale && text_is(to, dataset, "NAME", "This is a netCDF dimension but not a netCDF variable");
        found->description = (ups_netcdf_variable){
            .name = strncmp(name, hidden, sizeof hidden - 1) == 0 ? name + sizeof hidden - 1 : name,
            .dataset = name,
            .type = netcdf_type(type),
            .rank = rank,
        };
        found->variable = !bare && found->description.type != UPS_NETCDF_OTHER;
        ups_netcdf_attribute id;
        if (found->scale && H5Aexists(dataset, "_Netcdf4Dimid") > 0 &&
            read_attribute(to, dataset, "_Netcdf4Dimid", &id) && id.type != UPS_NETCDF_CHAR)
            found->dim_id = (int64_t)ups_netcdf_number(&id, 0);
    }
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    return usable;
}

static hid_t open_dataset(const description *to, const char *name) {
    hid_t object = ups_hdf5_open_for_attributes(to->file, name);
    if (object < 0 || H5Iget_type(object) == H5I_DATASET) return object;
    H5Oclose(object);
    return H5I_INVALID_HID;
}

static void find_datasets(description *to) {
    to->datasets = UPS_ARENA_ARRAY(to->arena, found_dataset, to->name_count + 1);
    to->dimensions = UPS_ARENA_ARRAY(to->arena, ups_netcdf_dimension, to->name_count + 1);
    for (int64_t i = 0; i < to->name_count; i++) {
        hid_t dataset = open_dataset(to, to->names[i]);
        if (dataset < 0) continue;
        found_dataset *found = &to->datasets[to->count];
        if (examine(to, dataset, to->names[i], found)) {
            to->count++;
            if (found->scale) {
                found->number = to->dimension_count;
                to->dimensions[to->dimension_count++] = (ups_netcdf_dimension){
                    .name = found->name, .length = (int64_t)found->shape[0], .unlimited = found->unlimited};
            }
        }
        H5Oclose(dataset);
    }
}

static void find_uses(description *to) {
    for (int64_t i = 0; i < to->count; i++) {
        hid_t scale = to->datasets[i].scale ? open_dataset(to, to->datasets[i].name) : H5I_INVALID_HID;
        if (scale < 0) continue;
        read_uses(to, scale, to->datasets[i].number);
        H5Oclose(scale);
    }
}

/* Variables, with dimensions and attributes. An unlimited dimension is as long as its longest variable. */
static void find_variables(description *to, ups_netcdf_header *header) {
    ups_netcdf_variable *variables = UPS_ARENA_ARRAY(to->arena, ups_netcdf_variable, to->count + 1);
    for (int64_t i = 0; i < to->count; i++) {
        found_dataset *found = &to->datasets[i];
        if (!found->variable) continue;
        hid_t dataset = open_dataset(to, found->name);
        if (dataset < 0) continue;
        if (find_dimensions(to, dataset, found)) {
            ups_netcdf_variable *variable = &variables[header->variable_count++];
            read_attributes(to, dataset, &found->description.attribute_count, &found->description.attributes);
            *variable = found->description;
            for (int axis = 0; axis < variable->rank; axis++) {
                ups_netcdf_dimension *dimension = &to->dimensions[variable->dimensions[axis]];
                if (dimension->unlimited && dimension->length < (int64_t)found->shape[axis])
                    dimension->length = (int64_t)found->shape[axis];
            }
        }
        H5Oclose(dataset);
    }
    header->variables = variables;
    header->dimensions = to->dimensions;
    header->dimension_count = to->dimension_count;
}

static herr_t list_names(description *to, hid_t root) {
    herr_t result = H5Literate(root, H5_INDEX_CRT_ORDER, H5_ITER_INC, NULL, take_name, to);
    if (result >= 0) return result;
    to->name_count = 0; /* no order of creation is kept */
    return H5Literate(root, H5_INDEX_NAME, H5_ITER_INC, NULL, take_name, to);
}

ups_status ups_netcdf_hdf5_describe(ups_hdf5_file *file, ups_arena *arena, ups_netcdf_header *header,
                                    ups_error *error) {
    description to = {.file = file, .arena = arena};
    *header = (ups_netcdf_header){.version = 4};
    char reason[300] = "";
    ups_hdf5_enter();
    hid_t root = ups_hdf5_open_for_attributes(file, "");
    herr_t result = root < 0 ? -1 : list_names(&to, root);
    if (result < 0) {
        ups_hdf5_failed(&file->note, reason);
    } else {
        find_datasets(&to);
        find_uses(&to);
        find_variables(&to, header);
        read_attributes(&to, root, &header->attribute_count, &header->attributes);
    }
    if (root >= 0) H5Oclose(root);
    ups_hdf5_leave();
    free(to.names);
    if (result < 0)
        return ups_fail(error, UPS_ERR_FORMAT, "%s: its root group cannot be listed (%s); the file is damaged",
                        file->path, reason);
    return UPS_OK;
}

/* ---- recognising -------------------------------------------------------------------------------
 */

static herr_t stop_at_scale(hid_t group, const char *name, const H5L_info_t *info, void *context) {
    const description *to = context;
    hid_t dataset = open_dataset(to, name);
    if (dataset < 0) return 0;
    bool scale = is_scale(to, dataset);
    H5Oclose(dataset);
    return scale;
}

bool ups_netcdf_hdf5_recognises(ups_hdf5_file *file) {
    description to = {.file = file, .arena = ups_arena_create(0)};
    if (!to.arena) return false;
    bool recognised = false;
    ups_hdf5_enter();
    hid_t root = ups_hdf5_open_for_attributes(file, "");
    if (root >= 0) {
        recognised = H5Aexists(root, "_NCProperties") > 0 ||
                     H5Literate(root, H5_INDEX_NAME, H5_ITER_INC, NULL, stop_at_scale, &to) > 0;
        H5Oclose(root);
    }
    ups_hdf5_leave();
    ups_arena_destroy(to.arena);
    return recognised;
}

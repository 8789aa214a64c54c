#include "pipeline/netcdf/cf.h"

#include <math.h>
#include <string.h>
#include <strings.h>

static const ups_netcdf_attribute *attribute_of(const ups_netcdf_variable *variable, const char *name) {
    return ups_netcdf_find(variable->attributes, variable->attribute_count, name);
}

static const ups_netcdf_attribute *numbers_of(const ups_netcdf_variable *variable, const char *name) {
    const ups_netcdf_attribute *attribute = attribute_of(variable, name);
    return attribute && attribute->type != UPS_NETCDF_CHAR && attribute->count >= 1 ? attribute : NULL;
}

/* ---- stored type ---------------------------------------------------------------------------------------------------
 */

static bool says_unsigned(const ups_netcdf_variable *variable) {
    const ups_netcdf_attribute *attribute = attribute_of(variable, "_Unsigned");
    return attribute && attribute->type == UPS_NETCDF_CHAR && strcasecmp(attribute->values, "true") == 0;
}

ups_number ups_netcdf_stored_number(const ups_netcdf_variable *variable) {
    bool natural = says_unsigned(variable);
    switch (variable->type) {
    case UPS_NETCDF_BYTE:
        return natural ? UPS_NUMBER_U8 : UPS_NUMBER_I8;
    case UPS_NETCDF_SHORT:
        return natural ? UPS_NUMBER_U16 : UPS_NUMBER_I16;
    case UPS_NETCDF_INT:
        return natural ? UPS_NUMBER_U32 : UPS_NUMBER_I32;
    case UPS_NETCDF_INT64:
        return natural ? UPS_NUMBER_U64 : UPS_NUMBER_I64;
    case UPS_NETCDF_UBYTE:
    case UPS_NETCDF_CHAR:
        return UPS_NUMBER_U8;
    case UPS_NETCDF_USHORT:
        return UPS_NUMBER_U16;
    case UPS_NETCDF_UINT:
        return UPS_NUMBER_U32;
    case UPS_NETCDF_UINT64:
        return UPS_NUMBER_U64;
    case UPS_NETCDF_FLOAT:
        return UPS_NUMBER_F32;
    case UPS_NETCDF_DOUBLE:
    case UPS_NETCDF_OTHER:
        break;
    }
    return UPS_NUMBER_F64;
}

/* ---- values as elements --------------------------------------------------------------------------------------------
 */

/* Value `index` of an attribute. A long double holds every 64-bit integer where it is wider than a double. */
static long double wide_value(const ups_netcdf_attribute *attribute, int64_t index) {
    int64_t whole;
    uint64_t natural;
    const uint8_t *at = (const uint8_t *)attribute->values + (size_t)index * 8;
    if (attribute->type == UPS_NETCDF_INT64) {
        memcpy(&whole, at, sizeof whole);
        return (long double)whole;
    }
    if (attribute->type == UPS_NETCDF_UINT64) {
        memcpy(&natural, at, sizeof natural);
        return (long double)natural;
    }
    return (long double)ups_netcdf_number(attribute, index);
}

/* What NetCDF writes where nothing was written (netcdf.h, NC_FILL_…). */
static long double default_fill(ups_netcdf_type type) {
    switch (type) {
    case UPS_NETCDF_BYTE:
        return -127;
    case UPS_NETCDF_CHAR:
        return 0;
    case UPS_NETCDF_SHORT:
        return -32767;
    case UPS_NETCDF_INT:
        return -2147483647;
    case UPS_NETCDF_UBYTE:
        return 255;
    case UPS_NETCDF_USHORT:
        return 65535;
    case UPS_NETCDF_UINT:
        return 4294967295.0L;
    case UPS_NETCDF_INT64:
        return (long double)INT64_C(-9223372036854775806);
    case UPS_NETCDF_UINT64:
        return (long double)UINT64_C(18446744073709551614);
    case UPS_NETCDF_FLOAT:
    case UPS_NETCDF_DOUBLE:
    case UPS_NETCDF_OTHER:
        break;
    }
    return (long double)9.9692099683868690e+36; /* 0x1.ep+122, a float32 as well */
}

void ups_netcdf_fill(const ups_netcdf_variable *variable, ups_number number, uint8_t fill[8]) {
    const ups_netcdf_attribute *attribute = numbers_of(variable, "_FillValue");
    memset(fill, 0, 8);
    ups_number_element(attribute ? wide_value(attribute, 0) : default_fill(variable->type), number, fill);
}

/* ---- packing -------------------------------------------------------------------------------------------------------
 */

static void add_missing(ups_packing *packing, long double value) {
    if (packing->missing_count == UPS_PACKING_MAX_MISSING || isnan(value)) return;
    packing->missing_count += ups_number_element(value, packing->number, packing->missing[packing->missing_count]);
}

static void find_missing(const ups_netcdf_variable *variable, ups_packing *packing) {
    const ups_netcdf_attribute *fill = numbers_of(variable, "_FillValue");
    const ups_netcdf_attribute *missing = numbers_of(variable, "missing_value");
    bool bytes = variable->type == UPS_NETCDF_BYTE || variable->type == UPS_NETCDF_UBYTE;
    if (fill) {
        add_missing(packing, wide_value(fill, 0));
    } else if (!bytes) {
        add_missing(packing, default_fill(variable->type));
    }
    for (int64_t i = 0; missing && i < missing->count; i++) add_missing(packing, wide_value(missing, i));
}

static void find_range(const ups_netcdf_variable *variable, ups_packing *packing) {
    const ups_netcdf_attribute *range = numbers_of(variable, "valid_range");
    const ups_netcdf_attribute *least = numbers_of(variable, "valid_min");
    const ups_netcdf_attribute *greatest = numbers_of(variable, "valid_max");
    if (range && range->count == 2) {
        packing->has_least = ups_number_element(wide_value(range, 0), packing->number, packing->least);
        packing->has_greatest = ups_number_element(wide_value(range, 1), packing->number, packing->greatest);
        return;
    }
    if (least) packing->has_least = ups_number_element(wide_value(least, 0), packing->number, packing->least);
    if (greatest)
        packing->has_greatest = ups_number_element(wide_value(greatest, 0), packing->number, packing->greatest);
}

const ups_packing *ups_netcdf_packing(const ups_netcdf_variable *variable, ups_number number, ups_arena *arena) {
    ups_packing *packing = UPS_ARENA_NEW(arena, ups_packing);
    packing->number = number;
    find_missing(variable, packing);
    find_range(variable, packing);
    const ups_netcdf_attribute *scale = numbers_of(variable, "scale_factor");
    const ups_netcdf_attribute *offset = numbers_of(variable, "add_offset");
    bool narrow = ups_number_dtype(ups_netcdf_stored_number(variable)) == UPS_F32;
    if (scale && ups_netcdf_number(scale, 0) != 1) {
        packing->scaled = true;
        packing->scale = ups_netcdf_number(scale, 0);
        packing->scale_single = narrow && scale->type == UPS_NETCDF_FLOAT;
    }
    if (offset && ups_netcdf_number(offset, 0) != 0) {
        packing->shifted = true;
        packing->offset = ups_netcdf_number(offset, 0);
        packing->offset_single =
            narrow && offset->type == UPS_NETCDF_FLOAT && (!packing->scaled || packing->scale_single);
    }
    return packing;
}

/* ---- units of time -------------------------------------------------------------------------------------------------
 */

/* Names and lengths as UDUNITS has them (a month is a twelfth of a year, a year 365.242198781 days). */
double ups_netcdf_seconds(const char *units) {
    static const struct {
        const char *name;
        double seconds;
    } known[] = {
        {"s", 1},
        {"sec", 1},
        {"secs", 1},
        {"second", 1},
        {"seconds", 1},
        {"ms", 1e-3},
        {"msec", 1e-3},
        {"millisecond", 1e-3},
        {"milliseconds", 1e-3},
        {"us", 1e-6},
        {"microsecond", 1e-6},
        {"microseconds", 1e-6},
        {"ns", 1e-9},
        {"nanosecond", 1e-9},
        {"nanoseconds", 1e-9},
        {"min", 60},
        {"mins", 60},
        {"minute", 60},
        {"minutes", 60},
        {"h", 3600},
        {"hr", 3600},
        {"hrs", 3600},
        {"hour", 3600},
        {"hours", 3600},
        {"d", 86400},
        {"day", 86400},
        {"days", 86400},
        {"week", 604800},
        {"weeks", 604800},
        {"month", 2629743.831225},
        {"months", 2629743.831225},
        {"year", 31556925.9747},
        {"years", 31556925.9747},
    };
    size_t length = strcspn(units, " \t");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) == length && strncasecmp(known[i].name, units, length) == 0) return known[i].seconds;
    }
    return 0;
}

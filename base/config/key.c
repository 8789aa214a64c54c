#include "base/config/key.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const ups_config_key *ups_config_find_key(const ups_config_key *keys, const char *name) {
    for (; keys->name; keys++) {
        if (strcmp(keys->name, name) == 0) return keys;
    }
    return NULL;
}

const char *ups_config_join(ups_arena *arena, const char *path, const char *name) {
    return *path ? ups_arena_printf(arena, "%s.%s", path, name) : ups_arena_strdup(arena, name);
}

bool ups_config_is_list(const ups_config_key *key) {
    return key->list.item_size > 0;
}

bool ups_config_takes_single(const ups_config_key *key) {
    return ups_config_is_list(key) && key->type != UPS_CONFIG_SECTION && key->list.minimum_items <= 1;
}

bool ups_config_is_required(const ups_config_key *key) {
    return !key->default_value && (key->type != UPS_CONFIG_SECTION || ups_config_is_list(key));
}

/* ---- what is expected ------------------------------------------------------------------------------------------ */

bool ups_config_has_range(const ups_config_key *key) {
    return key->range.minimum != 0 || key->range.maximum != 0;
}

bool ups_config_in_range(const ups_config_key *key, double number) {
    if (!ups_config_has_range(key)) return true;
    if (fabs(key->range.minimum) < UPS_CONFIG_UNBOUNDED && number < key->range.minimum) return false;
    return fabs(key->range.maximum) >= UPS_CONFIG_UNBOUNDED || number <= key->range.maximum;
}

static const char *number_text(ups_arena *arena, const ups_config_key *key) {
    const char *noun = ups_config_is_real(key->type) ? "a number" : "a whole number", *text = noun;
    double minimum = key->range.minimum, maximum = key->range.maximum;
    bool below = fabs(minimum) < UPS_CONFIG_UNBOUNDED, above = fabs(maximum) < UPS_CONFIG_UNBOUNDED;
    if (!ups_config_has_range(key))
        text = key->type == UPS_CONFIG_UINT64 ? ups_arena_printf(arena, "%s of at least 0", noun) : noun;
    else if (below && above)
        text = ups_arena_printf(arena, "%s between %.10g and %.10g", noun, minimum, maximum);
    else if (below)
        text = ups_arena_printf(arena, "%s of at least %.10g", noun, minimum);
    else if (above)
        text = ups_arena_printf(arena, "%s of at most %.10g", noun, maximum);
    return key->word ? ups_arena_printf(arena, "%s, or %s", text, key->word) : text;
}

static const char *choices_text(ups_arena *arena, const char *const *choices) {
    const char *text = "";
    for (int i = 0; choices[i]; i++) {
        const char *between = i == 0 ? "" : choices[i + 1] ? ", " : " or ";
        text = ups_arena_printf(arena, "%s%s%s", text, between, choices[i]);
    }
    return text;
}

static const char *list_text(ups_arena *arena, const ups_config_key *key) {
    static const char *const plurals[] = {[UPS_CONFIG_SECTION] = "mappings",     [UPS_CONFIG_BOOL] = "true or false",
                                          [UPS_CONFIG_INT32] = "whole numbers",  [UPS_CONFIG_INT64] = "whole numbers",
                                          [UPS_CONFIG_UINT64] = "whole numbers", [UPS_CONFIG_FLOAT] = "numbers",
                                          [UPS_CONFIG_DOUBLE] = "numbers",       [UPS_CONFIG_TEXT] = "texts"};
    unsigned minimum = key->list.minimum_items, maximum = key->list.maximum_items;
    const char *items = key->choices ? choices_text(arena, key->choices) : plurals[key->type];
    if (maximum > 0) return ups_arena_printf(arena, "a list of %u to %u %s", minimum, maximum, items);
    if (minimum > 0) return ups_arena_printf(arena, "a list of at least %u %s", minimum, items);
    return ups_arena_printf(arena, "a list of %s", items);
}

const char *ups_config_expected(ups_arena *arena, const ups_config_key *key, bool item) {
    if (ups_config_is_list(key) && !item) return list_text(arena, key);
    switch (key->type) {
    case UPS_CONFIG_SECTION:
        return "a mapping (indented lines of key: value)";
    case UPS_CONFIG_BOOL:
        return "true or false";
    case UPS_CONFIG_CHOICE:
        return choices_text(arena, key->choices);
    case UPS_CONFIG_TEXT:
        return "text";
    case UPS_CONFIG_YAML:
        return key->word ? key->word : "YAML";
    default:
        return number_text(arena, key);
    }
}

/* ---- scalars --------------------------------------------------------------------------------------------------- */

size_t ups_config_size(ups_config_type type) {
    static const size_t sizes[] = {[UPS_CONFIG_BOOL] = sizeof(bool),       [UPS_CONFIG_INT32] = sizeof(int32_t),
                                   [UPS_CONFIG_INT64] = sizeof(int64_t),   [UPS_CONFIG_UINT64] = sizeof(uint64_t),
                                   [UPS_CONFIG_FLOAT] = sizeof(float),     [UPS_CONFIG_DOUBLE] = sizeof(double),
                                   [UPS_CONFIG_CHOICE] = sizeof(unsigned), [UPS_CONFIG_TEXT] = sizeof(char *),
                                   [UPS_CONFIG_YAML] = sizeof(char *)};
    return sizes[type];
}

const char *ups_config_word_at(const ups_config_key *key, const void *place) {
    static const char zeros[sizeof(int64_t)];
    bool number = key->type >= UPS_CONFIG_INT32 && key->type <= UPS_CONFIG_DOUBLE;
    if (!key->word || !number) return NULL; /* of YAML, the word says what may stand there */
    return memcmp(place, zeros, ups_config_size(key->type)) == 0 ? key->word : NULL;
}

bool ups_config_is_real(ups_config_type type) {
    return type == UPS_CONFIG_FLOAT || type == UPS_CONFIG_DOUBLE;
}

static bool parse_integer(const char *text, ups_config_type type, void *place, double *number, bool *too_large) {
    const char *digits = *text == '-' || *text == '+' ? text + 1 : text;
    if (!*digits || digits[strspn(digits, "0123456789")]) return false;
    errno = 0;
    uint64_t magnitude = strtoull(digits, NULL, 10);
    bool negative = *text == '-' && magnitude > 0;
    uint64_t largest = type == UPS_CONFIG_UINT64 ? UINT64_MAX : type == UPS_CONFIG_INT64 ? INT64_MAX : INT32_MAX;
    if (negative) largest = type == UPS_CONFIG_UINT64 ? 0 : largest + 1;
    *too_large = errno == ERANGE || magnitude > largest;
    uint64_t bits = negative ? 0 - magnitude : magnitude;
    *number = negative ? -(double)magnitude : (double)magnitude;
    memcpy(place, &bits, ups_config_size(type)); /* little-endian, as every machine UPS runs on */
    return !*too_large;
}

static bool is_decimal(const char *at);

/* "1e3", "2.0": a whole number in another spelling, as far as doubles tell whole numbers apart. */
static bool parse_spelled_integer(const char *text, ups_config_type type, void *place, double *number,
                                  bool *too_large) {
    if (!is_decimal(text)) return false;
    double value = strtod(text, NULL);
    if (fabs(value) > UPS_CONFIG_UNBOUNDED) {
        *too_large = true;
        return false;
    }
    if (value != floor(value)) return false;
    char digits[32];
    snprintf(digits, sizeof digits, "%.0f", value);
    return parse_integer(digits, type, place, number, too_large);
}

static bool is_decimal(const char *at) {
    at += *at == '-' || *at == '+';
    size_t whole = strspn(at, "0123456789"), part = 0;
    at += whole;
    if (*at == '.') {
        part = strspn(++at, "0123456789");
        at += part;
    }
    if (whole + part == 0) return false;
    if (*at == 'e' || *at == 'E') {
        at += at[1] == '-' || at[1] == '+' ? 2 : 1;
        size_t exponent = strspn(at, "0123456789");
        if (exponent == 0) return false;
        at += exponent;
    }
    return !*at;
}

bool ups_config_parse_number(const char *text, ups_config_type type, void *place, double *number, bool *too_large) {
    *too_large = false;
    if (!ups_config_is_real(type)) {
        return parse_integer(text, type, place, number, too_large) ||
               (!*too_large && parse_spelled_integer(text, type, place, number, too_large));
    }
    if (!is_decimal(text)) return false;
    *number = strtod(text, NULL);
    *too_large = fabs(*number) > (type == UPS_CONFIG_FLOAT ? (double)FLT_MAX : DBL_MAX);
    if (type == UPS_CONFIG_FLOAT)
        *(float *)place = strtof(text, NULL); /* rounded once */
    else
        *(double *)place = *number;
    return !*too_large;
}

bool ups_config_parse_bool(const char *text, bool *value) {
    static const char *const yes[] = {"true", "yes", "on"}, *const no[] = {"false", "no", "off"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        *value = strcasecmp(text, yes[i]) == 0;
        if (*value || strcasecmp(text, no[i]) == 0) return true;
    }
    return false;
}

/* ---- all keys -------------------------------------------------------------------------------------------------- */

static void visit_keys(ups_arena *arena, const ups_config_key *keys, const char *path, ups_config_visit visit,
                       void *context) {
    for (const ups_config_key *key = keys; key->name; key++) {
        if (key->type == UPS_CONFIG_REMOVED) continue;
        const char *own = ups_config_join(arena, path, key->name);
        visit(context, own, ups_config_expected(arena, key, false), key);
        if (ups_config_is_list(key)) own = ups_arena_printf(arena, "%s[]", own);
        if (key->type == UPS_CONFIG_SECTION) visit_keys(arena, key->keys, own, visit, context);
    }
}

void ups_config_each_key(const ups_config_schema *schema, ups_config_visit visit, void *context) {
    ups_arena *arena = ups_arena_create(0);
    if (!arena) return;
    visit_keys(arena, schema->keys, "", visit, context);
    ups_arena_destroy(arena);
}

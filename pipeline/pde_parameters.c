#include "pipeline/pde_parameters.h"

#include "base/config/document.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

/* Grid and run, as PDEBench's generators name them (the last part of a dotted key counts). */
static const char *const not_of_the_equation[] = {
    "seed",        "n",       "t",          "T",       "tdim",         "dt",        "nt",
    "t_end",       "T_end",   "DT",         "n_steps", "n_time_steps", "frame_int", "n_batch",
    "latestIndex", "xdim",    "ydim",       "zdim",    "nx",           "ny",        "nz",
    "x_left",      "x_right", "y_left",     "y_right", "y_bottom",     "y_top",     "z_left",
    "z_right",     "samples", "resolution", "steps",   "version",
};

/* Sections of a generator's settings that are about its pictures and its uploads. */
static const char *const foreign_sections[] = {"plot.", "dataverse."};

static bool of_the_equation(const char *name) {
    for (size_t i = 0; i < sizeof foreign_sections / sizeof *foreign_sections; i++) {
        if (strncmp(name, foreign_sections[i], strlen(foreign_sections[i])) == 0) return false;
    }
    const char *dot = strrchr(name, '.');
    const char *last = dot ? dot + 1 : name;
    for (size_t i = 0; i < sizeof not_of_the_equation / sizeof *not_of_the_equation; i++) {
        if (strcmp(last, not_of_the_equation[i]) == 0) return false;
    }
    return true;
}

void ups_pde_parameters_set(ups_pde_parameters *parameters, const char *name, double value) {
    for (int i = 0; i < parameters->count; i++) {
        if (strcasecmp(parameters->list[i].name, name) == 0) return;
    }
    if (parameters->count == parameters->capacity) {
        int capacity = parameters->capacity ? 2 * parameters->capacity : 8;
        ups_pde_parameter *list = UPS_ARENA_ARRAY(parameters->arena, ups_pde_parameter, capacity);
        if (parameters->count) memcpy(list, parameters->list, (size_t)parameters->count * sizeof *list);
        parameters->list = list;
        parameters->capacity = capacity;
    }
    parameters->list[parameters->count++] = (ups_pde_parameter){ups_arena_strdup(parameters->arena, name), value};
}

/* Parameters that files write in several ways ("Nu", "NU", "nu"), as UPS calls them. */
static const char *const known[] = {"beta", "nu", "rho", "eta", "zeta", "M", "Re", "dk"};

/* Generators keep what is of the equation in a section of that name. */
static const char equation_section[] = "sim.";

static const char *one_spelling(const char *name) {
    if (strncmp(name, equation_section, strlen(equation_section)) == 0) name += strlen(equation_section);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcasecmp(known[i], name) == 0) return known[i];
    }
    return name;
}

void ups_pde_parameters_add(ups_pde_parameters *parameters, const char *name, double value) {
    if (*name && of_the_equation(name)) ups_pde_parameters_set(parameters, one_spelling(name), value);
}

/* The whole text as a number; not "inf" and "nan", which in YAML are words. */
static bool parse_number(const char *text, double *value) {
    if (!isdigit((unsigned char)*text) && !strchr("+-.", *text)) return false;
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && isfinite(*value);
}

/* ---- YAML ---------------------------------------------------------------------------------------------------------
 */

/* Aliases let a short text describe a huge tree, or one without end. */
enum { DEEPEST = 16, MAX_NODES = 4096 };

static void flatten(ups_pde_parameters *parameters, yaml_document_t *document, const yaml_node_t *node,
                    const char *prefix, int depth, int *nodes) {
    if (++*nodes > MAX_NODES) return;
    if (node->type == YAML_SCALAR_NODE) {
        double value;
        if (*prefix && node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
            parse_number((const char *)node->data.scalar.value, &value))
            ups_pde_parameters_add(parameters, prefix, value);
        return;
    }
    if (node->type != YAML_MAPPING_NODE || depth == DEEPEST) return;
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top && *nodes <= MAX_NODES; pair++) {
        const yaml_node_t *key = yaml_document_get_node(document, pair->key);
        const yaml_node_t *value = yaml_document_get_node(document, pair->value);
        if (!key || !value || key->type != YAML_SCALAR_NODE) continue;
        char name[256];
        int length =
            snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", (const char *)key->data.scalar.value);
        if (length > 0 && (size_t)length < sizeof name) flatten(parameters, document, value, name, depth + 1, nodes);
    }
}

void ups_pde_parameters_from_yaml(ups_pde_parameters *parameters, const char *text) {
    yaml_parser_t parser;
    yaml_document_t document;
    size_t line;
    if (!ups_yaml_is_shallow(text, strlen(text), &line) || !yaml_parser_initialize(&parser)) return;
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, strlen(text));
    if (yaml_parser_load(&parser, &document)) {
        const yaml_node_t *root = yaml_document_get_root_node(&document);
        int nodes = 0;
        if (root) flatten(parameters, &document, root, "", 0, &nodes);
        yaml_document_delete(&document);
    }
    yaml_parser_delete(&parser);
}

/* ---- file names ---------------------------------------------------------------------------------------------------
 */

/* "01" is 0.1: the generator's scripts leave the point out of Mach numbers below one. */
static bool parse_token(const char *name, const char *text, double *value) {
    if (!parse_number(text, value)) return false;
    if (strcmp(name, "M") == 0 && text[0] == '0' && strspn(text, "0123456789") == strlen(text))
        *value *= pow(10, 1 - (double)strlen(text));
    return true;
}

static void add_from_token(ups_pde_parameters *parameters, const char *token, size_t length) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t letters = strlen(known[i]);
        char number[64];
        double value;
        if (length <= letters || length - letters >= sizeof number || strncasecmp(token, known[i], letters) != 0)
            continue;
        memcpy(number, token + letters, length - letters);
        number[length - letters] = 0;
        if (parse_token(known[i], number, &value)) ups_pde_parameters_add(parameters, known[i], value);
    }
}

void ups_pde_parameters_from_path(ups_pde_parameters *parameters, const char *path) {
    const char *slash = strrchr(path, '/');
    const char *token = slash ? slash + 1 : path;
    static const char *const extensions[] = {".hdf5", ".h5", ".nc"};
    size_t length = strlen(token);
    for (size_t i = 0; i < sizeof extensions / sizeof *extensions; i++) {
        size_t tail = strlen(extensions[i]);
        if (length > tail && strcmp(token + length - tail, extensions[i]) == 0) length -= tail;
    }
    const char *end = token + length;
    while (token < end) {
        const char *separator = memchr(token, '_', (size_t)(end - token));
        const char *stop = separator ? separator : end;
        add_from_token(parameters, token, (size_t)(stop - token));
        token = stop + 1;
    }
}

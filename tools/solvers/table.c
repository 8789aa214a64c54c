/* The table of solvers, and the reading of their parameters. A new solver is a file and a line in `solvers`. */
#include "base/nearest.h"
#include "base/random.h"
#include "tools/solvers/advection1d.h"
#include "tools/solvers/burgers1d.h"
#include "tools/solvers/compressible/datagen.h"
#include "tools/solvers/darcy2d.h"
#include "tools/solvers/diffreact2d.h"
#include "tools/solvers/diffsorp1d.h"
#include "tools/solvers/incompressible/datagen.h"
#include "tools/solvers/mesh/datagen.h"
#include "tools/solvers/reacdiff1d.h"
#include "tools/solvers/solver.h"
#include "tools/solvers/swe2d.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* PDEBench's largest file has 1001 stored times; the limit only catches slips such as --steps 10000000. */
static const int64_t most_steps = 100000;

static const ups_solver *const solvers[] = {
    &ups_advection1d, &ups_burgers1d,      &ups_reacdiff1d,  &ups_diffsorp1d, &ups_darcy2d,    &ups_diffreact2d,
    &ups_swe2d,       &ups_cfd1d_rand,     &ups_cfd1d_shock, &ups_cfd1d_sod,  &ups_cfd2d_rand, &ups_cfd2d_turb,
    &ups_cfd2d_kh,    &ups_cfd2d_otvortex, &ups_cfd3d_rand,  &ups_cfd3d_turb, &ups_ns_incom2d, &ups_transport_mesh2d,
};

const ups_solver *const *ups_solvers(int *count) {
    *count = (int)(sizeof solvers / sizeof solvers[0]);
    return solvers;
}

const ups_solver *ups_solver_find(const char *name) {
    for (size_t i = 0; i < sizeof solvers / sizeof solvers[0]; i++) {
        if (strcmp(solvers[i]->name, name) == 0) return solvers[i];
    }
    return NULL;
}

void ups_solver_setup_begin(const ups_solver *solver, ups_solver_setup *setup) {
    *setup = (ups_solver_setup){
        .solver = solver,
        .resolution = solver->default_resolution,
        .steps = solver->default_steps > 0 ? solver->default_steps : 1,
    };
    for (int i = 0; i < solver->parameter_count; i++) setup->parameters[i] = solver->parameters[i].default_value;
}

static void list_names(const ups_solver *solver, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < solver->parameter_count && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? ", " : "", solver->parameters[i].name);
    }
}

static const ups_solver_parameter *find_parameter(const ups_solver *solver, const char *assignment, size_t length,
                                                  ups_error *error) {
    for (int i = 0; i < solver->parameter_count; i++) {
        const ups_solver_parameter *parameter = &solver->parameters[i];
        if (strncmp(parameter->name, assignment, length) == 0 && parameter->name[length] == '\0') return parameter;
    }
    char names[512], *word = strndup(assignment, length);
    ups_nearest nearest = {.word = word ? word : ""};
    for (int i = 0; i < solver->parameter_count; i++) ups_nearest_try(&nearest, solver->parameters[i].name);
    free(word);
    list_names(solver, names, sizeof names);
    if (nearest.name)
        ups_fail(error, UPS_ERR_ARGUMENT, "%s has no parameter '%.*s'; did you mean '%s'?", solver->name, (int)length,
                 assignment, nearest.name);
    else
        ups_fail(error, UPS_ERR_ARGUMENT, "%s has no parameter '%.*s'; it has %s", solver->name, (int)length,
                 assignment, names);
    return NULL;
}

/* ---- choices ---- */

int ups_solver_word(const ups_solver_parameter *parameter, int index, const char **word) {
    const char *at = parameter->unit;
    for (; index > 0; index--) at += strcspn(at, "|") + 1;
    *word = at;
    return (int)strcspn(at, "|");
}

static ups_status read_choice(const ups_solver_parameter *parameter, const char *text, double *value,
                              ups_error *error) {
    for (int i = 0; i <= (int)parameter->maximum; i++) {
        const char *word;
        const size_t length = (size_t)ups_solver_word(parameter, i, &word);
        if (strlen(text) != length || strncmp(text, word, length) != 0) continue;
        *value = i;
        return UPS_OK;
    }
    return ups_fail(error, UPS_ERR_ARGUMENT, "parameter %s: '%s' is none of its choices, %s", parameter->name, text,
                    parameter->unit);
}

/* ---- numbers ---- */

/* Of the text up to `end`, which is its terminator or a colon. */
static ups_status read_number(const ups_solver_parameter *parameter, const char *text, const char *end, double *value,
                              ups_error *error) {
    char *stop = NULL;
    const int length = (int)(end - text);
    *value = strtod(text, &stop);
    if (stop == text || stop != end || isnan(*value)) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "parameter %s: '%.*s' is not a number; a number was expected, or a range such as %s=%g:%g",
                        parameter->name, length, text, parameter->name, parameter->default_value, parameter->maximum);
    }
    const bool whole = parameter->kind & UPS_WHOLE;
    if (*value < parameter->minimum || *value > parameter->maximum || (whole && *value != floor(*value))) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "parameter %s: %.*s is out of range; a %snumber from %g to %g was expected", parameter->name,
                        length, text, whole ? "whole " : "", parameter->minimum, parameter->maximum);
    }
    return UPS_OK;
}

/* LOW:HIGH, or log:LOW:HIGH. */
static ups_status read_range(const ups_solver_parameter *parameter, const char *text, ups_solver_range *range,
                             ups_error *error) {
    static const char logarithmic[] = "log:";
    if (parameter->kind & UPS_SHARED) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "parameter %s: '%s' would differ between samples; %s is the same for a whole file, so make a "
                        "file for each of its values",
                        parameter->name, text, parameter->name);
    }
    *range = (ups_solver_range){.drawn = true, .logarithmic = strncmp(text, logarithmic, 4) == 0};
    const char *low = text + (range->logarithmic ? 4 : 0), *colon = strchr(low, ':');
    if (!colon) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "parameter %s: '%s' is no range; %s=log:LOW:HIGH was expected",
                        parameter->name, text, parameter->name);
    }
    UPS_TRY(read_number(parameter, low, colon, &range->low, error));
    UPS_TRY(read_number(parameter, colon + 1, colon + strlen(colon), &range->high, error));
    if (range->low > range->high) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "parameter %s: the range %s begins above its end; %s=%g:%g was meant?",
                        parameter->name, text, parameter->name, range->high, range->low);
    }
    if (range->logarithmic && (range->low <= 0.0 || (parameter->kind & UPS_WHOLE))) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "parameter %s: %s cannot be drawn by its logarithm; that is for positive numbers that need not "
                        "be whole",
                        parameter->name, text);
    }
    return UPS_OK;
}

ups_status ups_solver_set(const ups_solver *solver, ups_solver_setup *setup, const char *assignment, ups_error *error) {
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "parameter '%s' is not of the form NAME=VALUE, such as %s=%g",
                        assignment, solver->parameters[0].name, solver->parameters[0].default_value);
    }
    const ups_solver_parameter *parameter = find_parameter(solver, assignment, (size_t)(equals - assignment), error);
    if (!parameter) return UPS_ERR_ARGUMENT;
    const char *text = equals + 1;
    double value = 0.0;
    ups_solver_range range = {0};
    if (parameter->kind & UPS_CHOICE) {
        UPS_TRY(read_choice(parameter, text, &value, error));
    } else if (strchr(text, ':')) {
        UPS_TRY(read_range(parameter, text, &range, error));
        value = range.low;
    } else {
        UPS_TRY(read_number(parameter, text, text + strlen(text), &value, error));
    }
    setup->parameters[parameter - solver->parameters] = value;
    setup->ranges[parameter - solver->parameters] = range;
    return UPS_OK;
}

/* ---- parameters that are drawn ---- */

bool ups_solver_draws(const ups_solver_setup *setup, int kind) {
    for (int i = 0; i < setup->solver->parameter_count; i++) {
        if (setup->ranges[i].drawn && (kind == 0 || (setup->solver->parameters[i].kind & kind))) return true;
    }
    return false;
}

void ups_solver_draw(const ups_solver_setup *setup, int64_t sample, ups_solver_setup *own) {
    *own = *setup;
    const ups_random stream = ups_random_stream(setup->seed, UPS_RANDOM_PARAMETER, (uint32_t)sample);
    for (int i = 0; i < setup->solver->parameter_count; i++) {
        const ups_solver_range *range = &setup->ranges[i];
        if (!range->drawn) continue;
        const double share = ups_random_uniform(stream, (uint64_t)i);
        if (setup->solver->parameters[i].kind & UPS_WHOLE)
            own->parameters[i] = range->low + floor(share * (range->high - range->low + 1.0));
        else if (range->logarithmic)
            own->parameters[i] = range->low * pow(range->high / range->low, share);
        else
            own->parameters[i] = range->low + share * (range->high - range->low);
    }
}

void ups_solver_keep(const ups_solver_setup *setup, int index, const char *name, ups_file_layout *layout) {
    if (!setup->ranges[index].drawn) ups_file_add_attribute(layout, name, setup->parameters[index]);
}

ups_status ups_solver_check(const ups_solver *solver, const ups_solver_setup *setup, ups_error *error) {
    if (setup->resolution < solver->minimum_resolution || setup->resolution > solver->maximum_resolution) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "resolution %lld is out of range; %s works with %lld to %lld cells",
                        (long long)setup->resolution, solver->name, (long long)solver->minimum_resolution,
                        (long long)solver->maximum_resolution);
    }
    if (solver->default_steps == 0 && setup->steps != 1) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s is a steady problem and has no steps", solver->name);
    }
    if (solver->default_steps > 0 && (setup->steps < 2 || setup->steps > most_steps)) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "%lld steps are out of range; 2 to %lld stored times were expected, the initial one included",
                        (long long)setup->steps, (long long)most_steps);
    }
    return solver->check ? solver->check(setup, error) : UPS_OK;
}

double ups_solver_time(double end, int64_t steps, int64_t step) {
    return end * (double)step / (double)(steps - 1);
}

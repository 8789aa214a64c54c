/* The table of solvers, and the reading of their parameters. A new solver is a file and a line in `solvers`. */
#include "base/nearest.h"
#include "tools/solvers/advection1d.h"
#include "tools/solvers/burgers1d.h"
#include "tools/solvers/compressible/datagen.h"
#include "tools/solvers/darcy2d.h"
#include "tools/solvers/diffreact2d.h"
#include "tools/solvers/diffsorp1d.h"
#include "tools/solvers/incompressible/datagen.h"
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
    &ups_cfd2d_kh,    &ups_cfd2d_otvortex, &ups_cfd3d_rand,  &ups_cfd3d_turb, &ups_ns_incom2d,
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

ups_status ups_solver_set(const ups_solver *solver, ups_solver_setup *setup, const char *assignment, ups_error *error) {
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "parameter '%s' is not of the form NAME=VALUE, such as %s=%g",
                        assignment, solver->parameters[0].name, solver->parameters[0].default_value);
    }
    const size_t length = (size_t)(equals - assignment);
    int index = 0;
    while (index < solver->parameter_count && (strncmp(solver->parameters[index].name, assignment, length) != 0 ||
                                               solver->parameters[index].name[length] != '\0')) {
        index++;
    }
    if (index == solver->parameter_count) {
        char names[512], *word = strndup(assignment, length);
        ups_nearest nearest = {.word = word ? word : ""};
        for (int i = 0; i < solver->parameter_count; i++) ups_nearest_try(&nearest, solver->parameters[i].name);
        free(word);
        if (nearest.name)
            return ups_fail(error, UPS_ERR_ARGUMENT, "%s has no parameter '%.*s'; did you mean '%s'?", solver->name,
                            (int)length, assignment, nearest.name);
        list_names(solver, names, sizeof names);
        return ups_fail(error, UPS_ERR_ARGUMENT, "%s has no parameter '%.*s'; it has %s", solver->name, (int)length,
                        assignment, names);
    }
    const ups_solver_parameter *parameter = &solver->parameters[index];
    char *end = NULL;
    const double value = strtod(equals + 1, &end);
    if (end == equals + 1 || *end != '\0' || isnan(value)) {
        return ups_fail(error, UPS_ERR_ARGUMENT, "parameter %s: '%s' is not a number", parameter->name, equals + 1);
    }
    if (value < parameter->minimum || value > parameter->maximum || (parameter->whole && value != floor(value))) {
        return ups_fail(error, UPS_ERR_ARGUMENT,
                        "parameter %s: %s is out of range; a %snumber from %g to %g was expected", parameter->name,
                        equals + 1, parameter->whole ? "whole " : "", parameter->minimum, parameter->maximum);
    }
    setup->parameters[index] = value;
    return UPS_OK;
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

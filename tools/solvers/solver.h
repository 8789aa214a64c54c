/* A solver, seen from `ups datagen`: a PDE with named parameters that turns (seed, sample) into one solved problem.
 *
 * A solver has two entrances. Its own header (burgers1d.h, …) holds the numerical method with the initial condition or
 * coefficient in the caller's hands: that is what the tests of convergence call. The ups_solver declared here says what
 * its file holds, draws the random problem, calls the method and hands out frames one by one.
 *
 * `solve` is a pure function of (setup, plan, sample): the same numbers on any thread, in any order. */
#ifndef UPS_SOLVERS_SOLVER_H
#define UPS_SOLVERS_SOLVER_H

#include "base/error.h"
#include "tools/solvers/writer/sink.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define UPS_SOLVER_MAX_PARAMETERS 16

/* What values a parameter takes, and what besides `solve` depends on it. */
enum {
    UPS_REAL = 0,
    UPS_WHOLE = 1,   /* whole numbers only */
    UPS_CHOICE = 2,  /* a word; its value is the word's number, from 0 */
    UPS_PLANNED = 4, /* `prepare` reads it: where it differs between samples, each has a plan of its own */
    UPS_SHARED = 8,  /* `describe` reads it: it cannot differ between the samples of a file */
};

typedef struct ups_solver_parameter {
    const char *name;
    double default_value;
    double minimum, maximum; /* inclusive */
    int kind;                /* of the flags above */
    const char *unit;        /* "1" where it has none; of a choice its words, "one|other" */
    const char *help;        /* what it is, one line */
} ups_solver_parameter;

/* A parameter that is drawn for each sample: uniform in [low, high], or its logarithm is. */
typedef struct ups_solver_range {
    bool drawn, logarithmic;
    double low, high;
} ups_solver_range;

/* What is to be solved; filled by ups_solver_setup_begin and ups_solver_set. */
typedef struct ups_solver_setup {
    const struct ups_solver *solver;
    int64_t resolution; /* cells along each axis */
    int64_t steps;      /* stored times, the initial one included; 1 for steady problems */
    uint64_t seed;
    double parameters[UPS_SOLVER_MAX_PARAMETERS]; /* in the order of the solver's table; of one that is drawn the low */
    ups_solver_range ranges[UPS_SOLVER_MAX_PARAMETERS];
    const struct ups_initial_fields *initial; /* what samples begin from (initial_fields.h); NULL: it is drawn */
} ups_solver_setup;

typedef struct ups_solver {
    const char *name;     /* as typed: "burgers1d" */
    const char *summary;  /* one line for lists */
    const char *equation; /* a paragraph: the equation, its domain, how it is solved and at which order */
    const ups_solver_parameter *parameters;
    int parameter_count;
    int64_t default_resolution, minimum_resolution, maximum_resolution;
    int64_t default_steps;    /* 0: a steady problem, which has no steps */
    int dims;                 /* axes of the grid */
    const char *const *state; /* the fields that may be given to begin from, NULL last; NULL: none may */
    const void *kind;         /* what differs between solvers that share their functions; otherwise NULL */

    /* Refuses values that are each in range but do not go together. NULL where there are none. */
    ups_status (*check)(const ups_solver_setup *setup, ups_error *error);
    /* Adds the file's arrays, coordinates and attributes to an empty layout, which `plan` outlives: tables are its. */
    void (*describe)(const ups_solver_setup *setup, const void *plan, ups_file_layout *layout);
    /* Seed groups: writes sample `sample`'s `config` as YAML. Otherwise NULL, or the file's own `config` (sample -1).
     */
    void (*configure)(const ups_solver_setup *setup, int64_t sample, FILE *yaml);

    /* Tables shared by all samples, read-only afterwards; `release` frees them and takes NULL too. Both NULL in a
     * solver that needs none: its plan is NULL. */
    ups_status (*prepare)(const ups_solver_setup *setup, void **plan, ups_error *error);
    void (*release)(void *plan);
    /* Working memory of one `solve` call, in bytes. */
    size_t (*scratch_bytes)(const ups_solver_setup *setup, const void *plan);
    /* Puts every frame of every array of one sample. `scratch` is aligned to 64 bytes, its contents undefined. */
    ups_status (*solve)(const ups_solver_setup *setup, const void *plan, int64_t sample, void *scratch, ups_sink *sink,
                        ups_error *error);
} ups_solver;

/* All solvers, in the order of the help. */
const ups_solver *const *ups_solvers(int *count);
/* NULL when there is none of that name. */
const ups_solver *ups_solver_find(const char *name);

/* Fills in the defaults. */
void ups_solver_setup_begin(const ups_solver *solver, ups_solver_setup *setup);
/* Sets a parameter from "NAME=VALUE", or draws it for each sample by "NAME=LOW:HIGH" or "NAME=log:LOW:HIGH".
 * UPS_ERR_ARGUMENT names what would be right. */
ups_status ups_solver_set(const ups_solver *solver, ups_solver_setup *setup, const char *assignment, ups_error *error);
/* Word `index` of a choice: its length, and where it begins in `unit`. */
int ups_solver_word(const ups_solver_parameter *parameter, int index, const char **word);

/* Whether any parameter is drawn for each sample; with `kind` not 0 only of those that have one of its flags. */
bool ups_solver_draws(const ups_solver_setup *setup, int kind);
/* The setup of one sample: what is drawn has its value in `parameters`. A pure function of (setup, sample). */
void ups_solver_draw(const ups_solver_setup *setup, int64_t sample, ups_solver_setup *own);
/* For `describe`: keeps parameter `index` as the file's attribute `name`, unless it is drawn: each sample's value then
 * stands in the file's group `parameters`. */
void ups_solver_keep(const ups_solver_setup *setup, int index, const char *name, ups_file_layout *layout);

/* Checks what concerns several values together, and resolution and steps. */
ups_status ups_solver_check(const ups_solver *solver, const ups_solver_setup *setup, ups_error *error);

/* Time of stored step `step` (0 ≤ step < steps): end · step / (steps - 1). */
double ups_solver_time(double end, int64_t steps, int64_t step);

#endif

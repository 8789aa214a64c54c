/* PDE parameters as data files carry them: numbers in attributes, in a YAML `config` text, or in the file's name.
 *
 * What describes the grid or the run rather than the equation (`xdim`, `t`, `seed`, …) is left out: a model that were
 * conditioned on the random seed would learn it by heart.
 *
 * What files spell in several ways has one spelling here: beta, nu, rho, eta, zeta, M, Re, dk. */
#ifndef UPS_PIPELINE_PDE_PARAMETERS_H
#define UPS_PIPELINE_PDE_PARAMETERS_H

#include "base/arena.h"
#include <stdbool.h>

typedef struct ups_pde_parameter {
    const char *name;
    double value;
} ups_pde_parameter;

typedef struct ups_pde_parameters {
    ups_arena *arena; /* of the names and of the list */
    ups_pde_parameter *list;
    int count, capacity;
} ups_pde_parameters;

/* Adds a parameter unless its name is there already (in any case of letters: the file's own word comes before its
 * name's) or is no PDE parameter. */
void ups_pde_parameters_add(ups_pde_parameters *parameters, const char *name, double value);

/* Adds a parameter that somebody names as one: whatever it is called. */
void ups_pde_parameters_set(ups_pde_parameters *parameters, const char *name, double value);

/* Adds the numbers of a YAML document, keys joined by dots but for the section "sim" of PDEBench's generators: "Du" of
 * "sim: {Du: 0.001}", "nested.k" of "sim: {nested: {k: 1}}". A text that is no YAML adds nothing; one of
 * thousands of values is read in part. */
void ups_pde_parameters_from_yaml(ups_pde_parameters *parameters, const char *text);

/* Adds what PDEBench writes into file names: 1D_Advection_Sols_beta0.4.hdf5 → beta 0.4;
 * 1D_CFD_Rand_Eta1.e-8_Zeta1.e-8_….hdf5 → eta, zeta; KH_M01_dk2_Re1e3.hdf5 → M 0.1, dk 2, Re 1000. Names known: those
 * above. */
void ups_pde_parameters_from_path(ups_pde_parameters *parameters, const char *path);

#endif

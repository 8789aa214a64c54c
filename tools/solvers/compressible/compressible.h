/* The compressible Navier–Stokes equations for an ideal gas in one, two or three space dimensions:
 *
 *     ρ_t + ∇·(ρv) = 0,   (ρv)_t + ∇·(ρv⊗v + p) = ∇·τ,   E_t + ∇·((E + p)v) = ∇·(τv),
 *     E = p/(γ-1) + ½ρ|v|²,   τ = η(∇v + ∇vᵀ - ⅔∇·v) + ζ∇·v
 *
 * with constant shear viscosity η and bulk viscosity ζ; no heat is conducted (Takamoto et al., arXiv 2210.07182, D.5).
 * PDEBench's script has another stress, `by_mass`: η and ζ count for a unit of mass, and what one velocity does along
 * one axis is no matter of the others,
 *
 *     τ_ab = ρ (η ∂_a v_b + δ_ab (⅓η + ζ) ∂_a v_a)
 *
 * Finite volumes, unsplit: monotonized-central reconstruction of density, velocity and pressure, the HLLC solver at
 * faces, and the strong-stability-preserving two-stage Runge–Kutta scheme. Viscous fluxes are part of it while they
 * leave the time step alone; where they would not, they are advanced by half a step before and after by the
 * Runge–Kutta–Legendre scheme RKL2, whose stable step grows with the square of its stages (Meyer, Balsara & Aslam,
 * Mon. Not. R. Astron. Soc. 422, 2012). Second order in space and time where the flow is smooth; mass, momentum and
 * energy are conserved to rounding.
 *
 * A step that would leave a density or pressure that is not positive is undone and taken again, at first order around
 * such cells, then everywhere with shorter and shorter steps.
 *
 * The flow lives in memory of the caller, of ups_compressible_bytes; nothing else is allocated. */
#ifndef UPS_TOOLS_SOLVERS_COMPRESSIBLE_COMPRESSIBLE_H
#define UPS_TOOLS_SOLVERS_COMPRESSIBLE_COMPRESSIBLE_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ups_compressible_problem {
    int axes;           /* 1, 2 or 3 */
    int64_t cells[3];   /* along x, y, z; at least 4 each. z, or else y, is the fastest axis of all fields */
    double width[3];    /* of a cell */
    bool periodic[3];   /* or outgoing: beyond the edge the flow is as in the cell at the edge */
    double gamma;       /* ratio of specific heats, > 1 */
    double shear, bulk; /* η and ζ, ≥ 0 */
    bool by_mass;       /* the stress of PDEBench's script */
} ups_compressible_problem;

/* Order of variables everywhere: density, one velocity an axis, pressure. */
enum { UPS_COMPRESSIBLE_VARIABLES = 5 };

typedef struct ups_compressible ups_compressible;

size_t ups_compressible_bytes(const ups_compressible_problem *problem);
/* Sets the flow up in `memory`, aligned to 64 bytes. It is to be filled by ups_compressible_set. */
ups_compressible *ups_compressible_place(const ups_compressible_problem *problem, void *memory);

/* The flow's fields of one variable a pointer, each of all cells. Velocities and pressure of a cell enter together with
 * its density, so all variables are set at once. */
void ups_compressible_set(ups_compressible *flow, const double *const fields[UPS_COMPRESSIBLE_VARIABLES]);
/* One variable of all cells. */
void ups_compressible_get(const ups_compressible *flow, int variable, double *field);
void ups_compressible_get_f32(const ups_compressible *flow, int variable, float *field);
/* Sums over all cells of density, momenta and energy, in this order: what is conserved. */
void ups_compressible_totals(const ups_compressible *flow, double totals[UPS_COMPRESSIBLE_VARIABLES]);

/* Advances by exactly `interval`. `steps`: where given, the number of steps taken is added. UPS_ERR_NUMERIC: no step,
 * however short, kept density and pressure positive; UPS_ERR_CANCELLED. */
ups_status ups_compressible_advance(ups_compressible *flow, double interval, int64_t *steps, ups_error *error);

#endif

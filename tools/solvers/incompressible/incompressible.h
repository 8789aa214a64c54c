/* The incompressible Navier–Stokes equations with a scalar that is carried along, on the unit square:
 *
 *     v_t + ∇·(v⊗v) = -∇p + ν Δv + a f(x, y),   ∇·v = 0,   s_t + ∇·(s v) = κ Δs,   a = s or 1,
 *
 * in a box with no-slip walls and no flux of s through them, or periodic.
 *
 * Staggered grid (Harlow & Welch 1965): s and p at cell centres, velocities at faces. Velocities are carried by third-
 * order upwind-biased fluxes, s by monotonized-central ones, which keep its range but for rounding and the time scheme;
 * both in divergence form. In time Heun's method, with diffusion by Crank & Nicolson, factored by axes (Douglas), and
 * after each stage a projection by the pressure's increment (van Kan 1986; Brown, Cortez & Minion, J. Comput. Phys.
 * 168, 2001). Poisson's equation is solved to rounding: a cosine or Fourier transform along x and tridiagonal systems
 * along y, so that the divergence is rounding too. Second order in space and time. */
#ifndef UPS_TOOLS_SOLVERS_INCOMPRESSIBLE_INCOMPRESSIBLE_H
#define UPS_TOOLS_SOLVERS_INCOMPRESSIBLE_INCOMPRESSIBLE_H

#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ups_incompressible_problem {
    int64_t cells;                 /* along each axis; at least 8 */
    bool periodic;                 /* or walls */
    double viscosity, diffusivity; /* ν and κ, ≥ 0 */
    bool carried_force;            /* a = s; otherwise a = 1 */
} ups_incompressible_problem;

typedef struct ups_incompressible_plan ups_incompressible_plan; /* tables, read-only, shared by threads */
typedef struct ups_incompressible ups_incompressible;           /* one flow, in the caller's memory */

ups_status ups_incompressible_plan_create(const ups_incompressible_problem *problem, ups_incompressible_plan **plan,
                                          ups_error *error);
void ups_incompressible_plan_destroy(ups_incompressible_plan *plan); /* NULL is fine */

size_t ups_incompressible_bytes(const ups_incompressible_plan *plan);
/* Sets a flow up in `memory`, aligned to 64 bytes: at rest, s and force zero. */
ups_incompressible *ups_incompressible_place(const ups_incompressible_plan *plan, void *memory);

/* Fields of cells × cells values (x, y), y fastest. u(i, j) is the velocity along x through the face at x = i/cells, y
 * = (j
 * + ½)/cells; v(i, j) that along y through the face at x = (i + ½)/cells, y = j/cells; forces lie likewise; s at the
 * centres. With walls, what lies on them (i = 0 of u, j = 0 of v) is taken as 0. */
void ups_incompressible_set_velocity(ups_incompressible *flow, const double *u, const double *v);
void ups_incompressible_set_force(ups_incompressible *flow, const double *fx, const double *fy);
void ups_incompressible_set_scalar(ups_incompressible *flow, const double *s);

/* Makes the velocity free of divergence, and finds the pressure that goes with it. Once, after the fields are set. */
void ups_incompressible_begin(ups_incompressible *flow);
/* Advances by exactly `interval`. UPS_ERR_NUMERIC when the flow is no longer finite; UPS_ERR_CANCELLED. */
ups_status ups_incompressible_advance(ups_incompressible *flow, double interval, int64_t *steps, ups_error *error);

/* At cell centres: velocities and forces as means of both faces. */
void ups_incompressible_velocity(const ups_incompressible *flow, double *u, double *v);
void ups_incompressible_force(const ups_incompressible *flow, double *fx, double *fy);
void ups_incompressible_scalar(const ups_incompressible *flow, double *s);
/* At faces, as they were set. */
void ups_incompressible_faces(const ups_incompressible *flow, double *u, double *v);
/* Largest |∇·v| over the cells. */
double ups_incompressible_divergence(const ups_incompressible *flow);

#endif

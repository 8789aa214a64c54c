/* The inner loops of the compressible solver: each does one thing to a row of cells or faces along the fastest axis.
 *
 * Variables lie `stride` (in cells or in buffers, as said) apart, in the order density, one velocity or momentum an
 * axis, pressure or energy. A kernel is compiled for several widths of vectors and the processor's own is taken at run
 * time; products and sums are never fused and the order of sums is fixed, so all give the same bits.
 *
 * float64: time steps number in the thousands, and a pressure is the small difference of two energies where the flow is
 * fast; in float32 rounding would be seen in the conserved sums and, at Mach 0.1, in the velocities. */
#ifndef UPS_TOOLS_SOLVERS_COMPRESSIBLE_ROWS_H
#define UPS_TOOLS_SOLVERS_COMPRESSIBLE_ROWS_H

#include <stddef.h>
#include <stdint.h>

enum { UPS_GAS_LANES = 8, UPS_GAS_VARIABLES = 5, UPS_GAS_AXES = 3 };

/* What a time step must respect; kept by lane so that loops need no horizontal operations. */
typedef struct ups_gas_limits {
    double fastest[UPS_GAS_LANES];  /* largest Σ_axes (|v| + c)/Δx */
    double thinnest[UPS_GAS_LANES]; /* smallest density */
    double broken[UPS_GAS_LANES];   /* number of cells whose density or pressure is not positive */
} ups_gas_limits;

/* Values at both ends of each cell from monotonized-central slopes along the axis whose neighbours lie `step` away.
 * `order`: 1 where a cell keeps its slope, 0 where it is to be flat; NULL keeps all. */
void ups_gas_edges(int variables, int64_t count, const double *cells, ptrdiff_t cell_stride, ptrdiff_t step,
                   const double *order, double *lower, ptrdiff_t lower_stride, double *upper, ptrdiff_t upper_stride);

/* HLLC fluxes across `count` faces normal to axis `normal`. */
void ups_gas_fluxes(int axes, int normal, int64_t count, double gamma, const double *left, ptrdiff_t left_stride,
                    const double *right, ptrdiff_t right_stride, double *flux, ptrdiff_t stride);

typedef struct ups_gas_viscosity {
    double shear, bulk;
    int by_mass;                  /* the stress of ups_compressible_problem.by_mass */
    ptrdiff_t step[UPS_GAS_AXES]; /* from a cell to its neighbour, by axis */
    double inverse_dx[UPS_GAS_AXES];
} ups_gas_viscosity;

/* Subtracts the viscous stress and its work from the fluxes across the faces above the cells at `cells` (primitive). */
void ups_gas_stress(int axes, int normal, int64_t count, const ups_gas_viscosity *viscosity, const double *cells,
                    ptrdiff_t cell_stride, double *flux, ptrdiff_t stride);

/* rate (+)= inverse_dx · (below - above) */
void ups_gas_difference(int variables, int64_t count, double inverse_dx, const double *below, const double *above,
                        ptrdiff_t stride, int add, double *rate, ptrdiff_t rate_stride);

/* Conserved → primitive; the limits are brought up to date. */
void ups_gas_primitive(int axes, int64_t count, double gamma, const double inverse_dx[UPS_GAS_AXES],
                       const double *conserved, double *primitive, ptrdiff_t stride, ups_gas_limits *limits);

/* The velocities alone. */
void ups_gas_velocities(int axes, int64_t count, const double *conserved, double *primitive, ptrdiff_t stride);

/* out = Σ_k weight_k · term_k, at most five terms; `out` may be one of them. */
void ups_gas_combine(int64_t count, int terms, const double *const *term, const double *weight, double *out);

#endif

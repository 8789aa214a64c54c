/* Linear advection, u_t + β u_x = 0 on the periodic [0, 1): solved exactly, u(t, x) = u₀(x - β t), by evaluating the
 * initial condition (initial_conditions.h) as a function at the shifted points. No grid enters: windows and kinks stay
 * as sharp as they were, and a file at another resolution samples the same functions. */
#ifndef UPS_SOLVERS_ADVECTION1D_H
#define UPS_SOLVERS_ADVECTION1D_H

#include "tools/solvers/solver.h"

extern const ups_solver ups_advection1d;

#endif

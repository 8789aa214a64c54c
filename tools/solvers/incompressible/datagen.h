/* PDEBench's incompressible flows as `ups datagen` makes them: incompressible.h from noise. */
#ifndef UPS_TOOLS_SOLVERS_INCOMPRESSIBLE_DATAGEN_H
#define UPS_TOOLS_SOLVERS_INCOMPRESSIBLE_DATAGEN_H

#include "tools/solvers/solver.h"

extern const ups_solver ups_ns_incom2d;

#endif

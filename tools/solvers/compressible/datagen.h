/* PDEBench's compressible flows as `ups datagen` makes them: one solver a kind of beginning, all of compressible.h. */
#ifndef UPS_TOOLS_SOLVERS_COMPRESSIBLE_DATAGEN_H
#define UPS_TOOLS_SOLVERS_COMPRESSIBLE_DATAGEN_H

#include "tools/solvers/solver.h"

extern const ups_solver ups_cfd1d_rand, ups_cfd1d_shock, ups_cfd1d_sod;
extern const ups_solver ups_cfd2d_rand, ups_cfd2d_turb, ups_cfd2d_kh, ups_cfd2d_otvortex;
extern const ups_solver ups_cfd3d_rand, ups_cfd3d_turb;

#endif

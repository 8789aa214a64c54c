/* Transport on a mesh as `ups datagen` makes it: transport.h in the flow of flow.h, from random bumps. */
#ifndef UPS_TOOLS_SOLVERS_MESH_DATAGEN_H
#define UPS_TOOLS_SOLVERS_MESH_DATAGEN_H

#include "tools/solvers/solver.h"

extern const ups_solver ups_transport_mesh2d;

#endif

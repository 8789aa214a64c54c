/* Potential flow on a mesh: v = grad phi, Laplace(phi) = 0, by linear finite elements. Nothing flows through walls and
 * obstacles but where phi is given. */
#ifndef UPS_TOOLS_SOLVERS_MESH_FLOW_H
#define UPS_TOOLS_SOLVERS_MESH_FLOW_H

#include "tools/solvers/mesh/sparse.h"

/* Replaces phi (point), but for points that are on any of the walls `given` (of UPS_ON_WALL): there it is given. */
ups_status ups_flow_potential(const ups_mesh *mesh, const ups_sparse *pattern, int given, double *phi,
                              ups_error *error);

/* The gradient of phi at points: the mean of the cells around, weighted by their areas; less what would flow through
 * obstacles, and through the walls `closed`. Of second order inside, of first at borders. `scratch` (point). */
void ups_flow_velocity(const ups_mesh *mesh, const double *phi, int closed, double *vx, double *vy, double *scratch);

/* Flow from left to right between closed walls, whose speed is 1 on average over the area. */
ups_status ups_flow_through(const ups_mesh *mesh, const ups_sparse *pattern, double *vx, double *vy, ups_error *error);

#endif

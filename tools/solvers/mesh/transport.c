#include "tools/solvers/mesh/transport.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static const double tolerance = 1e-10;
static const double share_of_crossing = 0.5, share_of_spreading = 0.1; /* what a step may last */

/* What a cell's integrals need. */
typedef struct cell_flow {
    double area, gradients[3][2];
    double v[3][2], mean[2]; /* the velocity at the corners, and their mean */
    double along[3];         /* mean · gradients: how fast what is carried passes corner i's function */
    double size;             /* of the cell, along the mean velocity */
} cell_flow;

static cell_flow flow_in(const ups_transport_problem *problem, int64_t cell) {
    cell_flow in = {.area = 0.0};
    const int32_t *corner = problem->mesh->cells + 3 * cell;
    in.area = ups_mesh_gradients(problem->mesh, cell, in.gradients);
    for (int i = 0; i < 3; i++) {
        in.v[i][0] = problem->speed * problem->vx[corner[i]];
        in.v[i][1] = problem->speed * problem->vy[corner[i]];
        for (int axis = 0; axis < 2; axis++) in.mean[axis] += in.v[i][axis] / 3.0;
    }
    double rate = 0.0;
    for (int i = 0; i < 3; i++) {
        in.along[i] = in.mean[0] * in.gradients[i][0] + in.mean[1] * in.gradients[i][1];
        rate += fabs(in.along[i]);
    }
    const double speed = sqrt(in.mean[0] * in.mean[0] + in.mean[1] * in.mean[1]);
    in.size = rate > 0.0 ? 2.0 * speed / rate : sqrt(2.0 * in.area);
    return in;
}

double ups_transport_longest_step(const ups_transport_problem *problem, double width) {
    double longest = INFINITY;
    for (int64_t cell = 0; cell < problem->mesh->cell_count; cell++) {
        const cell_flow in = flow_in(problem, cell);
        const double speed = sqrt(in.mean[0] * in.mean[0] + in.mean[1] * in.mean[1]);
        if (speed > 0.0) longest = fmin(longest, share_of_crossing * in.size / speed);
    }
    return problem->nu > 0.0 ? fmin(longest, share_of_spreading * width * width / problem->nu) : longest;
}

/* ---- matrices ---- */

/* The time in which SUPG looks back along the streamline: the least, smoothly, of step, crossing and spreading (Shakib,
 * Hughes and Johan, Comput. Methods Appl. Mech. Eng. 89, 1991). */
static double look_back(const cell_flow *in, double nu, double step) {
    const double of_step = 2.0 / step;
    const double crossing = 2.0 * sqrt(in->mean[0] * in->mean[0] + in->mean[1] * in->mean[1]) / in->size;
    const double spreading = 12.0 * nu / (in->size * in->size);
    return 1.0 / sqrt(of_step * of_step + crossing * crossing + spreading * spreading);
}

/* Adds a cell to mass (in `left`) and to what flow and diffusion do (in `right`). */
static void add_cell(const ups_transport *transport, int64_t cell, double step) {
    const ups_transport_problem *problem = transport->problem;
    const cell_flow in = flow_in(problem, cell);
    const int64_t *place = problem->pattern->place + 9 * cell;
    const double back = look_back(&in, problem->nu, step);
    for (int i = 0; i < 3; i++) {
        /* The integral of velocity and corner i's function, both linear; a twelfth of the area for each pair. */
        const double wx = in.area / 12.0 * (3.0 * in.mean[0] + in.v[i][0]);
        const double wy = in.area / 12.0 * (3.0 * in.mean[1] + in.v[i][1]);
        for (int j = 0; j < 3; j++) {
            const double *g = in.gradients[i], *h = in.gradients[j];
            const double mass = in.area / (i == j ? 6.0 : 12.0);
            const double streamline = back * in.along[i] * in.area;
            transport->left[place[3 * i + j]] += mass + streamline / 3.0;
            transport->right[place[3 * i + j]] +=
                wx * h[0] + wy * h[1] + streamline * in.along[j] + problem->nu * in.area * (g[0] * h[0] + g[1] * h[1]);
        }
    }
}

static bool is_inlet(const ups_mesh *mesh, int64_t point) {
    return mesh->border[point] < UPS_ON_OBSTACLE && (mesh->border[point] & UPS_ON_LEFT);
}

size_t ups_transport_scratch(const ups_sparse *pattern) {
    return 3 * (size_t)pattern->entries + (size_t)pattern->rows + ups_sparse_scratch(pattern);
}

void ups_transport_begin(const ups_transport_problem *problem, double step, double *scratch, ups_transport *transport) {
    const ups_sparse *pattern = problem->pattern;
    *transport = (ups_transport){
        .problem = problem,
        .left = scratch,
        .factors = scratch + pattern->entries,
        .right = scratch + 2 * pattern->entries,
        .b = scratch + 3 * pattern->entries,
        .scratch = scratch + 3 * pattern->entries + pattern->rows,
    };
    memset(transport->left, 0, sizeof(double) * (size_t)pattern->entries);
    memset(transport->right, 0, sizeof(double) * (size_t)pattern->entries);
    for (int64_t cell = 0; cell < problem->mesh->cell_count; cell++) add_cell(transport, cell, step);
    for (int64_t k = 0; k < pattern->entries; k++) { /* half of a step on either side */
        const double mass = transport->left[k], half = 0.5 * step * transport->right[k];
        transport->left[k] = mass + half;
        transport->right[k] = mass - half;
    }
    for (int64_t row = 0; row < pattern->rows; row++) {
        if (is_inlet(problem->mesh, row)) ups_sparse_fix(pattern, transport->left, row);
    }
    ups_sparse_factorize(pattern, transport->left, transport->factors);
}

ups_status ups_transport_advance(const ups_transport *transport, int64_t steps, double *u, ups_error *error) {
    const ups_sparse *pattern = transport->problem->pattern;
    for (int64_t step = 0; step < steps; step++) {
        ups_sparse_times(pattern, transport->right, u, transport->b);
        for (int64_t row = 0; row < pattern->rows; row++) {
            if (is_inlet(transport->problem->mesh, row)) u[row] = transport->b[row] = 0.0;
        }
        UPS_TRY(ups_sparse_solve(pattern, transport->left, transport->factors, transport->b, tolerance, u,
                                 transport->scratch, error));
    }
    return UPS_OK;
}

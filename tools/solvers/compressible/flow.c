/* The compressible solver in time: stages, steps that are taken again more carefully, and viscosity by itself where it
 * is stiff. */
#include "tools/solvers/compressible/flow.h"
#include "base/system/cancel.h"

#include <math.h>
#include <string.h>

/* Largest Δt Σ (|v| + c)/Δx; reconstruction and the two stages keep variation from growing up to 1/2. */
static const double courant = 0.45;
/* Viscous fluxes join the stages while Δt is below this part of their own limit. */
static const double explicit_share = 0.25;
static const int gentle_retries = 3, most_retries = 12;

/* `gas` from the conserved fields, ghosts included, and its limits. Returns how many cells are broken. */
static int64_t make_gas(ups_compressible *flow, const double *conserved) {
    flow->limits = (ups_gas_limits){{0.0}, {0.0}, {0.0}};
    for (int lane = 0; lane < UPS_GAS_LANES; lane++) flow->limits.thinnest[lane] = HUGE_VAL;
    for (int64_t i = 0; i < flow->n[0]; i++) {
        for (int64_t j = 0; j < flow->n[1]; j++) {
            const ptrdiff_t at = ups_flow_row_at(flow, i, j);
            ups_gas_primitive(flow->problem.axes, flow->n[2], flow->problem.gamma, flow->axis_inverse_dx,
                              conserved + at, flow->gas + at, flow->volume, &flow->limits);
        }
    }
    ups_flow_fill_ghosts(flow, flow->gas, 0, flow->variables);
    double broken = 0.0;
    for (int lane = 0; lane < UPS_GAS_LANES; lane++) broken += flow->limits.broken[lane];
    return (int64_t)broken;
}

static double largest(const double lanes[UPS_GAS_LANES]) {
    double found = lanes[0];
    for (int lane = 1; lane < UPS_GAS_LANES; lane++) found = lanes[lane] > found ? lanes[lane] : found;
    return found;
}

/* Largest Σ (mean density at both faces)/(density Δx²) of a cell. */
static double largest_share_of_mass(const ups_compressible *flow) {
    double found = 0.0;
    for (int64_t i = 0; i < flow->n[0]; i++) {
        for (int64_t j = 0; j < flow->n[1]; j++) {
            const double *density = flow->gas + ups_flow_row_at(flow, i, j);
            for (int64_t k = 0; k < flow->n[2]; k++) {
                double sum = 0.0;
                for (int a = 0; a < flow->problem.axes; a++) {
                    const ptrdiff_t step = flow->viscosity.step[a];
                    const double neighbours = density[k - step] + density[k + step];
                    const double by_dx = flow->axis_inverse_dx[a];
                    sum += (0.5 + 0.25 * neighbours / density[k]) * by_dx * by_dx;
                }
                found = sum > found ? sum : found;
            }
        }
    }
    return found;
}

/* Largest stable step of the viscous terms by themselves in the explicit Euler scheme: 2 over the largest eigenvalue,
 * (4η/3 + ζ)/ρ Σ 4/Δx². Infinite without viscosity. */
static double viscous_limit(const ups_compressible *flow) {
    const double strongest = 4.0 / 3.0 * flow->problem.shear + flow->problem.bulk;
    if (strongest > 0.0 && flow->problem.by_mass) return 1.0 / (2.0 * strongest * largest_share_of_mass(flow));
    double thinnest = flow->limits.thinnest[0], grid = 0.0;
    for (int lane = 1; lane < UPS_GAS_LANES; lane++) {
        thinnest = flow->limits.thinnest[lane] < thinnest ? flow->limits.thinnest[lane] : thinnest;
    }
    for (int a = 0; a < flow->problem.axes; a++) grid += flow->axis_inverse_dx[a] * flow->axis_inverse_dx[a];
    return strongest > 0.0 ? thinnest / (2.0 * strongest * grid) : HUGE_VAL;
}

/* The two-stage scheme: next = u + Δt R(u), then next = ½ u + ½ (next + Δt R(next)); `gas` holds u at the beginning and
 * the result at the end. False: a density or pressure is not positive; `state` is untouched, `gas` shows where. */
static bool two_stages(ups_compressible *flow, double dt, int parts, const double *order) {
    ups_flow_pass stage = {.parts = parts, .order = order};
    stage.to =
        (ups_flow_outcome){.terms = 1, .term = {flow->state}, .weight = {1.0}, .rate_weight = dt, .out = flow->next};
    ups_flow_run_pass(flow, &stage);
    if (make_gas(flow, flow->next) > 0) return false;
    stage.to = (ups_flow_outcome){.terms = 2,
                                  .term = {flow->state, flow->next},
                                  .weight = {0.5, 0.5},
                                  .rate_weight = 0.5 * dt,
                                  .out = flow->next};
    ups_flow_run_pass(flow, &stage);
    if (make_gas(flow, flow->next) > 0) return false;
    double *const before = flow->state;
    flow->state = flow->next;
    flow->next = before;
    return true;
}

/* Flattens the cells around those of `gas` that are broken: each row's neighbours at distance up to UPS_FLOW_GHOSTS. */
static void flatten_around_broken(ups_compressible *flow) {
    const double *density = flow->gas, *pressure = flow->gas + (flow->variables - 1) * flow->volume;
    int64_t reach[UPS_FLOW_SLOTS];
    for (int s = 0; s < UPS_FLOW_SLOTS; s++) reach[s] = flow->axis_of[s] >= 0 ? UPS_FLOW_GHOSTS : 0;
    for (int64_t i = 0; i < flow->n[0]; i++) {
        for (int64_t j = 0; j < flow->n[1]; j++) {
            for (int64_t k = 0; k < flow->n[2]; k++) {
                const ptrdiff_t at = ups_flow_row_at(flow, i, j) + (ptrdiff_t)k;
                if (density[at] > 0.0 && pressure[at] > 0.0) continue;
                for (int64_t di = -reach[0]; di <= reach[0]; di++) {
                    for (int64_t dj = -reach[1]; dj <= reach[1]; dj++) {
                        double *row = flow->order + at + di * flow->step[0] + dj * flow->step[1];
                        for (int64_t dk = -reach[2]; dk <= reach[2]; dk++) row[dk] = 0.0;
                    }
                }
            }
        }
    }
}

/* Exactly dt of inviscid, and where `parts` says so viscous, flow: one step, or where that breaks as many careful ones
 * as it takes. False: none was careful enough. */
static bool careful_step(ups_compressible *flow, double dt, int parts) {
    if (two_stages(flow, dt, parts, NULL)) return true;
    for (ptrdiff_t c = 0; c < flow->volume; c++) flow->order[c] = 1.0;
    double remaining = dt, piece = dt;
    for (int retry = 0; retry < most_retries; retry++) {
        if (retry < gentle_retries) {
            flatten_around_broken(flow);
            ups_flow_fill_ghosts(flow, flow->order, 0, 1);
        } else {
            memset(flow->order, 0, sizeof(double) * (size_t)flow->volume);
            piece *= 0.5;
        }
        make_gas(flow, flow->state);
        while (two_stages(flow, piece < remaining ? piece : remaining, parts, flow->order)) {
            if (piece >= remaining) return true;
            remaining -= piece;
        }
    }
    return false;
}

/* How many stages RKL2 takes for `interval`; odd, at least 3. */
static int legendre_stages(double interval, double limit) {
    int stages = 3;
    while (interval > limit * (double)(stages * stages + stages - 2) / 4.0) stages += 2;
    return stages;
}

static double legendre_b(int j) {
    return j < 2 ? 1.0 / 3.0 : (double)(j * j + j - 2) / (double)(2 * j * (j + 1));
}

static void gas_velocities(ups_compressible *flow, const double *conserved) {
    for (int64_t i = 0; i < flow->n[0]; i++) {
        for (int64_t j = 0; j < flow->n[1]; j++) {
            const ptrdiff_t at = ups_flow_row_at(flow, i, j);
            ups_gas_velocities(flow->problem.axes, flow->n[2], conserved + at, flow->gas + at, flow->volume);
        }
    }
    ups_flow_fill_ghosts(flow, flow->gas, 1, flow->problem.axes);
}

/* Momentum and energy by `interval` of viscous terms alone: RKL2, equations 16 and 17 of Meyer et al. `gas` is that of
 * `state` before and after. False: a pressure is not positive; `state` is untouched, `gas` is not its. */
static bool viscous_step(ups_compressible *flow, double interval, int stages) {
    const size_t field = sizeof(double) * (size_t)flow->volume;
    const double w = 4.0 / (double)(stages * stages + stages - 2);
    ups_flow_pass with = {.parts = UPS_FLOW_VISCOUS};
    with.to =
        (ups_flow_outcome){.terms = 1, .term = {flow->state}, .weight = {0.0}, .rate_weight = 1.0, .out = flow->slope};
    ups_flow_run_pass(flow, &with);
    memcpy(flow->next, flow->state, field);
    memcpy(flow->older, flow->state, field);
    for (int v = 1; v < flow->variables; v++) {
        const ptrdiff_t at = v * flow->volume;
        const double *const term[2] = {flow->state + at, flow->slope + at};
        const double weight[2] = {1.0, legendre_b(1) * w * interval};
        ups_gas_combine(flow->volume, 2, term, weight, flow->next + at);
    }
    for (int j = 2; j <= stages; j++) {
        const double b = legendre_b(j), b1 = legendre_b(j - 1), b2 = legendre_b(j - 2);
        const double mu = (2.0 * j - 1.0) / j * b / b1, nu = -(j - 1.0) / j * b / b2, mu_w = mu * w;
        const double gamma_w = -(1.0 - b1) * mu_w;
        gas_velocities(flow, flow->next);
        with.to = (ups_flow_outcome){.terms = 4,
                                     .term = {flow->next, j == 2 ? flow->state : flow->older, flow->state, flow->slope},
                                     .weight = {mu, nu, 1.0 - mu - nu, gamma_w * interval},
                                     .rate_weight = mu_w * interval,
                                     .out = flow->older};
        ups_flow_run_pass(flow, &with);
        double *const newest = flow->older;
        flow->older = flow->next;
        flow->next = newest;
    }
    if (make_gas(flow, flow->next) > 0) return false;
    double *const before = flow->state;
    flow->state = flow->next;
    flow->next = before;
    return true;
}

/* Exactly `interval`, in pieces as short as keep pressures positive: where viscosity stops streams that are much faster
 * than sound, what they lose and the heat they leave must not get apart. */
static bool careful_viscous_step(ups_compressible *flow, double interval, double limit) {
    double remaining = interval, piece = interval;
    for (int retry = 0; retry < most_retries; retry++) {
        for (;;) {
            const double now = piece < remaining ? piece : remaining;
            if (!viscous_step(flow, now, legendre_stages(now, limit))) break;
            if (piece >= remaining) return true;
            remaining -= piece;
        }
        piece *= 0.25;
        make_gas(flow, flow->state);
    }
    return false;
}

ups_status ups_compressible_advance(ups_compressible *flow, double interval, int64_t *steps, ups_error *error) {
    if (make_gas(flow, flow->state) > 0) {
        return ups_fail(error, UPS_ERR_NUMERIC, "a density or pressure is not positive at the beginning");
    }
    double remaining = interval;
    while (remaining > 0.0) {
        if (ups_cancel_requested()) return ups_fail(error, UPS_ERR_CANCELLED, "cancelled");
        const double limit = viscous_limit(flow);
        const double pieces = ceil(remaining * largest(flow->limits.fastest) / courant);
        double dt = pieces > 1.0 ? remaining / pieces : remaining;
        const bool split = dt > explicit_share * limit;
        const int parts =
            ups_flow_is_viscous(&flow->problem) && !split ? UPS_FLOW_EULER | UPS_FLOW_VISCOUS : UPS_FLOW_EULER;
        bool kept = !split || careful_viscous_step(flow, 0.5 * dt, limit);
        kept = kept && careful_step(flow, dt, parts);
        kept = kept && (!split || careful_viscous_step(flow, 0.5 * dt, limit));
        if (!kept) {
            return ups_fail(error, UPS_ERR_NUMERIC,
                            "density or pressure would not stay positive, however short the time step; a smaller Mach "
                            "number is needed");
        }
        remaining = pieces > 1.0 ? remaining - dt : 0.0;
        if (steps) ++*steps;
    }
    return UPS_OK;
}

/* The HLLC approximate Riemann solver for the ideal gas, at one face.
 *
 * Three waves between the two states: the fastest to either side and the contact, which is kept sharp. Speeds of the
 * outer waves are Davis's, min(u - c) and max(u + c) of both sides. Written without branches, so that loops over faces
 * are vectorized.
 * Source: Toro, Riemann Solvers and Numerical Methods for Fluid Dynamics, 3rd ed., 10.4 and 10.5. */
#ifndef UPS_TOOLS_SOLVERS_COMPRESSIBLE_RIEMANN_HLLC_H
#define UPS_TOOLS_SOLVERS_COMPRESSIBLE_RIEMANN_HLLC_H

#include <math.h>

/* One side of a face: `normal` is the velocity across it. */
typedef struct ups_gas_side {
    double density, normal, pressure;
    double tangential_energy; /* half the square of the velocity along the face */
} ups_gas_side;

/* What crosses the face in unit area and time. The momentum along the face, component t, is mass · v_t of the side that
 * `from_left` tells: 1 for the left, 0 for the right. */
typedef struct ups_gas_flux {
    double mass, normal_momentum, energy;
    double from_left;
} ups_gas_flux;

/* State beyond the wave at `speed`, up to the contact at `contact`; the side's own state where the wave leaves the face
 * behind. */
static inline ups_gas_flux ups_hllc_side(const ups_gas_side *side, double speed, double contact, double energy,
                                         int own) {
    const double inverse = 1.0 / (speed - contact), squeezed = (speed - side->normal) * inverse;
    const double star_density = side->density * squeezed;
    const double star_energy =
        energy * squeezed + (contact - side->normal) * (star_density * contact + side->pressure * inverse);
    const double mass = side->density * side->normal;
    ups_gas_flux flux = {
        .mass = mass,
        .normal_momentum = mass * side->normal + side->pressure,
        .energy = (energy + side->pressure) * side->normal,
    };
    const double pick = own ? 0.0 : speed; /* F + 0 · (…) is the side's own flux */
    flux.mass += pick * (star_density - side->density);
    flux.normal_momentum += pick * (star_density * contact - mass);
    flux.energy += pick * (star_energy - energy);
    return flux;
}

/* gamma: ratio of specific heats; inverse_gamma_1 = 1/(gamma - 1). Densities and pressures are positive. */
static inline ups_gas_flux ups_hllc(const ups_gas_side *left, const ups_gas_side *right, double gamma,
                                    double inverse_gamma_1) {
    const double sound_left = sqrt(gamma * left->pressure / left->density);
    const double sound_right = sqrt(gamma * right->pressure / right->density);
    const double left_a = left->normal - sound_left, left_b = right->normal - sound_right;
    const double right_a = left->normal + sound_left, right_b = right->normal + sound_right;
    const double slowest = left_a < left_b ? left_a : left_b;
    const double fastest = right_a > right_b ? right_a : right_b;
    const double approach_left = left->density * (slowest - left->normal);    /* < 0 */
    const double approach_right = right->density * (fastest - right->normal); /* > 0 */
    const double contact =
        ((right->pressure - left->pressure) + (approach_left * left->normal - approach_right * right->normal)) /
        (approach_left - approach_right);
    const double energy_left = left->pressure * inverse_gamma_1 +
                               left->density * (0.5 * left->normal * left->normal + left->tangential_energy);
    const double energy_right = right->pressure * inverse_gamma_1 +
                                right->density * (0.5 * right->normal * right->normal + right->tangential_energy);
    const int take_left = contact >= 0.0;
    const ups_gas_side side = {
        .density = take_left ? left->density : right->density,
        .normal = take_left ? left->normal : right->normal,
        .pressure = take_left ? left->pressure : right->pressure,
    };
    const double speed = take_left ? slowest : fastest;
    const int own = take_left ? slowest >= 0.0 : fastest <= 0.0;
    ups_gas_flux flux = ups_hllc_side(&side, speed, contact, take_left ? energy_left : energy_right, own);
    flux.from_left = take_left ? 1.0 : 0.0;
    return flux;
}

#endif

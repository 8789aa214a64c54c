/* The core `spectral`: a stack whose blocks mix modes of the token grid, x + spectral(norm(x)) + linear(norm(x)), then
 * x + mlp(norm(x)): a Fourier neural operator with a transformer's norms and MLP (mix_spectral.c). */
#include "model/nets/core.h"
#include "model/nets/core_blocks.h"

const ups_core_class ups_core_spectral = {
    .name = "spectral",
    .help = "Fourier modes of the token grid, each mixed by a matrix of its own, and an MLP",
    .mixing = UPS_MIXING_SPECTRAL,
    .build = ups_core_blocks,
};

/* The latent operator: advances latents z (B, tokens, dim) by a time dt.
 *
 *   z' = z + LayerNorm(core(condition(z + time(dt))))
 *
 * time(dt) = Linear dim←64 (Linear 64←64 (SiLU (Linear 64←1 (dt)))), added to every token.
 * condition(x) = x + σ(g + 2) · (LayerNorm(x) · (1 + γ) + β): AdaLN at the core's input. γ, β, g come, through a layer
 * that starts at zero, from an MLP of the PDE's parameters, the task and time's features; so it starts as x + 0.88
 * LayerNorm(x). Boundary conditions, as numbers, are columns of the parameters. Without parameters and tasks it is left
 * out. The core, one of a table (core.h), stands between a linear to `hidden` and a LayerNorm with a linear back.
 *
 * Where tokens are the cells of a grid, options.grid, tokens of different tasks differ in number and size, and input
 * and output are the task's own:
 *
 *   z' = z + s · (output(norm(core(input(z) + position))) + skip(z))
 *
 * s (dim) is the deviation of what a step changes, measured before training and kept as operator.TASK.change, which
 * gets no gradient; output and skip start at zero, so that an untrained operator is persistence. Positions, linear in
 * Fourier features, are told only where a border makes places differ, unless options->positions says otherwise. Time,
 * parameters and task modulate the blocks' norms.
 *
 * Parameters are named operator.time.0 … operator.output, operator.TASK.input …. */
#ifndef UPS_MODEL_NETS_OPERATOR_H
#define UPS_MODEL_NETS_OPERATOR_H

#include "model/nets/operator_options.h"
#include "model/ops.h"

/* The reference configuration: tokens 128, dim 128, hidden 384, depth 12, heads 8; unconditioned. */
ups_operator_options ups_operator_defaults(void);

/* What is wrong with the options, as a sentence in `error`: widths that heads do not divide, and the like. */
ups_status ups_operator_check(const ups_operator_options *options, ups_error *error);

/* z' (B, tokens, dim) float32 from z (B, tokens, dim) float32, dt (B, 1) float32, parameters (B, parameter_count)
 * float32 and task, one-hot (B, task_count) float32; the last two UPS_NO_VALUE where their count is 0. */
ups_value ups_operator_build(ups_graph *graph, const ups_operator_options *options, ups_value z, ups_value dt,
                             ups_value parameters, ups_value task);

/* `steps` applications in a row, with shared parameters and gradients through all: states[k] is the state after k + 1
 * steps. */
void ups_operator_rollout(ups_graph *graph, const ups_operator_options *options, ups_value z, ups_value dt,
                          ups_value parameters, ups_value task, int steps, ups_value *states);

#endif

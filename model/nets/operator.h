/* The latent operator: advances latents z (B, tokens, dim) by a time dt.
 *
 *   z' = z + LayerNorm(core(condition(z + time(dt))))
 *
 * time(dt) = Linear dim←64 (Linear 64←64 (SiLU (Linear 64←1 (dt)))), added to every token.
 * condition(x) = x + σ(g + 2) · (LayerNorm(x) · (1 + γ) + β): AdaLN at the core's input. γ, β, g come, through a layer
 * that starts at zero, from an MLP of the PDE's parameters, the task and time's features; so it starts as x + 0.88
 * LayerNorm(x). Boundary conditions, as numbers, are columns of the parameters. Without parameters and tasks it is left
 * out. With options->boundary, on a grid, one of two vectors that tasks share says whether the domain is periodic or
 * open. The core, one of a table (core.h), stands between a linear to `hidden` and a LayerNorm with a linear back.
 *
 * Where tokens are the cells of a grid, options.grid, tokens of different tasks differ in number and size, and input
 * and output are the task's own:
 *
 *   z' = z + s · (output(norm(core(input(z) + position))) + skip(z))
 *
 * s (dim) is the deviation of what a step changes, measured before training and kept as operator.TASK.change, which
 * gets no gradient (of one that has learnt steps of several strides operator.TASK.strideN.change, of the step at hand);
 * output and skip start at zero: as built, an operator is persistence. Before training the stage may set skip
 * to the linear map that comes closest to a step (train/stages/measured/one_step.h). With options->neighbors skip reads
 * the cells around a token, too. Positions, linear in Fourier features, are told only where a border makes places
 * differ, unless options->positions says otherwise. Time, parameters and task modulate the blocks' norms.
 *
 * There an operator may read several frames and give several. It reads the last one, z₀, and the changes d_j between
 * one frame and the one before it, j = 1 to history − 1; and it gives the changes of the next `bundle` frames, each
 * against z₀ and each with a scale of its own:
 *
 *   d_j = rate · (z_(1−j) − z_(−j))                                                     rate: 1 / s of one step
 *   u = output(norm(core(input(z₀) + Σ_j earlier_j(d_j) + position))) + skip(z₀) + Σ_j trend_j(d_j)
 *   z_i = z₀ + s_i · u_i,                                                               i = 1 to bundle
 *
 * earlier_j and trend_j start at zero and have no bias: where earlier frames repeat the first one that is known,
 * changes are zero, and the operator is one that reads fewer frames.
 *
 * Parameters are named operator.time.0 … operator.output, operator.TASK.input …. Halves of blocks that each task has
 * for itself (options->task_specific) are operator.TASK.blocks.…: a step costs the same, for it runs one task's. */
#ifndef UPS_MODEL_NETS_OPERATOR_H
#define UPS_MODEL_NETS_OPERATOR_H

#include "model/nets/operator_options.h"
#include "model/ops.h"

/* The reference configuration: tokens 128, dim 128, hidden 384, depth 12, heads 8; unconditioned. */
ups_operator_options ups_operator_defaults(void);

/* Whether `skip` reads the cells around a token, too, (B, tokens, 3^dims · dim) by ups_neighborhood:
 * options->neighbors, of tokens that are cells of a grid. */
bool ups_operator_reads_neighbors(const ups_operator_options *options);

/* What is wrong with the options, as a sentence in `error`: widths that heads do not divide, and the like. */
ups_status ups_operator_check(const ups_operator_options *options, ups_error *error);

/* z' (B, tokens, dim) float32 from z (B, tokens, dim) float32, dt (B, 1) float32, parameters (B, parameter_count)
 * float32 and task, one-hot (B, task_count) float32; the last two UPS_NO_VALUE where their count is 0. Of an operator
 * that reads one frame and gives one. */
ups_value ups_operator_build(ups_graph *graph, const ups_operator_options *options, ups_value z, ups_value dt,
                             ups_value parameters, ups_value task);

/* `applications` in a row, with shared parameters and gradients through all, or with options->pushforward each by
 * itself (Brandstetter et al., arXiv 2202.03376), from `given`: options->history frames (B, tokens, dim), a step apart,
 * the last one last. Each application gives options->bundle frames: states[k] is the state k + 1 steps after the last
 * given one. dt is the time of one step, (B, 1), or of each application's, (B, applications) or more. */
void ups_operator_rollout(ups_graph *graph, const ups_operator_options *options, const ups_value *given, ups_value dt,
                          ups_value parameters, ups_value task, int applications, ups_value *states);

#endif

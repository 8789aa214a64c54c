/* From a run's configuration and tasks to the graphs of model/: the one place where the two meet. Training, the cache
 * build and the evaluation build their graphs here, so that all have the same parameters by the same names. */
#ifndef UPS_TRAIN_NETWORKS_H
#define UPS_TRAIN_NETWORKS_H

#include "base/json.h"
#include "model/nets/decoder.h"
#include "model/nets/encoder.h"
#include "model/nets/operator.h"
#include "model/step/step.h"
#include "train/data/tasks.h"

/* What training's matmuls compute in; `auto` on this machine (train/precision.h decides for a run). */
ups_dtype ups_run_compute(const ups_run_config *config);
/* A graph that computes so, empty. */
ups_graph *ups_run_graph(const ups_run_config *config, ups_parameters *parameters);
/* Lets the configured layers of a graph that is not built yet multiply FP8, where the run computes in that: for graphs
 * of training alone: trained models compute as without it. */
void ups_run_allow_fp8(const ups_run_config *config, ups_graph *graph);
/* What a trained autoencoder computes in when it is used: float32, whatever it was trained in. The rounding of bf16 and
 * fp16 is noise in the latents that no codec can predict (it halves the cache's ratio) and that the operator would have
 * to learn around. */
#define UPS_AUTOENCODER_COMPUTE UPS_F32
int64_t ups_task_steps(const ups_task *task);                    /* of a trajectory, at the task's stride */
int64_t ups_task_points(const ups_task *task);                   /* of its grid */
ups_operator_options ups_run_core(const ups_run_config *config); /* what needs no task to be known */
/* For states of `task`; all tasks' are the same but where tokens are the cells of each one's grid. There a task of a
 * single step, such as a steady problem, reads one frame and gives one, whatever others do. */
ups_operator_options ups_run_operator(const ups_run_config *config, const ups_tasks *tasks, const ups_task *task);

/* What model/ has to say against the configured sizes, before anything is built. */
ups_status ups_networks_check(const ups_run_config *config, const ups_tasks *tasks, ups_error *error);

/* Latents (B, tokens, dim) of fields (B, elements of a frame) as stored. */
ups_value ups_networks_encode(ups_graph *graph, const ups_run_config *config, const ups_task *task, ups_value field);
/* The same of normalised fields (B, points · channels), channels last: what the decoder gives at all grid points. */
ups_value ups_networks_encode_normalised(ups_graph *graph, const ups_run_config *config, const ups_task *task,
                                         ups_value field);
/* Normalised values (B, Q, channels) at coordinates (Q, dims). */
ups_value ups_networks_decode(ups_graph *graph, const ups_run_config *config, const ups_task *task, ups_value latents,
                              ups_value coordinates);
/* The same where coordinates are points of the task's grid: there model.decoder.between corrects nothing, and its
 * parameters are no part of the graph. */
ups_value ups_networks_decode_at_grid_points(ups_graph *graph, const ups_run_config *config, const ups_task *task,
                                             ups_value latents, ups_value coordinates);
/* On a grid of tokens, of fields (B, elements of a frame): normalised values (B, Q, channels) at coordinates (Q, dims),
 * read from every second point (ups_patch_read_thinned), and those of polynomials through lines of grid points
 * (ups_patch_read_lines). Whether the task's grid can be thinned at all. */
ups_value ups_networks_read_thinned(ups_graph *graph, const ups_run_config *config, const ups_task *task,
                                    ups_value field, ups_value coordinates);
ups_value ups_networks_read_lines(ups_graph *graph, const ups_run_config *config, const ups_task *task, ups_value field,
                                  ups_value lines, ups_value weights);
bool ups_networks_can_thin(const ups_run_config *config, const ups_task *task);
/* The task's normalisation as a constant (channels, 2). */
ups_value ups_networks_statistics(ups_graph *graph, const ups_task *task);

/* Coordinates in [0, 1] of all points of a task's grid, row-major: (points, dims) in `out`. */
void ups_task_coordinates(const ups_task *task, float *out);

/* The encoder of a task as JSON: what shapes its latents besides the weights. For fingerprints; a new reference. */
json_t *ups_networks_describe_encoder(const ups_run_config *config, const ups_task *task);
/* The same of its decoder, and of the operator: what tensors' shapes do not tell is in it. */
json_t *ups_networks_describe_decoder(const ups_run_config *config, const ups_task *task);
json_t *ups_networks_describe_operator(const ups_run_config *config, const ups_tasks *tasks);
/* Names of its PDE parameters, in the order in which the operator is told them, and how each is scaled. */
json_t *ups_networks_describe_parameters(const ups_task *task);
/* Its normalisation: [[mean, scale], …]. */
json_t *ups_networks_describe_normalisation(const ups_task *task);

/* A model read back for use: parameters named by the graphs built so far are allocated (without gradients) and loaded
 * from `path`; tensors of other parts of the model may be in the file too. */
ups_status ups_networks_load(ups_parameters *parameters, ups_device *device, ups_dtype compute, const char *path,
                             ups_error *error);

#endif

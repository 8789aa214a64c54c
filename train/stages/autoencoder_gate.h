/* Whether an autoencoder is good enough to build on: no operator on its latents can be better than what it reads back.
 */
#ifndef UPS_TRAIN_STAGES_AUTOENCODER_GATE_H
#define UPS_TRAIN_STAGES_AUTOENCODER_GATE_H

#include "train/session.h"

/* Reads back (readback.h) frames of each task's held-out trajectories (validation, or test where that is empty) with
 * the run's trained autoencoder, and says each one's nRMSE. UPS_ERR_NUMERIC where one is above autoencoder.gate, with
 * what to try. Tasks without held-out trajectories are passed over. The session's tasks are normalised. */
ups_status ups_gate_autoencoder(const ups_session *session, ups_error *error);

#endif

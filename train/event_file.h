/* TensorBoard's event file of a run: what metrics.jsonl says, once more. Every number of a line is a scalar of the
 * line's step, whose tag is its place in the line behind the name of the stage: operator/task_loss/advection,
 * operator/validation/darcy, autoencoder/loader/waited_s. Texts and nulls have none.
 *
 * The file follows from its name and the lines, to the byte: where lines were dropped, since a run does steps again or
 * another run took its place, one look at both tells that the file has to be made anew. TensorBoard never shows a point
 * of a step that was undone.
 *
 * The format is TFRecord (a length and the bytes, each with a masked CRC32C behind it), the bytes are protocol buffers
 * of tensorflow/core/util/event.proto; only the fields below are written. */
#ifndef UPS_TRAIN_EVENT_FILE_H
#define UPS_TRAIN_EVENT_FILE_H

#include "base/error.h"
#include <stddef.h>

/* The record of a line of metrics.jsonl (without its end), or nothing (*length 0) where the line has no number. Free
 * *bytes with free(). */
ups_status ups_event_record(const char *line, size_t line_length, char **bytes, size_t *length, ups_error *error);

/* DIRECTORY/events.out.tfevents.SECONDS.ups tells of these lines, and no other file of this kind there tells anything.
 * One that tells of the first of them is completed; otherwise a new one appears under a later name, which a TensorBoard
 * that is running goes on to, and the old one is emptied. Free *path with free(). */
ups_status ups_event_file_publish(const char *directory, const char *lines, size_t length, char **path,
                                  ups_error *error);

#endif

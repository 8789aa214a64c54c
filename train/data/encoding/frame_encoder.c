#include "train/data/encoding/frame_encoder.h"

#include "base/system/threads.h"
#include "model/devices/devices.h"
#include "train/data/origin.h"
#include "train/networks.h"
#include "train/state.h"
#include <stdlib.h>
#include <string.h>

#define MAX_MEMORY ((size_t)3 << 30) /* of all encoders that run beside each other, about */

typedef struct task_encoder {
    const ups_task *task;
    ups_graph *graph;
    ups_step *step;
    ups_value field, latents;
    int64_t frame_elements, latent_elements;
} task_encoder;

struct ups_frame_encoder {
    ups_device *device; /* its own */
    ups_parameters *parameters;
    task_encoder *tasks; /* (count); one runs at a time, in the same arena */
    int count;
    int64_t widest; /* latents of a frame, of any of them */
    /* Latents of blocks that are handed on, or of which not all are wanted, in host memory of the device's own. Of a
     * device that works beside the host the next block is on its way while one is handed on. */
    float *blocks[2];
    ups_event *encoded[2];
};

/* Blocks under way at once. */
static int slots_of(const ups_device *device) {
    return device->class->input_sets > 1 ? 2 : 1;
}

/* ---- blocks ---------------------------------------------------------------------------------------------------- */

/* Blocks are as long as each other, so that the last one, which is full, has little to do twice: 9 frames are two
 * blocks of 5. */
static int64_t block_frames(const ups_task *task) {
    int64_t blocks = (task->geometry.times + UPS_ENCODER_BLOCK - 1) / UPS_ENCODER_BLOCK;
    return (task->geometry.times + blocks - 1) / blocks;
}

/* First frame of the block that encodes frame t. The last block is moved back so that it is full; frames that two
 * blocks hold are the last one's. */
static int64_t block_of(const ups_task *task, int64_t t) {
    int64_t frames = block_frames(task), last = task->geometry.times - frames;
    return t >= last ? last : t / frames * frames;
}

ups_frames ups_frame_encoder_span(const ups_task *task, ups_frames wanted) {
    int64_t first = block_of(task, wanted.start);
    return (ups_frames){first, block_of(task, wanted.start + wanted.count - 1) + block_frames(task) - first};
}

/* Frames that one run of the graph gives: of those wanted from `t` on, [t, next) lie in the block that begins at
 * `block`. */
typedef struct piece {
    int64_t block, t, next;
} piece;

static piece find_piece(const ups_task *task, int64_t t, int64_t end) {
    const int64_t frames = block_frames(task), last = task->geometry.times - frames;
    piece p = {.block = block_of(task, t), .t = t};
    p.next = p.block + frames;
    if (p.block < last && p.next > last) p.next = last; /* from there on they are the last block's */
    if (p.next > end) p.next = end;
    return p;
}

static const task_encoder *encoder_of(const ups_frame_encoder *e, const ups_task *task) {
    const task_encoder *of = e->tasks;
    while (of->task != task) of++;
    return of;
}

/* The block that begins with `fields` to `latents`. */
static ups_status encode_block(const ups_frame_encoder *e, const task_encoder *of, const float *fields, float *latents,
                               ups_error *error) {
    const int64_t frames = block_frames(of->task);
    ups_step_run_options options = {0};
    UPS_TRY(
        ups_step_upload(of->step, of->field, fields, (size_t)(frames * of->frame_elements) * sizeof *fields, error));
    UPS_TRY(ups_step_run(of->step, &options, error));
    size_t bytes = (size_t)(frames * of->latent_elements) * sizeof *latents;
    return ups_step_download(of->step, of->latents, latents, bytes, error);
}

ups_status ups_frame_encoder_run(ups_frame_encoder *e, const ups_task *task, ups_frames wanted, const float *fields,
                                 float *latents, ups_error *error) {
    const task_encoder *of = encoder_of(e, task);
    const int64_t frames = block_frames(task), each = of->latent_elements;
    const int64_t span = block_of(task, wanted.start), end = wanted.start + wanted.count;
    piece p;
    for (int64_t t = wanted.start; t < end; t = p.next) {
        p = find_piece(task, t, end);
        float *to = latents + (t - wanted.start) * each;
        bool whole = t == p.block && p.next == p.block + frames;
        UPS_TRY(encode_block(e, of, fields + (p.block - span) * of->frame_elements, whole ? to : e->blocks[0], error));
        if (!whole) memcpy(to, e->blocks[0] + (t - p.block) * each, (size_t)((p.next - t) * each) * sizeof *to);
    }
    return UPS_OK;
}

static ups_status issue_block(const ups_frame_encoder *e, const task_encoder *of, const float *fields, int slot,
                              ups_error *error) {
    const int64_t frames = block_frames(of->task);
    const size_t field_bytes = (size_t)(frames * of->frame_elements) * sizeof *fields;
    const size_t bytes = (size_t)(frames * of->latent_elements) * sizeof *e->blocks[slot];
    UPS_TRY(ups_step_upload(of->step, of->field, fields, field_bytes, error));
    UPS_TRY(ups_step_run(of->step, &(ups_step_run_options){0}, error));
    return ups_step_download_later(of->step, of->latents, e->blocks[slot], bytes, e->encoded[slot], error);
}

static ups_status take_block(const ups_frame_encoder *e, const task_encoder *of, piece p, int slot,
                             ups_latents_taker *take, void *context, ups_error *error) {
    UPS_TRY(e->device->class->event_wait(e->device, e->encoded[slot], error));
    take(context, e->blocks[slot] + (p.t - p.block) * of->latent_elements, p.next - p.t);
    return UPS_OK;
}

ups_status ups_frame_encoder_stream(ups_frame_encoder *e, const ups_task *task, const float *fields,
                                    ups_latents_taker *take, void *context, ups_error *error) {
    const task_encoder *of = encoder_of(e, task);
    const int64_t times = task->geometry.times;
    const int slots = slots_of(e->device);
    int64_t issued = 0, taken = 0;
    ups_status status = UPS_OK;
    piece pieces[2];
    for (int64_t t = 0; status == UPS_OK && (t < times || taken < issued);) {
        if (t < times && issued - taken < slots) {
            const int slot = (int)(issued++ % slots);
            pieces[slot] = find_piece(task, t, times);
            t = pieces[slot].next;
            status = issue_block(e, of, fields + pieces[slot].block * of->frame_elements, slot, error);
        } else {
            const int slot = (int)(taken++ % slots);
            status = take_block(e, of, pieces[slot], slot, take, context, error);
        }
    }
    if (status != UPS_OK) e->device->class->synchronize(e->device, NULL); /* `fields` may be read still */
    return status;
}

/* ---- opening --------------------------------------------------------------------------------------------------- */

/* Graphs without memory to run in. */
static ups_status build(const ups_session *session, const ups_task *only, ups_frame_encoder **encoder,
                        ups_error *error) {
    ups_frame_encoder *e = *encoder = calloc(1, sizeof *e);
    if (e) e->tasks = calloc((size_t)session->tasks->count, sizeof *e->tasks);
    if (e) e->parameters = ups_parameters_create();
    if (!e || !e->tasks || !e->parameters) return ups_fail(error, UPS_ERR_MEMORY, "no memory for an encoder");
    for (int t = 0; t < session->tasks->count; t++) {
        const ups_task *task = &session->tasks->task[t];
        if (only && task != only) continue;
        task_encoder *of = &e->tasks[e->count++];
        *of = (task_encoder){.task = task,
                             .frame_elements = ups_sample_frame_elements(&task->geometry),
                             .latent_elements = ups_task_latent_elements(session->config, task)};
        if (of->latent_elements > e->widest) e->widest = of->latent_elements;
        of->graph = ups_graph_create(e->parameters, UPS_AUTOENCODER_COMPUTE);
        of->field = ups_graph_input(of->graph, "field", UPS_F32, UPS_SHAPE(block_frames(task), of->frame_elements));
        of->latents = ups_networks_encode(of->graph, session->config, task, of->field);
        ups_graph_keep(of->graph, of->latents);
    }
    return UPS_OK;
}

void ups_frame_encoder_close(ups_frame_encoder *e) {
    if (!e) return;
    for (int i = 0; e->tasks && i < e->count; i++) {
        ups_step_destroy(e->tasks[i].step);
        ups_graph_destroy(e->tasks[i].graph);
    }
    if (e->parameters) ups_parameters_destroy(e->parameters);
    for (int i = 0; i < 2 && e->device; i++) {
        if (e->blocks[i]) e->device->class->release_host(e->device, e->blocks[i]);
        if (e->encoded[i]) e->device->class->event_destroy(e->device, e->encoded[i]);
    }
    ups_device_close(e->device);
    free(e->tasks);
    free(e);
}

static size_t block_bytes(const ups_frame_encoder *e) {
    return (size_t)(UPS_ENCODER_BLOCK * e->widest) * sizeof *e->blocks[0];
}

static const ups_graph **list_graphs(const ups_frame_encoder *e, ups_error *error) {
    const ups_graph **list = calloc((size_t)e->count + 1, sizeof *list);
    if (!list) ups_fail(error, UPS_ERR_MEMORY, "no memory for an encoder");
    for (int i = 0; list && i < e->count; i++) list[i] = e->tasks[i].graph;
    return list;
}

static ups_status create_steps(ups_frame_encoder *e, ups_error *error) {
    const ups_graph **graphs = list_graphs(e, error);
    ups_step **steps = calloc((size_t)e->count + 1, sizeof *steps);
    ups_status status = graphs && steps ? ups_step_create_together(graphs, e->count, e->device, steps, error)
                                        : ups_fail(error, UPS_ERR_MEMORY, "no memory for an encoder");
    for (int i = 0; status == UPS_OK && i < e->count; i++) e->tasks[i].step = steps[i];
    free(steps);
    free(graphs);
    return status;
}

static ups_status load(const ups_session *session, ups_frame_encoder *e, ups_error *error) {
    char *path = ups_run_model_path(session->config, UPS_STAGE_AUTOENCODER);
    json_t *origin = ups_origin_autoencoder(session->config, session->tasks);
    ups_status status = path && origin ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory for an encoder");
    if (status == UPS_OK) status = ups_origin_check(path, origin, error);
    if (status == UPS_OK) status = ups_networks_load(e->parameters, e->device, UPS_AUTOENCODER_COMPUTE, path, error);
    json_decref(origin);
    free(path);
    return status;
}

ups_status ups_frame_encoder_open(const ups_session *session, const ups_task *only, int threads,
                                  ups_frame_encoder **encoder, ups_error *error) {
    *encoder = NULL;
    ups_frame_encoder *e = NULL;
    ups_device_options options = {.name = session->device->class->name, .threads = threads};
    ups_status status = build(session, only, &e, error);
    if (status == UPS_OK) status = ups_device_open(&options, &e->device, error);
    if (status == UPS_OK)
        ups_device_choose_kernels(e->device, UPS_KERNELS_BY_SHAPE); /* the same bits by all encoders */
    for (int i = 0; status == UPS_OK && i < slots_of(e->device); i++) {
        const ups_device_class *class = e->device->class;
        status = class->allocate_host(e->device, block_bytes(e), (void **)&e->blocks[i], error);
        if (status == UPS_OK) status = class->event_create(e->device, &e->encoded[i], error);
    }
    if (status == UPS_OK) status = load(session, e, error);
    if (status == UPS_OK) status = create_steps(e, error);
    if (status != UPS_OK) {
        ups_frame_encoder_close(e);
        return status;
    }
    *encoder = e;
    return UPS_OK;
}

/* ---- memory ---------------------------------------------------------------------------------------------------- */

ups_status ups_frame_encoder_measure(const ups_session *session, const ups_task *only, size_t *bytes,
                                     ups_error *error) {
    ups_frame_encoder *e = NULL;
    const ups_graph **graphs = NULL;
    ups_plan_memory memory = {0};
    ups_status status = build(session, only, &e, error);
    if (status == UPS_OK && !(graphs = list_graphs(e, error))) status = UPS_ERR_MEMORY;
    if (status == UPS_OK) status = ups_step_measure_together(graphs, e->count, session->device, &memory, error);
    if (status == UPS_OK)
        *bytes = memory.inputs + memory.activations + memory.workspace + memory.parameters +
                 (size_t)slots_of(session->device) * block_bytes(e);
    free(graphs);
    ups_frame_encoder_close(e);
    return status;
}

int ups_frame_encoder_processors(const ups_device *device) {
    return device->class->memory ? ups_cpu_count() : ups_device_threads(device);
}

ups_encoder_shares ups_frame_encoder_share(size_t each, int processors) {
    size_t fitting = each > 0 ? MAX_MEMORY / each : (size_t)processors;
    if (fitting >= (size_t)processors) return (ups_encoder_shares){processors, 1};
    int count = fitting > 0 ? (int)fitting : 1;
    return (ups_encoder_shares){count, processors / count};
}

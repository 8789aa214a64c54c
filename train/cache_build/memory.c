#include "train/cache_build/memory.h"

#include "base/system/memory_limit.h"
#include "base/system/threads.h"
#include "train/data/batches.h"
#include "train/data/encoding/frame_encoder.h"
#include <math.h>

#define GIB ((double)(1 << 30))
#define BATCH_BYTES (1 << 20) /* of fields that are handed over together, about */
#define SLOTS_AHEAD 2         /* trajectories being read while the workers are busy */
#define MIN_SLOTS 2           /* one trajectory is read while another is encoded */
#define CARD_SHARE 0.9        /* of a card's free memory: its libraries take some later */

/* A trajectory's latents, rounded and, no larger, compressed. */
static size_t latent_bytes(const ups_session *session, const ups_task *task) {
    return (size_t)(task->geometry.times * ups_task_latent_elements(session->config, task)) * 2 * sizeof(uint16_t);
}

static uint64_t memory_limit(const ups_run_config *config) {
    if (config->cache.memory_limit > 0) return (uint64_t)(config->cache.memory_limit * GIB);
    uint64_t available = ups_memory_free();
    return available > 0 ? available / 2 : UINT64_MAX; /* the machine does not tell */
}

/* What does not change as a plan shrinks. */
typedef struct sizes {
    int processors;
    ups_encoder_shares shares; /* of encoders, where fields leave room for all */
    uint64_t encoder;          /* what one takes of the host, with a trajectory of latents, rounded and compressed */
    ups_loader_options options;
    ups_loader_load load;
} sizes;

/* Of an encoder, what lies in the host's memory: all of it, but where the device has memory of its own. Then that is
 * blocks of latents on their way back. */
static size_t host_bytes(const ups_session *session, const ups_task *task, size_t encoder) {
    const ups_device *device = session->device;
    const size_t latents = (size_t)ups_task_latent_elements(session->config, task) * sizeof(float);
    return device->class->memory ? (size_t)device->class->input_sets * UPS_ENCODER_BLOCK * latents : encoder;
}

/* No more encoders, of `each` bytes there, than a device's own memory has room for. */
static ups_status fit_card(const ups_session *session, const ups_task *task, size_t each, ups_encoder_shares *shares,
                           ups_error *error) {
    const double limit = session->config->device.memory * GIB;
    uint64_t total, available = 0;
    UPS_TRY(session->device->class->memory(session->device, &total, &available, error));
    const double budget = limit > 0 ? fmin(limit, (double)available) : CARD_SHARE * (double)available;
    if ((double)each > budget)
        return ups_fail(error, UPS_ERR_MEMORY,
                        "task %s: its encoder takes %.3f GiB of the card's memory, and %.3f GiB of it may be used; "
                        "raise device.memory where it is set, end other programs on the card, or make the encoder "
                        "smaller",
                        task->name, (double)each / GIB, budget / GIB);
    if ((double)shares->count * (double)each > budget) shares->count = (int)(budget / (double)each);
    return UPS_OK;
}

static ups_status find_sizes(const ups_session *session, const ups_task *task, sizes *s, ups_error *error) {
    size_t encoder = 0;
    UPS_TRY(ups_frame_encoder_measure(session, task, &encoder, error));
    const size_t of_host = host_bytes(session, task, encoder), latents = latent_bytes(session, task);
    const int processors = ups_frame_encoder_processors(session->device);
    *s = (sizes){.processors = processors,
                 .shares = ups_frame_encoder_share(encoder + latents, processors),
                 .encoder = of_host + latents,
                 .options = ups_sequential_loader_options(session->config),
                 .load = {.frames = task->geometry.times,
                          .stride = 1,
                          .frame_elements = ups_sample_frame_elements(&task->geometry),
                          .dtype = task->geometry.dtype,
                          .limits = task->source->limits}};
    s->shares.count += s->shares.threads == 1; /* one may wait for the disk */
    if (!session->device->class->memory) return UPS_OK;
    return fit_card(session, task, encoder - of_host, &s->shares, error);
}

/* No more encoders than find trajectories: one slot is being read into, unless there is but one. Then what all take. */
static void count_bytes(const sizes *s, ups_encode_plan *plan) {
    int useful = plan->slots > 1 ? plan->slots - 1 : 1;
    plan->workers = s->shares.count < useful ? s->shares.count : useful;
    plan->threads = s->shares.threads;
    if (plan->workers < s->shares.count && plan->workers < s->processors) plan->threads = s->processors / plan->workers;
    ups_loader_options options = s->options;
    options.batch = plan->batch;
    options.slots = plan->slots;
    options.decode_threads = plan->decode_threads;
    uint64_t loaders = ups_loader_measure(&options, &s->load, 1).total, encoders = 0;
    if (plan->overlapping && __builtin_mul_overflow(loaders, 2, &loaders)) loaders = UINT64_MAX;
    encoders = (uint64_t)plan->workers * s->encoder;
    if (__builtin_add_overflow(loaders, encoders, &plan->bytes)) plan->bytes = UINT64_MAX;
}

/* One step towards less memory, the cheapest that is left; false: there is none. */
static bool shrink(ups_encode_plan *plan, int slots) {
    if (plan->slots > MIN_SLOTS) {
        plan->slots--;
    } else if (plan->overlapping) {
        plan->overlapping = false;
        plan->slots = slots;
    } else if (plan->decode_threads > 1) {
        plan->decode_threads--;
    } else if (plan->slots > 1) {
        plan->slots--;
    } else {
        return false;
    }
    return true;
}

ups_status ups_encode_plan_make(const ups_session *session, const ups_task *task, ups_encode_plan *plan,
                                ups_error *error) {
    sizes s;
    UPS_TRY(find_sizes(session, task, &s, error));
    size_t fields = (size_t)task->geometry.times * ups_sample_frame_bytes(&task->geometry);
    int held = s.shares.count + 2; /* by workers, in their queue, in the reader's hands */
    int slots = s.options.slots > held + SLOTS_AHEAD ? s.options.slots : held + SLOTS_AHEAD;
    *plan =
        (ups_encode_plan){.batch = fields > 0 && fields < BATCH_BYTES ? (int64_t)(BATCH_BYTES / fields) : 1,
                          .slots = slots,
                          .decode_threads = s.options.decode_threads > 0 ? s.options.decode_threads : ups_cpu_count(),
                          .overlapping = true};
    uint64_t limit = memory_limit(session->config);
    for (;;) {
        count_bytes(&s, plan);
        if (plan->bytes <= limit) return UPS_OK;
        if (!shrink(plan, slots)) break;
    }
    return ups_fail(error, UPS_ERR_MEMORY,
                    "task %s: its trajectories are read and encoded as wholes, and one of them (%lld frames of %lld "
                    "values) takes %.3f GiB with its encoder, but %.3f GiB may be used: raise cache.memory_limit, or "
                    "build where more memory is free",
                    task->name, (long long)task->geometry.times, (long long)s.load.frame_elements,
                    (double)plan->bytes / GIB, (double)limit / GIB);
}

#include "tests/model/async_device.h"

#include "model/cpu/device.h"
#include "model/devices/devices.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Added to every address of device memory: no pointer of a process has this bit. */
#define DEVICE_BIT ((uintptr_t)1 << 50)
enum { POISON = 0xff /* four of them are a NaN */, DELAYED_SHARE = 8 /* one command in so many is delayed */ };

typedef enum kind {
    COPY_IN,
    COPY_OUT,
    COPY,
    GATHER,
    ZERO,
    KERNEL,
    CONVERT,
    ADD_LOSSES,
    SEED_BACKWARD,
    NORM,
    DECIDE,
    OPTIMIZE,
    RECORD,
    WAIT
} kind;

struct ups_event {
    int64_t recorded, passed;
};

typedef struct command {
    struct command *next;
    kind kind;
    union {
        struct {
            void *to;
            const void *from;
            size_t bytes;
            bool poison; /* `from`, once it was read */
        } copy;
        struct {
            unsigned char *to;
            const void *const *rows;
            int64_t count;
            size_t bytes;
        } gather;
        struct {
            ups_kernel_run *run;
            ups_op_call call;
            ups_op_attributes attributes;
        } kernel;
        ups_losses_call losses;
        ups_optimizer_call optimizer;
        struct {
            ups_update *update;
            const float *from;
            float *to;
            ups_dtype dtype;
            int64_t count;
            ups_update_rules rules;
        } update;
        struct {
            ups_event *event;
            int64_t number; /* of the record that is meant */
        } event;
    };
} command;

typedef struct queue {
    command *first, **end;
} queue;

struct ups_capture {
    queue commands;
};

/* Memory that was handed out. */
typedef struct block {
    struct block *next;
    unsigned char *memory;
    size_t bytes;
} block;

typedef struct async_device {
    ups_device device;
    ups_device_class class; /* with as many input sets as asked for */
    ups_device *cpu;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t issued, done;
    queue streams[UPS_STREAM_COUNT];
    int running; /* stream of the command that runs; -1: none */
    bool closing;
    ups_capture *capture; /* being recorded */
    block *device_blocks, *host_blocks;
    ups_status failed; /* what went wrong first, told by whatever is called next */
    ups_error error;
    uint64_t random;
    int64_t delay;
} async_device;

static async_device *of(ups_device *device) {
    return (async_device *)(void *)device;
}

/* ---- addresses -------------------------------------------------------------------------------------------------- */

static void fail(async_device *d, const char *what) {
    if (d->failed == UPS_OK) d->failed = ups_fail(&d->error, UPS_ERR_ARGUMENT, "test-async: %s", what);
}

static void *real(async_device *d, const void *address) {
    uintptr_t value = (uintptr_t)address;
    if (!address) return NULL;
    if (!(value & DEVICE_BIT)) fail(d, "host memory was handed to the device");
    return (void *)(value & ~DEVICE_BIT);
}

static void make_real(async_device *d, ups_tensor *tensor) {
    tensor->data = real(d, tensor->data);
    tensor->scale = real(d, tensor->scale);
}

static void add_block(block **list, void *memory, size_t bytes) {
    block *made = malloc(sizeof *made);
    *made = (block){*list, memory, bytes};
    *list = made;
}

static size_t take_block(block **list, const void *memory) {
    while ((*list)->memory != memory) list = &(*list)->next;
    block *found = *list;
    size_t bytes = found->bytes;
    *list = found->next;
    free(found);
    return bytes;
}

static bool in_blocks(const block *list, const void *memory) {
    const unsigned char *at = memory;
    for (; list; list = list->next) {
        if (at >= list->memory && at < list->memory + list->bytes) return true;
    }
    return false;
}

/* ---- the thread ------------------------------------------------------------------------------------------------- */

static uint64_t draw(async_device *d, uint64_t below) {
    d->random ^= d->random << 13; /* xorshift64 (Marsaglia 2003) */
    d->random ^= d->random >> 7;
    d->random ^= d->random << 17;
    return d->random % below;
}

static void append(queue *to, command *last) {
    last->next = NULL;
    *to->end = last;
    to->end = &last->next;
}

static bool may_run(const queue *stream) {
    const command *first = stream->first;
    return first && (first->kind != WAIT || first->event.event->passed >= first->event.number);
}

static ups_status gather(const command *c, ups_error *error) {
    for (int64_t i = 0; i < c->gather.count; i++) {
        const uintptr_t row = (uintptr_t)c->gather.rows[i];
        if (!(row & DEVICE_BIT)) return ups_fail(error, UPS_ERR_ARGUMENT, "test-async: a row lies in host memory");
        memcpy(c->gather.to + (size_t)i * c->gather.bytes, (const void *)(row & ~DEVICE_BIT), c->gather.bytes);
    }
    return UPS_OK;
}

static ups_status execute(async_device *d, command *c, ups_error *error) {
    ups_device *cpu = d->cpu;
    const ups_device_class *class = cpu->class;
    switch (c->kind) {
    case COPY_IN:
    case COPY_OUT:
    case COPY:
        memcpy(c->copy.to, c->copy.from, c->copy.bytes);
        if (c->copy.poison) memset((void *)(uintptr_t)c->copy.from, POISON, c->copy.bytes);
        return UPS_OK;
    case GATHER:
        return gather(c, error);
    case ZERO:
        memset(c->copy.to, 0, c->copy.bytes);
        return UPS_OK;
    case KERNEL:
        c->kernel.call.attributes = c->kernel.call.attributes ? &c->kernel.attributes : NULL;
        return c->kernel.run(cpu, &c->kernel.call, error);
    case CONVERT:
        return class->convert(cpu, c->update.from, c->update.dtype, (uint16_t *)(void *)c->update.to, c->update.count,
                              error);
    case ADD_LOSSES:
        return class->add_losses(cpu, &c->losses, error);
    case SEED_BACKWARD:
        return class->seed_backward(cpu, c->update.update, c->update.to, error);
    case NORM:
        return class->norm(cpu, c->update.from, c->update.count, c->update.update, error);
    case DECIDE:
        return class->decide(cpu, &c->update.rules, c->update.update, error);
    case OPTIMIZE:
        return class->optimize(cpu, &c->optimizer, error);
    case RECORD:
    case WAIT:
        break;
    }
    return UPS_OK;
}

static void *work(void *context) {
    async_device *d = context;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        int stream = (int)draw(d, UPS_STREAM_COUNT);
        if (!may_run(&d->streams[stream])) stream = 1 - stream;
        if (!may_run(&d->streams[stream])) {
            if (d->closing) break;
            pthread_cond_wait(&d->issued, &d->lock);
            continue;
        }
        command *c = d->streams[stream].first;
        d->streams[stream].first = c->next;
        if (!c->next) d->streams[stream].end = &d->streams[stream].first;
        d->running = stream;
        int64_t delay = draw(d, DELAYED_SHARE) == 0 ? (int64_t)draw(d, (uint64_t)d->delay + 1) : 0;
        ups_status before = d->failed, status = UPS_OK;
        ups_error error;
        pthread_mutex_unlock(&d->lock);
        if (delay > 0) usleep((useconds_t)delay);
        if (before == UPS_OK) status = execute(d, c, &error);
        pthread_mutex_lock(&d->lock);
        if (status != UPS_OK && d->failed == UPS_OK) d->failed = status, d->error = error;
        if (c->kind == RECORD) c->event.event->passed = c->event.number;
        d->running = -1;
        free(c);
        pthread_cond_broadcast(&d->done);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* ---- issuing ---------------------------------------------------------------------------------------------------- */

static ups_status told(async_device *d, ups_error *error) {
    if (d->failed != UPS_OK && error) *error = d->error;
    return d->failed;
}

/* `c` is copied. Within a capture only kernels, and what stays on the device, belong. */
static ups_status issue(async_device *d, ups_stream stream, const command *c, ups_error *error) {
    command *made = malloc(sizeof *made);
    *made = *c;
    pthread_mutex_lock(&d->lock);
    bool captured = d->capture != NULL;
    if (captured && (stream != UPS_STREAM_COMPUTE || c->kind <= COPY_OUT || c->kind >= RECORD)) {
        fail(d, "this cannot be captured");
    }
    append(captured ? &d->capture->commands : &d->streams[stream], made);
    ups_status status = told(d, error);
    pthread_cond_signal(&d->issued);
    pthread_mutex_unlock(&d->lock);
    return status;
}

/* Until a stream is empty; both for -1. */
static ups_status drain(async_device *d, int stream, ups_error *error) {
    pthread_mutex_lock(&d->lock);
    for (;;) {
        bool busy = false;
        for (int s = 0; s < UPS_STREAM_COUNT; s++) {
            if (stream >= 0 && s != stream) continue;
            busy = busy || d->streams[s].first || d->running == s;
        }
        if (!busy) break;
        pthread_cond_wait(&d->done, &d->lock);
    }
    ups_status status = told(d, error);
    pthread_mutex_unlock(&d->lock);
    return status;
}

static ups_status synchronize(ups_device *device, ups_error *error) {
    return drain(of(device), -1, error);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

static ups_status allocate(ups_device *device, size_t bytes, void **memory, ups_error *error) {
    async_device *d = of(device);
    void *made = NULL;
    *memory = NULL;
    UPS_TRY(d->cpu->class->allocate(d->cpu, bytes, &made, error));
    add_block(&d->device_blocks, made, bytes);
    *memory = (void *)((uintptr_t)made | DEVICE_BIT);
    return UPS_OK;
}

static void release(ups_device *device, void *memory) {
    async_device *d = of(device);
    void *made = real(d, memory);
    drain(d, -1, NULL);
    memset(made, POISON, take_block(&d->device_blocks, made));
    d->cpu->class->release(d->cpu, made);
}

static ups_status allocate_host(ups_device *device, size_t bytes, void **memory, ups_error *error) {
    async_device *d = of(device);
    UPS_TRY(d->cpu->class->allocate_host(d->cpu, bytes, memory, error));
    memset(*memory, POISON, bytes);
    pthread_mutex_lock(&d->lock);
    add_block(&d->host_blocks, *memory, bytes);
    pthread_mutex_unlock(&d->lock);
    return UPS_OK;
}

static void release_host(ups_device *device, void *memory) {
    async_device *d = of(device);
    drain(d, -1, NULL);
    pthread_mutex_lock(&d->lock);
    take_block(&d->host_blocks, memory);
    pthread_mutex_unlock(&d->lock);
    d->cpu->class->release_host(d->cpu, memory);
}

static ups_status copy_in(ups_device *device, ups_stream stream, void *to, const void *from, size_t bytes,
                          ups_error *error) {
    async_device *d = of(device);
    pthread_mutex_lock(&d->lock);
    command c = {.kind = COPY_IN, .copy = {real(d, to), from, bytes, in_blocks(d->host_blocks, from)}};
    pthread_mutex_unlock(&d->lock);
    return issue(d, stream, &c, error);
}

static ups_status upload(ups_device *device, void *to, const void *from, size_t bytes, ups_error *error) {
    return copy_in(device, UPS_STREAM_COMPUTE, to, from, bytes, error);
}

static ups_status upload_ahead(ups_device *device, void *to, const void *from, size_t bytes, ups_error *error) {
    return copy_in(device, UPS_STREAM_COPY, to, from, bytes, error);
}

static ups_status gather_ahead(ups_device *device, void *to, const void *const *rows, int64_t count, size_t bytes,
                               ups_error *error) {
    async_device *d = of(device);
    command c = {.kind = GATHER, .gather = {real(d, to), real(d, rows), count, bytes}};
    return issue(d, UPS_STREAM_COPY, &c, error);
}

static ups_status download_later(ups_device *device, void *to, const void *from, size_t bytes, ups_error *error) {
    async_device *d = of(device);
    command c = {.kind = COPY_OUT, .copy = {to, real(d, from), bytes, false}};
    memset(to, POISON, bytes);
    return issue(d, UPS_STREAM_COMPUTE, &c, error);
}

static ups_status download(ups_device *device, void *to, const void *from, size_t bytes, ups_error *error) {
    UPS_TRY(download_later(device, to, from, bytes, error));
    return drain(of(device), UPS_STREAM_COMPUTE, error);
}

static ups_status copy(ups_device *device, void *to, const void *from, size_t bytes, ups_error *error) {
    async_device *d = of(device);
    command c = {.kind = COPY, .copy = {real(d, to), real(d, from), bytes, false}};
    return issue(d, UPS_STREAM_COMPUTE, &c, error);
}

static ups_status zero(ups_device *device, void *memory, size_t bytes, ups_error *error) {
    async_device *d = of(device);
    command c = {.kind = ZERO, .copy = {real(d, memory), NULL, bytes, false}};
    return issue(d, UPS_STREAM_COMPUTE, &c, error);
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

static ups_status event_create(ups_device *device, ups_event **event, ups_error *error) {
    *event = calloc(1, sizeof **event);
    return *event ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "no memory for an event");
}

static void event_destroy(ups_device *device, ups_event *event) {
    drain(of(device), -1, NULL);
    free(event);
}

static ups_status event_record(ups_device *device, ups_event *event, ups_stream stream, ups_error *error) {
    command c = {.kind = RECORD, .event = {event, ++event->recorded}};
    return issue(of(device), stream, &c, error);
}

static ups_status event_wait(ups_device *device, ups_event *event, ups_error *error) {
    async_device *d = of(device);
    pthread_mutex_lock(&d->lock);
    while (event->passed < event->recorded) pthread_cond_wait(&d->done, &d->lock);
    ups_status status = told(d, error);
    pthread_mutex_unlock(&d->lock);
    return status;
}

static ups_status stream_wait(ups_device *device, ups_stream stream, ups_event *event, ups_error *error) {
    command c = {.kind = WAIT, .event = {event, event->recorded}};
    return issue(of(device), stream, &c, error);
}

/* ---- capture ---------------------------------------------------------------------------------------------------- */

static ups_status capture_begin(ups_device *device, ups_error *error) {
    async_device *d = of(device);
    ups_capture *made = calloc(1, sizeof *made);
    if (!made) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a capture");
    made->commands.end = &made->commands.first;
    d->capture = made;
    return UPS_OK;
}

static ups_status capture_end(ups_device *device, ups_capture **capture, ups_error *error) {
    async_device *d = of(device);
    *capture = d->capture;
    d->capture = NULL;
    return told(d, error);
}

static ups_status capture_launch(ups_device *device, const ups_capture *capture, ups_error *error) {
    for (const command *c = capture->commands.first; c; c = c->next) {
        UPS_TRY(issue(of(device), UPS_STREAM_COMPUTE, c, error));
    }
    return UPS_OK;
}

static void capture_release(ups_device *device, ups_capture *capture) {
    for (command *c = capture->commands.first, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(capture);
}

/* ---- kernels ---------------------------------------------------------------------------------------------------- */

static ups_status run_later(ups_device *device, ups_kernel_run *run, const ups_op_call *call, ups_error *error) {
    async_device *d = of(device);
    command c = {.kind = KERNEL, .kernel = {.run = run, .call = *call}};
    ups_op_call *to = &c.kernel.call;
    if (call->attributes) c.kernel.attributes = *call->attributes;
    for (int i = 0; i < UPS_MAX_INPUTS; i++) {
        make_real(d, &to->inputs[i]);
        make_real(d, &to->input_gradients[i]);
    }
    for (int i = 0; i < UPS_MAX_SAVED; i++) make_real(d, &to->saved[i]);
    make_real(d, &to->output);
    make_real(d, &to->output_gradient);
    to->update = real(d, call->update);
    to->workspace = real(d, call->workspace);
    to->state = ((const ups_kernel *)call->state)->state;
    return issue(d, UPS_STREAM_COMPUTE, &c, error);
}

static ups_status forward_later(ups_device *device, const ups_op_call *call, ups_error *error) {
    return run_later(device, ((const ups_kernel *)call->state)->forward, call, error);
}

static ups_status backward_later(ups_device *device, const ups_op_call *call, ups_error *error) {
    return run_later(device, ((const ups_kernel *)call->state)->backward, call, error);
}

static void release_kernel(void *state) {
    ups_kernel *kernel = state;
    if (kernel->release) kernel->release(kernel->state);
    free(kernel);
}

/* The CPU's kernel is this one's state. */
static ups_status choose_kernel(ups_device *device, const ups_op_call *call, bool backward, ups_kernel *kernel,
                                ups_error *error) {
    ups_kernel *cpu = malloc(sizeof *cpu);
    if (!cpu) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a kernel");
    *kernel = (ups_kernel){0};
    ups_status status = of(device)->cpu->class->kernel(of(device)->cpu, call, backward, cpu, error);
    if (status != UPS_OK) {
        free(cpu);
        return status;
    }
    *kernel = (ups_kernel){.forward = cpu->forward ? forward_later : NULL,
                           .backward = cpu->backward ? backward_later : NULL,
                           .workspace_bytes = cpu->workspace_bytes,
                           .state = cpu,
                           .release = release_kernel};
    return UPS_OK;
}

static ups_status convert(ups_device *device, const float *from, ups_dtype dtype, uint16_t *to, int64_t count,
                          ups_error *error) {
    async_device *d = of(device);
    command c = {.kind = CONVERT, .update = {.from = real(d, from), .to = real(d, to), .count = count}};
    c.update.dtype = dtype;
    return issue(d, UPS_STREAM_COMPUTE, &c, error);
}

static ups_status add_losses(ups_device *device, const ups_losses_call *call, ups_error *error) {
    async_device *d = of(device);
    command c = {.kind = ADD_LOSSES, .losses = *call};
    for (int i = 0; i < call->term_count; i++) c.losses.terms[i] = real(d, call->terms[i]);
    c.losses.tasks = real(d, call->tasks);
    c.losses.update = real(d, call->update);
    return issue(d, UPS_STREAM_COMPUTE, &c, error);
}

static ups_status seed_backward(ups_device *device, const ups_update *update, float *gradient, ups_error *error) {
    async_device *d = of(device);
    command c = {.kind = SEED_BACKWARD, .update = {.update = real(d, update), .to = real(d, gradient)}};
    return issue(d, UPS_STREAM_COMPUTE, &c, error);
}

static ups_status norm(ups_device *device, const float *gradients, int64_t count, ups_update *update,
                       ups_error *error) {
    async_device *d = of(device);
    command c = {.kind = NORM, .update = {.update = real(d, update), .from = real(d, gradients), .count = count}};
    return issue(d, UPS_STREAM_COMPUTE, &c, error);
}

static ups_status decide(ups_device *device, const ups_update_rules *rules, ups_update *update, ups_error *error) {
    async_device *d = of(device);
    command c = {.kind = DECIDE, .update = {.update = real(d, update), .rules = *rules}};
    return issue(d, UPS_STREAM_COMPUTE, &c, error);
}

static ups_status optimize(ups_device *device, const ups_optimizer_call *call, ups_error *error) {
    async_device *d = of(device);
    command c = {.kind = OPTIMIZE, .optimizer = *call};
    c.optimizer.ranges = real(d, call->ranges);
    c.optimizer.values = real(d, call->values);
    c.optimizer.gradients = real(d, call->gradients);
    for (int i = 0; i < 2; i++) c.optimizer.moments[i] = real(d, call->moments[i]);
    c.optimizer.workspace = real(d, call->workspace);
    c.optimizer.ema = real(d, call->ema);
    c.optimizer.compute = real(d, call->compute);
    c.optimizer.update = real(d, call->update);
    return issue(d, UPS_STREAM_COMPUTE, &c, error);
}

static size_t matrices_workspace(ups_device *device, const ups_matrices *matrices, int32_t count, ups_dtype compute) {
    ups_device *cpu = of(device)->cpu;
    return cpu->class->matrices_workspace(cpu, matrices, count, compute);
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static int threads(const ups_device *device) {
    return ups_device_threads(((const async_device *)(const void *)device)->cpu);
}

static void destroy(ups_device *device) {
    async_device *d = of(device);
    pthread_mutex_lock(&d->lock);
    d->closing = true;
    pthread_cond_signal(&d->issued);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->issued);
    pthread_cond_destroy(&d->done);
    ups_device_close(d->cpu);
    free(d);
}

static const ups_device_class async_class = {
    .name = "test-async",
    .input_sets = 2,
    .threads = threads,
    .destroy = destroy,
    .allocate = allocate,
    .release = release,
    .allocate_host = allocate_host,
    .release_host = release_host,
    .upload = upload,
    .upload_ahead = upload_ahead,
    .gather_ahead = gather_ahead,
    .download = download,
    .download_later = download_later,
    .copy = copy,
    .zero = zero,
    .synchronize = synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .stream_wait = stream_wait,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .capture_launch = capture_launch,
    .capture_release = capture_release,
    .kernel = choose_kernel,
    .convert = convert,
    .add_losses = add_losses,
    .seed_backward = seed_backward,
    .norm = norm,
    .decide = decide,
    .optimize = optimize,
    .matrices_workspace = matrices_workspace,
};

static int64_t setting(const char *name, int64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 10) : otherwise;
}

static ups_status open_async(const ups_device_options *options, ups_device **device, ups_error *error) {
    async_device *d = calloc(1, sizeof *d);
    if (!d) return ups_fail(error, UPS_ERR_MEMORY, "no memory for a device");
    d->class = async_class;
    d->class.input_sets = (int)setting("UPS_TEST_INPUT_SETS", 2);
    if (!setting("UPS_TEST_CAPTURE", 1)) d->class.capture_begin = NULL;
    d->device.class = &d->class;
    d->running = -1;
    d->delay = setting("UPS_TEST_DELAY", 100);
    d->random = (uint64_t)setting("UPS_TEST_SEED", 1) * 0x9e3779b97f4a7c15u + 1;
    for (int s = 0; s < UPS_STREAM_COUNT; s++) d->streams[s].end = &d->streams[s].first;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->issued, NULL);
    pthread_cond_init(&d->done, NULL);
    ups_status status = ups_cpu_device_open(options->threads, &d->cpu, error);
    if (status == UPS_OK && pthread_create(&d->thread, NULL, work, d) != 0) {
        status = ups_fail(error, UPS_ERR_MEMORY, "no thread for a device");
        ups_device_close(d->cpu);
    }
    if (status != UPS_OK) {
        free(d);
        return status;
    }
    *device = &d->device;
    return UPS_OK;
}

const ups_device_entry ups_async_device = {"test-async", false, open_async};
static const ups_device_entry automatic = {"test-async", true, open_async};

/* Any other device that the environment names, as on a card (tools/gpu-check). */
static ups_status open_wanted(const ups_device_options *options, ups_device **device, ups_error *error) {
    ups_device_options wanted = *options;
    wanted.name = getenv("UPS_TEST_DEVICE");
    return ups_device_open(&wanted, device, error);
}
static const ups_device_entry automatic_wanted = {"", true, open_wanted};

__attribute__((constructor)) static void register_device(void) {
    const char *wanted = getenv("UPS_TEST_DEVICE");
    if (!wanted || !*wanted)
        ups_device_register(&ups_async_device);
    else
        ups_device_register(strcmp(wanted, ups_async_device.name) == 0 ? &automatic : &automatic_wanted);
}

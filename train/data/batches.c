#include "train/data/batches.h"

#include "base/log.h"
#include <stdio.h>
#include <string.h>

#define VALIDATION_SEED 0x76616c6964617465u /* "validate": its windows have nothing to do with the run's seed */

/* What the data section says of any loader; one process, one step of time between frames, float32 unless told
 * otherwise. */
static ups_loader_options data_options(const ups_run_config *config) {
    return (ups_loader_options){
        .stride = 1,
        .dtype = UPS_F32,
        .ranks = 1,
        .io = config->data.io,
        .decode_threads = config->data.decode_threads,
        .slots = config->data.slots,
        .queue_depth = config->data.queue_depth,
        .direct = config->data.direct,
        .on_bad_sample = config->data.on_bad_sample,
    };
}

ups_loader_options ups_training_loader_options(const ups_run_config *config, const ups_training_config *training,
                                               int64_t batch_size, ups_dtype dtype, int64_t first_step) {
    ups_loader_options options = data_options(config);
    options.seed = config->seed;
    options.strategy = config->data.strategy;
    options.temperature = config->data.temperature;
    options.batch = batch_size;
    options.dtype = dtype;
    options.windows_per_draw = training->pairs_per_trajectory;
    options.window = 1;
    options.first_batch = first_step * training->accumulation;
    options.batch_count = training->steps * training->accumulation;
    return options;
}

ups_loader_options ups_validation_loader_options(const ups_run_config *config, const ups_training_config *training,
                                                 int64_t batch_size, ups_dtype dtype, int tasks) {
    ups_loader_options options = ups_training_loader_options(config, training, batch_size, dtype, 0);
    options.seed = VALIDATION_SEED;
    options.strategy = UPS_SAMPLER_BALANCED;
    options.batch_count = training->validation_batches * tasks;
    options.one_task_per_batch = true;
    return options;
}

ups_loader_options ups_sequential_loader_options(const ups_run_config *config) {
    ups_loader_options options = data_options(config);
    options.batch = 1;
    options.windows_per_draw = 1;
    options.sequential = true;
    options.batch_count = -1;
    return options;
}

int64_t ups_loader_report_bad(const ups_loader *loader, int64_t reported) {
    const char *const *lines;
    int64_t count = ups_loader_bad_samples(loader, &lines);
    for (int64_t i = reported; i < count; i++) ups_log(UPS_LOG_WARNING, "skipped: %s", lines[i]);
    return count;
}

void ups_windows_describe(const ups_window *windows, int64_t count, const ups_loader_task *tasks, char *text,
                          size_t bytes) {
    size_t used = 0;
    if (bytes) text[0] = '\0';
    for (int64_t w = 0; w < count && used + 1 < bytes; w++) {
        const ups_window *window = &windows[w];
        ups_sample sample;
        ups_error error;
        if (ups_source_describe(tasks[window->task].source, window->sample, &sample, &error) != UPS_OK) continue;
        int wrote = snprintf(text + used, bytes - used, "%s%s: %s frame %lld", used ? ", " : "",
                             tasks[window->task].name, sample.name, (long long)window->start);
        if (wrote < 0) return;
        used += (size_t)wrote;
    }
    if (used >= bytes && bytes > 4) memcpy(text + bytes - 4, "…", 4); /* three bytes and a NUL */
}

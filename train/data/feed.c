#include "train/data/feed.h"

#include "base/sizes.h"
#include <stdlib.h>
#include <string.h>

/* The trajectories of a store that lie on the device. */
typedef struct entry {
    const ups_store *store;
    const ups_source *source;
    unsigned char **place; /* (samples of the source); NULL: it is not there */
} entry;

struct ups_feed {
    ups_device *device;
    size_t element; /* bytes */
    bool draws;
    unsigned char *kept; /* on the device: trajectories, side by side; NULL: none stays there, */
    unsigned char *sent; /* and frames of a batch that came from the host */
    uint64_t room, used;
    ups_feed_facts facts;
    entry *entries;
    int entry_count;
    void *assembled;   /* in the device's host memory: frames of a batch, */
    const void **rows; /* or the addresses of rows on the device */
    void *list;        /* these addresses on the device */
    int64_t most_rows, most_elements;
    const ups_batch *batch; /* in hand */
    const ups_loader_task *tasks;
};

bool ups_feed_can_keep_on(const ups_device *device) {
    return device->class->gather_ahead && device->class->input_sets > 1;
}

static ups_status out_of_memory(ups_error *error) {
    return ups_fail(error, UPS_ERR_MEMORY, "no memory for the tables of what stays on the device");
}

static ups_status list_entries(ups_feed *f, const ups_feed_options *options, uint64_t *wanted, ups_error *error) {
    int count = 0;
    for (int l = 0; l < options->list_count; l++) count += options->lists[l].count;
    f->entries = calloc((size_t)count + 1, sizeof *f->entries);
    if (!f->entries) return out_of_memory(error);
    for (int l = 0; l < options->list_count; l++) {
        for (int i = 0; i < options->lists[l].count; i++) {
            const ups_loader_task *task = &options->lists[l].entries[i];
            ups_residency_need need = {0};
            if (!task->store) continue;
            entry *made = &f->entries[f->entry_count++];
            *made = (entry){task->store, task->source, calloc((size_t)task->source->count + 1, sizeof *made->place)};
            if (!made->place) return out_of_memory(error);
            UPS_TRY(
                ups_residency_measure(task->source, task->samples, task->sample_count, options->dtype, &need, error));
            *wanted = ups_size_sum(*wanted, need.decoded);
        }
    }
    return UPS_OK;
}

static ups_status open_on_device(ups_feed *f, const ups_feed_options *options, ups_error *error) {
    const ups_device_class *class = f->device->class;
    const size_t bytes = (size_t)options->rows * sizeof *f->rows, frames = (size_t)options->elements * f->element;
    uint64_t wanted = 0;
    UPS_TRY(list_entries(f, options, &wanted, error));
    f->room = wanted < options->device_bytes ? wanted : options->device_bytes;
    if (f->room > 0 && class->allocate(f->device, f->room, (void **)&f->kept, error) != UPS_OK)
        return ups_fail_within(error, "samples that stay on the device");
    UPS_TRY(class->allocate(f->device, frames, (void **)&f->sent, error));
    UPS_TRY(class->allocate_host(f->device, bytes, (void **)&f->rows, error));
    return class->allocate(f->device, bytes, &f->list, error);
}

ups_status ups_feed_open(const ups_feed_options *options, ups_feed **feed, ups_error *error) {
    ups_feed *f = calloc(1, sizeof *f);
    *feed = NULL;
    if (!f) return out_of_memory(error);
    *f = (ups_feed){.device = options->device,
                    .element = ups_dtype_size(options->dtype),
                    .draws = options->draws,
                    .most_rows = options->rows,
                    .most_elements = options->elements};
    const size_t bytes = (size_t)options->elements * f->element;
    ups_status status = options->device->class->allocate_host(f->device, bytes, &f->assembled, error);
    if (status == UPS_OK && options->draws) status = open_on_device(f, options, error);
    if (status == UPS_OK)
        *feed = f;
    else
        ups_feed_close(f);
    return status;
}

void ups_feed_close(ups_feed *f) {
    if (!f) return;
    const ups_device_class *class = f->device->class;
    if (f->kept) class->release(f->device, f->kept);
    if (f->sent) class->release(f->device, f->sent);
    if (f->list) class->release(f->device, f->list);
    if (f->rows) class->release_host(f->device, f->rows);
    if (f->assembled) class->release_host(f->device, f->assembled);
    for (int i = 0; i < f->entry_count; i++) free(f->entries[i].place);
    free(f->entries);
    free(f);
}

ups_feed_facts ups_feed_look(const ups_feed *f) {
    ups_feed_facts facts = f->facts;
    facts.bytes = f->used;
    facts.room = f->room;
    return facts;
}

void ups_feed_take(ups_feed *f, const ups_batch *batch, const ups_loader_task *entries) {
    f->batch = batch;
    f->tasks = entries;
}

/* ---- on the device ------------------------------------------------------------------------------------------------
 */

static entry *find_entry(ups_feed *f, const ups_store *store) {
    for (int i = 0; i < f->entry_count && store; i++) {
        if (f->entries[i].store == store) return &f->entries[i];
    }
    return NULL;
}

/* Where the sample lies on the device, once it is brought there; NULL where it does not stay. */
static ups_status find_place(ups_feed *f, const ups_window *window, unsigned char **place, ups_error *error) {
    entry *of = find_entry(f, f->tasks[window->task].store);
    const bool known = of && window->sample != UPS_NO_SAMPLE;
    *place = known ? of->place[window->sample] : NULL;
    if (*place || !known || f->used == f->room) return UPS_OK;
    const uint8_t *host = ups_store_find(of->store, window->sample);
    if (!host) return UPS_OK; /* the store has no room for it, or it is being read */
    ups_sample sample;
    UPS_TRY(ups_source_describe(of->source, window->sample, &sample, error));
    const uint64_t bytes = (uint64_t)(sample.times * ups_sample_frame_elements(&sample)) * f->element;
    const uint64_t taken = (bytes + UPS_STORE_ALIGNMENT - 1) / UPS_STORE_ALIGNMENT * UPS_STORE_ALIGNMENT;
    if (taken > f->room - f->used) return UPS_OK;
    UPS_TRY(f->device->class->upload_ahead(f->device, f->kept + f->used, host, bytes, error));
    *place = of->place[window->sample] = f->kept + f->used;
    f->used += taken;
    f->facts.trajectories++;
    return UPS_OK;
}

/* ---- a window's frames --------------------------------------------------------------------------------------------
 */

/* What of a batch is wanted: of window b the frames first[b] + i * spacing. */
typedef struct wanted_frames {
    const int64_t *first;
    int64_t count, spacing;
    size_t frame; /* bytes */
} wanted_frames;

static int64_t frame_of(const wanted_frames *w, int64_t window, int64_t i) {
    return (w->first ? w->first[window] : 0) + i * w->spacing;
}

/* From the loader's memory, side by side. */
static void copy_frames(const ups_feed *f, const wanted_frames *w, int64_t b, unsigned char *to) {
    const ups_window *window = &f->batch->window[b];
    const unsigned char *from = window->frames;
    const size_t step = (size_t)window->frame_step * f->element;
    for (int64_t i = 0; i < w->count; i++)
        memcpy(to + (size_t)i * w->frame, from + (size_t)frame_of(w, b, i) * step, w->frame);
}

/* Fills the list of addresses. Windows that are not on the device are sent there first, all together. */
static ups_status list_rows(ups_feed *f, const wanted_frames *w, ups_error *error) {
    const size_t each = (size_t)w->count * w->frame;
    size_t sent = 0;
    for (int64_t b = 0; b < f->batch->windows; b++) {
        const ups_window *window = &f->batch->window[b];
        const int64_t stride = f->tasks[window->task].stride > 0 ? f->tasks[window->task].stride : 1;
        unsigned char *place;
        UPS_TRY(find_place(f, window, &place, error));
        for (int64_t i = 0; i < w->count; i++) {
            const size_t at = (size_t)(window->start + frame_of(w, b, i) * stride) * w->frame;
            f->rows[b * w->count + i] = place ? place + at : f->sent + sent + (size_t)i * w->frame;
        }
        f->facts.drawn += place != NULL;
        if (place) continue;
        copy_frames(f, w, b, (unsigned char *)f->assembled + sent);
        f->facts.sent++;
        sent += each;
    }
    return sent > 0 ? f->device->class->upload_ahead(f->device, f->sent, f->assembled, sent, error) : UPS_OK;
}

ups_status ups_feed_upload(ups_feed *f, ups_step *step, ups_value input, const int64_t *first, int64_t count,
                           int64_t spacing, ups_error *error) {
    const ups_batch *batch = f->batch;
    const int64_t rows = batch->windows * count, elements = rows * batch->frame_elements;
    const wanted_frames w = {first, count, spacing, (size_t)batch->frame_elements * f->element};
    if (!f->draws) f->facts.sent += batch->windows;
    if (batch->data && !first && spacing == 1 && count == batch->frames)
        return ups_step_upload(step, input, batch->data, (size_t)elements * f->element, error);
    if (rows > f->most_rows || elements > f->most_elements)
        return ups_fail(error, UPS_ERR_ARGUMENT, "%lld frames of %lld elements: more than was said", (long long)rows,
                        (long long)batch->frame_elements);
    if (f->draws) {
        UPS_TRY(list_rows(f, &w, error));
        return ups_step_gather(step, input, f->rows, rows, w.frame, f->list, error);
    }
    for (int64_t b = 0; b < batch->windows; b++)
        copy_frames(f, &w, b, (unsigned char *)f->assembled + (size_t)b * (size_t)count * w.frame);
    return ups_step_upload(step, input, f->assembled, (size_t)elements * f->element, error);
}

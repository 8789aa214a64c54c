#include "train/data/splits.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/random.h"
#include "pipeline/layouts/layouts.h"
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *ups_split_name(ups_split split) {
    static const char *const names[] = {"train", "validation", "test"};
    return split < UPS_SPLIT_COUNT ? names[split] : "unknown";
}

void ups_sample_splits_free(ups_sample_splits *splits) {
    for (int s = 0; s < UPS_SPLIT_COUNT; s++) free(splits->samples[s]);
    *splits = (ups_sample_splits){0};
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

/* Trajectories [first, end) lie in one file. */
typedef struct file_part {
    int64_t file, first, end;
    bool test; /* one of the task's test_files */
} file_part;

/* A source about to be split. What is shared out are trajectories: segments of one are in one split, unless it is split
 * by time. */
typedef struct ground {
    const ups_data_config *data;
    const ups_task_config *task;
    const ups_source *source;
    int64_t samples;      /* those of test files, and of the others as many as max_samples allows */
    bool limited;         /* it left some out, so that the last file that is shared out may be shorter */
    int64_t *first, *end; /* (trajectories): the samples [first, end) of each */
    int64_t trajectories;
    file_part *files;
    int64_t file_count;
} ground;

int64_t ups_sample_file(const ups_source *source, int64_t sample) {
    const ups_stored_array *arrays[UPS_LAYOUT_MAX_ARRAYS];
    return ups_layout_arrays(source, sample, arrays) > 0 ? (int64_t)arrays[0]->file : 0;
}

static ups_status is_test_file(const ups_data_config *data, const ups_task_config *task, const char *path, bool *test,
                               ups_error *error) {
    *test = false;
    for (unsigned f = 0; f < task->test_file_count && !*test; f++) {
        const char *file = task->test_files[f];
        char *pattern = NULL;
        if (asprintf(&pattern, "%s%s%s", file[0] == '/' ? "" : data->root, file[0] == '/' ? "" : "/", file) < 0)
            return ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
        *test = strcmp(pattern, path) == 0 || fnmatch(pattern, path, FNM_PATHNAME) == 0;
        free(pattern);
    }
    return UPS_OK;
}

/* Of the files that are shared out the first max_samples samples, which may end within a trajectory; of test files all.
 */
static ups_status find_trajectories(ground *g, ups_error *error) {
    const int64_t most = g->task->max_samples > 0 ? g->task->max_samples : g->source->count;
    int64_t file = -1, shared = 0;
    bool test = false;
    for (int64_t i = 0; i < g->source->count; i++) {
        const int64_t its_file = ups_sample_file(g->source, i);
        if (its_file != file) UPS_TRY(is_test_file(g->data, g->task, g->source->files[its_file], &test, error));
        file = its_file;
        if (!test && shared == most) {
            g->limited = true;
            continue;
        }
        ups_sample sample;
        UPS_TRY(ups_source_describe(g->source, i, &sample, error));
        if (sample.first_frame == 0) g->first[g->trajectories++] = i;
        g->end[g->trajectories - 1] = i + 1;
        shared += !test;
        g->samples++;
    }
    return UPS_OK;
}

static int64_t file_of(const ground *g, int64_t trajectory) {
    return ups_sample_file(g->source, g->first[trajectory]);
}

static ups_status find_files(ground *g, ups_error *error) {
    for (int64_t first = 0, end; first < g->trajectories; first = end) {
        file_part *here = &g->files[g->file_count++];
        int64_t file = file_of(g, first);
        for (end = first + 1; end < g->trajectories && file_of(g, end) == file;) end++;
        *here = (file_part){file, first, end, false};
        UPS_TRY(is_test_file(g->data, g->task, g->source->files[file], &here->test, error));
    }
    return UPS_OK;
}

static void leave(ground *g) {
    free(g->first);
    free(g->end);
    free(g->files);
}

/* Looks the source over; to be left, on failure too. */
static ups_status survey(const ups_data_config *data, const ups_task_config *task, const ups_source *source, ground *g,
                         ups_error *error) {
    const size_t most = (size_t)source->count + 1;
    *g = (ground){.data = data, .task = task, .source = source};
    g->first = calloc(most, sizeof *g->first);
    g->end = calloc(most, sizeof *g->end);
    g->files = calloc(most, sizeof *g->files);
    if (!g->first || !g->end || !g->files)
        return ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory for its table of samples", task->name);
    UPS_TRY(find_trajectories(g, error));
    return find_files(g, error);
}

/* ---- shares ----------------------------------------------------------------------------------------------------- */

typedef struct ranked_sample {
    uint32_t rank; /* a random number that is the sample's own */
    int64_t index;
} ranked_sample;

static int by_rank(const void *a, const void *b) {
    const ranked_sample *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int by_index(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* Sizes of the splits: shares rounded, but none that was asked for is empty while training keeps at least one. */
static void split_sizes(const ups_split_config *split, int64_t count, int64_t sizes[UPS_SPLIT_COUNT]) {
    int64_t validation = llround(split->validation * (double)count), test = llround(split->test * (double)count);
    if (split->validation > 0 && validation == 0) validation = 1;
    if (split->test > 0 && test == 0) test = 1;
    int64_t least = split->train > 0; /* foreign files are evaluated without any */
    if (test > 0 && count - validation - test < least) {
        test = count - validation - least > 0 ? count - validation - least : 0;
    }
    if (count - validation - test < least) validation = count - test - least > 0 ? count - test - least : 0;
    if (least == 0 && split->test > 0) test = count - validation;
    if (least == 0 && split->test <= 0) validation = count;
    sizes[UPS_SPLIT_TRAIN] = count - validation - test;
    sizes[UPS_SPLIT_VALIDATION] = validation;
    sizes[UPS_SPLIT_TEST] = test;
}

static void add_sample(ups_sample_splits *splits, int split, int64_t sample) {
    splits->samples[split][splits->count[split]++] = sample;
}

/* Of `left` samples each split gets as many as it lacks of its share of all that were `seen`, these among them;
 * training takes the rest. */
static void share_out(const ups_split_config *shares, int64_t seen, int64_t left, const ups_sample_splits *splits,
                      int64_t lacking[UPS_SPLIT_COUNT]) {
    int64_t wanted[UPS_SPLIT_COUNT];
    split_sizes(shares, seen, wanted);
    for (int s = UPS_SPLIT_COUNT - 1; s > UPS_SPLIT_TRAIN; s--) {
        lacking[s] = wanted[s] - splits->count[s];
        lacking[s] = lacking[s] < 0 ? 0 : lacking[s] > left ? left : lacking[s];
        left -= lacking[s];
    }
    lacking[UPS_SPLIT_TRAIN] = left;
}

/* Shares out a file's samples, of which `seen` were in this and earlier files. Test samples that are the file's first
 * or last are taken before any is drawn. */
static void split_file(const ups_split_config *shares, uint64_t key, const file_part *file, int64_t seen,
                       ranked_sample *ranked, ups_sample_splits *splits) {
    ups_random stream = ups_random_stream(key, UPS_RANDOM_SAMPLER, (uint32_t)file->file);
    int64_t lacking[UPS_SPLIT_COUNT], next = 0;
    share_out(shares, seen, file->end - file->first, splits, lacking);
    int64_t first = file->first, end = file->end;
    if (shares->test_place == UPS_TEST_FIRST) {
        for (; lacking[UPS_SPLIT_TEST] > 0; lacking[UPS_SPLIT_TEST]--) add_sample(splits, UPS_SPLIT_TEST, first++);
    } else if (shares->test_place == UPS_TEST_LAST) {
        end -= lacking[UPS_SPLIT_TEST];
        for (int64_t i = end; i < file->end; i++) add_sample(splits, UPS_SPLIT_TEST, i);
        lacking[UPS_SPLIT_TEST] = 0;
    }
    for (int64_t i = first; i < end; i++) {
        ranked[i - first] = (ranked_sample){ups_random_u32(stream, (uint64_t)(i - file->first)), i};
    }
    qsort(ranked, (size_t)(end - first), sizeof *ranked, by_rank);
    for (int s = 0; s < UPS_SPLIT_COUNT; s++) {
        int64_t *samples = splits->samples[s] + splits->count[s];
        for (int64_t i = 0; i < lacking[s]; i++) add_sample(splits, s, ranked[next++].index);
        qsort(samples, (size_t)lacking[s], sizeof *samples, by_index);
    }
}

/* ---- by index --------------------------------------------------------------------------------------------------- */

/* The first frame of a sample, malloc'ed; NULL, with the error, where it cannot be read. */
static void *read_first_frame(const ups_source *source, int64_t sample, size_t *bytes, ups_error *error) {
    ups_sample about;
    if (ups_source_describe(source, sample, &about, error) != UPS_OK) return NULL;
    *bytes = ups_sample_frame_bytes(&about);
    void *frame = malloc(*bytes);
    if (!frame) {
        ups_fail(error, UPS_ERR_MEMORY, "%s: no memory for a frame", about.name);
        return NULL;
    }
    if (ups_source_read(source, sample, (ups_frames){0, 1}, frame, error) == UPS_OK) return frame;
    free(frame);
    return NULL;
}

static ups_status same_beginning(const ups_source *source, int64_t a, int64_t b, bool *same, ups_error *error) {
    size_t bytes[2];
    void *frames[2] = {read_first_frame(source, a, &bytes[0], error), NULL};
    if (frames[0]) frames[1] = read_first_frame(source, b, &bytes[1], error);
    ups_status status = frames[0] && frames[1] ? UPS_OK : error->code;
    *same = status == UPS_OK && bytes[0] == bytes[1] && memcmp(frames[0], frames[1], bytes[0]) == 0;
    free(frames[0]);
    free(frames[1]);
    return status;
}

/* The files that are shared out; those kept for tests stand apart. */
static int64_t next_shared(const ground *g, int64_t from) {
    while (from < g->file_count && g->files[from].test) from++;
    return from;
}

static int64_t trajectories_in(const ground *g, int64_t file) {
    return g->files[file].end - g->files[file].first;
}

/* Whether every file has as many trajectories as the first; max_samples may cut the last. */
static bool equally_long(const ground *g, int64_t *odd) {
    int64_t first = next_shared(g, 0), last = first;
    for (int64_t f = first; f < g->file_count; f = next_shared(g, f + 1)) last = f;
    for (int64_t f = first; f < g->file_count; f = next_shared(g, f + 1)) {
        int64_t length = trajectories_in(g, f), expected = trajectories_in(g, first);
        bool cut = g->limited && f == last;
        *odd = f;
        if (length != expected && !(cut && length < expected)) return false;
    }
    return true;
}

/* Whether those trajectories of each file that are compared, the first, the middle and the last, begin with the same
 * field as the first file's. */
static ups_status begin_alike(const ground *g, bool *alike, ups_error *error) {
    int64_t first = next_shared(g, 0), length = trajectories_in(g, first);
    const int64_t compared[] = {0, length / 2, length - 1};
    *alike = length > 1;
    for (int64_t f = next_shared(g, first + 1); f < g->file_count && *alike; f = next_shared(g, f + 1)) {
        for (int i = 0; i < 3 && *alike; i++) {
            if (compared[i] >= trajectories_in(g, f)) continue;
            const int64_t a = g->first[g->files[first].first + compared[i]],
                          b = g->first[g->files[f].first + compared[i]];
            UPS_TRY(same_beginning(g->source, a, b, alike, error));
        }
    }
    return UPS_OK;
}

ups_status ups_files_begin_alike(const ups_source *source, bool *alike, ups_error *error) {
    ups_data_config data = {0};
    ups_task_config task = {.name = (char *)"of these files"};
    ground g;
    int64_t odd;
    *alike = false;
    ups_status status = survey(&data, &task, source, &g, error);
    if (status == UPS_OK && g.file_count > 1 && equally_long(&g, &odd)) status = begin_alike(&g, alike, error);
    leave(&g);
    return status;
}

static ups_status is_by_index(const ground *g, bool *grouped, ups_error *error) {
    int64_t first = next_shared(g, 0), odd = 0;
    *grouped = false;
    if (g->data->split.by == UPS_SPLIT_BY_SAMPLE || next_shared(g, first + 1) >= g->file_count) return UPS_OK;
    bool equal = equally_long(g, &odd);
    if (g->data->split.by == UPS_SPLIT_BY_INDEX) {
        *grouped = true;
        if (equal) return UPS_OK;
        return ups_fail(error, UPS_ERR_CONFIG,
                        "task %s: data.split.by: index keeps sample i of all files together, but %s holds %lld samples "
                        "and %s %lld; use by: sample, or tasks of their own",
                        g->task->name, g->source->files[g->files[first].file], (long long)trajectories_in(g, first),
                        g->source->files[g->files[odd].file], (long long)trajectories_in(g, odd));
    }
    if (equal) UPS_TRY(begin_alike(g, grouped, error));
    if (*grouped) {
        ups_log(UPS_LOG_INFO,
                "task %s: its files begin with the same fields; sample i of all of them is in one split (data.split.by "
                "says otherwise)",
                g->task->name);
    }
    return UPS_OK;
}

/* The splits of the first file, for all. */
static void repeat_first(const ground *g, ups_sample_splits *splits) {
    int64_t first = next_shared(g, 0), had[UPS_SPLIT_COUNT];
    for (int s = 0; s < UPS_SPLIT_COUNT; s++) had[s] = splits->count[s];
    for (int64_t f = next_shared(g, first + 1); f < g->file_count; f = next_shared(g, f + 1)) {
        const file_part *file = &g->files[f];
        for (int s = 0; s < UPS_SPLIT_COUNT; s++) {
            for (int64_t i = 0; i < had[s]; i++) {
                int64_t trajectory = file->first + splits->samples[s][i] - g->files[first].first;
                if (trajectory < file->end) add_sample(splits, s, trajectory);
            }
        }
    }
}

/* From the numbers of trajectories to those of their samples. */
static ups_status list_their_samples(const ground *g, ups_sample_splits *splits, ups_error *error) {
    for (int s = 0; s < UPS_SPLIT_COUNT; s++) {
        int64_t *trajectories = splits->samples[s], count = splits->count[s];
        splits->samples[s] = malloc(((size_t)g->samples + 1) * sizeof(int64_t));
        splits->count[s] = 0;
        for (int64_t t = 0; splits->samples[s] && t < count; t++) {
            for (int64_t i = g->first[trajectories[t]]; i < g->end[trajectories[t]]; i++) add_sample(splits, s, i);
        }
        free(trajectories);
        if (!splits->samples[s])
            return ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory for its table of samples", g->task->name);
    }
    return UPS_OK;
}

/* ---- by time ---------------------------------------------------------------------------------------------------- */

static ups_status is_by_time(const ground *g, const ups_split_config *shares, bool *by_time, ups_error *error) {
    int64_t shared = 0, wanted = (shares->train > 0) + (shares->validation > 0) + (shares->test > 0);
    for (int64_t f = next_shared(g, 0); f < g->file_count; f = next_shared(g, f + 1)) shared += trajectories_in(g, f);
    *by_time = shares->by == UPS_SPLIT_BY_TIME;
    if (*by_time && g->task->segment == 0)
        return ups_fail(error, UPS_ERR_CONFIG,
                        "task %s: data.split.by: time shares out segments of trajectories; its key `segment` cuts them",
                        g->task->name);
    if (shares->by == UPS_SPLIT_BY_AUTO) *by_time = g->trajectories < g->samples && shared < wanted;
    if (*by_time) {
        ups_log(UPS_LOG_INFO,
                "task %s: trajectories are split by time: the model is trained on the %s segments of each",
                g->task->name, shares->test_place == UPS_TEST_FIRST ? "last" : "first");
    }
    return UPS_OK;
}

/* Training has the first segments of each trajectory, validation those behind them, tests the last; the other way
 * round where tests are to have the first. Where trajectories have few segments, not all give some to each. */
static void split_by_time(const ground *g, const ups_split_config *shares, ups_sample_splits *splits) {
    int64_t seen = 0;
    for (int64_t f = next_shared(g, 0); f < g->file_count; f = next_shared(g, f + 1)) {
        for (int64_t t = g->files[f].first; t < g->files[f].end; t++) {
            int64_t sizes[UPS_SPLIT_COUNT], sample = g->first[t], segments = g->end[t] - sample;
            seen += segments;
            share_out(shares, seen, segments, splits, sizes);
            for (int i = 0; i < UPS_SPLIT_COUNT; i++) {
                const int s = shares->test_place == UPS_TEST_FIRST ? UPS_SPLIT_COUNT - 1 - i : i;
                for (int64_t k = 0; k < sizes[s]; k++) add_sample(splits, s, sample++);
            }
        }
    }
}

/* ---- splitting -------------------------------------------------------------------------------------------------- */

static ups_status split_trajectories(const ground *g, const ups_split_config *shares, ups_sample_splits *splits,
                                     ups_error *error) {
    bool grouped;
    UPS_TRY(is_by_index(g, &grouped, error));
    ranked_sample *ranked = malloc((size_t)g->trajectories * sizeof *ranked);
    if (!ranked) return ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory for its table of samples", g->task->name);
    uint64_t key = ups_hash_bytes(g->task->name, strlen(g->task->name)).low;
    int64_t seen = 0, first = next_shared(g, 0);
    for (int64_t f = first; f < g->file_count; f = next_shared(g, f + 1)) {
        if (grouped && f > first) break;
        seen += trajectories_in(g, f);
        split_file(shares, key, &g->files[f], seen, ranked, splits);
    }
    free(ranked);
    if (grouped) repeat_first(g, splits);
    return list_their_samples(g, splits, error);
}

static ups_status split(const ground *g, ups_sample_splits *splits, ups_error *error) {
    ups_split_config shares = g->data->split;
    if (g->task->test_file_count) { /* what is not in them is trained on and validated with */
        double rest = shares.train + shares.validation;
        shares.test = 0;
        shares.train = rest > 0 ? shares.train / rest : 0;
        shares.validation = rest > 0 ? shares.validation / rest : 0;
    }
    bool by_time;
    UPS_TRY(is_by_time(g, &shares, &by_time, error));
    if (by_time)
        split_by_time(g, &shares, splits);
    else
        UPS_TRY(split_trajectories(g, &shares, splits, error));
    for (int64_t f = 0; f < g->file_count; f++) {
        const file_part *file = &g->files[f];
        for (int64_t i = g->first[file->first]; file->test && i < g->end[file->end - 1]; i++)
            add_sample(splits, UPS_SPLIT_TEST, i);
    }
    for (int s = 0; s < UPS_SPLIT_COUNT; s++)
        qsort(splits->samples[s], (size_t)splits->count[s], sizeof *splits->samples[s], by_index);
    return UPS_OK;
}

ups_status ups_split_samples(const ups_data_config *data, const ups_task_config *task, const ups_source *source,
                             ups_sample_splits *splits, ups_error *error) {
    ground g;
    *splits = (ups_sample_splits){0};
    ups_status status = survey(data, task, source, &g, error);
    for (int s = 0; s < UPS_SPLIT_COUNT && status == UPS_OK; s++) {
        splits->samples[s] = malloc(((size_t)g.samples + 1) * sizeof(int64_t));
        if (!splits->samples[s])
            status = ups_fail(error, UPS_ERR_MEMORY, "task %s: no memory for its table of samples", task->name);
    }
    if (status == UPS_OK) status = split(&g, splits, error);
    leave(&g);
    return status;
}

/* ---- what splits share ------------------------------------------------------------------------------------------ */

enum { MAX_COMPARED = 4096, MIN_COMPARED = 32 };
static const uint64_t max_read = 512u << 20; /* bytes, of each split */

typedef struct beginning {
    ups_hash hash;
    int64_t sample;
} beginning;

static int by_hash(const void *a, const void *b) {
    const beginning *x = a, *y = b;
    if (x->hash.high != y->hash.high) return x->hash.high < y->hash.high ? -1 : 1;
    return x->hash.low < y->hash.low ? -1 : x->hash.low > y->hash.low;
}

/* Of an even selection of the samples, sorted. What cannot be read is left out: whoever reads it tells. */
static beginning *hash_beginnings(const ups_source *source, const int64_t *samples, int64_t *count) {
    uint64_t each = ups_source_window_limits(source, 1).stored_bytes;
    uint64_t affordable = each > 0 ? max_read / each : MAX_COMPARED;
    int64_t wanted = *count, made = 0;
    if (wanted > MAX_COMPARED) wanted = MAX_COMPARED;
    if (affordable < (uint64_t)wanted) wanted = affordable > MIN_COMPARED ? (int64_t)affordable : MIN_COMPARED;
    if (wanted > *count) wanted = *count;
    beginning *list = malloc((size_t)(wanted + 1) * sizeof *list);
    for (int64_t i = 0; list && i < wanted; i++) {
        ups_error error;
        size_t bytes;
        int64_t sample = samples[i * *count / wanted];
        void *frame = read_first_frame(source, sample, &bytes, &error);
        if (frame) list[made++] = (beginning){ups_hash_bytes(frame, bytes), sample};
        free(frame);
    }
    *count = made;
    if (list) qsort(list, (size_t)made, sizeof *list, by_hash);
    return list;
}

ups_status ups_splits_compare(const ups_data_config *data, const ups_task_config *task, const ups_source *source,
                              const ups_sample_splits *splits, ups_error *error) {
    int64_t trained_count = splits->count[UPS_SPLIT_TRAIN], count = splits->count[UPS_SPLIT_TEST], shared = 0;
    if (count == 0 && splits->count[UPS_SPLIT_VALIDATION] == 0 && data->split.validation + data->split.test > 0) {
        ups_log(UPS_LOG_WARNING,
                "task %s: it has %lld sample%s, and none is held out: nothing will tell how it does on what it was not "
                "trained on. More trajectories would, files of their own for tests (tasks[].test_files), or shorter "
                "segments of a long trajectory (tasks[].segment)",
                task->name, (long long)trained_count, trained_count == 1 ? "" : "s");
    }
    if (trained_count == 0 || count == 0) return UPS_OK;
    beginning *trained = hash_beginnings(source, splits->samples[UPS_SPLIT_TRAIN], &trained_count);
    beginning *tested = hash_beginnings(source, splits->samples[UPS_SPLIT_TEST], &count);
    ups_sample pair[2] = {{0}, {0}}; /* the first that share */
    ups_status status =
        trained && tested ? UPS_OK : ups_fail(error, UPS_ERR_MEMORY, "task %s: out of memory", task->name);
    /* Where all begin alike, at rest for example, the initial condition is not what tells samples apart. */
    bool differ = status == UPS_OK && trained_count > 0 && by_hash(&trained[0], &trained[trained_count - 1]) != 0;
    for (int64_t i = 0; differ && i < count && status == UPS_OK; i++) {
        const beginning *found = bsearch(&tested[i], trained, (size_t)trained_count, sizeof *trained, by_hash);
        if (!found) continue;
        if (shared++ > 0) continue;
        status = ups_source_describe(source, tested[i].sample, &pair[0], error);
        if (status == UPS_OK) status = ups_source_describe(source, found->sample, &pair[1], error);
    }
    if (status == UPS_OK && shared > 0) {
        ups_log(
            UPS_LOG_WARNING,
            "task %s: %lld of %lld test samples begin with the same field as a sample that is trained on (%s as %s "
            "does): errors on them say little of new initial conditions; data.split.by: index keeps sample i of all "
            "files in one split, test_files keeps whole files apart",
            task->name, (long long)shared, (long long)count, pair[0].name, pair[1].name);
    }
    free(trained);
    free(tested);
    return status;
}

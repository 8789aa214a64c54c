/* Reads a data set with libups: what is in it, one trajectory, and two epochs of shuffled pairs.
 *
 *     cc example.c $(pkg-config --cflags --libs ups) -o example
 *     ./example cache/advection1d/train
 *     ./example 1D_Advection_Sols_beta0.1.hdf5
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <ups.h>

static int fail(const ups_data_error *error) {
    fprintf(stderr, "%s (%s)\n", error->message, ups_data_status_name(error->status));
    return 1;
}

/* Prints what the data set is, and the first sample's axes. */
static ups_data_status describe(const ups_data *data, ups_data_sample *sample, ups_data_error *error) {
    ups_data_info info = UPS_DATA_INFO;
    ups_data_status status = ups_data_describe(data, &info, error);
    if (status == UPS_DATA_OK) status = ups_data_describe_sample(data, 0, sample, error);
    if (status != UPS_DATA_OK) return status;
    printf("kind %s\nsamples %" PRId64 "\nshape", info.kind, info.count);
    for (int a = 0; a < sample->rank; a++) printf(" %s=%" PRId64, sample->axes[a], sample->shape[a]);
    printf("\n");
    for (int p = 0; p < info.parameter_count; p++)
        printf("parameter %s %.17g\n", info.parameter_names[p], sample->parameters[p]);
    return UPS_DATA_OK;
}

static int64_t frame_elements(const ups_data_sample *sample) {
    int64_t elements = 1;
    for (int a = 1; a < sample->rank; a++) elements *= sample->shape[a];
    return elements;
}

/* Reads every trajectory, one after the other, and prints the sum of its values. */
static ups_data_status read_all(const ups_data *data, ups_data_error *error) {
    for (int64_t i = 0; i < ups_data_count(data); i++) {
        ups_data_sample sample = UPS_DATA_SAMPLE;
        ups_data_status status = ups_data_describe_sample(data, i, &sample, error);
        if (status != UPS_DATA_OK) return status;
        int64_t count = sample.shape[0] * frame_elements(&sample);
        float *values = malloc((size_t)count * sizeof *values);
        status =
            ups_data_read(data, i, 0, sample.shape[0], UPS_DATA_F32, values, (size_t)count * sizeof *values, error);
        double sum = 0;
        for (int64_t e = 0; status == UPS_DATA_OK && e < count; e++) sum += values[e];
        free(values);
        if (status != UPS_DATA_OK) return status;
        printf("sum %" PRId64 " %.9g\n", i, sum);
    }
    return UPS_DATA_OK;
}

/* Two epochs of shuffled pairs, as a training loop would take them: values[w] is (2, frame). */
static ups_data_status load_pairs(const ups_data *data, ups_data_error *error) {
    ups_data_task task = {data, NULL, NULL, 0, 0.0, {NULL, NULL, NULL, NULL}};
    ups_data_loader_options options = UPS_DATA_LOADER_OPTIONS;
    options.seed = 42;
    options.batch_size = 4;
    options.frames = 2;
    ups_data_loader *loader;
    ups_data_status status = ups_data_loader_open(&task, 1, &options, &loader, error);
    if (status != UPS_DATA_OK) return status;
    for (int64_t left = 2 * ups_data_loader_epoch_batches(loader); left > 0; left--) {
        const ups_data_batch *batch;
        status = ups_data_loader_next(loader, &batch, error);
        if (status != UPS_DATA_OK) break;
        const float *values = (const float *)batch->values;
        for (int64_t w = 0; w < batch->windows; w++)
            printf("pair %" PRId64 " %" PRId64 " %" PRId64 " %.9g %.9g\n", batch->index, batch->sample[w],
                   batch->start[w], values[(2 * w) * batch->frame_elements],
                   values[(2 * w + 1) * batch->frame_elements]);
        ups_data_loader_release(loader, batch);
    }
    ups_data_loader_close(loader);
    return status;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s CACHE|FILE\n", argv[0]);
        return 2;
    }
    ups_data *data;
    ups_data_error error;
    ups_data_sample first = UPS_DATA_SAMPLE;
    if (ups_data_open(argv[1], &data, &error) != UPS_DATA_OK) return fail(&error);
    ups_data_status status = describe(data, &first, &error);
    if (status == UPS_DATA_OK) status = read_all(data, &error);
    if (status == UPS_DATA_OK) status = load_pairs(data, &error);
    ups_data_close(data);
    return status == UPS_DATA_OK ? 0 : fail(&error);
}

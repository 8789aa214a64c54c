/* Predicts a trajectory of a data file from its first frame with a trained model, and prints how far off each frame is.
 *
 *     cc predict.c $(pkg-config --cflags --libs ups) -lm -o predict
 *     ./predict many.safetensors advection 1D_Advection_Sols_beta0.4.hdf5 0
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ups.h>

static int fail(const ups_data_error *error) {
    fprintf(stderr, "%s (%s)\n", error->message, ups_data_status_name(error->status));
    return 1;
}

static int32_t find_task(const ups_model *model, const char *name, ups_model_task *task, ups_data_error *error) {
    for (int32_t t = 0; t < ups_model_task_count(model); t++) {
        if (ups_model_describe(model, t, task, error) == UPS_DATA_OK && strcmp(task->name, name) == 0) return t;
    }
    return -1;
}

/* Its values, (time, points, channels): files have channels last, or behind time. */
static float *read_trajectory(const ups_data *data, int64_t index, ups_data_sample *sample, int64_t *points,
                              int64_t *channels, ups_data_error *error) {
    if (ups_data_describe_sample(data, index, sample, error) != UPS_DATA_OK) return NULL;
    int64_t count = 1;
    for (int32_t a = 0; a < sample->rank; a++) count *= sample->shape[a];
    *channels = sample->shape[sample->channel_axis];
    *points = count / sample->shape[0] / *channels;
    float *values = (float *)malloc(2 * (size_t)count * sizeof *values);
    if (!values) return NULL;
    float *stored = values + count;
    if (ups_data_read(data, index, 0, sample->shape[0], UPS_DATA_F32, stored, (size_t)count * sizeof *values, error) !=
        UPS_DATA_OK) {
        free(values);
        return NULL;
    }
    const int first = sample->channel_axis == 1;
    for (int64_t f = 0; f < sample->shape[0]; f++) {
        for (int64_t e = 0; e < *points * *channels; e++) {
            const int64_t p = e / *channels, c = e % *channels, frame = f * *points * *channels;
            values[frame + e] = stored[frame + (first ? c * *points + p : e)];
        }
    }
    return values;
}

/* A data set's parameters in the model's order, by name; NaN where it has none of a name. */
static void take_parameters(const ups_data *data, const ups_data_sample *sample, const ups_model_task *task,
                            double *values) {
    ups_data_info info = UPS_DATA_INFO;
    if (ups_data_describe(data, &info, NULL) != UPS_DATA_OK) info.parameter_count = 0;
    for (int32_t p = 0; p < task->parameter_count; p++) {
        values[p] = NAN;
        for (int32_t q = 0; q < info.parameter_count; q++)
            if (strcmp(task->parameter_names[p], info.parameter_names[q]) == 0) values[p] = sample->parameters[q];
    }
}

/* Seconds of each step, as the data have them, for a model whose steps do not all take as long. */
static const double *take_step_times(const ups_data_sample *sample, double *seconds) {
    const double *time = sample->coordinates[0];
    for (int64_t f = 1; f < sample->shape[0]; f++) seconds[f - 1] = time[f] - time[f - 1];
    return seconds;
}

static void print_errors(const float *predicted, const float *truth, int64_t frames, int64_t elements) {
    for (int64_t f = 1; f < frames; f++) {
        double error = 0, size = 0;
        for (int64_t e = f * elements; e < (f + 1) * elements; e++) {
            error += pow(predicted[e] - truth[e], 2);
            size += pow(truth[e], 2);
        }
        printf("frame %" PRId64 " nRMSE %.6g\n", f, sqrt(error / size));
    }
}

static int predict(ups_model *model, int32_t index, const ups_model_task *task, const ups_data *data, int64_t sample) {
    ups_data_error error = {UPS_DATA_ERR_MEMORY, "out of memory"};
    ups_data_sample told = UPS_DATA_SAMPLE;
    int64_t points, channels;
    float *truth = read_trajectory(data, sample, &told, &points, &channels, &error);
    if (!truth) return fail(&error);
    const int64_t frames = told.shape[0];
    const size_t bytes = (size_t)(points * channels) * sizeof(float);
    float *predicted = (float *)malloc((size_t)frames * bytes);
    double *parameters = (double *)malloc(((size_t)task->parameter_count + 1) * sizeof *parameters);
    double *seconds = (double *)malloc((size_t)frames * sizeof *seconds);
    int failed = 1;
    if (predicted && parameters && seconds) {
        take_parameters(data, &told, task, parameters);
        ups_model_request request = UPS_MODEL_REQUEST;
        request.steps = frames - 1;
        request.frames = truth; /* of which the first one is taken */
        request.frame_bytes = bytes;
        request.parameters = parameters;
        if (isnan(task->dt)) request.step_times = take_step_times(&told, seconds);
        request.fields = predicted;
        request.field_bytes = (size_t)frames * bytes;
        failed = ups_model_predict(model, index, &request, &error) != UPS_DATA_OK;
    }
    if (!failed) print_errors(predicted, truth, frames, points * channels);
    free(truth);
    free(predicted);
    free(parameters);
    free(seconds);
    return failed ? fail(&error) : 0;
}

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5) {
        fprintf(stderr, "usage: %s MODEL TASK FILE [SAMPLE]\n", argv[0]);
        return 2;
    }
    ups_data *data = NULL;
    ups_model *model = NULL;
    ups_model_task task = UPS_MODEL_TASK;
    ups_data_error error = {UPS_DATA_ERR_ARGUMENT, "the model has no such task"};
    int failed = 1;
    if (ups_model_open(argv[1], NULL, &model, &error) == UPS_DATA_OK) {
        const int32_t index = find_task(model, argv[2], &task, &error);
        if (index < 0 || ups_data_open(argv[3], &data, &error) != UPS_DATA_OK)
            fail(&error);
        else
            failed = predict(model, index, &task, data, argc == 5 ? strtoll(argv[4], NULL, 10) : 0);
    } else {
        fail(&error);
    }
    ups_data_close(data);
    ups_model_close(model);
    return failed;
}

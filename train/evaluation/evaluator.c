#include "train/evaluation/evaluator.h"

#include <stdlib.h>

/* Mean over the solution fields of what was read over `frames` frames; a field whose targets are all zero has no nRMSE
 * and is left out of its mean. */
static ups_pde_metrics_values summarise(const bool *solution, int64_t channels, int64_t frames,
                                        const ups_pde_metrics_values *fields) {
    ups_pde_metrics_values mean = {0};
    int64_t count = 0, with_nrmse = 0;
    for (int64_t c = 0; c < channels; c++) {
        if (!solution[c]) continue;
        const ups_pde_metrics_values *v = &fields[c];
        bool zero = v->zero_targets == v->trajectories * frames;
        count++;
        with_nrmse += !zero;
        mean.rmse += v->rmse;
        mean.vrmse += v->vrmse;
        mean.nrmse += zero ? 0 : v->nrmse;
        mean.crmse += v->crmse;
        mean.max_error += v->max_error;
        mean.brmse += v->brmse;
        for (int b = 0; b < UPS_FREQUENCY_BANDS; b++) mean.frmse[b] += v->frmse[b];
        mean.zero_targets += v->zero_targets;
        mean.trajectories = v->trajectories;
    }
    double n = (double)count;
    mean.rmse /= n;
    mean.vrmse /= n;
    mean.nrmse /= (double)with_nrmse;
    mean.crmse /= n;
    mean.max_error /= n;
    mean.brmse /= n;
    for (int b = 0; b < UPS_FREQUENCY_BANDS; b++) mean.frmse[b] /= n;
    return mean;
}

static ups_status read_horizon(const ups_evaluator *e, const ups_scored_horizon *h, const bool *solution,
                               ups_horizon_evaluation *out, ups_error *error) {
    *out = (ups_horizon_evaluation){.steps = h->steps, .frames = h->frames};
    for (int f = 0; f < ups_evaluator_forecasts(e); f++) {
        const ups_pde_metrics *metrics = h->metrics[f];
        out->windows = ups_pde_metrics_read(metrics, 0, 0, h->frames).trajectories;
        if (out->windows == 0) return UPS_OK;
        out->fields[f] = calloc((size_t)e->channels, sizeof *out->fields[f]);
        out->nrmse_by_frame[f] = calloc((size_t)h->frames, sizeof *out->nrmse_by_frame[f]);
        ups_pde_metrics_values *each = calloc((size_t)e->channels, sizeof *each);
        if (!out->fields[f] || !out->nrmse_by_frame[f] || !each) {
            free(each);
            return ups_fail(error, UPS_ERR_MEMORY, "evaluation: out of memory");
        }
        for (int64_t c = 0; c < e->channels; c++) out->fields[f][c] = ups_pde_metrics_read(metrics, c, 0, h->frames);
        out->summary[f] = summarise(solution, e->channels, h->frames, out->fields[f]);
        for (int64_t t = 0; t < h->frames; t++) {
            for (int64_t c = 0; c < e->channels; c++) each[c] = ups_pde_metrics_read(metrics, c, t, t + 1);
            out->nrmse_by_frame[f][t] = summarise(solution, e->channels, 1, each).nrmse;
        }
        free(each);
    }
    return UPS_OK;
}

ups_status ups_evaluator_results(ups_evaluator *e, ups_task_evaluation *out, ups_error *error) {
    bool any = false;
    for (int64_t c = 0; c < e->channels; c++) any = any || e->solution[c];
    for (int64_t c = 0; c < e->channels && !any; c++) e->solution[c] = true;
    out->solution = e->solution;
    out->rollout = e->rollout;
    out->gates = e->gates;
    out->samples = e->scored;
    out->truth_hash = e->truth_hash;
    e->solution = NULL;
    e->rollout = NULL;
    e->gates = NULL;
    e->scored = NULL;
    e->truth_hash = NULL;
    out->correlation = e->config->evaluation.correlation;
    out->given = e->given;
    out->steps = e->steps;
    out->forecasts = ups_evaluator_forecasts(e);
    for (int gate = 0; gate < UPS_GATES && out->gates; gate++)
        out->gate[gate] =
            ups_gates_judge(out->gates, out->rollout, out->solution, gate, e->config->evaluation.gates[gate]);
    out->horizons = calloc((size_t)e->horizon_count, sizeof *out->horizons);
    if (!out->horizons) return ups_fail(error, UPS_ERR_MEMORY, "evaluation: out of memory");
    out->horizon_count = e->horizon_count;
    for (int i = 0; i < e->horizon_count; i++) {
        UPS_TRY(read_horizon(e, &e->horizons[i], out->solution, &out->horizons[i], error));
    }
    return UPS_OK;
}

#include "tools/bench/roofline.h"

#include "base/json.h"
#include <stdio.h>

const char *ups_products_name(const ups_graph *graph) {
    if (graph->fp8_layer_count > 0) return "fp8";
    return graph->tf32 ? "tf32" : ups_dtype_name(graph->compute);
}

/* `seconds` is one of the op's passes. */
static void count(ups_op_work *op, double *seconds, const ups_work *work, double peak, const ups_card *card) {
    const double flops = work->product_flops + work->other_flops, bytes = work->read + work->written;
    if (flops + bytes <= 0.0) return; /* a gradient that is handed on */
    op->launches += !work->with_last;
    ups_op_work_count(op, work, 1.0);
    if (!card) return;
    const double arithmetic = work->product_flops / peak + work->other_flops / card->single;
    const double traffic = bytes / card->bandwidth, apart = work->apart / card->bandwidth;
    *seconds += (arithmetic > traffic ? arithmetic : traffic) + apart;
    op->by_traffic += (traffic > arithmetic ? traffic : 0.0) + apart;
}

/* Values and two moments are read and written, gradients read twice (by the norm first), the compute copy written. */
static ups_work optimizer_work(const ups_graph *graph, int64_t moved) {
    ups_work work = {.read = 20.0 * (double)moved, .written = 12.0 * (double)moved};
    if (graph->compute != UPS_F32) work.written += 2.0 * (double)moved;
    return work;
}

ups_status ups_step_work_of(const ups_graph *graph, int64_t moved, const ups_card *card, ups_step_work *all,
                            ups_error *error) {
    ups_plan *plan;
    *all = (ups_step_work){0};
    if (card && graph->fp8_layer_count > 0 && card->fp8 <= 0)
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "%s: the card does not multiply FP8", card->sheet);
    UPS_TRY(ups_plan_create(graph, &plan, error));
    const ups_schedule *schedule = ups_plan_schedule(plan);
    for (int32_t at = 0; at < schedule->count; at++) {
        const ups_node *node = &graph->nodes[schedule->entries[at].node];
        const ups_work work = ups_work_of(graph, plan, at);
        const double peak = card ? ups_card_peak(card, graph, node, &work) : 1.0;
        ups_op_work *op = &all->of[node->kind];
        count(op, ups_op_pass(op, schedule->entries[at].action), &work, peak, card);
        all->product_flops += work.product_flops;
    }
    all->model = ups_arithmetic_of(graph, plan, card);
    ups_plan_destroy(plan);
    const ups_work optimizer = optimizer_work(graph, moved);
    ups_op_work *last = &all->of[UPS_OP_COUNT];
    count(last, &last->forward, &optimizer, 1.0, card);
    for (int kind = 0; kind <= UPS_OP_COUNT; kind++) {
        all->of[kind].kind = kind;
        all->seconds += ups_op_seconds(&all->of[kind]);
    }
    return UPS_OK;
}

/* ---- the table -------------------------------------------------------------------------------------------------- */

static const char *name_of(const ups_op_work *op) {
    return op->kind < UPS_OP_COUNT ? ups_op_name((ups_op_kind)op->kind) : "adamw";
}

static json_t *row_json(const ups_op_work *w) {
    return json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "op", name_of(w), "launches", w->launches,
                     "forward_ms", w->forward * 1e3, "backward_ms", w->backward * 1e3, "recompute_ms",
                     w->recompute * 1e3, "gflop", w->flops * 1e-9, "gb", w->bytes * 1e-9, "memory_bound_share",
                     w->by_traffic / ups_op_seconds(w));
}

static void print_row(const char *name, const ups_op_work *w, double all) {
    printf("%-16s %8d %10.3f %10.3f %10.1f %8.2f %7.0f%%  %s\n", name, w->launches, (w->forward + w->recompute) * 1e3,
           w->backward * 1e3, w->flops * 1e-9, w->bytes * 1e-9, 100.0 * ups_op_seconds(w) / all,
           w->by_traffic > 0.5 * ups_op_seconds(w) ? "memory" : "arithmetic");
}

ups_status ups_roofline(const ups_graph *graph, const ups_card *card, int64_t moved, bool as_json, json_t **facts,
                        ups_error *error) {
    const char *dtype = ups_products_name(graph);
    ups_step_work step;
    ups_op_work sum = {0};
    UPS_TRY(ups_step_work_of(graph, moved, card, &step, error));
    for (int kind = 0; kind <= UPS_OP_COUNT; kind++) ups_op_work_add(&sum, &step.of[kind]);
    ups_op_works_sort(step.of, UPS_OP_COUNT + 1);
    const double seconds = step.seconds, utilisation = step.model.at_peak / seconds;
    json_t *list = json_array();
    for (int i = 0; i <= UPS_OP_COUNT && ups_op_seconds(&step.of[i]) > 0.0; i++)
        json_array_append_new(list, row_json(&step.of[i]));
    *facts = json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:o}", "card", card->sheet, "dtype", dtype, "claim", "predicted",
                       "ms_per_step", seconds * 1e3, "mfu", utilisation, "of_time_at_40_percent_mfu", 0.4 / utilisation,
                       "ops", list);
    if (as_json) return UPS_OK;
    printf("%-16s %8s %10s %10s %10s %8s %8s  %s\n", "predicted", "launches", "forward ms", "backward", "GFLOP", "GB",
           "share", "bound by");
    for (int i = 0; i <= UPS_OP_COUNT && ups_op_seconds(&step.of[i]) > 0.0; i++)
        print_row(name_of(&step.of[i]), &step.of[i], seconds);
    print_row("all", &sum, seconds);
    printf(
        "%s, %s: %.2f ms a step at best, %.0f %% of the card's arithmetic; the products alone at 40 %% take %.2f ms\n",
        card->sheet, dtype, seconds * 1e3, 100.0 * utilisation, step.model.at_peak / 0.4 * 1e3);
    return UPS_OK;
}

#include "tools/bench/roofline.h"

#include "base/json.h"
#include <stdio.h>
#include <stdlib.h>

/* NVIDIA's data sheets: dense, without sparsity; SXM modules. */
static const ups_card cards[] = {
    {"a100", "A100 SXM 80 GB", 0, 312e12, 156e12, 19.5e12, 2.039e12},
    {"h100", "H100 SXM 80 GB", 1978.9e12, 989.4e12, 494.7e12, 66.9e12, 3.35e12},
    {"h200", "H200 SXM 141 GB", 1978.9e12, 989.4e12, 494.7e12, 66.9e12, 4.8e12},
};
const char *const ups_card_names[] = {"a100", "h100", "h200", NULL};

enum { FORWARD, BACKWARD, RECOMPUTE, PASSES };

typedef struct row {
    const char *name;
    int launches;
    double seconds[PASSES], flops, bytes, by_traffic; /* seconds of those that memory bounds */
} row;

const ups_card *ups_card_at(int index) {
    return &cards[index];
}

static double total(const row *r) {
    return r->seconds[FORWARD] + r->seconds[BACKWARD] + r->seconds[RECOMPUTE];
}

const char *ups_products_name(const ups_graph *graph) {
    if (graph->fp8_layer_count > 0) return "fp8";
    return graph->tf32 ? "tf32" : ups_dtype_name(graph->compute);
}

/* Of the node's products. */
static double peak_of(const ups_graph *graph, const ups_node *node, const ups_work *work, const ups_card *card) {
    if (work->fp8) return card->fp8;
    if (graph->compute != UPS_F32) return card->half;
    return node->attributes && node->attributes->tf32 ? card->tf32 : card->single;
}

static void count(row *r, int pass, const ups_work *work, double peak, const ups_card *card) {
    double arithmetic = work->product_flops / peak + work->other_flops / card->single;
    double traffic = (work->read + work->written) / card->bandwidth, apart = work->apart / card->bandwidth;
    if (arithmetic + traffic <= 0.0) return; /* a gradient that is handed on */
    r->launches += !work->with_last;
    r->seconds[pass] += (arithmetic > traffic ? arithmetic : traffic) + apart;
    r->flops += work->product_flops + work->other_flops;
    r->bytes += work->read + work->written + work->apart;
    r->by_traffic += (traffic > arithmetic ? traffic : 0.0) + apart;
}

/* Values and two moments are read and written, gradients read twice (by the norm first), the compute copy written. */
static ups_work optimizer_work(const ups_graph *graph, int64_t moved) {
    ups_work work = {.read = 20.0 * (double)moved, .written = 12.0 * (double)moved};
    if (graph->compute != UPS_F32) work.written += 2.0 * (double)moved;
    return work;
}

ups_status ups_step_work_of(const ups_graph *graph, int64_t moved, ups_step_work *all, ups_error *error) {
    ups_plan *plan;
    *all = (ups_step_work){0};
    UPS_TRY(ups_plan_create(graph, &plan, error));
    for (int32_t at = 0; at < ups_plan_schedule(plan)->count; at++) {
        const ups_work work = ups_work_of(graph, plan, at);
        const ups_op_kind kind = graph->nodes[ups_plan_schedule(plan)->entries[at].node].kind;
        all->of[kind].flops += work.product_flops + work.other_flops;
        all->of[kind].bytes += work.read + work.written + work.apart;
        all->product_flops += work.product_flops;
    }
    ups_plan_destroy(plan);
    const ups_work optimizer = optimizer_work(graph, moved);
    all->of[UPS_OP_COUNT].bytes = optimizer.read + optimizer.written;
    return UPS_OK;
}

static int by_time(const void *a, const void *b) {
    double x = total(a), y = total(b);
    return (x < y) - (x > y);
}

static json_t *row_json(const row *r) {
    return json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "op", r->name, "launches", r->launches, "forward_ms",
                     r->seconds[FORWARD] * 1e3, "backward_ms", r->seconds[BACKWARD] * 1e3, "recompute_ms",
                     r->seconds[RECOMPUTE] * 1e3, "gflop", r->flops * 1e-9, "gb", r->bytes * 1e-9, "memory_bound_share",
                     total(r) > 0.0 ? r->by_traffic / total(r) : 0.0);
}

static void print_row(const row *r, double all) {
    printf("%-16s %8d %10.3f %10.3f %10.1f %8.2f %7.0f%%  %s\n", r->name, r->launches,
           (r->seconds[FORWARD] + r->seconds[RECOMPUTE]) * 1e3, r->seconds[BACKWARD] * 1e3, r->flops * 1e-9,
           r->bytes * 1e-9, 100.0 * total(r) / all, r->by_traffic > 0.5 * total(r) ? "memory" : "arithmetic");
}

ups_status ups_roofline(const ups_graph *graph, const ups_card *card, int64_t moved, bool as_json, json_t **facts,
                        ups_error *error) {
    static const int pass_of[] = {[UPS_FORWARD] = FORWARD, [UPS_BACKWARD] = BACKWARD, [UPS_RECOMPUTE] = RECOMPUTE};
    const char *dtype = ups_products_name(graph);
    double products = 0.0; /* seconds at the peak */
    row rows[UPS_OP_COUNT + 1] = {0}, all = {.name = "all"};
    ups_plan *plan;
    if (graph->fp8_layer_count > 0 && card->fp8 <= 0)
        return ups_fail(error, UPS_ERR_UNSUPPORTED, "%s: the card does not multiply FP8", card->sheet);
    UPS_TRY(ups_plan_create(graph, &plan, error));
    const ups_schedule *schedule = ups_plan_schedule(plan);
    for (int32_t at = 0; at < schedule->count; at++) {
        const ups_node *node = &graph->nodes[schedule->entries[at].node];
        ups_op_kind kind = node->kind;
        ups_work work = ups_work_of(graph, plan, at);
        double peak = peak_of(graph, node, &work, card);
        rows[kind].name = ups_op_name(kind);
        count(&rows[kind], pass_of[schedule->entries[at].action], &work, peak, card);
        products += work.product_flops / peak;
    }
    ups_plan_destroy(plan);
    const ups_work optimizer = optimizer_work(graph, moved);
    rows[UPS_OP_COUNT].name = "adamw";
    count(&rows[UPS_OP_COUNT], FORWARD, &optimizer, card->single, card);
    qsort(rows, UPS_OP_COUNT + 1, sizeof *rows, by_time);

    json_t *list = json_array();
    for (int i = 0; i <= UPS_OP_COUNT && total(&rows[i]) > 0.0; i++) {
        all.launches += rows[i].launches;
        for (int p = 0; p < PASSES; p++) all.seconds[p] += rows[i].seconds[p];
        all.flops += rows[i].flops;
        all.bytes += rows[i].bytes;
        all.by_traffic += rows[i].by_traffic;
        json_array_append_new(list, row_json(&rows[i]));
    }
    double utilisation = products / total(&all);
    *facts = json_pack("{s:s, s:s, s:s, s:f, s:f, s:f, s:o}", "card", card->sheet, "dtype", dtype, "claim", "predicted",
                       "ms_per_step", total(&all) * 1e3, "mfu", utilisation, "of_time_at_40_percent_mfu",
                       0.4 / utilisation, "ops", list);
    if (as_json) return UPS_OK;
    printf("%-16s %8s %10s %10s %10s %8s %8s  %s\n", "predicted", "launches", "forward ms", "backward", "GFLOP", "GB",
           "share", "bound by");
    for (int i = 0; i <= UPS_OP_COUNT && total(&rows[i]) > 0.0; i++) print_row(&rows[i], total(&all));
    print_row(&all, total(&all));
    printf(
        "%s, %s: %.2f ms a step at best, %.0f %% of the card's arithmetic; the products alone at 40 %% take %.2f ms\n",
        card->sheet, dtype, total(&all) * 1e3, 100.0 * utilisation, products / 0.4 * 1e3);
    return UPS_OK;
}
